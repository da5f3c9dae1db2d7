"""A million texts from models that try to break the decoder: does every constraint survive?

    .venv/bin/python tests/abuse/hostile_logits.py --texts 1000000
    .venv/bin/python tests/abuse/hostile_logits.py --vocabulary english --each 20000
    .venv/bin/python tests/abuse/hostile_logits.py --writer --each 20000

The logits of a gap are drawn at random, or favour special tokens, `##` pieces, digits, infinities or ties (`HOSTILE` of
`tests/decoding/scripted.py`). What is decoded varies in kind, preset, length, locks and constraints. Every text is
checked for every promise of docs/decoding.md (`holds` of `tests/decoding/test_engine.py`). `--writer` does the same to
the decoder that writes from left to right (`tiny_causal.py` and `test_causal.py` there). A line is printed every
minute, and the first promise that is broken ends the run with the call that broke it. `--each` decodes so many texts of
each kind.
"""
# ruff: noqa: E402  (what the tests share has to be found first)

import argparse
import random
import re
import sys
import tempfile
import time
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "decoding")]

import test_causal
import tiny_causal
from scripted import HOSTILE, WORDS, small_vocabulary
from test_engine import holds

from pointer.decoding.generator import Generation
from pointer.decoding.grammar import quote
from pointer.decoding.parallel import ParallelPointer
from pointer.decoding.writer import Writer
from pointer.runtime import Floats, Ints
from pointer.vocabulary import Vocabulary

LISTS = 50
"""Lists that are decoded together."""
ROWS = 101
"""Gaps whose logits are drawn; which one a gap gets depends on its text and its place."""
SEEDS = 5
"""Models of each mood."""
FORBIDDEN = ("the", "very")
PRESETS = ("default", "plain", "paper")
ODD = [
    "eBay",
    "don't",
    "$3.50",
    "3.5",
    "a-b",
    "U.S.",
    "naïve",
    "東京",
    "🎉",
    "[SEP]",
    "##s",
    ".",
    "...",
    "'",
    "New York",
]

Options = dict[str, Any]


class Attack(ABC):
    """A decoder and what is tried on it: options by the name of their kind."""

    kinds: dict[str, Options]

    @abstractmethod
    def asked(self, draw: random.Random, words: int) -> str:
        """A constraint of one or more words."""

    @abstractmethod
    def model(self, number: int) -> Any:
        """One of the hostile models."""

    @abstractmethod
    def limits(self, draw: random.Random, lists: list[list[str]]) -> Options:
        """Options that vary within a kind; all lists have to fit."""

    @abstractmethod
    def check(self, text: Generation, asked: list[str], options: Options) -> None:
        """Every promise about one text."""

    def batch(self, kind: str, number: int) -> int:
        """Decode some lists together and check every text; how many there were."""
        draw = random.Random(f"{kind} {number}")
        most = draw.randint(1, 5)
        lists = [
            [self.asked(draw, 2 if draw.random() < 0.15 else 1) for _ in range(draw.randint(1, most))]
            for _ in range(LISTS)
        ]
        options = {"seed": number, "lock_start": draw.random() < 0.2, "lock_end": draw.random() < 0.2}
        options |= self.limits(draw, lists) | self.kinds[kind]
        found = self.model(number).generate_many([list(map(quote, one)) for one in lists], **options)
        for asked, texts in zip(lists, found, strict=True):
            assert 1 <= len(texts) <= options.get("n", 1)
            for text in texts:
                try:
                    self.check(text, asked, options)
                    check_options(text, options)
                except AssertionError:
                    print(f"BROKEN: model {number}, constraints {asked}, options {options}: {text}", flush=True)
                    raise
        return sum(map(len, found))


def check_options(text: Generation, options: Options) -> None:
    """What every decoder promises by its options."""
    assert text.spans[0][0] == 0 or not options["lock_start"]
    assert text.spans[-1][1] == len(text.text) or not options["lock_end"]
    words = set(re.findall(r"\w+", text.text.lower()))
    assert not words & set(options.get("forbid", ()))


class Insertion(Attack):
    """On the decoder that inserts."""

    kinds = {  # noqa: RUF012
        "greedy": {},
        "greedy, all gaps at once": {"rounds": 1},
        "sample": {"decoding": "sample"},
        "3 samples, hot": {"decoding": "sample", "n": 3, "temperature": 3.0, "min_p": 0.0},
        "beam": {"decoding": "beam", "width": 3},
        "beam, 2 texts": {"decoding": "beam", "width": 2, "n": 2, "max_stages": 3},
        "beam, gap by gap": {"decoding": "beam", "width": 2, "rounds": 0},
        "presence penalty, forbidden words": {"presence_penalty": 2.0, "forbid": FORBIDDEN},
    }

    def __init__(self, vocabulary: Vocabulary, words: list[str]) -> None:
        self.vocabulary = vocabulary
        self.words = [word for word in words if word not in FORBIDDEN]
        self.made: Callable[[str, int], ParallelPointer] = lru_cache(maxsize=None)(self._made)

    def asked(self, draw: random.Random, words: int) -> str:
        return draw.choice(ODD) if draw.random() < 0.15 else " ".join(draw.sample(self.words, words))

    def model(self, number: int) -> ParallelPointer:
        return self.made(HOSTILE[number % len(HOSTILE)], number % SEEDS)

    def limits(self, draw: random.Random, lists: list[list[str]]) -> Options:
        # No constraint has more than five tokens; room is scarce for some lists.
        longest = 5 * max(map(len, lists)) + 3
        return {"preset": draw.choice(PRESETS), "max_length": longest, "max_stages": 4}

    def check(self, text: Generation, asked: list[str], options: Options) -> None:
        holds(text, asked, self.vocabulary, options["max_length"])

    def _made(self, mood: str, seed: int) -> ParallelPointer:
        """A model in one of the moods; the answer for a gap depends on its text and place alone."""
        draw, vocabulary = np.random.default_rng(seed), self.vocabulary
        logits = draw.normal(0, 3, (ROWS, len(vocabulary))).astype(np.float32)
        if mood == "ties":
            logits = np.round(logits / 6)
        if mood == "infinite":
            logits = np.where(draw.random(logits.shape) < 0.3, np.inf * np.sign(logits), logits)
        digits = [i for i, token in enumerate(vocabulary.tokens) if token.isdigit() or token in "-'"]
        favoured = {"specials": vocabulary.special, "pieces": np.flatnonzero(vocabulary.continues), "digits": digits}
        if mood in favoured:
            logits[:, favoured[mood]] += 50
        logits[:, vocabulary.noi] += {"insert": -1e9, "never": 1e9, "ties": 0.0}.get(mood, 2.0)
        table = logits.astype(np.float32)
        pad = vocabulary.id("[PAD]")

        def predict(ids: Ints, _: object, rows: Ints, positions: Ints) -> Floats:
            keys = np.array([zlib.crc32(row[row != pad].tobytes()) for row in ids])
            return table[(keys[rows] + 31 * positions) % ROWS]

        return ParallelPointer(predict, vocabulary, name="hostile")


class Causal(Attack):
    """On the decoder that writes from left to right, with models that hold conversations and ones that do not."""

    kinds = {  # noqa: RUF012
        "greedy": {},
        "greedy, hardly ever an end": {"noi_offset": -8.0},
        "sample": {"decoding": "sample", "style": "reviews"},
        "sample of the best 3": {"decoding": "sample", "top_k": 3},
        "2 samples, hot": {"decoding": "sample", "n": 2, "temperature": 3.0, "top_p": 0.9},
        "beam": {"decoding": "beam", "width": 3},
        "beam, 2 texts": {"decoding": "beam", "width": 2, "n": 2},
        "best of 3": {"best_of": 3},
        "forbidden words": {"forbid": FORBIDDEN},
    }

    def __init__(self) -> None:
        self.words = [word for word in tiny_causal.WORDS if word.lower() not in FORBIDDEN]
        self.languages = list(test_causal.LANGUAGES.values())
        self.made: Callable[[int, str, int], Writer] = lru_cache(maxsize=None)(self._made)

    def asked(self, draw: random.Random, words: int) -> str:
        return " ".join(draw.choices([*self.words, *test_causal.ODD], k=words))

    def model(self, number: int) -> Writer:
        mood = tiny_causal.HOSTILE[number % len(tiny_causal.HOSTILE)]
        return self.made(number % len(self.languages), mood, number % SEEDS)

    def limits(self, draw: random.Random, lists: list[list[str]]) -> Options:
        # So many tokens are enough for the longest list and a word or more; room is scarce for some.
        sizes = [sum(len(one.encode(f" {word}")) for word in asked) for asked in lists for one in self.languages]
        return {"max_length": max(sizes) + draw.choice((6, 12, 20))}

    def check(self, text: Generation, asked: list[str], options: Options) -> None:
        test_causal.holds(text, asked)

    def _made(self, language: int, mood: str, seed: int) -> Writer:
        talks = self.languages[language]
        return tiny_causal.writer(talks, tiny_causal.hostile(talks, mood, seed), longest=400)


def run(attack: Attack, enough: float, each: float) -> Counter[str]:
    """Decode until there are enough texts, altogether or of each kind; kinds have equal shares of the time."""
    counts, batches, spent = Counter[str](), Counter[str](), Counter[str]()
    told = time.monotonic()
    while sum(counts.values()) < enough:
        due = [kind for kind in attack.kinds if counts[kind] < each]
        if not due:
            break
        kind = min(due, key=lambda kind: spent[kind])
        start = time.process_time_ns()
        counts[kind] += attack.batch(kind, batches[kind])
        spent[kind] += time.process_time_ns() - start
        batches[kind] += 1
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(f"{sum(counts.values()):,} texts, 0 broken promises", flush=True)
    return counts


def insertion(name: str) -> Insertion:
    """On a vocabulary, with words of its own."""
    if name != "small":
        found = Vocabulary.open(name)
        return Insertion(found, [t for t in found.tokens if t.isalpha() and t.isascii() and len(t) > 2])
    with tempfile.TemporaryDirectory() as folder:
        return Insertion(small_vocabulary(Path(folder)), WORDS)


def main() -> None:
    """Decode, check, and say how many texts there were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--each", type=int, default=0, metavar="TEXTS", help="so many of each kind instead")
    parser.add_argument("--vocabulary", default="small", help="small, or english with its 10,000 entries")
    parser.add_argument("--writer", action="store_true", help="attack the decoder that writes from left to right")
    given = parser.parse_args()
    attack = Causal() if given.writer else insertion(given.vocabulary)
    counts = run(attack, given.texts if not given.each else float("inf"), given.each or float("inf"))
    for kind, count in counts.items():
        print(f"{kind:34} {count:9,}")
    print(f"{sum(counts.values()):,} texts: every promise kept")


if __name__ == "__main__":
    main()
