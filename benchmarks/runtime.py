"""What it takes to get a text: onnxruntime in int8 beside PyTorch, from the shell to the text, part by part.

    python benchmarks/runtime.py [--part decoding|int8|writer|length] [--lists 200] [--reference CHECKPOINT]

Times are processor time (user and system), so that other work on the machine counts as little as possible; ratios
are of runs side by side. `--reference` is a float checkpoint that int8 is compared with; left out, an embedded
model is compared with its own weights in float32.
"""

import argparse
import os
import platform
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from corpora import corpus_file

from pointer.decoding.generator import Pointer
from pointer.decoding.parallel import ParallelPointer
from pointer.prepare.keywords import keywords

WORDS = 7
"""Constraints of a list, as in the paper's runs on Yelp."""


def lists_of(count: int, words: int = WORDS, name: str = "yelp/valid") -> tuple[list[list[str]], list[str]]:
    """Keywords of validation texts, and the texts."""
    import lzma

    found, texts = [], []
    with lzma.open(corpus_file(name), "rt", encoding="utf-8") as file:
        for line in file:
            drawn = keywords(line.strip(), words)
            if len(drawn) == words:
                found.append([str(word) for word in drawn])
                texts.append(line.strip())
            if len(found) == count:
                break
    return found, texts


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds of the processor and of the clock that some work takes, and what it returns."""
    processor, clock = time.process_time(), time.perf_counter()
    result = work()
    return time.process_time() - processor, time.perf_counter() - clock, result


def opened(name: str | Path, backend: str) -> Any:
    return Pointer.from_pretrained(name, backend=backend)


def floating(name: str, reference: str | None, folder: Path) -> Path:
    """A checkpoint with float weights to compare an int8 one with."""
    if reference:
        return Path(reference)
    from pointer.model import InsertionTransformer

    InsertionTransformer.from_pretrained(name).save_pretrained(folder / "float")
    return folder / "float"


def decoding(count: int, reference: str | None) -> None:
    """Bulk throughput and the latency of one request, in three runtimes."""
    from pointer.runtime.export import export

    lists, _ = lists_of(count)
    print(f"reviews, {len(lists)} lists of {WORDS} keywords of Yelp validation texts, greedy, {os.cpu_count()} threads")
    print(
        f"  {'':18}{'cpu ms/text':>13}{'ms/text':>9}{'ratio (cpu)':>13}{'alone: p50 ms':>15}{'p95 ms':>8}{'cpu ms':>8}"
    )
    with tempfile.TemporaryDirectory() as scratch:
        plain = floating("reviews", reference, Path(scratch))
        exported = export(plain, Path(scratch) / "exported")
        first = 0.0
        for label, name, backend in (
            ("PyTorch, float32", plain, "torch"),
            ("ONNX, float32", exported, "onnx"),
            ("ONNX, int8", "reviews", "onnx"),
        ):
            pointer = opened(name, backend)
            pointer.generate_many(lists[:8])
            processor, clock, _ = timed(partial(pointer.generate_many, lists))
            first = first or processor
            alone = [timed(partial(pointer.generate, one)) for one in lists[:40]]
            waits = sorted(1e3 * clock for _, clock, _ in alone)
            each, wall = 1e3 * processor / len(lists), 1e3 * clock / len(lists)
            print(
                f"  {label:18}{each:13.1f}{wall:9.1f}{first / processor:12.1f}x{waits[len(waits) // 2]:15.1f}"
                f"{waits[int(0.95 * len(waits))]:8.1f}{1e3 * statistics.median(cpu for cpu, _, _ in alone):8.1f}"
            )


def int8(count: int, reference: str | None) -> None:
    """How near int8 comes: decisions on the same texts, texts to the end, BLEU-4."""
    import sacrebleu

    lists, texts = lists_of(count)
    with tempfile.TemporaryDirectory() as scratch:
        exact, near = opened(floating("reviews", reference, Path(scratch)), "torch"), opened("reviews", "onnx")
    same: list[np.ndarray[Any, Any]] = []
    ask = exact.predict

    def both(*given: Any) -> Any:
        logits = ask(*given)
        same.append(logits.argmax(-1) == near.predict(*given).argmax(-1))
        return logits

    exact.predict = both
    expected = [found[0].text for found in exact.generate_many(lists)]
    found = [found[0].text for found in near.generate_many(lists)]
    shared = statistics.mean(_shared(one.split(), other.split()) for one, other in zip(expected, found, strict=True))
    bleu = [sacrebleu.corpus_bleu(written, [texts], lowercase=True).score for written in (expected, found)]
    print(f"reviews in int8 beside float32, {len(lists)} lists of {WORDS} keywords of Yelp validation texts, greedy")
    print(f"  the likeliest token of a gap, asked about the same text, is the same: {np.concatenate(same).mean():.2%}")
    print(f"  whole texts that are the same: {np.mean([a == b for a, b in zip(expected, found, strict=True)]):.1%}")
    print(f"  words of the other text in the longest common subsequence: {shared:.1%}")
    print(f"  BLEU-4 (sacrebleu): {bleu[0]:.2f} float32, {bleu[1]:.2f} int8, difference {bleu[1] - bleu[0]:+.2f}")


def _shared(one: list[str], other: list[str]) -> float:
    """The share of words in the longest common subsequence."""
    table = np.zeros((len(one) + 1, len(other) + 1), int)
    for i, left in enumerate(one):
        for j, right in enumerate(other):
            table[i + 1, j + 1] = table[i, j] + 1 if left == right else max(table[i, j + 1], table[i + 1, j])
    return float(table[-1, -1]) / max(len(one), len(other), 1)


def writer(count: int, _: str | None) -> None:
    """The writer, a text after the other and many together."""
    lists, _texts = lists_of(count, 4)
    print(f"writer, {len(lists)} lists of 4 keywords of Yelp validation texts, style everyday")
    print(f"  {'':18}{'greedy':>10}{'best of 8':>11}{'together':>10}   cpu ms/text")
    rows = {}
    for label, backend in (("PyTorch, float32", "torch"), ("ONNX, int8", "onnx")):
        pointer = opened("writer", backend)
        pointer.generate(lists[0], best_of=8)
        few = lists[: max(1, len(lists) // 4)]
        alone = [timed(partial(pointer.generate, one))[0] for one in lists]
        picked = [timed(partial(pointer.generate, one, best_of=8))[0] for one in few]
        together = timed(partial(pointer.generate_many, lists))[0] / len(lists)
        rows[label] = [1e3 * statistics.mean(alone), 1e3 * statistics.mean(picked), 1e3 * together]
        print(f"  {label:18}{rows[label][0]:10.0f}{rows[label][1]:11.0f}{rows[label][2]:10.0f}")
    ratios = [a / b for a, b in zip(*rows.values(), strict=True)]
    print(f"  {'ratio':18}{ratios[0]:9.1f}x{ratios[1]:10.1f}x{ratios[2]:9.1f}x")


def length(count: int, _: str | None) -> None:
    """What a text costs by its length, by the size of the batch and by the number of constraints; memory of many."""
    pointer = opened("reviews", "onnx")
    assert isinstance(pointer, ParallelPointer)
    lists, _texts = lists_of(count)
    pointer.generate_many(lists[:8])
    print("reviews, ONNX, int8, greedy: cpu ms/text")
    for offset in (4.0, 1.0, 0.0, -1.0, -3.0):
        cpu, _wall, found = timed(partial(pointer.generate_many, lists, noi_offset=offset))
        tokens = statistics.mean(len(one[0].tokens) for one in found)
        print(f"  {tokens:6.1f} tokens (noi_offset {offset:+.0f}){1e3 * cpu / len(lists):10.1f}")
    for size in (1, 4, 16, 64):
        cpu, _wall, _found = timed(partial(pointer.generate_many, lists, batch_size=size))
        print(f"  batches of {size:<24}{1e3 * cpu / len(lists):10.1f}")
    for words in (1, 2, 4, 7):
        some = [one[:words] for one in lists]
        cpu, _wall, _found = timed(partial(pointer.generate_many, some))
        print(f"  {words} constraints{'':22}{1e3 * cpu / len(lists):10.1f}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for _again in range(5):
        pointer.generate_many(lists)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  peak memory {before:.0f} MB, after {5 * len(lists):,} more lists {after:.0f} MB")


PARTS: dict[str, Callable[[int, str | None], None]] = {
    "decoding": decoding, "int8": int8, "writer": writer, "length": length,
}  # fmt: skip


def machine() -> str:
    """What these numbers were measured on."""
    lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines()]
    name = next((value.strip() for key, _, value in lines if key.startswith("model name")), platform.processor())
    flags = next((value.split() for key, _, value in lines if key.startswith("flags")), [])
    has = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16") if flag in flags]
    return f"{name}, {os.cpu_count()} cores ({', '.join(has)}), Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=list(PARTS))
    parser.add_argument("--lists", type=int, default=200)
    parser.add_argument("--reference", help="a float checkpoint of reviews")
    arguments = parser.parse_args()
    print(machine())
    for name in [arguments.part] if arguments.part else PARTS:
        PARTS[name](arguments.lists if name != "writer" else max(4, arguments.lists // 10), arguments.reference)


if __name__ == "__main__":
    main()
