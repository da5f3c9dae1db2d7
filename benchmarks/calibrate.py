"""Which adjustments of probabilities write best: candidates for the preset `default`, side by side on validation texts.

    POINTER_DATA=... python benchmarks/calibrate.py --model wiki --corpus wiki --keywords 4 [--lists 200]

For every candidate: mean length against that of the references, and what `pointer evaluate` measures. Validation texts
only, never test sets.
"""

import argparse
import lzma
from typing import Any

from corpora import corpus_file

from pointer.decoding.generator import Pointer
from pointer.decoding.schedule import PRESETS, Preset
from pointer.evaluation.metrics import Evaluator
from pointer.evaluation.outputs import System
from pointer.evaluation.perplexity import open_judge
from pointer.prepare.keywords import keywords

REST: dict[str, Any] = {"repetition_penalty": 2.0, "distinct": True}
CANDIDATES = {
    "plain": PRESETS["plain"],
    "paper": PRESETS["paper"],
    "default": PRESETS["default"],
    "plain, no doubles": Preset(distinct=True, repetition_penalty=2.0),
    "-6 -3 -1.5 -0.5": Preset(noi=(-6.0, -3.0, -1.5, -0.5, 0.0), stop=(-2.0, -1.0, 0.0), **REST),
    "-6 -4 -3 -2 -1": Preset(noi=(-6.0, -4.0, -3.0, -2.0, -1.0, 0.0), stop=(-2.0, -1.0, 0.0), **REST),
    "-20 -4 -2 -1": Preset(noi=(-20.0, -4.0, -2.0, -1.0, 0.0), stop=(-3.0, -1.0, 0.0), **REST),
    "-20 -4 -3 -2 -1": Preset(noi=(-20.0, -4.0, -3.0, -2.0, -1.0, 0.0), stop=(-2.0, -1.0, 0.0), **REST),
    "-20 -6 -3 -1, stop -4 -2": Preset(noi=(-20.0, -6.0, -3.0, -1.0, 0.0), stop=(-4.0, -2.0, 0.0), **REST),
    "-20 -5 -2 -1, penalty 4": Preset(
        noi=(-20.0, -5.0, -2.0, -1.0, 0.0), stop=(-3.0, -1.0, 0.0), repetition_penalty=4.0, distinct=True
    ),
}
"""By the offsets of `[NOI]`; see `Preset`."""


COLUMNS = (
    "Length",
    "BLEU-2",
    "BLEU-4",
    "NIST-4",
    "Dist-2",
    "PPL ratio",
    "Doubled word",
    "Repeated 3-gram",
    "Within 4 stages",
)


def row(pointer: Pointer, evaluator: Evaluator, lists: list[list[str]], blocks: int | None = None) -> list[str]:
    """Decode all lists, greedily or with a beam, and measure."""
    options: dict[str, Any] = {} if blocks is None else {"decoding": "beam", "blocks": blocks}
    texts = [best for [best] in pointer.generate_many(lists, **options)]
    stages = tuple(len(text.stages) - 1 - (text.stopped == "converged") for text in texts)
    found = evaluator.evaluate(System("candidate", tuple(text.text for text in texts), stages=stages))
    length = found.results["Length"].metric.value / evaluator.human().results["Length"].metric.value
    return [f"{length:.2f}", *(f"{found.results[name].metric.value:.2f}" for name in COLUMNS[1:])]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="wiki")
    parser.add_argument("--corpus", default="wiki")
    parser.add_argument("--keywords", type=int, default=4)
    parser.add_argument("--lists", type=int, default=200)
    parser.add_argument("--beam", action="store_true", help="beam search as well")
    arguments = parser.parse_args()
    path = corpus_file(f"{arguments.corpus}/valid")
    with lzma.open(path, "rt", encoding="utf-8") as file:
        lines = [line.strip() for _, line in zip(range(arguments.lists), file, strict=False)]
    asked = [(line, found) for line in lines if (found := keywords(line, arguments.keywords))]
    evaluator = Evaluator(tuple(line for line, _ in asked), judge=open_judge(), replications=0)
    lists = [found for _, found in asked]
    pointer = Pointer.from_pretrained(arguments.model)
    print(f"{len(asked)} lists, at most {arguments.keywords} keywords, {arguments.corpus}, greedy, {arguments.model}")
    print(f"| preset | {' | '.join(COLUMNS)} |\n|" + "---|" * (len(COLUMNS) + 1))
    for name, preset in CANDIDATES.items():
        pointer.calibrated = preset
        print(f"| {name} | {' | '.join(row(pointer, evaluator, lists))} |", flush=True)
    pointer.calibrated = PRESETS["default"]
    for blocks in (2, 0) if arguments.beam else ():
        print(
            f"| default, beam of 4, blocks {blocks} | {' | '.join(row(pointer, evaluator, lists, blocks))} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
