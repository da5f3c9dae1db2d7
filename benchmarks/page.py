"""Runs every benchmark and writes what they print to docs/benchmarks.md: `make bench`.

    POINTER_DATA=... python benchmarks/page.py [--only NAME ...]

Each part is a command that can be given by itself. A part that fails says so on the page; the others are kept.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from runtime import machine

from pointer.storage import write_whole

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
PATIENCE = 240
"""Seconds that one part may take."""


class Part(NamedTuple):
    """A section of the page."""

    title: str
    about: str
    command: str


PARTS = {
    "decoding": Part(
        "Decoding in three runtimes",
        "Bulk throughput and the latency of one request. Every text is decoded greedily with the default preset.",
        "runtime.py --part decoding",
    ),
    "int8": Part(
        "What int8 changes",
        "Decisions are compared where both are asked about the same text; texts are compared at their end, after which "
        "one other decision has led to others.",
        "runtime.py --part int8",
    ),
    "writer": Part(
        "The writer", "The language model that inserts, with keys and values kept.", "runtime.py --part writer"
    ),
    "start": Part("From the shell to the text", "A process for each measurement.", "start.py --part start"),
    "install": Part(
        "What a base install weighs",
        "NumPy, onnxruntime, tokenizers with what they require, and the package with its checkpoints are nearly all of "
        "it, so that 150 MB cannot be reached with them.",
        "start.py --part install",
    ),
    "length": Part(
        "Cost by length, batch size and number of constraints",
        "And the memory of many lists.",
        "runtime.py --part length",
    ),
    "loop": Part(
        "Against the padded loop, one text at a time",
        "The loop pads to 256 tokens and makes six rounds, as the 2020 release does; both run in PyTorch.",
        "decode.py --size embedded --lists 16 --slow-lists 3",
    ),
    "beam": Part("Beam search", "In bulk, width 4.", "decode.py --model reviews --beam 16"),
    "serving": Part("Serving", "1, 8 and 64 clients.", "serve.py --seconds 3 --rounds 1"),
    "preparation": Part("Preparation", "Against a plain loop.", "prepare.py --lines 5000"),
    "training": Part("Training", "Against unsorted, padded batches.", "train.py --lines 1000 --rounds 4"),
}


def measured(part: Part) -> str:
    """What the command of a part prints."""
    try:
        done = subprocess.run(
            [sys.executable, *part.command.split()], cwd=HERE, capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return f"not done within {PATIENCE} s"
    return done.stdout.strip() if done.returncode == 0 else f"failed: {done.stderr.strip().splitlines()[-1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    chosen = parser.parse_args().only
    parts = [
        "# Benchmarks\n\nWritten by `make bench` (`python benchmarks/page.py`), which needs `POINTER_DATA`. "
        f'Measured on: {machine()}. "cpu" is processor time of all threads; "ms" alone is the clock.'
    ]
    for name in chosen:
        print(f"{name} ...", file=sys.stderr)
        found = measured(PARTS[name])
        title, about, command = PARTS[name]
        parts.append(f"## {title}\n\n{about}\n\n```\n$ python benchmarks/{command}\n{found}\n```")
    write_whole(PAGE, ("\n\n".join(parts) + "\n").encode())


if __name__ == "__main__":
    main()
