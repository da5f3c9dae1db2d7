"""Tiny causal models and scripted ones: what comes next depends on the prefix, and on nothing else."""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pointer.decoding.causal import GUIDANCE
from pointer.decoding.writer import Writer
from pointer.english import SENTENCE_ENDS
from pointer.language import Language
from pointer.runtime import Floats, NextToken, Prefix, log_softmax

HARBOUR = Path(__file__).parents[2] / "examples" / "harbour.txt"
WORDS = ["dog", "dogs", "park", "stand", "stands", "stood", "standing", "castle", "castles", "harbour", "river"]
WORDS += ["the", "The", "is", "was", "ran", "fast", "not", "very"]
"""Words that the tiny vocabularies have whole, with a space before them."""
CHAT = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
PLAIN = ("<|endoftext|>",)
POSITIONS = 192

HOSTILE = ("random", "insert", "never", "specials", "pieces", "ties", "infinite", "digits", "marks", "ends")


def _corpus() -> list[str]:
    lines = HARBOUR.read_text("utf-8").splitlines()
    lines += ["IN 1987, JOHN (OR MARY) PAID $45.60 + 12% - NO? YES! A/B #7 @home; 23:59 *** [x] {y} ~ ^ | \\ = < > & _"]
    lines += [f" {line}" for line in lines]
    lines += [f" {word}" for word in WORDS for _ in range(40)]
    return lines + ["dog", "Dog", "Stands", "The", " D", " '", " ("] * 30


@cache
def _byte_level(special: tuple[str, ...], size: int) -> str:
    tokenizer = Tokenizer(models.BPE())
    digits, spelling = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, spelling])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus() + ([" didn't"] * 40 if size == WHOLE else []), trainer)
    return str(tokenizer.to_str())


def byte_level(special: tuple[str, ...] = CHAT, size: int = 640) -> Tokenizer:
    """A byte-level vocabulary such as that of SmolLM2: a digit is a token, and so is the space before it."""
    return Tokenizer.from_str(_byte_level(special, size))


def metaspace(prepend: str = "always", size: int = 400) -> Tokenizer:
    """A vocabulary such as SentencePiece makes: `▁` is a space, and an unknown character is spelt in bytes."""
    special = ["<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=prepend)])
    alphabet = [chr(code) for code in range(33, 127)]
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    tokenizer.add_tokens([f"<0x{byte:02X}>" for byte in (0x0A, 0xF0, 0x9F)])
    return tokenizer


WHOLE = 3000
"""So many tokens that every word of the sample texts is one, and `'t` too."""


def chat_language(size: int = 640) -> Language:
    """Of a model that holds conversations."""
    tokenizer = byte_level(size=size)
    return Language(tokenizer, tokenizer.token_to_id("<|im_end|>"))


def plain_language(size: int = 640) -> Language:
    """Of a model that only goes on with texts."""
    tokenizer = byte_level(PLAIN, size)
    return Language(tokenizer, tokenizer.token_to_id("<|endoftext|>"))


# ---------------------------------------------------------------------------------------------------------------------
# Folders of tiny random models


def llama_folder(folder: Path, padded: int = 0, groups: int = 2) -> Path:
    """A llama of two layers and four heads with a chat vocabulary; `padded` embeddings more than it has tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = byte_level()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size() + padded,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=groups,
        max_position_embeddings=POSITIONS,
        initializer_range=0.15,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.token_to_id("<|im_start|>"),
        eos_token_id=tokenizer.token_to_id("<|im_end|>"),
    )
    return _saved(LlamaForCausalLM(config), tokenizer, folder)


def writer_folder(base: Path, folder: Path) -> Path:
    """A writer on a base, with an adapter that has learnt nothing but says something."""
    from pointer.causal import CausalInserter

    torch.manual_seed(0)
    inserter = CausalInserter.start(base, rank=4)
    with torch.no_grad():
        for name, weights in inserter.model.named_parameters():
            if "lora_B" in name:
                weights.normal_(0, 0.05)
    inserter.save_pretrained(folder)
    return folder


def gpt2_folder(folder: Path) -> Path:
    """A GPT-2 of two layers whose vocabulary knows no conversations."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = byte_level(PLAIN)
    torch.manual_seed(0)
    end = tokenizer.token_to_id("<|endoftext|>")
    config = GPT2Config(
        vocab_size=tokenizer.get_vocab_size(),
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=POSITIONS,
        initializer_range=0.15,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=end,
        eos_token_id=end,
    )
    return _saved(GPT2LMHeadModel(config), tokenizer, folder)


def _saved(model: Any, tokenizer: Tokenizer, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    assert json.loads((folder / "config.json").read_text("utf-8"))["vocab_size"] >= tokenizer.get_vocab_size()
    return folder


# ---------------------------------------------------------------------------------------------------------------------
# Scripted models

Answer = Callable[[Prefix], "np.ndarray[Any, Any]"]
"""`prefix -> logits` of what comes next."""


def scripted(answer: Answer) -> NextToken:
    """A model that answers by a script."""

    def next_token(prefixes: Sequence[Prefix]) -> Floats:
        logits = np.stack([answer(prefix) for prefix in prefixes]).astype(np.float32)
        return log_softmax(np.minimum(logits, np.float32(1e4)))

    return next_token


def writer(
    language: Language, answer: Answer, full_stop: bool = False, take_back: bool = True, **options: Any
) -> Writer:
    """A writer whose model answers by a script."""
    guidance = replace(GUIDANCE, full_stop=full_stop, take_back=take_back)
    return Writer(scripted(answer), language, name="scripted", guidance=guidance, **options)


def hostile(language: Language, mood: str, seed: int) -> Answer:
    """Logits that try to break the decoder, in one of the moods of `HOSTILE`."""
    writes, kinds = language.writes, language.kinds
    random = np.random.default_rng(seed)
    logits = random.normal(0, 3, (97, language.size))
    if mood == "ties":
        logits = np.round(logits / 6)
    if mood == "infinite":
        draws = random.random(logits.shape)
        logits = np.where(draws < 0.9, -np.inf, np.where(draws < 0.95, 1e30, logits))
        logits[:, 0] = 0.0  # one number at least, or no probabilities could be told
    favoured = {
        "insert": kinds.starts,
        "specials": np.array([not text for text in writes]),
        "pieces": kinds.continues,
        "digits": np.array([text.isdigit() or text in (" ", "'", "'s", "%") for text in writes]),
        "marks": kinds.marks,
        "ends": np.array([text[-1:] in SENTENCE_ENDS for text in writes]),
    }
    if mood in favoured:
        logits[:, favoured[mood]] += 50
    logits[:, language.end] += {"insert": -1e9, "never": 1e9, "ties": 0.0, "ends": 60.0}.get(mood, 2.0)

    def answer(prefix: Prefix) -> "np.ndarray[Any, Any]":
        return np.asarray(logits[zlib.crc32(np.array(prefix, np.int32).tobytes()) % len(logits)])

    return answer


END = ""
"""What a script calls the end of a text."""


def telling(
    language: Language, constraints: Sequence[str], script: Mapping[str, Mapping[str, float]], style: str = "everyday"
) -> Answer:
    """A model that knows what to say after some texts: there, the logits of some tokens, named by what they write.

    After any other text it wants to end. A constraint that is longer than a token is named by its first.
    """
    by_text = {text: token for token, text in enumerate(language.writes) if text} | {END: language.end}
    start = len(language.prompt(constraints, style))

    def answer(prefix: Prefix) -> "np.ndarray[Any, Any]":
        text = "".join(language.writes[token] for token in prefix[start:])
        logits = np.full(language.size, -20.0)
        for wanted, logit in script.get(text, {END: 0.0}).items():
            logits[by_text[wanted]] = logit
        return logits

    return answer


def spelling(language: Language, constraints: Sequence[str], texts: Sequence[str], style: str = "everyday") -> Answer:
    """A model that says these tokens one after the other, each named by what it writes, then ends."""
    script = {"".join(texts[:said]): {text: 0.0} for said, text in enumerate(texts)}
    return telling(language, constraints, script, style)
