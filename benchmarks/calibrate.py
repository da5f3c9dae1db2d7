"""Which adjustments of probabilities write best: candidates for the preset `default`, side by side on validation texts.

    POINTER_DATA=... python benchmarks/calibrate.py --model wiki --corpus wiki --keywords 4 [--lists 200]
    POINTER_DATA=... python benchmarks/calibrate.py --model reviews --corpus yelp --keywords 7 --only default former

For every candidate: mean length against that of the references, and what `pointer evaluate` measures. Validation texts
only, never test sets. Dist-2 is given as a share of that of the references. It falls as texts grow in number, and that
of a model falls faster, so choose on as many texts as the test has.
"""

import argparse
import lzma
from dataclasses import replace
from typing import Any

from corpora import corpus_file

from pointer.decoding.generator import Pointer
from pointer.decoding.schedule import PRESETS, Preset
from pointer.evaluation.metrics import Evaluator
from pointer.evaluation.outputs import System
from pointer.evaluation.perplexity import open_judge
from pointer.prepare.keywords import keywords

DEFAULT = PRESETS["default"]
FORMER = Preset(noi=(-20.0, -5.0, -2.0, -1.0, 0.0), stop=(-4.0, -2.0, 0.0), repetition_penalty=2.0, distinct=True)
"""What `default` was before it had rules and penalties for what a text or a language says too often."""
REST: dict[str, Any] = {"repetition_penalty": 2.0, "distinct": True}
CANDIDATES = {
    "plain": PRESETS["plain"],
    "paper": PRESETS["paper"],
    "default": DEFAULT,
    "plain, no doubles": Preset(distinct=True, repetition_penalty=2.0),
    "-6 -3 -1.5 -0.5": Preset(noi=(-6.0, -3.0, -1.5, -0.5, 0.0), stop=(-2.0, -1.0, 0.0), **REST),
    "-6 -4 -3 -2 -1": Preset(noi=(-6.0, -4.0, -3.0, -2.0, -1.0, 0.0), stop=(-2.0, -1.0, 0.0), **REST),
    "-20 -4 -2 -1": Preset(noi=(-20.0, -4.0, -2.0, -1.0, 0.0), stop=(-3.0, -1.0, 0.0), **REST),
    "-20 -4 -3 -2 -1": Preset(noi=(-20.0, -4.0, -3.0, -2.0, -1.0, 0.0), stop=(-2.0, -1.0, 0.0), **REST),
    "-20 -6 -3 -1, stop -4 -2": Preset(noi=(-20.0, -6.0, -3.0, -1.0, 0.0), stop=(-4.0, -2.0, 0.0), **REST),
    "-20 -5 -2 -1, penalty 4": Preset(
        noi=(-20.0, -5.0, -2.0, -1.0, 0.0), stop=(-3.0, -1.0, 0.0), repetition_penalty=4.0, distinct=True
    ),
    "former": FORMER,
    "no 3-gram twice": replace(FORMER, repeat_ngram=3),
    "common 0.3": replace(FORMER, repeat_ngram=3, common=(0.3,)),
    "common 0.6": replace(FORMER, repeat_ngram=3, common=(0.6,)),
    "common 1 0.6 0.3": replace(FORMER, repeat_ngram=3, common=(1.0, 0.6, 0.3)),
    "common 0.3, stop penalty 0.3": replace(FORMER, repeat_ngram=3, common=(0.3,), stop_penalty=0.3),
    "common 0.3, stop penalty 0.7": replace(FORMER, repeat_ngram=3, common=(0.3,), stop_penalty=0.7),
    "common 0.6 0.6 0.4, stop penalty 0.7": replace(DEFAULT, common=(0.6, 0.6, 0.4), stop_penalty=0.7),
    "stop -4 -3": replace(DEFAULT, stop=(-4.0, -3.0, 0.0)),
    "common 0.5, stop penalty 1.5": replace(DEFAULT, stop_penalty=1.5, noi=(-20.0, -6.0, -3.5, -2.5, -1.5)),
    "common 0.4, stop penalty 2.5": replace(
        DEFAULT, common=(0.4,), stop_penalty=2.5, noi=(-20.0, -6.0, -4.0, -3.0, -2.0)
    ),
    "pieces and marks as they come": replace(DEFAULT, spelling=False, marks=None),
    "start as the rest": replace(DEFAULT, start=None),
    "start -20 -3 0": replace(DEFAULT, start=(-20.0, -3.0, 0.0)),
    "-20 -5.5 -3 -1.5 -0.5": replace(DEFAULT, noi=(-20.0, -5.5, -3.0, -1.5, -0.5)),
    "-20 -5.5 -3 -1.5 -0.5, stop penalty 1.5": replace(DEFAULT, noi=(-20.0, -5.5, -3.0, -1.5, -0.5), stop_penalty=1.5),
    "-20 -6 -4 -3 -2": replace(DEFAULT, noi=(-20.0, -6.0, -4.0, -3.0, -2.0)),
    "common 0.5, stop penalty 0.5": replace(DEFAULT, stop_penalty=0.5),
    "common 0.3, stop penalty 0.5 (default's offsets)": replace(DEFAULT, common=(0.3,), stop_penalty=0.5),
    "common 0.7": replace(DEFAULT, common=(0.7,)),
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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="wiki")
    parser.add_argument("--corpus", default="wiki")
    parser.add_argument("--keywords", type=int, default=4)
    parser.add_argument("--lists", type=int, default=200)
    parser.add_argument("--rounds", type=int, nargs="+", help="that fill a stage; left out, the model's own number")
    parser.add_argument("--beam", action="store_true", help="beam search as well")
    parser.add_argument("--only", nargs="+", choices=CANDIDATES, default=CANDIDATES, metavar="NAME")
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
    for name in arguments.only:
        pointer.calibrated = CANDIDATES[name]
        for rounds in arguments.rounds or [pointer.rounds]:
            measured = row(pointer, evaluator, lists, blocks=rounds)
            print(f"| {name}, rounds {rounds} | {' | '.join(measured)} |", flush=True)
    pointer.calibrated = DEFAULT
    for rounds in (2, 0) if arguments.beam else ():
        measured = row(pointer, evaluator, lists, decoding="beam", blocks=rounds)
        print(f"| default, beam of 4, rounds {rounds} | {' | '.join(measured)} |", flush=True)


if __name__ == "__main__":
    main()
