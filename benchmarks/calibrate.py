"""Which adjustments of probabilities write best: candidates for the preset `default`, side by side on validation texts.

    POINTER_DATA=... python benchmarks/calibrate.py --model wiki --corpus wiki --keywords 4 [--lists 200]

For every candidate: mean length against that of the references, BLEU-2 and BLEU-4 (sacrebleu, lower case, marks split
off), distinct bigrams, and the share of texts with a word beside itself, with a repeated trigram, and that are done
within four stages. Validation texts only, never test sets.
"""

import argparse
import lzma
import re
from itertools import pairwise
from typing import Any

import sacrebleu
from corpora import corpus_file

from pointer.decoding.generator import Pointer
from pointer.decoding.schedule import PRESETS, Preset
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


def canonical(text: str) -> list[str]:
    """Lower case, every mark a word of its own."""
    return re.findall(r"\w+|[^\w\s]", text.lower())


def row(pointer: Pointer, asked: list[tuple[str, list[str]]], blocks: int | None = None) -> list[str]:
    """Decode all lists, greedily or with a beam, and measure."""
    options: dict[str, Any] = {} if blocks is None else {"decoding": "beam", "blocks": blocks}
    texts = [best for [best] in pointer.generate_many([words for _, words in asked], **options)]
    stages = [len(text.stages) - 1 - (text.stopped == "converged") for text in texts]
    return measures([canonical(text.text) for text in texts], [canonical(line) for line, _ in asked], stages)


def measures(texts: list[list[str]], references: list[list[str]], stages: list[int]) -> list[str]:
    """One row of the table."""
    joined, expected = [" ".join(t) for t in texts], [" ".join(r) for r in references]
    bleu = [
        sacrebleu.BLEU(tokenize="none", smooth_method="none", max_ngram_order=n, force=True)
        .corpus_score(joined, [expected])
        .score
        for n in (2, 4)
    ]
    bigrams = [pair for text in texts for pair in pairwise(text)]
    doubled = sum(any(a == b for a, b in pairwise(text)) for text in texts)
    thrice = sum(len(set(zip(t, t[1:], t[2:], strict=False))) < max(0, len(t) - 2) for t in texts)
    length = sum(map(len, texts)) / sum(map(len, references))
    share = [doubled / len(texts), thrice / len(texts), sum(s <= 4 for s in stages) / len(texts)]
    return [
        f"{length:.2f}",
        *(f"{b:.1f}" for b in bleu),
        f"{len(set(bigrams)) / len(bigrams):.0%}",
        *(f"{s:.0%}" for s in share),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="wiki")
    parser.add_argument("--corpus", default="wiki")
    parser.add_argument("--keywords", type=int, default=4)
    parser.add_argument("--lists", type=int, default=200)
    arguments = parser.parse_args()
    path = corpus_file(f"{arguments.corpus}/valid")
    with lzma.open(path, "rt", encoding="utf-8") as file:
        lines = [line.strip() for _, line in zip(range(arguments.lists), file, strict=False)]
    asked = [(line, found) for line in lines if (found := keywords(line, arguments.keywords))]
    pointer = Pointer.from_pretrained(arguments.model)
    print(f"{len(asked)} lists, at most {arguments.keywords} keywords, {arguments.corpus}, greedy, {arguments.model}")
    print("| preset | length | BLEU-2 | BLEU-4 | Dist-2 | doubled word | repeated trigram | 4 stages |\n|" + "---|" * 8)
    for name, preset in CANDIDATES.items():
        pointer.calibrated = preset
        print(f"| {name} | {' | '.join(row(pointer, asked))} |", flush=True)
    pointer.calibrated = PRESETS["default"]
    for blocks in (2, 0):
        print(f"| default, beam of 4, blocks {blocks} | {' | '.join(row(pointer, asked, blocks))} |", flush=True)


if __name__ == "__main__":
    main()
