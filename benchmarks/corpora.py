"""The real corpora, for the benchmarks beside this file: where they are, and what validation texts ask for."""

import lzma
import os
import sys
from itertools import islice
from pathlib import Path

from pointer.prepare.keywords import keywords

CORPORA = {"wiki": ("wiki", 4), "news": ("news", 4), "reviews": ("yelp", 7)}
"""The corpus of each embedded model, and how many keywords of a text are asked for."""


def corpus_file(name: str) -> Path:
    """The file of a corpus, such as `wiki/train`, in the folder that POINTER_DATA names."""
    folder = os.environ.get("POINTER_DATA") or sys.exit("Expected POINTER_DATA to name the folder of the corpora.")
    return Path(folder) / f"{name}.txt.xz"


def validation(corpus: str, most: int, lists: int) -> tuple[list[list[str]], list[str]]:
    """The keywords of the first validation texts of a corpus that have any, and these texts."""
    with lzma.open(corpus_file(f"{corpus}/valid"), "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in islice(file, lists)]
    asked = [(found, line) for line in lines if (found := keywords(line, most))]
    return [found for found, _ in asked], [line for _, line in asked]
