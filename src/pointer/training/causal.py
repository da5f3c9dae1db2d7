"""Training an adapter: a pre-trained language model learns to insert between given words."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from transformers import DynamicCache

from pointer.card import Description
from pointer.causal import CausalInserter
from pointer.language import STYLES, Language
from pointer.training.batches import IGNORED, Batches, within
from pointer.training.data import hold_out
from pointer.training.examples import Example, Styled, draw, example, given
from pointer.training.loop import SAMPLES, Run
from pointer.training.settings import CausalSettings


class CausalBatch(NamedTuple):
    """Examples of about one length."""

    ids: torch.Tensor  # B T
    labels: torch.Tensor  # B T, of the next token


@dataclass(frozen=True)
class Part:
    """A batch before it becomes tensors."""

    examples: list[Example]

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, which: slice) -> "Part":
        return Part(self.examples[which])

    @property
    def positions(self) -> npt.NDArray[np.int64]:
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
        super().__init__(len(texts), settings.seed, batches_per_step)
        self.styled, self.language, self.settings = texts, language, settings

    def block(self, which: npt.NDArray[np.int64], random: np.random.Generator) -> tuple[None, list[Part]]:
        """The batches of a block."""
        chosen = [self.styled[i] for i in which]
        drawn = [example(self.language, one, draw(one.text, *self.settings.keywords, random)) for one in chosen]
        return None, cut(drawn, self.settings.batch_tokens)


def cut(examples: list[Example], batch_tokens: int) -> list[Part]:
    """Batches of examples of nearly one length, each of at most `batch_tokens` positions with padding."""
    parts: list[Part] = []
    # Of one style, too: then all examples of a batch begin with the same task.
    for _, group in groupby(sorted(examples, key=lambda one: (one.style, len(one.ids))), key=lambda one: one.style):
        alike = list(group)
        parts += [Part(alike[batch]) for batch in within([len(one.ids) for one in alike], batch_tokens)]
    return parts


def causal_loss(model: Any, batch: CausalBatch) -> torch.Tensor:
    """The training objective: the cross entropies of all that is to be said, added up; `model` is a `PeftModel`."""
    transformer = model.get_base_model()
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
    model: CausalInserter

    def __init__(
        self,
        texts: list[Styled],
        out: Path,
        settings: CausalSettings,
        backbone: str | Path,
        init: str | Path | None = None,
        **options: Any,
    ) -> None:
        super().__init__(out, settings, **options)
        self.backbone, self.init = backbone, init
        self.texts, self.held_out = ([texts[i] for i in part] for part in hold_out(len(texts), settings))
        self.open()
        self.batches = CausalBatches(self.texts, self.model.language, settings, self.batches_per_step)
        self.validation = CausalBatches(self.held_out, self.model.language, settings).first_block()

    def identity(self) -> dict[str, Any]:
        """The base, the start and the texts."""
        texts = hashlib.sha256("\n".join(f"{one.style} {one.text}" for one in self.texts).encode())
        return {"backbone": str(self.backbone), "init": str(self.init), "data": texts.hexdigest()}

    def make(self, last: Path | None) -> tuple[nn.Module, int]:
        """A new adapter, or one that is trained on."""
        start = last or self.init
        if start is not None:
            self.model = CausalInserter.from_pretrained(start, self.backbone, trainable=True)
        else:
            self.model = CausalInserter.start(self.backbone, self.settings.rank, self.settings.first_layer)
        self.model.config["styles"] = [style for style in STYLES if any(one.style == style for one in self.texts)]
        self.model.files = {}  # the card and the curve of the adapter that it starts from
        if self.settings.gradient_checkpointing:
            self.model.transformer.gradient_checkpointing_enable()
        return self.model.model, int(self.model.config["tokens_seen"])

    def collate(self, rows: None, batch: Part) -> CausalBatch:
        """Examples as tensors."""
        return batch.tensors()

    def loss(self, model: Any, tensors: CausalBatch) -> torch.Tensor:
        """That of all that is to be said."""
        return causal_loss(model, tensors)

    def asked(self) -> Iterator[tuple[list[str], dict[str, Any]]]:
        """Words of a few held-out texts."""
        random = np.random.default_rng(self.settings.seed)
        for one in self.held_out[:SAMPLES]:
            words = [given(one.text, *span) for span in draw(one.text, 2, 5, random)]
            yield words, {"style": one.style, "max_length": 64}

    def description(self) -> Description:
        """An adapter, its base, its texts and its start."""
        base = Path(self.model.config["base"]).name
        counts = {style: sum(one.style == style for one in self.texts) for style in self.model.config["styles"]}
        return Description(
            f"library_name: peft\nbase_model: {base}\ntags:\n- pointer\n- lora",
            f"An adapter (LoRA) for `{base}`: it inserts a text between given words, from left to right.",
            f"Texts: {', '.join(f'{count:,} of the style {style}' for style, count in counts.items())}.",
            self.init,
        )

    def write(self, folder: Path, dtype: torch.dtype, files: dict[str, bytes]) -> None:
        """The folder of an adapter."""
        self.model.config["tokens_seen"] = self.tokens_seen
        self.model.save_pretrained(folder, dtype=dtype, extras=files)
