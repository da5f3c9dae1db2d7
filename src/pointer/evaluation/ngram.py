"""An n-gram language model of word pieces, smoothed after Kneser and Ney: the scorer that comes with the package.

Interpolated modified Kneser-Ney (Chen and Goodman, 1998): `p(w | h) = (c - D(c)) / T + backoff(h) p(w | h')`, where h'
is h without its first token, T what was counted after h, and the back-off weight what the discounts D took away. Below
the highest order, c counts the different tokens left of the n-gram. The n-grams form a tree: one of n tokens is the
place of its first n - 1 among those, and its last token. So one sorted array a length holds them all.

A model is its counts. Rare n-grams are left out, but what they counted stays in T and goes to the back-off, so that
probabilities add up to one exactly. The file holds small whole numbers, which compress well; nothing is rounded.
"""

import argparse
import json
import lzma
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from pointer.checkpoint import EMBEDDED
from pointer.errors import CorpusError, DataError, UsageError
from pointer.storage import write_whole
from pointer.vocabulary import Vocabulary

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

COUNTS = "counts.safetensors.xz"
"""The file of a model in its folder."""
ORDER = 4
"""The longest n-grams of the embedded model, as chosen on validation texts (see the card beside it)."""
PRUNE = (0, 0, 1)
"""For every length the highest count that is left out (the last goes on), as chosen with the order."""

_FALLBACK = (0.5, 1.0, 1.5)  # discounts for too few texts to estimate them from
_COLUMNS = ("steps", "children", "counts", "pruned")


@dataclass(frozen=True, eq=False)
class Level:
    """All n-grams of one length, sorted; the contexts are the n-grams of the level below, by their place there."""

    keys: Ints  # N: context * vocabulary size + last token
    counts: Ints  # N: how often, or after how many different tokens (0 for what never comes next)
    pruned: Ints  # contexts: what n-grams counted that were left out
    discounts: tuple[float, float, float]
    """What is taken away from a count of 1, of 2, and of more."""
    size: int
    """Entries of the vocabulary."""

    @cached_property
    def gain(self) -> Floats:
        """For every n-gram what its own count adds to its probability."""
        return (self.counts - self._discount) / self._total[self.keys // self.size]

    @cached_property
    def backoff(self) -> Floats:
        """For every context the share of the shorter context's probabilities; all, where nothing was counted."""
        taken = self._sum(self._discount) + self.pruned
        return np.divide(taken, self._total, out=np.ones(len(self.pruned)), where=self._total > 0)

    @cached_property
    def _discount(self) -> Floats:
        return np.array([0.0, *self.discounts])[np.minimum(self.counts, 3)]

    @cached_property
    def _total(self) -> Floats:
        return self._sum(self.counts) + self.pruned

    def _sum(self, values: npt.NDArray[Any]) -> Floats:
        return np.bincount(self.keys // self.size, values, len(self.pruned)).astype(np.float64)

    def find(self, contexts: Ints, tokens: Ints) -> Ints:
        """The places of n-grams, -1 for those that are not here; a context of -1 has none."""
        wanted = contexts * self.size + tokens
        places = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[places] == wanted, places, -1)


@dataclass(frozen=True, eq=False)
class NGram:
    """The model: a level for every length.

    >>> model = train([[0, 2, 3, 1], [0, 2, 2, 1]], order=2, size=4, choices=3)
    >>> [round(float(p), 3) for p in np.exp(model.log_probabilities([[0, 2, 3, 1]])[0])]
    [0.683, 0.3, 0.683]
    """

    levels: tuple[Level, ...]
    choices: int
    """How many entries of the vocabulary can come next at all; unseen ones share equally."""
    vocabulary: str = ""
    """The fingerprint of the vocabulary."""

    def log_probabilities(self, sequences: Sequence[npt.ArrayLike]) -> list[Floats]:
        """The natural logarithms for every token of every sequence but the first, which is where texts begin."""
        if not sequences:
            return []
        stream, first = _joined(sequences)
        probability = np.full(len(stream), 1 / self.choices)  # T
        context = np.zeros(len(stream), np.int64)  # T: the n-gram that ends left of each token, -1 if unknown
        for level in self.levels:
            probability *= np.where(context >= 0, level.backoff[context], 1.0)
            found = level.find(context, stream)
            probability += np.where(found >= 0, level.gain[found], 0.0)
            context = _moved(found, first)
        begins = np.flatnonzero(first)
        return np.split(np.log(probability[~first]), (begins - np.arange(len(begins)))[1:])

    def to_bytes(self) -> bytes:
        """The file form, always the same bytes for the same counts."""
        settings = {
            "size": self.levels[0].size,
            "choices": self.choices,
            "vocabulary": self.vocabulary,
            "discounts": [level.discounts for level in self.levels],
        }
        arrays = {"settings": np.frombuffer(json.dumps(settings).encode(), np.uint8)}
        for n, level in enumerate(self.levels, 1):
            arrays |= {f"{n}.{name}": _planes(column) for name, column in _columns(level).items()}
        return lzma.compress(save(arrays), preset=9 | lzma.PRESET_EXTREME)

    @classmethod
    def open(cls, path: Path) -> "NGram":
        """Read what `to_bytes` wrote."""
        try:
            arrays = load(lzma.decompress(path.read_bytes()))
            settings = json.loads(arrays["settings"].tobytes())
            levels = tuple(
                _level({name: _whole(arrays[f"{n}.{name}"]) for name in _COLUMNS}, tuple(discounts), settings["size"])
                for n, discounts in enumerate(settings["discounts"], 1)
            )
            return cls(levels, settings["choices"], settings["vocabulary"])
        except FileNotFoundError as error:
            raise DataError(f"Expected an n-gram model at {path}, found no such file.", "Check the path.") from error
        except (OSError, EOFError, lzma.LZMAError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"Expected an n-gram model at {path}, found something else.", "Make it again with recipes/scorer.sh."
            ) from error


def _joined(sequences: Sequence[npt.ArrayLike]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """All tokens one after another, and which of them are the first of a sequence."""
    arrays = [np.asarray(sequence, np.int64) for sequence in sequences]
    first = np.zeros(sum(map(len, arrays)), np.bool_)
    first[np.cumsum([0, *map(len, arrays[:-1])])] = True
    return np.concatenate(arrays), first


def _moved(found: Ints, first: npt.NDArray[np.bool_]) -> Ints:
    """The n-grams that end at each token as contexts of the token to the right; where a text begins there is none."""
    return np.where(first, -1, np.roll(found, 1))


# ---------------------------------------------------------------------------------------------------------------------
# Counting


def train(
    sequences: Sequence[npt.ArrayLike],
    *,
    order: int,
    size: int,
    choices: int,
    prune: Sequence[int] = (0,),
    vocabulary: str = "",
) -> NGram:
    """Count the n-grams of sequences of ids below `size`, all of which begin with the same token, used nowhere else.

    `prune` gives for every length the highest count of n-grams that are left out, its last number standing for all
    further lengths. It must not fall, so that the context of whatever stays also stays.
    """
    limits = [*prune, *[*prune][-1:] * order][:order]
    if order < 2 or len(limits) < order or limits[0] != 0 or limits != sorted(limits):
        raise UsageError(
            f"prune: expected 0 for single tokens, then numbers that never fall, found {[*prune]} for order {order}.",
            "For example 0 0 1, with an order of at least 2.",
        )
    counted = _count(*_joined(sequences), order, size)
    levels: list[Level] = []
    new = np.zeros(1, np.int64)  # the new place of every context, -1 if it is left out; at first the empty context
    for level, longer, limit in zip(counted, [*counted[1:], None], limits, strict=True):
        contexts, tokens = np.divmod(level.keys, size)
        counts, stays = _adjusted(level, longer), level.counts > limit
        pruned = np.bincount(contexts[~stays], counts[~stays], len(new)).astype(np.int64)
        pruned[np.bincount(contexts[stays], minlength=len(new)) == 0] = 0  # nothing stays: all backs off anyway
        keys = new[contexts[stays]] * size + tokens[stays]
        levels.append(Level(keys, counts[stays], pruned[new >= 0], _discounts(counts), size))
        new = np.where(stays, np.cumsum(stays) - 1, -1)
    return NGram(tuple(level for level in levels if len(level.keys)), choices, vocabulary)


class _Counted(NamedTuple):
    """The n-grams of one length, before Kneser-Ney and before pruning."""

    keys: Ints  # N
    counts: Ints  # N: how often each stands there
    example: Ints  # N: where in the stream one of each ends
    begins: npt.NDArray[np.bool_]  # N: does it begin a text (and say more than that it begins)?
    found: Ints  # T: which of them ends at each token, -1 for none


def _count(stream: Ints, first: npt.NDArray[np.bool_], order: int, size: int) -> list[_Counted]:
    here = np.arange(len(stream))
    place = here - np.maximum.accumulate(np.where(first, here, 0))  # T: how many tokens stand left of it in its text
    levels = []
    context = np.zeros(len(stream), np.int64)  # T
    for n in range(1, order + 1):
        ends = np.flatnonzero(place >= n - 1)
        keys, example, which, counts = np.unique(
            context[ends] * size + stream[ends], return_index=True, return_inverse=True, return_counts=True
        )
        found = np.full(len(stream), -1)
        found[ends] = which
        begins = first[ends[example] - n + 1] & (n > 1)
        levels.append(_Counted(keys, counts, ends[example], begins, found))
        context = _moved(found, first)
    return levels


def _adjusted(level: _Counted, longer: _Counted | None) -> Ints:
    """What Kneser-Ney counts: not how often an n-gram stands there but after how many different tokens.

    The longest n-grams keep their counts, and so do those that begin a text, as nothing ever stands left of them;
    but the token that begins all texts counts nothing, for it never comes next.
    """
    if longer is None:
        return level.counts
    before = np.bincount(level.found[longer.example], minlength=len(level.keys))
    return np.where(level.begins, level.counts, before)


def _discounts(counts: Ints) -> tuple[float, float, float]:
    """The estimates of Chen and Goodman for counts of 1, of 2 and of more."""
    n1, n2, n3, n4 = (int((counts == c).sum()) for c in range(1, 5))
    if not (n1 and n2 and n3):
        return _FALLBACK
    y = n1 / (n1 + 2 * n2)
    d1, d2, d3 = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
    return (d1, d2, d3) if 0 <= d1 <= 1 and 0 <= d2 <= 2 and 0 <= d3 <= 3 else _FALLBACK


# ---------------------------------------------------------------------------------------------------------------------
# The file: every level as four columns of small numbers


def _columns(level: Level) -> dict[str, Ints]:
    contexts, tokens = np.divmod(level.keys, level.size)
    follows = np.diff(contexts, prepend=-1) == 0  # the tokens after one context rise, and their steps are smaller
    steps = np.where(follows, np.diff(tokens, prepend=0), tokens)
    children = np.bincount(contexts, minlength=len(level.pruned))
    return dict(zip(_COLUMNS, (steps, children, level.counts, level.pruned), strict=True))


def _level(columns: dict[str, Ints], discounts: Any, size: int) -> Level:
    children = columns["children"]
    ends = np.cumsum(columns["steps"])
    begins = np.cumsum(children) - children  # where the n-grams of each context begin
    sums = np.concatenate([[0], ends])[begins]
    tokens = ends - np.repeat(sums, children)
    contexts = np.repeat(np.arange(len(children)), children)
    return Level(contexts * size + tokens, columns["counts"], columns["pruned"], discounts, size)


def _planes(column: Ints) -> npt.NDArray[np.uint8]:
    """All low bytes, then all second ones and so on: high bytes are nearly all zero and take no space."""
    return np.ascontiguousarray(column.astype("<u4").view(np.uint8).reshape(-1, 4).T)


def _whole(planes: npt.NDArray[np.uint8]) -> Ints:
    return np.ascontiguousarray(planes.T).view("<u4").reshape(-1).astype(np.int64)


# ---------------------------------------------------------------------------------------------------------------------
# Texts, and the command of recipes/scorer.sh


def pieces(texts: Sequence[str], vocabulary: Vocabulary) -> list[list[int]]:
    """The ids of every text between `[CLS]`, where all texts begin, and `[SEP]`, which is predicted like a word."""
    begin, end = vocabulary.id("[CLS]"), vocabulary.id("[SEP]")
    encoded = vocabulary.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [[begin, *encoding.ids, end] for encoding in encoded]


def train_on_texts(
    texts: Sequence[str], vocabulary: Vocabulary, order: int = ORDER, prune: Sequence[int] = PRUNE
) -> NGram:
    """A model of texts, each as it will be scored (see `pointer.evaluation.outputs.canonical`)."""
    never = len(vocabulary.special) + 1 - 2  # special entries and [NOI], but [UNK] and [SEP] do come next
    return train(
        pieces(texts, vocabulary),
        order=order,
        size=len(vocabulary),
        choices=len(vocabulary) - never,
        prune=prune,
        vocabulary=vocabulary.fingerprint,
    )


def main(command: Sequence[str] | None = None) -> None:
    """Train a model on texts, one a line, and write it into a folder."""
    from pointer.evaluation.outputs import canonical
    from pointer.prepare.corpus import Corpus, Text

    parser = argparse.ArgumentParser(prog="python -m pointer.evaluation.ngram", description=main.__doc__)
    parser.add_argument("texts", nargs="+", help="files of texts, or - for standard input")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the model")
    parser.add_argument("--order", type=int, default=ORDER, help="the longest n-grams")
    parser.add_argument(
        "--prune", type=int, nargs="+", default=PRUNE, help="for every length the highest count left out"
    )
    arguments = parser.parse_args(command)
    texts = []
    for found in Corpus(tuple(arguments.texts)):
        if isinstance(found, Text):
            texts.append(canonical(found.text))
        else:
            print(found, file=sys.stderr)
    if not texts:
        raise CorpusError("Expected texts to count n-grams in, found none.", "Check the files.")
    model = train_on_texts(texts, Vocabulary.open(EMBEDDED), arguments.order, arguments.prune)
    content = model.to_bytes()
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_whole(arguments.out / COUNTS, content)
    sizes = ", ".join(f"{len(level.keys):,}" for level in model.levels)
    print(f"{len(texts):,} texts; n-grams by length: {sizes}; {len(content):,} bytes")


if __name__ == "__main__":
    main()
