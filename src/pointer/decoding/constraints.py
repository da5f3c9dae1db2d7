"""What the caller asked for, as the first stage X^0: tokens that stay, and gaps that may be filled."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pointer.text import normalise
from pointer.vocabulary import Vocabulary
from pointer.writing import Unit

INSERTED = -1
"""Owner of a token that the model inserted; constraints own theirs by their number."""
FRAME = -2
"""Owner of `[CLS]` and `[SEP]`."""


@dataclass(frozen=True)
class Tokens:
    """Tokens between `[CLS]` and `[SEP]`, and whose they are: a constraint's, the model's or the frame's."""

    ids: npt.NDArray[np.int64]
    owner: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    def filled(self, fills: dict[int, int]) -> tuple["Tokens", npt.NDArray[np.bool_]]:
        """The sequence with a token put into the gap right of each of these positions, and which tokens those are."""
        places = np.array(sorted(fills), np.int64)
        tokens = np.array([fills[p] for p in places.tolist()], np.int64)
        new = np.insert(np.zeros(len(self), bool), places + 1, True)
        return Tokens(np.insert(self.ids, places + 1, tokens), np.insert(self.owner, places + 1, INSERTED)), new


def first_stage(constraints: Sequence[str], vocabulary: Vocabulary, end: str) -> Tokens:
    """X^0: the pieces of the constraints in order; what cannot be spelt stands as `[UNK]`.

    With `end` "inserted" there is no `[SEP]` yet: such a model inserts it itself.
    """
    ids, owner = [vocabulary.id("[CLS]")], [FRAME]
    encodings = vocabulary.encode([normalise(constraint) for constraint in constraints])
    for number, encoding in enumerate(encodings):
        pieces = encoding.ids.tolist() or [vocabulary.id("[UNK]")]
        ids += pieces
        owner += [number] * len(pieces)
    if end == "fixed":
        ids.append(vocabulary.id("[SEP]"))
        owner.append(FRAME)
    return Tokens(np.array(ids), np.array(owner))


@dataclass(frozen=True)
class Locks:
    """Where the caller wants nothing inserted."""

    start: bool = False
    """Before the first constraint."""
    end: bool = False
    """After the last constraint."""


def open_gaps(sequence: Tokens, vocabulary: Vocabulary, locks: Locks) -> npt.NDArray[np.int64]:
    """The positions whose right gap may be filled.

    Closed are the gaps inside a constraint, inside a word of several pieces, right of `[SEP]`, and the locked ends.
    """
    ids, owner = sequence.ids, sequence.owner
    is_open = np.ones(len(ids), bool)
    inside_constraint = (owner[1:] == owner[:-1]) & (owner[1:] >= 0)
    is_open[:-1] = ~(inside_constraint | vocabulary.continues[ids[1:]])
    is_open[-1] = ids[-1] != vocabulary.id("[SEP]")
    mine = np.flatnonzero(owner >= 0)
    if locks.start:
        is_open[: mine[0]] = False
    if locks.end:
        is_open[mine[-1] :] = False
    return np.flatnonzero(is_open)


def units_of(
    tokens: Tokens, constraints: Sequence[str], vocabulary: Vocabulary, glue: Sequence[tuple[bool, bool]] | None = None
) -> list[Unit]:
    """The words of a text, a constraint being one of them however many pieces it has.

    `glue` says of every constraint of a template whether it stands without a space after and before the rest.
    """
    units: list[Unit] = []
    for piece, owner in zip(tokens.ids.tolist(), tokens.owner.tolist(), strict=True):
        token = vocabulary.tokens[piece]
        if owner >= 0:
            if not units or units[-1].constraint != owner:
                units.append(Unit(constraints[owner], owner, glue[owner] if glue else None))
        elif owner == INSERTED and token.startswith("##"):
            units[-1] = Unit(units[-1].text + token[2:], None)
        elif owner == INSERTED:
            units.append(Unit(token, None))
    return units
