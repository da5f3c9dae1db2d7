"""Before the first text: what an install weighs, and the way from the shell to the text, part by part.

    python benchmarks/start.py [--part start|install]

Times are processor time (user and system) beside the clock; every measurement is a process of its own, and all are
measured in one run. `install` makes an empty environment and lets pip install the package and what it needs.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]
WORDS = "friendly staff; breakfast; coffee; back"
# As after `pip install`, which compiles what it installs.
COMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def start() -> None:
    """From the shell to the text, beside importing PyTorch; and a warm server's client."""
    command = [str(Path(sys.executable).with_name("pointer"))]
    print("cold start, median of 7 processes, cpu ms (user and system) and ms of the clock")
    _shown("python -c pass", _spent([sys.executable, "-c", "pass"]))
    torch = _spent([sys.executable, "-c", "import torch"])
    _shown("python -c 'import torch'", torch)
    parts = ("import pointer.cli", "import numpy", "import onnxruntime", "import tokenizers")
    for part in (*parts, "import pointer.decoding.parallel"):
        _shown(f"  {part}", _spent([sys.executable, "-c", part]))
    opening = "from pointer import Pointer; Pointer.from_pretrained('reviews')"
    _shown("  ... and open reviews", _spent([sys.executable, "-c", opening]))
    whole = _spent([*command, "generate", "--model", "reviews", WORDS])
    _shown("pointer generate --model reviews", whole)
    print(f"  {whole[0] / torch[0]:.2f} of importing torch by the processor, {whole[1] / torch[1]:.2f} by the clock")
    with subprocess.Popen(
        [*command, "serve", "--model", "reviews", "--port", "0"], stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        url = server.stderr.readline().split()[-1]
        while not _is_open(urlsplit(url).netloc):
            time.sleep(0.1)
        _shown("pointer generate --server (client)", _spent([*command, "generate", WORDS, "--server", url]))
        server.terminate()
    _shown("  of which import typer", _spent([sys.executable, "-c", "import typer"]))
    _shown("  of which import socket, json", _spent([sys.executable, "-c", "import socket, json"]))


def _is_open(address: str) -> bool:
    """Can the server at an address be asked?"""
    connection = HTTPConnection(address)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _shown(name: str, spent: tuple[float, float]) -> None:
    print(f"  {name:38}{spent[0]:8.0f}{spent[1]:8.0f}")


def _spent(command: list[str], times: int = 7) -> tuple[float, float]:
    """The median of processor and clock time of a process, in ms; the first one, which may compile, does not count."""
    _once(command)
    processor, clock = zip(*(_once(command) for _ in range(times)), strict=True)
    return statistics.median(processor), statistics.median(clock)


def _once(command: list[str]) -> tuple[float, float]:
    """Processor and clock time of a process and of those it starts, in ms."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=COMPILED)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1e3 * processor, 1e3 * (time.perf_counter() - begun)


def install() -> None:
    """What the wheel and a base install weigh, package by package, and how long pip takes."""
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True)
        python = str(Path(scratch, "bin", "python"))
        before = _weights(python)
        pip = [python, "-m", "pip"]
        processor, clock = _once([*pip, "install", "--constraint", str(ROOT / "constraints.txt"), str(ROOT)])
        weights = {name: size for name, size in _weights(python).items() if name not in before}
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", scratch, str(ROOT)], check=True, capture_output=True)
        [wheel] = [file.stat().st_size / 1e6 for file in Path(scratch).glob("*.whl")]
    whole = sum(weights.values())
    print(f"the wheel: {wheel:.1f} MB")
    print(f"pip install . into an empty environment: {whole:.0f} MB in {len(weights)} packages,")
    print(
        f"  {processor / 1e3:.0f} s of the processor and {clock / 1e3:.0f} s of the clock, building the wheel included"
    )
    heaviest = sorted(weights, key=lambda name: -weights[name])[:12]
    for name in heaviest:
        print(f"  {name:38}{weights[name]:8.1f} MB")
    print(f"  {'all others together':38}{whole - sum(weights[name] for name in heaviest):8.1f} MB")


def _weights(python: str) -> dict[str, float]:
    """The MB of every package of an environment, with what is compiled of it."""
    program = (
        "import importlib.metadata as metadata\n"
        "for one in metadata.distributions():\n"
        "    files = {file.locate() for file in one.files or []}\n"
        "    print(one.name, sum(file.stat().st_size for file in files if file.is_file()) / 1e6)"
    )
    lines = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout.splitlines()
    return {name: float(size) for name, size in map(str.split, lines)}


PARTS = {"start": start, "install": install}


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=list(PARTS))
    chosen = parser.parse_args().part
    for name in [chosen] if chosen else PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
