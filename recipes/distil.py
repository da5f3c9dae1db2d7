"""What a small model learns from the model `writer`: word lists to write for, and the texts to learn from.

    python recipes/distil.py lists TEXTS OUT.txt                    # some words of every text, in its order and form
    pointer generate -f OUT.txt -o DRAFTS.jsonl --model writer --style STYLE
    python recipes/distil.py texts DRAFTS.jsonl OUT.txt             # the drafts of which the writer was surest

Many texts fit the same words, and a model that fills all gaps at once mixes them. What another model writes for the
words is one choice among these, made the same way every time, so it is easier to learn (Kim and Rush 2016).
"""

import json
import sys
from pathlib import Path

import numpy as np

from pointer.training.examples import content_words, draw, given

FEWEST, MOST = 2, 7
KEPT = 0.8
"""The share of drafts that is kept: those whose decisions the writer found likeliest."""


def write_lists(texts: Path, out: Path) -> None:
    random = np.random.default_rng(0)
    people = dict.fromkeys(texts.read_text("utf-8").splitlines())
    usable = [text for text in people if len(content_words(text)) >= FEWEST]
    lists = [[given(text, *span) for span in draw(text, FEWEST, MOST, random)] for text in usable]
    out.write_text("".join(json.dumps(one) + "\n" for one in lists), "utf-8")


def write_texts(drafts: Path, out: Path) -> None:
    with drafts.open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    least = sorted(record["score"] for record in records)[int((1 - KEPT) * len(records))]
    sure = dict.fromkeys(record["text"] for record in records if record["score"] >= least)
    out.write_text("".join(f"{text}\n" for text in sure), "utf-8")
    print(f"{len(records):,} drafts, {len(sure):,} kept")


if __name__ == "__main__":
    {"lists": write_lists, "texts": write_texts}[sys.argv[1]](*map(Path, sys.argv[2:]))
