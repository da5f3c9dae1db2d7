"""What happens past one machine: measured on this one, simulated beyond.

    POINTER_DATA=... python benchmarks/scale.py measure [--lines 131072]      # what a chunk costs, on one core
    POINTER_DATA=... python benchmarks/scale.py ray [--lines 100000] [--kill] # Ray beside processes: the same bytes?
    python benchmarks/scale.py simulate [--out docs/scale.png]                # out to 1e12 tokens

`measure` writes scale.json beside this file, and `simulate` reads it. `ray --kill` kills a worker with SIGKILL in the
middle. Simulated are: workers of uneven speed, nodes that fail, one driver that feeds them all, and training whose
every step waits for the slowest process.
"""

import argparse
import heapq
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MEASURED = Path(__file__).with_name("scale.json")
TOKENS_A_LINE = 27.4
"""Of a Wikipedia sentence, in the paper."""
TOKENS = tuple(10.0**power for power in range(7, 13))
WRITTEN = 8
"""Shards that are written to measure how long one takes."""
WORKERS = (1, 4, 16, 64, 256, 1024, 4096)


# ---------------------------------------------------------------------------------------------------------------------
# Measured


def measure(lines: int) -> dict[str, float]:
    """Seconds for each part of a chunk, on one core."""
    from prepare import corpus_lines

    from pointer.engines import workers
    from pointer.prepare import shards
    from pointer.prepare.corpus import Corpus
    from pointer.vocabulary import Vocabulary

    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        (home / "texts").write_text("\n".join(corpus_lines(lines)) + "\n", "utf-8")
        preparation = shards.Preparation(Corpus((str(home / "texts"),)))
        task = shards._Task(home / "data", preparation)
        vocabulary = Vocabulary.open(preparation.vocabulary)
        shards._claim(task.out, shards._description(preparation, vocabulary))
        vocabulary.save(task.out)
        chunks, reading = _timed(lambda: list(shards._chunks(task)))
        _, fitting = _timed(lambda: [shards._fit_chunk(task, *chunk) for chunk in chunks])
        counts = sorted((task.out / ".work").glob("counts-*"))[: shards.MERGED_CHUNKS]
        group, adding = _timed(lambda: shards._add_up(task, counts))
        _, merging = _timed(lambda: shards.Counts().add(group))
        with workers(lambda: task, 1) as pool:
            shards._merge_counts(task, pool, lambda *_: None)
        _, writing = _timed(lambda: [shards._write_shard(task, chunk[0]) for chunk in chunks[:WRITTEN]])
    seconds = {"read": reading / len(chunks), "first pass": fitting / len(chunks), "add up": adding / len(counts)}
    seconds |= {"merge": merging / len(counts), "second pass": writing / WRITTEN}
    return {"lines a chunk": lines / len(chunks)} | {name: round(value, 5) for name, value in seconds.items()}


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def beside_ray(lines: int, kill: bool) -> None:
    """Prepare the same lines with two processes and with two workers of Ray; print seconds and whether bytes agree."""
    from prepare import corpus_lines

    from pointer.prepare.corpus import Corpus
    from pointer.prepare.shards import Preparation, prepare

    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        (home / "texts").write_text("\n".join(corpus_lines(lines)) + "\n", "utf-8")
        preparation = Preparation(Corpus((str(home / "texts"),)))
        seconds = {}
        for engine in ("local", "ray"):
            stop = threading.Event()
            if kill and engine == "ray":
                threading.Thread(target=_kill_a_worker, args=(home / "ray", stop), daemon=True).start()
            start = time.perf_counter()
            prepare(preparation, home / engine, 2, engine=engine)
            seconds[engine] = time.perf_counter() - start
            stop.set()
        names = sorted(path.name for path in (home / "local").iterdir())
        same = all((home / "local" / name).read_bytes() == (home / "ray" / name).read_bytes() for name in names)
    print(f"{lines:,} lines, two workers: processes {seconds['local']:.1f} s, Ray {seconds['ray']:.1f} s")
    print(f"efficiency {seconds['local'] / seconds['ray']:.2f}; bytes of all {len(names)} files the same: {same}")


def _kill_a_worker(out: Path, stop: threading.Event) -> None:
    """Wait for the first shards, then kill a worker that is at work."""
    import psutil

    while not stop.is_set() and len(list(out.glob("shard-*"))) < 2:
        time.sleep(0.05)
    running = ((one, " ".join(one.info["cmdline"] or [])) for one in psutil.process_iter(["cmdline"]))
    at_work = [one for one, name in running if name.startswith(("ray::Worker", "ray::write_shard"))]
    if at_work:
        print(f"killing process {at_work[0].pid} in the middle of the second pass")
        os.kill(at_work[0].pid, signal.SIGKILL)


# ---------------------------------------------------------------------------------------------------------------------
# Simulated


@dataclass(frozen=True)
class Machine:
    """What the simulation takes for granted of nodes."""

    spread: float = 0.3
    """Standard deviation of the logarithm of how long a piece of work takes: stragglers."""
    hours_between_failures: float = 2000.0
    """Of one worker, on average."""
    restart: float = 60.0
    """Seconds until a worker that failed is back."""
    feed: float = 0.002
    """Seconds that the driver needs to hand out a chunk beside reading it."""


def prepared_in(chunks: int, workers: int, costs: dict[str, float], machine: Machine, seed: int = 0) -> float:
    """Seconds to prepare so many chunks: two passes; between them counts are added up, at last by the driver alone."""
    random = np.random.default_rng([seed, workers, chunks])
    driver = costs["read"] + machine.feed
    first = _pass(chunks, workers, costs["first pass"], driver, machine, random)
    second = _pass(chunks, workers, costs["second pass"], machine.feed, machine, random)
    between = _pass(chunks, workers, costs["add up"], costs["merge"], machine, random)
    return first + between + second


def _pass(
    chunks: int, workers: int, cost: float, driver: float, machine: Machine, random: np.random.Generator
) -> float:
    """Seconds until every chunk is done; each goes to whoever is free first, as soon as the driver has it."""
    sample = min(chunks, 200_000)  # beyond that the rest goes on at the same pace
    costs = cost * random.lognormal(-(machine.spread**2) / 2, machine.spread, sample)
    fails = random.random(sample) < costs / (machine.hours_between_failures * 3600)
    costs = np.where(fails, 1.5 * costs + machine.restart, costs)
    free = [0.0] * min(workers, sample)
    for number, seconds in enumerate(costs.tolist()):
        begin = max(heapq.heappop(free), number * driver)
        heapq.heappush(free, begin + seconds)
    return max(free) * chunks / sample


def training_goodput(processes: int, machine: Machine, step: float = 0.5, save: float = 30.0, seed: int = 0) -> float:
    """The share of time that training many processes gets on: every step waits for the slowest, and any failure takes
    all back to the last checkpoint, saved as often as is best (Young 1974)."""
    random = np.random.default_rng([seed, processes])
    steps = random.lognormal(-(0.05**2) / 2, 0.05, (200, min(processes, 20_000)))  # synchronous GPUs are rather even
    waiting = float(steps.max(1).mean())
    between = machine.hours_between_failures * 3600 / processes
    every = max(save, (2 * save * between) ** 0.5)
    lost = save / every + (every / 2 + machine.restart) / between
    return float(max(0.0, 1 / waiting - lost))


def simulate(out: Path) -> None:
    """Print the tables and draw them."""
    costs, machine = json.loads(MEASURED.read_text("utf-8")), Machine()
    print(
        f"One core: {one_core(costs):,.0f} lines/s measured. Simulated hours to prepare (efficiency against that core):"
    )
    print("| tokens | " + " | ".join(f"{count:,} workers" for count in WORKERS) + " |")
    print("|---" * (len(WORKERS) + 1) + "|")
    found = {}
    for tokens in TOKENS:
        chunks = max(1, int(tokens / TOKENS_A_LINE / costs["lines a chunk"]))
        alone = chunks * (costs["first pass"] + costs["second pass"])
        hours = [prepared_in(chunks, count, costs, machine) / 3600 for count in WORKERS]
        found[tokens] = [alone / 3600 / (hour * count) for hour, count in zip(hours, WORKERS, strict=True)]
        shown = [f"{hour:,.2f} ({share:.0%})" for hour, share in zip(hours, found[tokens], strict=True)]
        print(f"| {tokens:.0e} | " + " | ".join(shown) + " |")
    goodput = {count: training_goodput(count, machine) for count in (8, 16, 64, 256, 1024, 4096, 16384)}
    print("\nSimulated share of time that synchronous training gets on, by processes:")
    print("; ".join(f"{count:,}: {share:.0%}" for count, share in goodput.items()))
    draw(found, goodput, out)


def one_core(costs: dict[str, float]) -> float:
    """Lines a second."""
    return costs["lines a chunk"] / (costs["first pass"] + costs["second pass"])


def draw(found: dict[float, list[float]], goodput: dict[int, float], out: Path) -> None:
    """Efficiency against workers, a line for each size of corpus; and the goodput of training."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6))
    for tokens, shares in found.items():
        left.plot(WORKERS, shares, marker="o", label=f"{tokens:.0e} tokens")
    left.set(xscale="log", xlabel="workers", ylabel="efficiency", title="Preparing (simulated)", ylim=(0, 1.05))
    left.legend(fontsize=7)
    right.plot(list(goodput), list(goodput.values()), marker="o")
    right.set(xscale="log", xlabel="processes", ylabel="share of time", title="Training (simulated)", ylim=(0, 1.05))
    figure.tight_layout()
    figure.savefig(out, dpi=100)


def main() -> None:
    """Measure, compare or simulate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("measure", "ray", "simulate"))
    parser.add_argument("--lines", type=int)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "scale.png")
    options = parser.parse_args()
    if options.part == "measure":
        found = measure(options.lines or 131_072)
        MEASURED.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
        print(json.dumps(found, indent=2))
    elif options.part == "ray":
        beside_ray(options.lines or 100_000, options.kill)
    else:
        simulate(options.out)


if __name__ == "__main__":
    main()
