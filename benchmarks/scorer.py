"""How well scorers tell what people wrote from what nobody would: n-grams of every order, and a small transformer.

    POINTER_DATA=... python benchmarks/scorer.py --gpt2 FOLDER [--minutes 20] [--texts 200]

For every scorer: the size of its file, its perplexity on human texts, and how often it gives the human text of a pair
the lower loss a token, beside (AUC) how often any human text has a lower one than any other text. The others: what
`wiki` wrote around the keywords of the same text, its words shuffled, half of its neighbours swapped, and one pair
swapped. Validation texts only. The transformer has the pieces and the training lines of the n-grams; it is trained into
FOLDER for some minutes of processor time unless it is there already, and left out if no folder is given.
"""

import argparse
import lzma
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from corpora import corpus_file
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from pointer.checkpoint import EMBEDDED
from pointer.decoding.generator import Pointer
from pointer.evaluation.ngram import COUNTS, pieces, train_on_texts
from pointer.evaluation.outputs import canonical
from pointer.evaluation.perplexity import CausalScorer, Loss, NGramScorer, Scorer, perplexity
from pointer.prepare.keywords import keywords
from pointer.progress import Progress
from pointer.vocabulary import Vocabulary

RESERVED = {"wiki/train": 50_000, "news/reuters": 50_000, "yelp/train": 12_000}
"""How many lines at the end of a corpus only scorers read."""
CORPORA = {"wiki": 4, "news": 4, "yelp": 7}
"""Where the pairs come from, and the most keywords of a text."""
NGRAMS = {
    "2-grams": (2, (0,)),
    "3-grams": (3, (0,)),
    "3-grams, singletons cut from 3": (3, (0, 0, 1)),
    "4-grams": (4, (0,)),
    "4-grams, singletons cut from 4": (4, (0, 0, 0, 1)),
    "4-grams, singletons cut from 3": (4, (0, 0, 1)),
    "4-grams, singletons cut from 2": (4, (0, 1)),
    "5-grams": (5, (0,)),
    "5-grams, singletons cut from 3": (5, (0, 0, 1)),
}
EMBEDDED_ONE = "4-grams, singletons cut from 3"
KINDS = ("generated", "shuffled", "half swapped", "one swap")

Texts = dict[str, list[str]]
Array = npt.NDArray[np.float64]


def reserved_texts() -> list[str]:
    """All lines that only scorers read, as they are scored."""
    texts = []
    for name, last in RESERVED.items():
        with lzma.open(corpus_file(name), "rt", encoding="utf-8") as file:
            texts += [canonical(line) for line in file.readlines()[-last:]]
    return texts


def swapped(words: list[str], at: Iterator[int]) -> list[str]:
    """The words with neighbours swapped: each place changes with the one to its right."""
    words = list(words)
    for i in at:
        words[i], words[i + 1] = words[i + 1], words[i]
    return words


def spoilt(text: str, random: np.random.Generator) -> dict[str, str]:
    """A human text in the wrong order: all of it, half of its pairs of neighbours, one pair."""
    words = text.split()
    pairs = [i for i in range(0, len(words) - 1, 2) if random.random() < 0.5]
    different = [i for i in range(len(words) - 1) if words[i] != words[i + 1]]
    one = [int(random.choice(different))] if different else []
    texts = [list(random.permutation(words)), swapped(words, iter(pairs)), swapped(words, iter(one))]
    return dict(zip(KINDS[1:], map(" ".join, texts), strict=True))


def pairs_of(corpus: str, most: int, pointer: Pointer) -> Texts:
    """Human texts and their counterparts of every kind."""
    with lzma.open(corpus_file(f"{corpus}/valid"), "rt", encoding="utf-8") as file:
        lines = [line.strip() for _, line in zip(range(most), file, strict=False)]
    asked = [(line, found) for line in lines if (found := keywords(line, CORPORA[corpus]))]
    written = [best.text for [best] in pointer.generate_many([words for _, words in asked])]
    texts: Texts = {"human": [canonical(line) for line, _ in asked], "generated": list(map(canonical, written))}
    random = np.random.default_rng(0)
    for text in texts["human"]:
        for kind, wrong in spoilt(text, random).items():
            texts.setdefault(kind, []).append(wrong)
    return texts


def ranking(human: Array, other: Array) -> tuple[float, float]:
    """How often the human text of a pair, and how often any human text, has the lower loss; ties count half."""

    def share(difference: Array) -> float:
        return float(np.mean((difference > 0) + 0.5 * (difference == 0)))

    return share(other - human), share(other[None, :] - human[:, None])


def measure(scorer: Scorer, pairs: dict[str, Texts]) -> list[str]:
    """One row of the table: perplexity by corpus, then pairs and AUC by kind, averaged over corpora."""
    row, ranks = [], []
    for texts in pairs.values():
        losses = {kind: scorer.losses(found) for kind, found in texts.items()}
        mean = {kind: np.array([loss.nats / loss.tokens for loss in found]) for kind, found in losses.items()}
        row.append(f"{perplexity(losses['human']):.1f}")
        ranks.append([ranking(mean["human"], mean[kind]) for kind in KINDS])
    average = np.mean(ranks, axis=0)  # kinds, 2
    # What is scored most is generated text, so that is shown for every corpus, too.
    row.append(" ".join(f"{rank[0][0]:.0%}" for rank in ranks))
    return row + [f"{share:.1%} {auc:.3f}" for share, auc in average]


class OverSingles(NGramScorer):
    """The loss less what the pieces cost one by one (SLOR, Pauls and Klein, 2012): common words are no merit."""

    def losses(self, texts: Sequence[str], progress: Progress | None = None) -> list[Loss]:
        """The difference for every text; it is below zero, as pieces are easier to predict together."""
        sequences = pieces(texts, self.vocabulary)
        together = self.model.log_probabilities(sequences)
        apart = replace(self.model, levels=self.model.levels[:1]).log_probabilities(sequences)
        return [Loss(float((b - a).sum()), len(a)) for a, b in zip(together, apart, strict=True)]


def train_gpt2(folder: Path, texts: list[str], vocabulary: Vocabulary, minutes: float) -> None:
    """A causal transformer over the same pieces, trained on the same texts for some minutes of processor time."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    config = GPT2Config(
        vocab_size=len(vocabulary),
        n_positions=256,
        n_embd=256,
        n_layer=4,
        n_head=4,
        bos_token_id=vocabulary.id("[CLS]"),
        eos_token_id=vocabulary.id("[SEP]"),
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    model: Any = GPT2LMHeadModel(config)  # type: ignore[no-untyped-call]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01)
    sequences = sorted((ids[:256] for ids in pieces(texts, vocabulary)), key=len)
    start, used, seen = time.process_time(), 0.0, 0
    for step, place in enumerate(iter(lambda: int(random.integers(len(sequences) - 48)), -1), 1):
        batch = [torch.tensor(ids) for ids in sequences[place : place + 48]]  # of like length, so hardly any padding
        ids = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=-100)  # B T
        loss = model(input_ids=ids.clamp(min=0), attention_mask=(ids >= 0).long(), labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(step / 100, max(0.0, 1 - used))
        optimizer.step()
        optimizer.zero_grad()
        seen += int((ids >= 0).sum())
        used = (time.process_time() - start) / 60 / minutes
        if step % 100 == 0:
            print(f"  transformer: step {step}, {seen:,} tokens, loss {loss.item():.3f}, {used:.0%}", flush=True)
        if used >= 1:
            break
    model.half().save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=vocabulary.tokenizer, bos_token="[CLS]", eos_token="[SEP]", unk_token="[UNK]"
    )
    tokenizer.save_pretrained(folder)


def scorers(gpt2: Path | None, minutes: float) -> Iterator[tuple[str, int, Scorer]]:
    """All scorers, by name, with the bytes of their files."""
    vocabulary, texts = Vocabulary.open(EMBEDDED), reserved_texts()
    for name, (order, prune) in NGRAMS.items():
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / COUNTS
            path.write_bytes(train_on_texts(texts, vocabulary, order, prune).to_bytes())
            yield name, path.stat().st_size, NGramScorer(path)
            if name == EMBEDDED_ONE:
                yield f"{name}, over single pieces", path.stat().st_size, OverSingles(path)
    if gpt2 is not None:
        if not (gpt2 / "config.json").is_file():
            train_gpt2(gpt2, texts, vocabulary, minutes)
        yield "transformer, 4 x 256", (gpt2 / "model.safetensors").stat().st_size, CausalScorer(str(gpt2))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpt2", type=Path)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--texts", type=int, default=200)
    arguments = parser.parse_args()
    pointer = Pointer.from_pretrained("wiki")
    pairs = {corpus: pairs_of(corpus, arguments.texts, pointer) for corpus in CORPORA}
    print(
        f"{' + '.join(str(len(texts['human'])) for texts in pairs.values())} pairs of {', '.join(pairs)} (validation)"
    )
    columns = ["scorer", "MB", *(f"PPL {corpus}" for corpus in pairs), f"generated: {' '.join(pairs)}", *KINDS]
    print(f"| {' | '.join(columns)} |\n|" + "---|" * len(columns), flush=True)
    for name, size, scorer in scorers(arguments.gpt2, arguments.minutes):
        print(f"| {name} | {size / 1e6:.1f} | {' | '.join(measure(scorer, pairs))} |", flush=True)


if __name__ == "__main__":
    main()
