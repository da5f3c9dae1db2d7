"""The floor that every system has to beat: the keywords themselves, joined."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pointer.baselines.results import accepted, parsed_in_batches
from pointer.decoding.generator import Generation
from pointer.decoding.grammar import Given
from pointer.stage import Token


class Keywords:
    """Says what it was given, and nothing else."""

    name = "keywords"

    def generate_many(self, lists: Sequence[Given], batch_size: int = 64, **options: Any) -> list[list[Generation]]:
        """For every list the constraints with spaces between them."""
        accepted("keywords", options, ["seed"])
        return [[_joined(one)] for batch in parsed_in_batches(lists, batch_size) for one in batch]


def _joined(constraints: tuple[str, ...]) -> Generation:
    ends = [len(" ".join(constraints[: i + 1])) for i in range(len(constraints))]
    spans = tuple((end - len(constraint), end) for constraint, end in zip(constraints, ends, strict=True))
    tokens = tuple(word for constraint in constraints for word in constraint.split())
    stage = tuple(Token(token, False) for token in tokens)
    return Generation(" ".join(constraints), tokens, spans, (stage,), 0.0, "end", constraints)


def load(folder: str | Path | None = None, device: str | None = None) -> Keywords:
    """The floor; there is nothing to open."""
    return Keywords()
