"""Calibration: a trained model is held to the words and the length of people's texts.

The best answer of a gap is a word that is likely in many places. So all gaps together write `and` and `very` far more
often than people do, and every model has favourites of its own. Here a model writes around the keywords of real texts,
words are counted on both sides, and each gets taken off its log-probability by how much it is used too often.
"""

import gzip
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pointer import __version__
from pointer.decoding.lexicon import is_function
from pointer.errors import CheckpointError, CorpusError, UsageError
from pointer.prepare.keywords import keywords
from pointer.text import normalise
from pointer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pointer.decoding.generator import Generation, Pointer
    from pointer.prepare.shards import Progress

SMOOTHING = 5.0
"""Added to both counts of a word, so that one that is seldom seen is left as it is."""
RATE = 0.75
"""The share of what is wrong that one pass takes off: where one word is held back, others come in its place."""
MOST = 2.0
"""No word loses or gains more than this: what a model never writes by itself should not be forced on it."""
LONGER = 0.25
"""How much longer, as a logarithm, texts get at the most where `[NOI]` loses 1 of its log-probability. A smaller number
would make the lengths of passes swing."""
STRIDE = 2.0
"""The most that the log-probability of `[NOI]` changes in a pass."""
GLUE = frozenset("'-")
"""Left as they are: the rules about contractions and hyphens decide where these go."""
BATCH = 64


@dataclass(frozen=True, eq=False)
class Calibration:
    """What was measured for a model, and is applied by presets that have `calibration`."""

    noi: float = 0.0
    """Added to the log-probability of `[NOI]`."""
    words: Mapping[str, float] = field(default_factory=dict)
    """What is taken off the log-probability of each token."""
    made: Mapping[str, Any] = field(default_factory=dict)
    """How it was made: version, settings, the number of passes."""

    @classmethod
    def of(cls, content: bytes, vocabulary: Vocabulary, name: str) -> "Calibration":
        """Read the file of a checkpoint."""
        try:
            found = cls(**json.loads(gzip.decompress(content)))
            is_sound = all(map(math.isfinite, (found.noi, *found.words.values())))
            unknown = [token for token in found.words if vocabulary.tokenizer.token_to_id(token) is None]
        except (OSError, EOFError, ValueError, TypeError, AttributeError):
            is_sound, unknown = False, []
        if not is_sound or unknown:
            what = f"one of another vocabulary (it has {unknown[0]})" if unknown else "something else"
            raise CheckpointError(
                f"Expected the calibration of {name} in its calibration.json.gz, found {what}.",
                "Delete that file, and run pointer calibrate again.",
            )
        return found

    def to_bytes(self) -> bytes:
        """The file: the same for the same numbers."""
        content = {"noi": self.noi, "words": dict(sorted(self.words.items())), "made": dict(self.made)}
        return gzip.compress(json.dumps(content, ensure_ascii=False).encode(), mtime=0)

    def after(self, usage: "Usage", length: float) -> "Calibration":
        """One pass later: words that were used too often cost more, and texts get nearer to the length.

        Content words are only held back. To push those that are used too seldom would be to push the commonest ones,
        and texts would become vague again.
        """
        words = dict(self.words)
        for token, excess in usage.excess().items():
            if token not in GLUE:
                least = -MOST if is_function(token) else 0.0
                words[token] = round(max(least, min(MOST, words.get(token, 0.0) + RATE * excess)), 2)
        step = math.log(usage.length / length) / LONGER if usage.length else -STRIDE
        noi = round(self.noi + max(-STRIDE, min(STRIDE, step)), 2)
        return replace(self, noi=noi, words={token: cost for token, cost in words.items() if cost})


UNCALIBRATED = Calibration()


@lru_cache(8)  # a schedule is made for every request, a calibration once
def costs(calibration: Calibration, vocabulary: Vocabulary) -> npt.NDArray[np.float32]:
    """What a calibration takes off every vocabulary entry."""
    return np.array([calibration.words.get(token, 0.0) for token in vocabulary.tokens], np.float32)


@dataclass(frozen=True)
class Usage:
    """How often a model and people used each token, without those that were asked for."""

    written: Counter[str]
    read: Counter[str]
    length: float
    """Of the model's texts, against that of people's, all tokens counted."""

    @classmethod
    def of(cls, texts: Sequence[str], generations: Sequence["Generation"], vocabulary: Vocabulary) -> "Usage":
        """Count the texts that a model wrote around keywords of these texts."""
        written: Counter[str] = Counter()
        read: Counter[str] = Counter()
        encoded = vocabulary.tokenizer.encode_batch([normalise(text) for text in texts], add_special_tokens=False)
        for original, generation in zip(encoded, generations, strict=True):
            asked = Counter(token.text for token in generation.stages[0])
            written += Counter(generation.tokens) - asked
            read += Counter(original.tokens) - asked
        sizes = sum(len(g.tokens) for g in generations), sum(len(original.tokens) for original in encoded)
        return cls(written, read, sizes[0] / max(1, sizes[1]))

    def excess(self) -> dict[str, float]:
        """By how much each token is used too often, as a logarithm; below 0 what is used too seldom."""
        return {
            token: math.log((self.written[token] * self._scale + SMOOTHING) / (self.read[token] + SMOOTHING))
            for token in self.written.keys() | self.read.keys()
        }

    @property
    def distance(self) -> float:
        """The share of words that would have to be others for both to use them alike (total variation)."""
        totals = max(1, self.written.total()), max(1, self.read.total())
        both = self.written.keys() | self.read.keys()
        return sum(abs(self.written[t] / totals[0] - self.read[t] / totals[1]) for t in both) / 2

    def overused(self, count: int) -> list[str]:
        """The tokens of which there are most too many."""
        return sorted(self.written, key=lambda t: (self.read[t] - self.written[t] * self._scale, t))[:count]

    @cached_property
    def _scale(self) -> float:
        """What makes counts of the model's words comparable with those of people's, which are more or fewer."""
        return self.read.total() / max(1, self.written.total())


def calibrate(
    pointer: "Pointer",
    texts: Sequence[str],
    *,
    most: int = 4,
    lists: int = 1000,
    passes: int = 3,
    length: float = 1.0,
    seed: int = 0,
    progress: "Progress | None" = None,
) -> Iterator[tuple[Usage, Calibration]]:
    """After every pass: how the model wrote before it, and what to apply from now on.

    A pass has the model write around at most `most` keywords of each of `lists` texts. `length` is the share of
    people's length to aim at. The calibration of `pointer` is what the passes start from, and is replaced.
    """
    for name, value in (("keywords", most), ("lists", lists), ("passes", passes)):
        if value < 1:
            raise UsageError(f"{name}: expected at least 1, found {value}.", f"Change {name}.")
    if not 0.5 <= length <= 2:
        raise UsageError(f"length: expected a share from 0.5 to 2, found {length}.", "1 is as long as people's texts.")
    random = np.random.default_rng(seed)
    settings = {"version": __version__, "keywords": most, "lists": lists, "length": length, "seed": seed}
    for number in range(1, passes + 1):
        chosen = _with_keywords(texts, most, lists, random)
        if not chosen:
            raise CorpusError("Expected texts to draw keywords from, found none.", "Give a file with one text a line.")
        generations: list[Generation] = []
        for start in range(0, len(chosen), BATCH):
            asked = [found for _, found in chosen[start : start + BATCH]]
            generations += [best for [best] in pointer.generate_many(asked, BATCH)]
            if progress:
                progress(f"pass {number}", len(generations), len(chosen))
        usage = Usage.of([text for text, _ in chosen], generations, pointer.vocabulary)
        earlier = pointer.calibration or UNCALIBRATED
        made = settings | {"passes": earlier.made.get("passes", 0) + 1}
        pointer.calibration = replace(earlier.after(usage, length), made=made)
        yield usage, pointer.calibration


def _with_keywords(
    texts: Sequence[str], most: int, lists: int, random: np.random.Generator
) -> list[tuple[str, list[str]]]:
    """Some of the texts that have keywords, drawn at random, and these."""
    drawn = ((texts[i], keywords(texts[i], most)) for i in random.permutation(len(texts)))
    return list(islice((one for one in drawn if one[1]), lists))
