"""Runs every benchmark and writes what they print to docs/benchmarks.md: `make bench`.

    POINTER_DATA=... python benchmarks/page.py [--only NAME ...]

Each part is a command that can be given by itself; with `--only` the others stay on the page as they are. A part that
fails says so on the page.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from runtime import machine

from pointer.storage import write_whole

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
PATIENCE = 600
"""Seconds that one part may take."""
HEAD = """# Benchmarks

`make bench` (`python benchmarks/page.py`, needs `POINTER_DATA`) measures everything and writes this page. "cpu" is the
processor time of all threads, which other work on the machine changes least; "ms" alone is the clock. Ratios are of
runs side by side. Under each table stand the machine, how long the part took, and the load of the machine, which on a
quiet one is at most its cores."""


class Part(NamedTuple):
    """A section of the page."""

    title: str
    about: str
    command: str
    plot: str = ""


PARTS = {
    "bulk": Part(
        "Many texts, and one",
        "From the loop of the 2020 release (one text at a time, padded to 256 tokens, always six rounds; its texts are "
        "others, as it decides otherwise) by way of how this model was decoded before (PyTorch, all rounds in every "
        "stage; the revisions that there were, too, are gone) to the default of today. Asked: 5 times the bulk "
        "throughput of before with the same BLEU-4, and a single text within 150 ms. `alone` is one request after the "
        "other.",
        "benchmarks/runtime.py --part bulk --lists 60",
        "docs/bench-bulk.png",
    ),
    "int8": Part(
        "What int8 changes",
        "That float32 in onnxruntime writes what PyTorch writes is a test: `pytest -m slow tests/runtime/test_onnx.py` "
        "compares 1,000 texts of each embedded model. A hundred texts are too few to tell 0.1 BLEU-4. With "
        "`--lists 400` the differences are +0.02 for `wiki` (95 %: -0.21 to +0.28), +0.07 for `news` (-0.28 to +0.40) "
        "and -0.06 for `reviews` (-0.25 to +0.14), and 99.2 to 99.5 % of the decisions are the same.",
        "benchmarks/runtime.py --part int8 --lists 100",
    ),
    "writer": Part(
        "The writer",
        "The language model that inserts, with keys and values kept: int8 in onnxruntime beside float32 in PyTorch.",
        "benchmarks/runtime.py --part writer --lists 24",
    ),
    "engines": Part(
        "onnxruntime or OpenVINO",
        "OpenVINO is no part of the project; `pip install openvino` beside it brings its rows. It cannot run the int8 "
        "graph, whose activations have a scale for each token, and its bfloat16 is slower than int8 in onnxruntime. So "
        "onnxruntime it is.",
        "benchmarks/runtime.py --part engines --lists 30",
    ),
    "start": Part(
        "From the shell to the text",
        "Asked: half of importing PyTorch, and 50 ms for a client of a server. Most of what the client takes is the "
        "import of Typer, which is quicker there than alone, as the garbage collector waits until it is over.",
        "benchmarks/start.py --part start",
    ),
    "install": Part(
        "What a base install weighs",
        "Asked: 60 MB for the wheel, 150 MB and 30 s for all. NumPy, onnxruntime and the package with its checkpoints "
        "are more than 200 MB, so that 150 cannot be reached with them. `huggingface_hub` and `hf-xet` are required by "
        "tokenizers, rich by Typer, and Pygments by rich.",
        "benchmarks/start.py --part install",
    ),
    "cost": Part(
        "Cost by length, batch size and number of constraints",
        "Longer texts by an offset of `[NOI]`, fewer constraints by leaving some out.",
        "benchmarks/runtime.py --part cost --lists 40",
        "docs/bench-cost.png",
    ),
    "memory": Part(
        "Memory of many lists",
        "`--lists 100000` takes some minutes more.",
        "benchmarks/runtime.py --part memory --lists 20000",
    ),
    "loop": Part(
        "Against the padded loop, the same texts",
        "Both in PyTorch with random weights, and the same tokens come out: what batches, lengths and open gaps alone "
        "are worth, without int8 and onnxruntime.",
        "benchmarks/decode.py --size embedded --lists 16 --slow-lists 3",
    ),
    "beam": Part("Beam search", "In bulk, width 4.", "benchmarks/decode.py --model reviews --beam 12"),
    "serving": Part(
        "Serving",
        "Requests that share passes beside one request at a time, for 1, 8 and 64 clients; and where the time of a "
        "request goes in a full batch, which is why two cores cannot do [4x](serving.md#how-fast).",
        "benchmarks/serve.py --seconds 3 --rounds 1",
    ),
    "preparation": Part("Preparation", "Against a plain loop.", "benchmarks/prepare.py --lines 5000"),
    "training": Part("Training", "Against unsorted, padded batches.", "benchmarks/train.py --lines 1000 --rounds 3"),
}


def section(part: Part) -> str:
    """A section: what the command of a part prints, and what it draws."""
    command = f"{part.command} --plot {part.plot}" if part.plot else part.command
    begun = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, *command.split()], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
        )
        found = done.stdout.strip() or f"failed: {done.stderr.strip().splitlines()[-1]}"
    except subprocess.TimeoutExpired:
        found = f"not done within {PATIENCE} s"
    picture = f"\n\n![{part.title}]({Path(part.plot).name})" if part.plot else ""
    measured = f"{machine()}; {time.perf_counter() - begun:.0f} s, load {Path('/proc/loadavg').read_text().split()[0]}."
    return f"{part.about}\n\n```\n$ python {command}\n{found}\n```{picture}\n\n{measured}"


def sections(page: str) -> dict[str, str]:
    """What a page has under each of its headings."""
    _, *found = page.split("\n## ")
    return {title: text.strip() for title, _, text in (one.partition("\n") for one in found)}


def main() -> None:
    """Measure what was asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    begun = time.perf_counter()
    for name in parser.parse_args().only:
        print(f"{name}, after {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
        measured = section(PARTS[name])
        known = sections(PAGE.read_text("utf-8")) | {PARTS[name].title: measured}
        kept = [f"## {part.title}\n\n{known[part.title]}" for part in PARTS.values() if part.title in known]
        write_whole(PAGE, ("\n\n".join([HEAD, *kept]) + "\n").encode())
    print(f"done after {time.perf_counter() - begun:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
