"""What training minimises and what validation measures: both look at the gaps of a batch and nowhere else."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from pointer.model import InsertionTransformer
from pointer.training.batches import IGNORED
from pointer.training.pairs import CLOSING, Batch

_COLUMNS = ("gaps", "loss", "inserted", "inserted_loss", "inserted_right", "noi_said", "noi", "noi_right")
"""What is counted over the gaps of a stage."""


def gap_loss(model: InsertionTransformer, batch: Batch) -> torch.Tensor:
    """The training objective: the cross entropies of the gaps of a batch, weighted and added up."""
    logits, labels, pair_of = gap_logits(model, batch)
    losses = nn.functional.cross_entropy(logits.float(), labels, reduction="none")  # G
    return losses @ batch.weight[pair_of]


def gap_logits(model: InsertionTransformer, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For every gap of a batch: its logits, its label, and the pair it belongs to.

    The output layer, a third of all work, is computed at gaps only.
    """
    hidden = model.bert(batch.ids, attention_mask=batch.attention).last_hidden_state  # B T H
    pair_of, position = (batch.labels != IGNORED).nonzero(as_tuple=True)  # G
    return model.cls(hidden[pair_of, position]), batch.labels[pair_of, position], pair_of  # G V


@torch.no_grad()
def stage_counts(model: InsertionTransformer, batches: Iterable[Batch], noi: int, stages: int) -> torch.Tensor:
    """What validation counts, per stage (row 0 is the closing pair): the columns of `_COLUMNS`."""
    counts = torch.zeros(stages + 1, len(_COLUMNS), dtype=torch.float64)
    for batch in batches:
        logits, labels, pair_of = gap_logits(model, batch)
        losses = nn.functional.cross_entropy(logits.float(), labels, reduction="none")
        best, inserted = logits.argmax(-1), labels != noi
        columns = [
            torch.ones_like(losses), losses, inserted, losses * inserted, inserted & (best == labels),
            best == noi, ~inserted, ~inserted & (best == noi),
        ]  # fmt: skip
        counts.index_add_(0, batch.stage[pair_of].cpu(), torch.stack([c.double() for c in columns], 1).cpu())
    return counts


def stage_metrics(counts: torch.Tensor) -> dict[str, Any]:
    """Readable measures from `stage_counts`: over all stages, per stage, and of the closing pairs."""
    stages = {str(k): _measures(counts[k]) for k in range(1, len(counts)) if counts[k, 0] > 0}
    return _measures(counts.sum(0)) | {"stages": stages, "closing": _measures(counts[CLOSING])}


def _measures(counts: torch.Tensor) -> dict[str, float | None]:
    of = dict(zip(_COLUMNS, counts.tolist(), strict=True))

    def share(part: str, whole: str) -> float | None:
        return round(of[part] / of[whole], 6) if of[whole] else None

    inserted_loss = share("inserted_loss", "inserted")
    return {
        "loss": share("loss", "gaps"),
        "perplexity": None if inserted_loss is None else round(math.exp(min(inserted_loss, 50)), 4),
        "accuracy": share("inserted_right", "inserted"),
        "noi_precision": share("noi_right", "noi_said"),
        "noi_recall": share("noi_right", "noi"),
    }
