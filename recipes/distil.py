"""What a small model learns from the model `writer`: word lists to write for, and the texts to learn from.

    python recipes/distil.py lists TEXTS COUNT OUT.txt              # some words of so many texts, in order and form
    pointer generate -f OUT.txt -o DRAFTS.jsonl --model writer --style STYLE
    python recipes/distil.py texts DRAFTS.jsonl OUT.txt             # the drafts of which the writer was surest

Many texts fit the same words, and a model that fills all gaps at once mixes them. What another model writes for the
words is one choice among these, made the same way every time, so it is easier to learn (Kim and Rush 2016).
"""

import json
import sys
from pathlib import Path

import numpy as np
from writer_texts import has_stand_in, is_plain

from pointer.training.examples import content_words, draw, given

FEWEST, MOST = 2, 7
SHORTEST, LONGEST = 4, 50
"""Words of a text that is kept."""
KEPT = 0.9
"""The share of drafts that is kept: those whose decisions the writer found likeliest."""


def write_lists(texts: str, count: str, out: str) -> None:
    random = np.random.default_rng(0)
    people = dict.fromkeys(Path(texts).read_text("utf-8").splitlines())
    usable = [text for text in people if len(content_words(text)) >= FEWEST]
    random.shuffle(usable)
    lists = [[given(text, *span) for span in draw(text, FEWEST, MOST, random)] for text in usable[: int(count)]]
    Path(out).write_text("".join(json.dumps(one) + "\n" for one in lists), "utf-8")


def write_texts(drafts: str, out: str) -> None:
    with Path(drafts).open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    least = sorted(record["score"] for record in records)[int((1 - KEPT) * len(records))]
    sure = dict.fromkeys(record["text"] for record in records if record["score"] >= least)
    kept = [text for text in sure if is_plain(text, SHORTEST, LONGEST) and not has_stand_in(text)]
    Path(out).write_text("".join(f"{text}\n" for text in kept), "utf-8")
    print(f"{len(records):,} drafts, {len(kept):,} kept", file=sys.stderr)


if __name__ == "__main__":
    {"lists": write_lists, "texts": write_texts}[sys.argv[1]](*sys.argv[2:])
