"""What every decoding rule and term is worth: each is switched off alone, on validation texts.

    POINTER_DATA=... python benchmarks/rules.py [--lists 200] [--models wiki news reviews] [--only NAME ...]

Greedy texts around the keywords of validation texts, never test sets. Dist-2 and length are shares of people's. The
perplexity ratio is that of SmolLM2 (`pointer fetch smollm2`), none of our models: the texts' perplexity over that of
people's texts. Time is processor time, so it may be compared within a table.
"""

import argparse
import math
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import torch
from corpora import CORPORA, validation

from pointer.causal import fluency, open_base
from pointer.decoding import search
from pointer.decoding.generator import Pointer
from pointer.decoding.parallel import ParallelPointer
from pointer.decoding.presets import PRESETS, Preset
from pointer.evaluation.metrics import Evaluator
from pointer.evaluation.outputs import System
from pointer.writing import as_written

DEFAULT = PRESETS["default"]
OFF: dict[str, Preset] = {
    "nothing": DEFAULT,
    "noi": replace(DEFAULT, noi=0.0),
    "gap_first": replace(DEFAULT, gap_first=False),
    "delay": replace(DEFAULT, delay=(0.0,)),
    "marks": replace(DEFAULT, marks=None),
    "whole_words": replace(DEFAULT, whole_words=False),
    "full_stop": replace(DEFAULT, full_stop=False),
    **{name: replace(DEFAULT, rules=DEFAULT.rules - {name}) for name in sorted(DEFAULT.rules)},
    "rounds": DEFAULT,
    "one round later": DEFAULT,
    "any of these": PRESETS["plain"],
}
"""What is switched off in each row. Without `rounds` every stage has one; without `one round later` all stages have as
many as the first two."""
ALL_STAGES = 64
"""More stages than a text ever has."""
COLUMNS = (
    "BLEU-2", "BLEU-4", "Dist-2", "Length", "PPL ratio", "Repeated word", "Repeated 3-gram", "Stray mark",
    "No full stop", "Seconds",
)  # fmt: skip
DOUBLED = re.compile(r"\b(\w+) \1\b", re.IGNORECASE)
STRAY = re.compile(r"[.,!?;:]\s*[.,;:]| -( |$)|^[.,;:]")
"""Two marks in a row, a hyphen that joins nothing, a mark at the start."""


class Table:
    """The rows of models that write around keywords of one corpus."""

    def __init__(self, corpus: str, most: int, lists: int) -> None:
        self.lists, people = validation(corpus, most, lists)
        self.evaluator = Evaluator(tuple(people), replications=0)
        base, self.language = open_base()
        self.base = base.to(torch.bfloat16)
        self.people = self.likelihood([as_written(text) for text in people])

    def likelihood(self, texts: Sequence[str]) -> float:
        """The mean log-probability of a token, by the language model."""
        found = fluency(self.base, self.language, texts)
        return sum(found) / len(found)

    def row(self, pointer: Pointer, rounds: int | None = None) -> list[str]:
        """Decode all lists, and measure."""
        started = time.process_time()
        found = pointer.generate_many(self.lists, rounds=rounds)
        seconds = time.process_time() - started
        texts = tuple(best.text for [best] in found)
        metrics = self.evaluator.evaluate(System("candidate", texts)).results
        human = self.evaluator.human().results
        values = {name: metrics[name].metric.value for name in COLUMNS if name in metrics}
        for name in ("Length", "Dist-2"):
            values[name] /= human[name].metric.value
        values["PPL ratio"] = math.exp(self.people - self.likelihood(texts))
        faults = {
            "Repeated word": [bool(DOUBLED.search(text)) for text in texts],
            "Stray mark": [bool(STRAY.search(text)) for text in texts],
            "No full stop": [text[-1] not in ".!?" for text in texts],
        }
        values |= {name: 100 * sum(found) / len(texts) for name, found in faults.items()}
        values["Seconds"] = seconds
        return [f"{values[name]:.2f}" for name in COLUMNS]


def main() -> None:
    """Print a table for every model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--lists", type=int, default=200)
    parser.add_argument("--only", nargs="+", choices=OFF, default=list(OFF), metavar="NAME")
    arguments = parser.parse_args()
    for name in arguments.models:
        pointer, table = Pointer.from_pretrained(name), Table(*CORPORA[name], arguments.lists)
        assert isinstance(pointer, ParallelPointer)
        print(f"\n{name}: {len(table.lists)} lists\n\n| without | {' | '.join(COLUMNS)} |")
        print("|---" * (len(COLUMNS) + 1) + "|")
        for switch in arguments.only:
            pointer.preset = OFF[switch]
            whole = ALL_STAGES if switch == "one round later" else search.WHOLE_STAGES
            with patch.object(search, "WHOLE_STAGES", whole):
                row = table.row(pointer, 1 if switch == "rounds" else None)
            print(f"| {switch} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
