"""Training the insertion transformer on prepared data."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from pointer.card import TRANSFORMER, Description
from pointer.errors import TrainingError
from pointer.model import InsertionTransformer
from pointer.prepare.shards import Rows, RowSource
from pointer.prepare.stages import SKELETON_SIZE
from pointer.training.batches import BLOCK_ROWS
from pointer.training.data import TrainingData
from pointer.training.loop import SAMPLES, Run
from pointer.training.objective import gap_loss, stage_counts, stage_metrics
from pointer.training.pairs import Batch, Pairs, StageBatches, all_pairs, collate
from pointer.training.settings import Stages, TrainingSettings
from pointer.vocabulary import Vocabulary

ROUNDS = 2
"""Rounds in which a model that is trained on begun stages fills a stage, unless it is told another number."""


class InsertionRun(Run):
    """Trains an insertion transformer on prepared data."""

    settings: TrainingSettings

    def __init__(
        self,
        data: str | Path,
        out: Path,
        settings: TrainingSettings,
        init: str | Path,
        validation: str | Path | None = None,
        **options: Any,
    ) -> None:
        super().__init__(out, settings, **options)
        self.init = str(init)
        is_main = self.accelerator.is_main_process
        self.data = TrainingData.open(data, validation, settings, verify=is_main, stream=settings.stream)
        self.vocabulary = self.data.vocabulary
        prepared, size = self.data.manifest["settings"], settings.batch_tokens
        by_importance = prepared["skeleton"] == "importance" and prepared["skeleton_size"] == SKELETON_SIZE
        self.batches = StageBatches(
            self.data.texts, self.vocabulary, settings, size, self.batches_per_step, by_importance
        )
        whole = replace(settings, closing_share=1.0, begun_share=0.0)
        self.validation = StageBatches(self.data.held_out, self.vocabulary, whole, size).first_block()
        self.open()

    def identity(self) -> dict[str, Any]:
        """The start, the data and the vocabulary."""
        return {"init": self.init} | self.data.identity

    def make(self, last: Path | None) -> tuple[nn.Module, int]:
        """An insertion transformer for the vocabulary of the data."""
        settings = self.settings
        model = InsertionTransformer.start(last or self.init, self.vocabulary, settings.positions, settings.dropout)
        longest = self.data.longest + 2
        if longest > model.config.max_position_embeddings:
            raise TrainingError(
                f"Expected texts of at most {model.config.max_position_embeddings} tokens, the positions of the model, "
                f"found one of {longest}.",
                "Prepare the data with a smaller --max-length, or choose a model with more positions.",
            )
        if not model.cls.predictions.bias.any():
            _expect_frequencies(model, self.data.texts)
        model.files = self.data.tables
        model.config.pointer["schedule"] = settings.schedule
        if settings.begun_share:
            model.config.pointer["rounds"] = ROUNDS
        if settings.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        self.model = model
        return model, int(model.config.pointer["tokens_seen"])

    def collate(self, rows: Rows, batch: Pairs) -> Batch:
        """Stage pairs as tensors."""
        return collate(rows, batch, self.vocabulary)

    def loss(self, model: InsertionTransformer, tensors: Batch) -> torch.Tensor:
        """That of the gaps."""
        return gap_loss(model, tensors)

    def validate(self) -> dict[str, Any]:
        """Loss and accuracy of every stage."""
        rows, _ = self.validation
        stages = int(rows.stage.max(initial=0)) + 1
        batches = (tensors for _, tensors in self.validation_batches())
        counts = stage_counts(self.model, batches, self.vocabulary.noi, stages)
        return stage_metrics(self.accelerator.reduce(counts.to(self.accelerator.device), "sum").cpu())

    def asked(self) -> Iterator[tuple[list[str], dict[str, Any]]]:
        """The keywords of a few held-out texts."""
        rows, _ = self.validation
        found = [best_keywords(rows, i, self.vocabulary) for i in range(min(len(rows), 20))]
        longest = int(np.diff(rows.offsets).max()) + 2
        for words in [words for words in found if words][:SAMPLES]:
            yield words, {"max_length": min(128, longest)}

    def description(self) -> Description:
        """An insertion transformer, its data and its start."""
        what = "An insertion transformer: it writes a text around given words, from coarse to fine."
        return Description(TRANSFORMER, what, self.data.describe(), self.init)

    def write(self, folder: Path, dtype: torch.dtype, files: dict[str, bytes]) -> None:
        """A Transformers checkpoint with its tables."""
        self.model.config.pointer["tokens_seen"] = self.tokens_seen
        self.model.save_pretrained(folder, dtype=dtype, extras=files)


def best_keywords(rows: Rows, row: int, vocabulary: Vocabulary, most: int = 4) -> list[str]:
    """The words of a text that YAKE ranks best, in text order."""
    part = slice(rows.offsets[row], rows.offsets[row + 1])
    word_of = np.cumsum(~vocabulary.continues[rows.ids[part]]) - 1
    chosen = np.flatnonzero((rows.rank[part] > 0) & (rows.rank[part] <= most))
    words: dict[int, str] = {}
    for i in chosen.tolist():
        token = vocabulary.tokens[rows.ids[part][i]].removeprefix("##")
        words[word_of[i]] = words.get(word_of[i], "") + token
    return list(words.values())[:most]


@torch.no_grad()
def _expect_frequencies(model: InsertionTransformer, rows: RowSource) -> None:
    """Start a new output layer at how often each token is a label.

    Adam moves a bias by no more than the learning rate at a step, so a short run would never get there.
    """
    some = rows.take(np.arange(min(len(rows), BLOCK_ROWS)))
    counts = np.bincount(some.ids[some.stage > 0], minlength=model.config.vocab_size) + 0.5
    gaps = all_pairs(some, Stages(), np.random.default_rng(0)).gaps
    counts[model.config.pointer["noi_token_id"]] = max(0.5, gaps - (some.stage > 0).sum())
    prior = torch.from_numpy(np.log(counts)).float()
    model.cls.predictions.bias.copy_(prior - prior.mean())
