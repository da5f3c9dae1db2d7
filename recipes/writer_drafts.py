"""What the model `writer` learns from itself: word lists to write for, and the best of what it wrote for them.

    POINTER_DATA=... python recipes/writer_drafts.py lists TEXTS OUT.txt         # TEXTS: what writer_texts.py made
    pointer generate -f OUT.txt -o DRAFTS.jsonl --model writer --best-of 8
    python recipes/writer_drafts.py texts DRAFTS.jsonl TEXTS OUT                 # the best of them beside people's

A text that is the best of several drafts is likelier under the model than what a person wrote, so greedy decoding can
learn to find it at once (sequence-level distillation, Kim and Rush 2016). Half of the lists are words of a text, in its
order and form; the other half are the words that somebody would type: as a dictionary has them, in any order.
"""

import json
import lzma
import os
import random
import sys
from pathlib import Path

import numpy as np
from writer_texts import has_stand_in, is_plain, with_finite_verb

from pointer.training.examples import draw, given

LISTS = 12_000
KEPT = 0.7
"""The share of drafts that is kept: those whose decisions the model found likeliest. Of these, sentences only."""


def of_texts(folder: Path, count: int) -> list[list[str]]:
    """Words of everyday texts, in their order and form."""
    texts = (folder / "everyday.txt").read_text("utf-8").splitlines()
    chosen = random.Random(2).sample(texts, count)
    drawn = np.random.default_rng(2)
    return [[given(text, *span) for span in draw(text, 2, 6, drawn)] for text in chosen]


def of_concepts(count: int) -> list[list[str]]:
    """Concepts of CommonGen's training sets: dictionary forms, in any order."""
    with lzma.open(Path(os.environ["POINTER_DATA"]) / "commongen" / "train.jsonl.xz", "rt", encoding="utf-8") as file:
        sets = [json.loads(line)["concepts"] for line in file]
    shuffled = random.Random(3)
    return [shuffled.sample(concepts, len(concepts)) for concepts in shuffled.sample(sets, count)]


def write_lists(texts: Path, out: Path) -> None:
    lists = [*of_texts(texts, LISTS // 2), *of_concepts(LISTS // 2)]
    random.Random(4).shuffle(lists)
    out.write_text("".join(json.dumps(one) + "\n" for one in lists), "utf-8")


def best(drafts: Path) -> list[str]:
    """The drafts that are sure and whole sentences without stand-ins for names."""
    with drafts.open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    least = sorted(record["score"] for record in records)[int((1 - KEPT) * len(records))]
    sure = dict.fromkeys(record["text"] for record in records if record["score"] >= least)
    return with_finite_verb([text for text in sure if is_plain(text, 4, 25) and not has_stand_in(text)])


def write_texts(drafts: Path, texts: Path, out: Path) -> None:
    """The texts of people, of styles other than `everyday` a quarter, and the drafts, each of them twice."""
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(texts.glob("*.txt")):
        people = path.read_text("utf-8").splitlines()
        chosen = people + 2 * best(drafts) if path.stem == "everyday" else people[: len(people) // 4]
        (out / path.name).write_text("".join(f"{text}\n" for text in chosen), "utf-8")
        print(f"{path.stem}: {len(chosen):,} texts")


if __name__ == "__main__":
    {"lists": write_lists, "texts": write_texts}[sys.argv[1]](*map(Path, sys.argv[2:]))
