"""What runs a model, side by side: onnxruntime in int8 and float32, PyTorch, and what was done before.

    POINTER_DATA=... python benchmarks/runtime.py [--part bulk|int8|writer|engines|cost|memory] [--lists N]
    POINTER_DATA=... python benchmarks/runtime.py --part bulk --plot docs/bulk.png

Times are processor time of all threads, so that other work on the machine counts as little as possible, and the clock
beside it; ratios are of runs side by side. An embedded model is compared with the float16 checkpoint that its int8
graph was made from, which the history of the repository has, or else with its own int8 weights in float32.
"""

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import sacrebleu
from corpora import CORPORA, validation

from pointer.checkpoint import ONNX, checkpoint_folder
from pointer.decoding import search
from pointer.decoding.generator import Pointer
from pointer.decoding.parallel import ParallelPointer
from pointer.evaluation.metrics import interval, resamples
from pointer.runtime.export import export

ROOT = Path(__file__).parents[1]
ALONE = 20
"""Requests of which latency is measured."""
ALL_STAGES = 64
"""More stages than a text ever has."""
FEW = 4
"""Lists for what takes seconds a text."""


class Spent(NamedTuple):
    """Milliseconds a text, by the processor and by the clock."""

    processor: float
    clock: float


def timed(work: Callable[[], Any], texts: int = 1) -> tuple[Spent, Any]:
    """What some work takes, for each of so many texts, and what it returns."""
    processor, clock = time.process_time(), time.perf_counter()
    result = work()
    each = 1e3 / texts
    return Spent(each * (time.process_time() - processor), each * (time.perf_counter() - clock)), result


class Asked(NamedTuple):
    """What is asked of a part."""

    lists: int
    threads: int
    plot: Path | None

    def opened(self, name: str | Path, backend: str) -> Any:
        """A generator."""
        return Pointer.from_pretrained(name, backend=backend, threads=self.threads)


@contextmanager
def floating(name: str) -> Iterator[tuple[Path, str]]:
    """A checkpoint with the float weights of an embedded model, and where they are from."""
    home = checkpoint_folder(name)
    stored = f"src/pointer/checkpoints/{name}/model.safetensors"
    with tempfile.TemporaryDirectory() as scratch:
        plain = Path(scratch) / name
        gone = _git("log", "-1", "--diff-filter=D", "--format=%H", "--", stored).decode().strip()
        weights = _git("show", f"{gone}^:{stored}") if gone else b""
        if weights:
            shutil.copytree(home, plain, ignore=shutil.ignore_patterns(ONNX, "manifest.json"))
            (plain / "model.safetensors").write_bytes(weights)
            yield plain, "the float16 checkpoint that the graph was made from"
        else:
            from pointer.model import InsertionTransformer

            InsertionTransformer.from_pretrained(name).save_pretrained(plain)
            yield plain, "its own int8 weights"


def _git(*arguments: str) -> bytes:
    """What git prints; nothing where there is no git, no repository or no history."""
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return b""


def _one_by_one(pointer: Any, lists: list[list[str]], way: dict[str, Any]) -> Any:
    """Texts as they come, without a batch."""
    return [pointer.generate(one, **way) for one in lists]


def bleu(texts: Sequence[str], references: Sequence[str]) -> float:
    """BLEU-4 against one reference a text."""
    return float(sacrebleu.corpus_bleu(list(texts), [list(references)], lowercase=True).score)


# ---------------------------------------------------------------------------------------------------------------------
# Many texts, and one


def bulk(asked: Asked) -> None:
    """Bulk throughput, what the texts are worth, and the latency of one request: the loop of 2020 up to int8."""
    lists, people = validation(*CORPORA["reviews"], asked.lists)
    before = patch.object(search, "WHOLE_STAGES", ALL_STAGES)
    print(f"reviews, keywords of {len(lists)} Yelp validation texts, at most 7, greedy, {asked.threads} threads")
    print(
        f"  {'':30}{'cpu ms/text':>12}{'ms/text':>9}{'ratio: cpu':>12}{'clock':>8}{'BLEU-4':>8}"
        f"{'alone: p50':>12}{'p95 ms':>8}{'cpu':>6}"
    )
    rows: dict[str, Spent] = {}
    with floating("reviews") as (plain, origin), tempfile.TemporaryDirectory() as scratch:
        torch, exact, near = (
            asked.opened(plain, "torch"),
            asked.opened(export(plain, Path(scratch) / "float32"), "onnx"),
            asked.opened("reviews", "onnx"),
        )
        few = lists[:FEW]
        torch.generate(few[0], preset="released")
        loop, _ = timed(partial(_one_by_one, torch, few, {"preset": "released"}), len(few))
        print(f"  {'loop of 2020, PyTorch':30}{loop.processor:12.1f}{loop.clock:9.1f}")
        with before:
            rows["all rounds, PyTorch float32"] = _row(rows, "all rounds, PyTorch float32", torch, lists, people)
        for label, pointer in {
            "PyTorch float32": torch,
            "onnxruntime float32": exact,
            "onnxruntime int8": near,
        }.items():
            rows[label] = _row(rows, label, pointer, lists, people)
    print(f"  float32: {origin}. Ratios are to the row with all rounds, which is how this model was decoded before.")
    if asked.plot:
        _draw_bulk({"loop of 2020, PyTorch": loop} | rows, asked.plot)


def _row(rows: dict[str, Spent], label: str, pointer: Any, lists: list[list[str]], people: list[str]) -> Spent:
    """Decode all lists together and some alone, and print what it took."""
    pointer.generate_many(lists[:8])
    spent, found = timed(partial(pointer.generate_many, lists), len(lists))
    alone = [timed(partial(pointer.generate, one))[0] for one in lists[:ALONE]]
    waits = sorted(one.clock for one in alone)
    first = next(iter(rows.values()), spent)
    print(
        f"  {label:30}{spent.processor:12.1f}{spent.clock:9.1f}{first.processor / spent.processor:11.1f}x"
        f"{first.clock / spent.clock:7.1f}x{bleu([one[0].text for one in found], people):8.2f}"
        f"{waits[len(waits) // 2]:12.1f}{waits[int(0.95 * len(waits))]:8.1f}"
        f"{statistics.median(one.processor for one in alone):6.0f}",
        flush=True,
    )
    return spent


def _draw_bulk(rows: dict[str, Spent], path: Path) -> None:
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(7, 2.4))
    bars = axes.barh(list(rows), [1e3 / one.processor for one in rows.values()], color="#4878a8")
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("texts for a second of processor time")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


@cache
def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


# ---------------------------------------------------------------------------------------------------------------------
# How near int8 comes


def int8(asked: Asked) -> None:
    """Decisions on the same texts, texts to the end, and BLEU-4, for every embedded model."""
    print(f"int8 beside float32, both in onnxruntime, greedy, {asked.lists} validation texts of each model's corpus")
    print(f"  {'':10}{'same decisions':>16}{'same texts':>12}{'shared words':>14}{'BLEU-4: float32':>17}{'int8':>7}")
    for name in CORPORA:
        lists, people = validation(*CORPORA[name], asked.lists)
        with floating(name) as (plain, origin), tempfile.TemporaryDirectory() as scratch:
            exact, near = asked.opened(export(plain, Path(scratch) / "float32"), "onnx"), asked.opened(name, "onnx")
            same: list[np.ndarray[Any, Any]] = []
            expected, found = (
                [one[0].text for one in texts] for texts in (_both(exact, near, same, lists), near.generate_many(lists))
            )
        shared = statistics.mean(_shared(a.split(), b.split()) for a, b in zip(expected, found, strict=True))
        equal = np.mean([a == b for a, b in zip(expected, found, strict=True)])
        shares = f"{np.concatenate(same).mean():16.2%}{equal:12.1%}{shared:14.1%}"
        before, after, low, high = _difference(expected, found, people)
        scores = f"{before:17.2f}{after:7.2f}{after - before:+8.2f} ({low:+.2f} to {high:+.2f})"
        print(f"  {name:10}{shares}{scores}", flush=True)
    print(f"  float32: {origin}. Decisions: the likeliest answer of a gap, both asked about the same text.")
    print("  Texts are compared at their end, after one other decision has led to others; shared words are those of")
    print("  the longest common subsequence. In brackets: 95 % of 1,000 draws of the same texts for both (bootstrap).")
    print("  Asked: 97 % of the tokens, BLEU-4 within 0.1.")


def _both(exact: Any, near: Any, same: list[Any], lists: list[list[str]]) -> Any:
    """The texts of one model; `same` gets where another, asked about the same gaps, has the same answer."""
    ask = exact.predict

    def predict(*given: Any) -> Any:
        logits = ask(*given)
        same.append(logits.argmax(-1) == near.predict(*given).argmax(-1))
        return logits

    exact.predict = predict
    return exact.generate_many(lists)


def _difference(texts: list[str], others: list[str], people: list[str]) -> tuple[float, ...]:
    """BLEU-4 of two systems, and the paired bootstrap interval of by how much the second is better."""
    counts = [_counts(texts, people), _counts(others, people)]
    values = [_of_counts(one.sum(0)) for one in counts]
    draws = np.concatenate(list(resamples(len(texts), 1000, seed=0))).astype(int)
    before, after = (np.array([_of_counts(sums) for sums in draws @ one]) for one in counts)
    return *values, *interval(values[1] - values[0], after - before)


def _counts(texts: list[str], people: list[str]) -> np.ndarray[Any, Any]:
    """What the BLEU of texts is computed from, a row for each."""
    scores = [sacrebleu.sentence_bleu(text, [one], lowercase=True) for text, one in zip(texts, people, strict=True)]
    return np.array([[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores])


def _of_counts(sums: Any) -> float:
    """BLEU-4, as `bleu` gives it."""
    return float(
        sacrebleu.BLEU.compute_bleu(list(sums[:4]), list(sums[4:8]), sums[8], sums[9], smooth_method="exp").score
    )


def _shared(one: list[str], other: list[str]) -> float:
    """The share of words in the longest common subsequence."""
    table = np.zeros((len(one) + 1, len(other) + 1), int)
    for i, left in enumerate(one):
        for j, right in enumerate(other):
            table[i + 1, j + 1] = table[i, j] + 1 if left == right else max(table[i, j + 1], table[i + 1, j])
    return float(table[-1, -1]) / max(len(one), len(other), 1)


# ---------------------------------------------------------------------------------------------------------------------
# The writer


def writer(asked: Asked) -> None:
    """The writer's texts one after the other and many together, and what they are worth."""
    from commongen import asked_sets
    from commongen import bleu as bleu_of_many

    sets = asked_sets(asked.lists)
    lists, few = [one.constraints for one in sets], [one.constraints for one in sets[:FEW]]
    print(f"writer, {len(sets)} drawn validation sets of CommonGen, {len(few)} of them also one at a time: cpu ms/text")
    print(f"  {'':22}{'greedy':>9}{'beam of 4':>11}{'best of 8':>11}{'together':>10}{'BLEU-4':>9}")
    rows: dict[str, list[float]] = {}
    for label, backend in (("PyTorch float32", "torch"), ("onnxruntime int8", "onnx")):
        pointer = asked.opened("writer", backend)
        pointer.generate(lists[0])
        ways: list[dict[str, Any]] = [{}, {"decoding": "beam", "width": 4}, {"best_of": 8}]
        alone = [timed(partial(_one_by_one, pointer, few, way), len(few))[0] for way in ways]
        together, found = timed(partial(pointer.generate_many, lists), len(lists))
        rows[label] = [one.processor for one in (*alone, together)]
        score = bleu_of_many([one[0].text for one in found], [one.references for one in sets])
        greedy, beam, best, bulk_cost = rows[label]
        print(f"  {label:22}{greedy:9.0f}{beam:11.0f}{best:11.0f}{bulk_cost:10.0f}{score:9.2f}", flush=True)
    ratios = [a / b for a, b in zip(*rows.values(), strict=True)]
    print(f"  {'ratio':22}{ratios[0]:8.1f}x{ratios[1]:10.1f}x{ratios[2]:10.1f}x{ratios[3]:9.1f}x")
    print("  Asked: 3x a text, BLEU-4 (against all references) within 0.5.")


# ---------------------------------------------------------------------------------------------------------------------
# Which engine runs the graph


def engines(asked: Asked) -> None:
    """The same graph in onnxruntime and, where it is installed, OpenVINO, on one thread: passes over 24 tokens."""
    print("reviews, a pass over texts of 24 tokens, all gaps asked about, one thread: cpu ms/text, median of passes")
    print(f"  {'':24}{'batch of 1':>12}{'batch of 32':>13}   answers as in float32")
    with floating("reviews") as (plain, _origin), tempfile.TemporaryDirectory() as scratch:
        exact, near = export(plain, Path(scratch) / "float32") / ONNX, checkpoint_folder("reviews") / ONNX
        expected = _onnxruntime(exact)
        rows: dict[str, Callable[[], Run]] = {
            "onnxruntime float32": lambda: expected,
            "openvino float32": lambda: _openvino(exact, "f32"),
            "openvino bfloat16": lambda: _openvino(exact, "bf16"),
            "onnxruntime int8": lambda: _onnxruntime(near),
            "openvino int8": lambda: _openvino(near, "f32"),
        }
        for label, opener in rows.items():
            try:
                run = opener()
            except ImportError:
                print(f"  {label:24}not installed here: pip install openvino")
                continue
            given = _gaps(32)
            answers, wanted = run(given), expected(given)
            if answers.shape != wanted.shape:
                print(f"  {label:24}wrong: answers for {len(answers)} of {len(wanted)} gaps")
                continue
            cells = [statistics.median(_passes(run, size, asked.lists)) for size in (1, 32)]
            same = (answers.argmax(-1) == wanted.argmax(-1)).mean()
            print(f"  {label:24}{cells[0]:12.2f}{cells[1]:13.2f}{same:9.1%}", flush=True)


Run = Callable[[dict[str, Any]], Any]
"""A graph: its inputs by name, and the logits of all gaps."""


def _onnxruntime(graph: Path) -> Run:
    from pointer.runtime.onnx import Session

    session = Session(graph, 1)
    return lambda given: session.run(None, given)[0]


def _openvino(graph: Path, precision: str) -> Run:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": precision}
    compiled = openvino.Core().compile_model(str(graph), "CPU", settings)
    return lambda given: compiled(given)[0]


def _gaps(texts: int) -> dict[str, Any]:
    """Random texts of 24 tokens, and all their gaps."""
    ids = np.random.default_rng(0).integers(1000, 9000, (texts, 24))
    rows, positions = np.divmod(np.arange(texts * 23), 23)
    return {"ids": ids, "attention": np.ones_like(ids), "rows": rows, "positions": positions}


def _passes(run: Run, texts: int, passes: int) -> list[float]:
    """The processor time of every pass, in ms a text."""
    given = _gaps(texts)
    run(given)
    return [timed(partial(run, given), texts)[0].processor for _ in range(passes)]


# ---------------------------------------------------------------------------------------------------------------------
# What a text costs


def cost(asked: Asked) -> None:
    """What a text costs by its length, by the size of the batch and by the number of constraints."""
    pointer = asked.opened("reviews", "onnx")
    assert isinstance(pointer, ParallelPointer)
    lists, _people = validation(*CORPORA["reviews"], asked.lists)
    pointer.generate_many(lists[:8])
    curves: dict[str, list[tuple[float, float]]] = {}
    print("reviews, onnxruntime int8, greedy: cpu ms/text")
    for offset in (4.0, 1.0, 0.0, -1.0, -3.0):
        spent, found = timed(partial(pointer.generate_many, lists, noi_offset=offset), len(lists))
        tokens = statistics.mean(len(one[0].tokens) for one in found)
        curves.setdefault("tokens of the text", []).append((tokens, spent.processor))
        print(f"  {tokens:6.1f} tokens (noi_offset {offset:+.0f}){spent.processor:10.1f}")
    for size in (1, 4, 16, 64):
        spent, _found = timed(partial(pointer.generate_many, lists, batch_size=size), len(lists))
        curves.setdefault("size of the batch", []).append((size, spent.processor))
        print(f"  batches of {size:<20}{spent.processor:10.1f}")
    for words in (1, 2, 4, 7):
        spent, _found = timed(partial(pointer.generate_many, [one[:words] for one in lists]), len(lists))
        curves.setdefault("constraints", []).append((words, spent.processor))
        print(f"  {words} constraints{'':18}{spent.processor:10.1f}")
    if asked.plot:
        _draw_cost(curves, asked.plot)


def _draw_cost(curves: dict[str, list[tuple[float, float]]], path: Path) -> None:
    pyplot = _pyplot()
    figure, panels = pyplot.subplots(1, len(curves), figsize=(9, 2.8), sharey=True)
    for axes, (name, points) in zip(panels, curves.items(), strict=True):
        axes.plot(*zip(*points, strict=True), marker="o", color="#4878a8")
        axes.set_xlabel(name)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("processor ms a text")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def memory(asked: Asked) -> None:
    """The peak memory of `pointer generate -f` by the number of lists, with a tiny model of random weights."""
    import torch
    from prepare import peak_of

    from pointer.model import InsertionTransformer
    from pointer.vocabulary import Vocabulary

    torch.manual_seed(0)
    vocabulary = Vocabulary.open("english")
    words = [token for token in vocabulary.tokens if token.isalpha() and token.isascii() and len(token) > 3]
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as scratch:
        InsertionTransformer.start("tiny", vocabulary).save_pretrained(Path(scratch) / "plain")
        model = export(Path(scratch) / "plain", Path(scratch) / "tiny")
        peaks: list[float] = []
        for lists in (asked.lists // 10, asked.lists):
            file = Path(scratch) / "lists.txt"
            file.write_text("".join("; ".join(random.choice(words, 3)) + "\n" for _ in range(lists)), "utf-8")
            command = [sys.executable, "-m", "pointer", "generate", "--model", model, "--max-stages", "1", "-f", file]
            peaks.append(peak_of([*map(str, command), "-o", f"{scratch}/{lists}.jsonl"]))
    print(f"pointer generate -f, a tiny model: peak memory {peaks[0]:.0f} MiB for {asked.lists // 10:,} lists,")
    print(f"  {peaks[1]:.0f} MiB for {asked.lists:,}: {peaks[1] / peaks[0]:.2f}x")


class Part(NamedTuple):
    """What can be asked for, and for how many lists unless said otherwise."""

    run: Callable[[Asked], None]
    lists: int


PARTS = {
    "bulk": Part(bulk, 100),
    "int8": Part(int8, 300),
    "writer": Part(writer, 100),
    "engines": Part(engines, 100),
    "cost": Part(cost, 60),
    "memory": Part(memory, 100_000),
}


def machine() -> str:
    """What these numbers were measured on."""
    lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines()]
    name = next((value.strip() for key, _, value in lines if key.startswith("model name")), platform.processor())
    flags = next((value.split() for key, _, value in lines if key.startswith("flags")), [])
    has = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16") if flag in flags]
    return f"{name}, {os.cpu_count()} cores ({', '.join(has)}), Python {platform.python_version()}"


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=list(PARTS))
    parser.add_argument("--lists", type=int, help="lists, or sets, or passes of a part")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--plot", type=Path, help="where the parts bulk and cost draw what they found")
    arguments = parser.parse_args()
    for name in [arguments.part] if arguments.part else PARTS:
        PARTS[name].run(Asked(arguments.lists or PARTS[name].lists, arguments.threads, arguments.plot))


if __name__ == "__main__":
    main()
