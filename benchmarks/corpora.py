"""Where the real corpora are, for the benchmarks beside this file."""

import os
import sys
from pathlib import Path


def corpus_file(name: str) -> Path:
    """The file of a corpus, such as `wiki/train`, in the folder that POINTER_DATA names."""
    folder = os.environ.get("POINTER_DATA") or sys.exit("Expected POINTER_DATA to name the folder of the corpora.")
    return Path(folder) / f"{name}.txt.xz"
