"""Training an adapter: a pre-trained language model learns to insert between given words.

A text becomes an example anew every epoch: some of its words are drawn as constraints, and the model learns to say all
that stands between them, and where each of them comes (`pointer.language`). What the decoder copies is not learnt.
"""

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from transformers import DynamicCache

from pointer.base import SMOLLM2
from pointer.batches import BLOCK_ROWS, IGNORED, Batches, Step, even
from pointer.card import causal_card
from pointer.causal import CausalInserter, is_causal
from pointer.errors import CorpusError, TrainingError, UsageError
from pointer.language import STYLES, Language
from pointer.model import CARD, CURVE, checkpoint_folder
from pointer.prepare.corpus import Corpus, Text
from pointer.prepare.yake import stop_words
from pointer.settings import TrainingSettings
from pointer.text import normalise
from pointer.training import SAMPLES, Outcome, Run, denormals_as_zero

_WORDS = re.compile(r"(?<!\S)[^\W_]+(?:['-][^\W_]+)*(?=[.,!?;:)\"]*(?:\s|$))")
"""Words that stand by themselves: a space before them, and a space after them, perhaps with marks before that."""
NEIGHBOUR = 0.1
"""How often a drawn word takes the word after it along, so that phrases are learnt too."""


@dataclass(frozen=True)
class CausalSettings(TrainingSettings):
    """How an adapter is trained."""

    learning_rate: float = 2e-3
    """The highest learning rate of Adam."""
    warmup_steps: int = 20
    """Steps (at most a tenth of the budget) in which the learning rate rises to that."""
    decay: str = "linear"
    """`linear`: the learning rate falls to zero at the end of the budget; `none`: it stays."""
    clip: float | None = 1.0
    """The largest norm of the gradient."""
    batch_tokens: int = 320
    """Positions of a batch, padding included."""
    evaluate_every: int = 200
    """Steps between validations."""
    validation_rows: int = 300
    """Texts to validate on (at most 8192), held out from the data."""
    save_every: int = 50
    """Steps between checkpoints, a multiple of `log_every`."""
    rank: int = 16
    """Of the matrices that the adapter adds to each layer (LoRA)."""
    first_layer: int = 0
    """Layers before this one stay as they are, which makes training faster."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, low, high in (("rank", 1, 1024), ("first_layer", 0, 1000)):
            if not low <= getattr(self, name) <= high:
                raise UsageError(
                    f"{name}: expected a number from {low} to {high}, found {getattr(self, name)}.", f"Change {name}."
                )


class Styled(NamedTuple):
    """A text and what it is like."""

    style: str
    text: str


def read_texts(data: str | Path, style: str | None = None) -> list[Styled]:
    """The texts to train on: a file of one style, or a folder with a file for each style, named after it.

    Files are what `Corpus` reads: text, jsonl or parquet, also compressed.
    """
    folder = Path(data)
    if not folder.is_dir():
        return _of_style(folder, style or next(iter(STYLES)))
    files = sorted(path for path in folder.iterdir() if path.name.split(".")[0] in STYLES and path.is_file())
    if not files or style is not None:
        raise CorpusError(
            f"Expected files named {', '.join(f'{name}.txt' for name in STYLES)} in {folder}, found "
            f"{'a --style beside them' if files else 'none'}.",
            "Name a file and its --style, or put files of several styles into a folder.",
        )
    return [one for path in files for one in _of_style(path, path.name.split(".")[0])]


def _of_style(path: Path, style: str) -> list[Styled]:
    if style not in STYLES:
        raise UsageError(f'style: expected {", ".join(STYLES)}, found "{style}".', "Choose one of these.")
    texts = (normalise(line.text) for line in Corpus((str(path),)) if isinstance(line, Text))
    return [Styled(style, text) for text in texts if len(content_words(text)) > 0]


def content_words(text: str) -> list[tuple[int, int]]:
    """Where the words stand that could be constraints.

    >>> ["The tired dog barks."[a:b] for a, b in content_words("The tired dog barks.")]
    ['tired', 'dog', 'barks']
    """
    spans = [found.span() for found in _WORDS.finditer(text)]
    return [(start, end) for start, end in spans if text[start:end].lower() not in stop_words()]


def draw(text: str, fewest: int, most: int, random: np.random.Generator) -> list[tuple[int, int]]:
    """Some words of a text as its constraints, in order; now and then two that stand together as one."""
    words = content_words(text)
    wanted = min(len(words), int(random.integers(fewest, most, endpoint=True)))
    chosen = np.sort(random.choice(len(words), wanted, replace=False)).tolist()
    spans: list[tuple[int, int]] = []
    for number in chosen:
        start, end = words[number]
        if spans and start < spans[-1][1]:
            continue
        if number + 1 < len(words) and words[number + 1][0] == end + 1 and random.random() < NEIGHBOUR:
            end = words[number + 1][1]
        spans.append((start, end))
    return spans


def given(text: str, start: int, end: int) -> str:
    """A constraint as somebody would type it: without the capital that only the start of a sentence gave it."""
    word = text[start:end]
    return word[0].lower() + word[1:] if start == 0 and word[1:] == word[1:].lower() else word


class Example(NamedTuple):
    """What the model reads, and at every position what it should say next."""

    ids: list[int]
    labels: list[int]
    style: str


def example(language: Language, styled: Styled, spans: Sequence[tuple[int, int]]) -> Example:
    """A text with these constraints as the decoder will put it to the model."""
    text = styled.text
    ids = language.prompt([given(text, start, end) for start, end in spans], styled.style)
    labels = [IGNORED] * len(ids)
    at, lead = 0, language.lead
    for start, end in spans:
        gap = language.encode((lead + text[at:start]).rstrip(" "))
        copied = language.encode((lead if start == 0 else " ") + text[start:end])
        ids += gap + copied
        labels += gap + copied[:1] + [IGNORED] * (len(copied) - 1)
        at, lead = end, ""
    rest = [*language.encode(text[at:]), language.end]
    return Example(ids + rest, labels + rest, styled.style)


@dataclass(frozen=True)
class CausalBatch:
    """Examples of about one length."""

    ids: torch.Tensor  # B T
    labels: torch.Tensor  # B T, of the next token

    def to(self, device: torch.device) -> "CausalBatch":
        """The same batch on another device."""
        return CausalBatch(self.ids.to(device), self.labels.to(device))


@dataclass(frozen=True)
class Part:
    """A batch before it becomes tensors."""

    examples: list[Example]

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, which: slice) -> "Part":
        return Part(self.examples[which])

    @property
    def positions(self) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """The length of every example."""
        return np.array([len(one.ids) for one in self.examples])

    @property
    def gaps(self) -> float:
        """What there is to say."""
        return float(sum(label != IGNORED for one in self.examples for label in one.labels))

    def tensors(self) -> CausalBatch:
        """Padded at the end, where attention to the left never looks; labels stand where they are predicted."""
        width = int(self.positions.max())
        ids = [one.ids + [0] * (width - len(one.ids)) for one in self.examples]
        labels = [[*one.labels[1:], *[IGNORED] * (width + 1 - len(one.labels))] for one in self.examples]
        return CausalBatch(torch.tensor(ids), torch.tensor(labels))


class CausalBatches(Batches):
    """The endless stream of training steps over texts, whose constraints are drawn anew every epoch."""

    def __init__(
        self, texts: Sequence[Styled], language: Language, settings: CausalSettings, batches_per_step: int = 1
    ) -> None:
        self.rows = texts  # type: ignore[assignment]  # all that the stream asks of its rows is how many there are
        self.language = language
        self.settings = settings
        self.batches_per_step = batches_per_step
        self.blocks = max(1, -(-len(texts) // BLOCK_ROWS))

    def plan(self, epoch: int, block: int) -> tuple[Any, list[list[Any]]]:
        """The steps of a block."""
        order = np.random.default_rng([self.settings.seed, epoch]).permutation(len(self.rows))
        random = np.random.default_rng([self.settings.seed, epoch, block])
        chosen: list[Styled] = [self.rows[i] for i in order[block * BLOCK_ROWS : (block + 1) * BLOCK_ROWS]]  # type: ignore[index]
        drawn = [example(self.language, one, draw(one.text, *self.settings.keywords, random)) for one in chosen]
        batches = even(cut(drawn, self.settings.batch_tokens), self.batches_per_step)
        batches = [batches[i] for i in random.permutation(len(batches))]
        size = self.batches_per_step
        return None, [batches[i : i + size] for i in range(0, len(batches), size)]


def cut(examples: list[Example], batch_tokens: int) -> list[Part]:
    """Batches of examples of nearly one length, each of at most `batch_tokens` positions with padding."""
    parts: list[Part] = []
    waiting: list[Example] = []
    # Of one style, too: then all examples of a batch begin with the same task.
    for one in sorted(examples, key=lambda one: (one.style, len(one.ids))):
        is_full = (len(waiting) + 1) * len(one.ids) > batch_tokens
        if waiting and (is_full or one.style != waiting[0].style):
            parts.append(Part(waiting))
            waiting = []
        waiting.append(one)
    return [*parts, Part(waiting)]


class CausalLoss(nn.Module):
    """The training objective as a module: cross entropy summed over all that is to be said."""

    def __init__(self, inserter: CausalInserter) -> None:
        super().__init__()
        self.model = inserter.model
        self.transformer = [inserter.transformer]  # in a list: it is a part of the model, not one beside it

    def forward(self, batch: CausalBatch) -> torch.Tensor:
        """The sum of the cross entropies."""
        [transformer] = self.transformer
        start = _shared(batch)
        cache = DynamicCache(config=transformer.config)
        if start:
            transformer.base_model(input_ids=batch.ids[:1, :start], past_key_values=cache, use_cache=True)
            cache.batch_repeat_interleave(len(batch.ids))
        ids, labels = batch.ids[:, start:], batch.labels[:, start:]
        hidden = transformer.base_model(input_ids=ids, past_key_values=cache, use_cache=True).last_hidden_state  # B T H
        asked = labels != IGNORED
        logits = transformer.get_output_embeddings()(hidden[asked])  # N V
        return nn.functional.cross_entropy(logits.float(), labels[asked], reduction="sum")


def _shared(batch: CausalBatch) -> int:
    """How many tokens all examples begin with: the words by which a task opens, which need be read only once."""
    same = (batch.ids == batch.ids[0]).all(0) & (batch.labels == IGNORED).all(0)
    return int(same.long().cumprod(0).sum())


class CausalRun(Run):
    """Trains an adapter on texts of one style or several."""

    settings: CausalSettings

    def __init__(
        self,
        texts: list[Styled],
        out: Path,
        settings: CausalSettings,
        backbone: str | Path,
        init: str | Path | None,
        about: str,
        show: bool,
    ) -> None:
        super().__init__(out, settings, about, show)
        self.backbone, self.init = backbone, init
        self.texts, self.held_out = _split(texts, settings)
        self.open()
        self.batches = CausalBatches(self.texts, self.inserter.language, settings, self.batches_per_step)
        _, steps = CausalBatches(self.held_out, self.inserter.language, settings).plan(0, 0)
        self.validation: list[Part] = [part for step in steps for part in step]

    def identity(self) -> dict[str, Any]:
        """The base, the start and the texts."""
        texts = hashlib.sha256("\n".join(f"{one.style} {one.text}" for one in self.texts).encode())
        return {"backbone": str(self.backbone), "init": str(self.init), "data": texts.hexdigest()}

    def make(self, last: Path | None) -> nn.Module:
        """A new adapter, or one that is trained on."""
        settings = self.settings
        start = last or self.init
        if start is not None:
            self.inserter = CausalInserter.from_pretrained(start, self.backbone, trainable=True)
        else:
            self.inserter = CausalInserter.start(self.backbone, settings.rank, settings.first_layer)
        self.inserter.config["styles"] = [style for style in STYLES if any(one.style == style for one in self.texts)]
        if settings.gradient_checkpointing:
            self.inserter.transformer.gradient_checkpointing_enable()
        self.model = self.inserter.model
        return CausalLoss(self.inserter)

    def tokens_seen(self) -> int:
        """As the checkpoint counts them."""
        return int(self.inserter.config["tokens_seen"])

    def collate(self, step: Step, part: Any) -> CausalBatch:
        """Examples as tensors."""
        found: CausalBatch = part.tensors()
        return found

    @torch.no_grad()
    def validate(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The loss of a decision on held-out texts."""
        mine = self.validation[self.accelerator.process_index :: self.accelerator.num_processes]
        device = self.accelerator.device
        losses = [self.module(part.tensors().to(device)) for part in mine]
        total = torch.stack([*losses, torch.zeros((), device=device)]).sum().double()
        gaps = torch.tensor(sum(part.gaps for part in mine), dtype=torch.double, device=device)
        found = self.accelerator.reduce(torch.stack([total, gaps]), "sum")
        loss = float(found[0] / found[1])
        samples = self._samples() if self.accelerator.is_main_process else []
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}, samples

    def describe(self, found: dict[str, Any]) -> str:
        """Loss and perplexity."""
        return f"validation loss {found['loss']:.4f}, perplexity {found['perplexity']:.2f}"

    def _samples(self) -> list[dict[str, Any]]:
        """Texts around words of a few held-out texts: to read, not to measure."""
        from pointer.decoding.writer import Writer

        writer = Writer.of_inserter(self.inserter, str(self.out))
        random = np.random.default_rng(self.settings.seed)
        found = []
        for one in self.held_out[:SAMPLES]:
            words = [given(one.text, *span) for span in draw(one.text, 2, 5, random)]
            written = writer.generate(words, style=one.style, max_length=64)
            found.append({"constraints": words, "text": written.text})
        return found

    def write(self, folder: Path, is_last: bool, extras: dict[str, bytes]) -> None:
        """An adapter folder with card and curve."""
        self.inserter.config["tokens_seen"] = self.at.tokens_before + self.at.tokens
        history, curve = self.drawn()
        counts = {style: sum(one.style == style for one in self.texts) for style in self.inserter.config["styles"]}
        card = causal_card(
            self.out.name, self.inserter.config, self.init, self.about, self.settings, counts, history, asdict(self.at)
        )
        self.inserter.files = {CARD: card.encode()} | ({CURVE: curve} if curve else {})
        dtype = torch.float16 if self.settings.half and not is_last else torch.float32
        self.inserter.save_pretrained(folder, dtype=dtype, extras=extras)


def _split(texts: list[Styled], settings: CausalSettings) -> tuple[list[Styled], list[Styled]]:
    """Texts to train on, and texts that are held out."""
    few = min(settings.validation_rows, len(texts) // 10)
    if few == 0:
        raise TrainingError(
            f"Expected at least 10 texts, so that some can be held out, found {len(texts)}.", "Give more texts."
        )
    order = np.random.default_rng([settings.seed, len(texts)]).permutation(len(texts)).tolist()
    return [texts[i] for i in sorted(order[few:])], [texts[i] for i in order[:few]]


def train_causal(
    data: str | Path,
    out: str | Path,
    settings: CausalSettings,
    backbone: str | Path = SMOLLM2,
    init: str | Path | None = None,
    style: str | None = None,
    about: str = "",
    show: bool = True,
) -> Outcome:
    """Train an adapter on texts into the folder `out`; the same call again continues an interrupted run.

    `data` is a file of one style, or a folder with a file for each style (`read_texts`). `init` is an adapter to go on
    from. `about` is a paragraph for the model card: what the data is and under which licence.
    """
    if init is not None and not is_causal(checkpoint_folder(init)):
        raise UsageError(f"init: expected an adapter for a backbone, found {init}.", "Leave it out, or name one.")
    with denormals_as_zero():
        return CausalRun(read_texts(data, style), Path(out), settings, backbone, init, about, show)()
