"""Which adjustments of probabilities write best: candidates for the preset `default`, side by side on validation texts.

    POINTER_DATA=... python benchmarks/calibrate.py --model reviews --corpus yelp --keywords 7 [--lists 1000]
    POINTER_DATA=... python benchmarks/calibrate.py --model news --corpus news --only default longer --rounds 1 2 3

For every candidate: mean length against that of the references, and what `pointer evaluate` measures. Validation texts
only, never test sets. Dist-2 is given as a share of that of the references. It falls as texts grow in number, and that
of a model falls faster, so choose on as many texts as the test has.
"""

import argparse
import lzma
from dataclasses import replace
from itertools import product
from typing import Any

from corpora import corpus_file

from pointer.decoding.generator import Pointer
from pointer.decoding.schedule import LATE, LATE_AT_ONCE, PRESETS, Preset
from pointer.evaluation.metrics import Evaluator
from pointer.evaluation.outputs import System
from pointer.evaluation.perplexity import open_judge
from pointer.prepare.keywords import keywords

DEFAULT = replace(PRESETS["default"], calibration=False)
WAITING = replace(LATE, calibration=False)
AT_ONCE = replace(LATE_AT_ONCE, calibration=False)
CANDIDATES: dict[str, Preset | None] = {
    "plain": PRESETS["plain"],
    "paper": PRESETS["paper"],
    # From here to the next comment: step by step to what `default` is for one round.
    "offsets": Preset(noi=AT_ONCE.noi, start=AT_ONCE.start, stop=AT_ONCE.stop),
    "offsets, rules": replace(AT_ONCE, stop_penalty=0.0, common=(0.0,), plausible=0.0),
    "offsets, rules, stop penalty": replace(AT_ONCE, common=(0.0,), plausible=0.0),
    "offsets, rules, stop penalty, common 1": replace(AT_ONCE, common=(1.0,)),
    # The same for two rounds, and its neighbours: for models of the paper's schedule.
    "late": WAITING,
    "late, common 0": replace(WAITING, common=(0.0,)),
    "late, common 0.5": replace(WAITING, common=(0.5,)),
    "late, common 1": replace(WAITING, common=(1.0,)),
    "late, common 1, plausible 0": replace(WAITING, common=(1.0,), plausible=0.0),
    "late, plausible 0.02": replace(WAITING, plausible=0.02),
    "late, plausible 0.1": replace(WAITING, plausible=0.1),
    "late, common 2, longer": replace(WAITING, common=(2.0,), noi=(-20.0, -9.0, -9.0, -7.0, -5.0)),
    "late, shorter": replace(WAITING, noi=(-20.0, -7.0, -6.0, -4.0, -2.0)),
    "late, much shorter": replace(WAITING, noi=(-20.0, -6.0, -4.0, -2.0, -1.0)),
    # What the model decodes with if nothing is said; uncalibrated, and its neighbours: for the schedule `eager`.
    "default": None,
    "uncalibrated": DEFAULT,
    "[NOI] as it is": replace(DEFAULT, noi=(0.0,)),
    "[NOI] against the best word": replace(DEFAULT, gap_first=False, noi=(-5.0,)),
    "stop words at any stage": replace(DEFAULT, stop=(0.0,)),
    "stop words from the third stage": replace(DEFAULT, stop=(-20.0, -20.0, 0.0)),
    "common 0": replace(DEFAULT, common=(0.0,)),
    "common 0.5": replace(DEFAULT, common=(0.5,)),
    "common 1": replace(DEFAULT, common=(1.0,)),
    "plausible 0.03": replace(DEFAULT, plausible=0.03),
    "plausible 0.1": replace(DEFAULT, plausible=0.1),
    "plausible 0.2": replace(DEFAULT, plausible=0.2),
    "[NOI] aside at first": replace(DEFAULT, noi=(-5.0, -4.0, -2.0, -1.0, 0.0)),
    "[NOI] aside at last": replace(DEFAULT, noi=(-0.5, -1.5, -2.5, -3.0)),
    # How much speaks for a word that a revision asks about again.
    "faithful 0": replace(PRESETS["default"], faithful=0.0),
    "faithful 1": replace(PRESETS["default"], faithful=1.0),
    "faithful 4": replace(PRESETS["default"], faithful=4.0),
}
"""By what is special about them; see `Preset`."""


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


def row(pointer: Pointer, evaluator: Evaluator, lists: list[list[str]], **options: Any) -> list[str]:
    """Decode all lists, and measure."""
    texts = [best for [best] in pointer.generate_many(lists, **options)]
    stages = tuple(len(text.stages) - 1 - (text.stopped == "converged") for text in texts)
    found = evaluator.evaluate(System("candidate", tuple(text.text for text in texts), stages=stages))
    values = {name: found.results[name].metric.value for name in COLUMNS}
    for name in ("Length", "Dist-2"):
        values[name] /= evaluator.human().results[name].metric.value
    return [f"{value:.2f}" for value in values.values()]


def validation(corpus: str, most: int, lists: int) -> tuple[list[list[str]], Evaluator]:
    """The keywords of the first validation texts of a corpus that have any, and what measures texts against these."""
    with lzma.open(corpus_file(f"{corpus}/valid"), "rt", encoding="utf-8") as file:
        lines = [line.strip() for _, line in zip(range(lists), file, strict=False)]
    asked = [(line, found) for line in lines if (found := keywords(line, most))]
    references = tuple(line for line, _ in asked)
    return [found for _, found in asked], Evaluator(references, judge=open_judge(), replications=0)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="wiki")
    parser.add_argument("--corpus", default="wiki")
    parser.add_argument("--keywords", type=int, default=4)
    parser.add_argument("--lists", type=int, default=200)
    parser.add_argument("--rounds", type=int, nargs="+", help="that fill a stage; left out, the model's own number")
    parser.add_argument("--revisions", type=int, nargs="+", help="of a finished text; left out, the model's own number")
    parser.add_argument("--noi-offset", type=float, default=0.0, help="makes texts longer (below 0) or shorter")
    parser.add_argument("--beam", action="store_true", help="beam search as well")
    parser.add_argument("--only", nargs="+", choices=CANDIDATES, default=CANDIDATES, metavar="NAME")
    arguments = parser.parse_args()
    lists, evaluator = validation(arguments.corpus, arguments.keywords, arguments.lists)
    pointer = Pointer.from_pretrained(arguments.model)
    print(f"{len(lists)} lists, at most {arguments.keywords} keywords, {arguments.corpus}, greedy, {arguments.model}")
    print(f"| preset | {' | '.join(COLUMNS)} |\n|" + "---|" * (len(COLUMNS) + 1))
    own = pointer.calibrated
    for name in arguments.only:
        pointer.calibrated = CANDIDATES[name] or own
        for rounds, revisions in product(
            arguments.rounds or [pointer.rounds], arguments.revisions or [pointer.revisions]
        ):
            chosen = {"blocks": rounds, "revisions": revisions, "noi_offset": arguments.noi_offset}
            measured = row(pointer, evaluator, lists, **chosen)
            print(f"| {name}, rounds {rounds}, revisions {revisions} | {' | '.join(measured)} |", flush=True)
    pointer.calibrated = own
    for rounds in (2, 0) if arguments.beam else ():
        measured = row(pointer, evaluator, lists, decoding="beam", blocks=rounds, noi_offset=arguments.noi_offset)
        print(f"| default, beam of 4, rounds {rounds} | {' | '.join(measured)} |", flush=True)


if __name__ == "__main__":
    main()
