"""A million texts from models that try to break the decoder: does every constraint survive?

    .venv/bin/python tests/abuse/hostile_logits.py --texts 1000000
    .venv/bin/python tests/abuse/hostile_logits.py --vocabulary english --each 20000

The logits of a gap are drawn at random, or favour special tokens, `##` pieces, digits, infinities or ties (`HOSTILE` of
`tests/decoding/scripted.py`). What is decoded varies in kind, preset, locks and constraints. Every text is checked for
every promise of docs/decoding.md (`holds` of `tests/decoding/test_engine.py`). A line is printed every minute, and the
first promise that is broken ends the run with the call that broke it. `--each` decodes so many texts of each kind.
"""
# ruff: noqa: E402  (what the tests share has to be found first)

import argparse
import random
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "decoding")]

from scripted import HOSTILE, WORDS, small_vocabulary
from test_engine import holds

from pointer.decoding.parallel import ParallelPointer
from pointer.runtime import Floats, Ints
from pointer.vocabulary import Vocabulary

LISTS = 50
"""Lists that are decoded together."""
LONGEST = 30
ROWS = 101
"""Gaps whose logits are drawn; which one a gap gets depends on its text and its place."""
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "greedy, all gaps at once": {"rounds": 1},
    "sample": {"decoding": "sample"},
    "3 samples, hot": {"decoding": "sample", "n": 3, "temperature": 3.0, "min_p": 0.0},
    "beam": {"decoding": "beam", "width": 3},
    "beam, 2 texts": {"decoding": "beam", "width": 3, "n": 2},
    "beam, gap by gap": {"decoding": "beam", "width": 2, "rounds": 0},
    "presence penalty, banned words": {"presence_penalty": 2.0, "banned": ("the", "very")},
}
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


def moody(vocabulary: Vocabulary, mood: str, seed: int) -> ParallelPointer:
    """A model in one of the moods; the answer for a gap depends on its text and place alone."""
    draw = np.random.default_rng(seed)
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


def constraint(draw: random.Random, words: list[str]) -> str:
    """A word, a phrase, or something odd."""
    chance = draw.random()
    if chance < 0.15:
        return draw.choice(ODD)
    return " ".join(draw.sample(words, 2)) if chance < 0.3 else draw.choice(words)


def attack(vocabulary: Vocabulary, words: list[str], kind: str, number: int) -> int:
    """Decode one batch and check every text of it; how many there were."""
    draw = random.Random(f"{kind} {number}")
    mood, preset = HOSTILE[number % len(HOSTILE)], draw.choice(PRESETS)
    lists = [[constraint(draw, words) for _ in range(draw.randint(1, 5))] for _ in range(LISTS)]
    options = KINDS[kind] | {"preset": preset, "max_length": LONGEST, "max_stages": 4, "seed": number}
    options |= {"lock_start": draw.random() < 0.2, "lock_end": draw.random() < 0.2}
    found = moody(vocabulary, mood, seed=number % 10).generate_many(lists, **options)
    for constraints, generations in zip(lists, found, strict=True):
        for generation in generations:
            try:
                holds(generation, constraints, vocabulary, LONGEST)
            except AssertionError:
                print(f"BROKEN: mood {mood}, constraints {constraints}, options {options}: {generation}", flush=True)
                raise
    return sum(map(len, found))


def run(vocabulary: Vocabulary, words: list[str], enough: float, each: float) -> Counter[str]:
    """Decode until there are enough texts, altogether or of each kind."""
    counts: Counter[str] = Counter()
    number, told = 0, time.monotonic()
    while sum(counts.values()) < enough:
        due = [kind for kind in KINDS if counts[kind] < each]
        if not due:
            break
        for kind in due:
            counts[kind] += attack(vocabulary, words, kind, number)
        number += 1
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(f"{sum(counts.values()):,} texts, 0 broken promises", flush=True)
    return counts


def main() -> None:
    """Decode, check, and say how many texts there were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--each", type=int, default=0, metavar="TEXTS", help="so many of each kind instead")
    parser.add_argument("--vocabulary", default="small", help="small, or english with its 10,000 entries")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small = given.vocabulary == "small"
        vocabulary = small_vocabulary(Path(folder)) if small else Vocabulary.open(given.vocabulary)
    words = WORDS if small else [t for t in vocabulary.tokens if t.isalpha() and t.isascii() and len(t) > 2]
    counts = run(vocabulary, words, given.texts if not given.each else float("inf"), given.each or float("inf"))
    for kind, count in counts.items():
        print(f"{kind:32} {count:9,}")
    print(f"{sum(counts.values()):,} texts of a vocabulary of {len(vocabulary):,}: every promise kept")


if __name__ == "__main__":
    main()
