"""How fast a corpus becomes training data: the pipeline, its parts, and a plain one-sentence-at-a-time loop.

    POINTER_DATA=... python benchmarks/prepare.py [--lines 20000] [--memory]

Everything runs in one go on this machine, so the ratios mean something. `--memory` compares the peak memory of
preparing 500,000 lines with that of 50,000 instead.
"""

import argparse
import gzip
import json
import lzma
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yake
from corpora import corpus_file
from nltk.tag.perceptron import PerceptronTagger

from pointer.prepare.importance import Frequencies, Scorer, Scores, Texts
from pointer.prepare.keywords import keyword_ranks
from pointer.prepare.rows import RowMaker, RowSettings
from pointer.prepare.shards import CHUNK_LINES
from pointer.prepare.stages import schedule
from pointer.vocabulary import Vocabulary


def corpus_lines(count: int) -> list[str]:
    """The first lines of the Wikipedia corpus."""
    path = corpus_file("wiki/train")
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [line.strip() for _, line in zip(range(count), file, strict=False)]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that some work takes, and what it returns."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def plain_loop(lines: list[str], vocabulary: Vocabulary, frequencies: Frequencies) -> None:
    """What one would write first: each sentence alone, a YAKE extractor for each, NLTK's tagger."""
    tagger = PerceptronTagger(load=False)
    model = resources.files("pointer.prepare") / "tagger" / "english.json.gz"
    weights, tagdict, classes = json.loads(gzip.decompress(model.read_bytes()))
    tagger.model.weights, tagger.tagdict, tagger.classes = weights, tagdict, set(classes)
    tagger.model.classes = tagger.classes

    def part_of_speech(texts: Texts) -> list[Scores]:
        return [np.array([t[:2] in ("NN", "VB") for _, t in tagger.tag(words)], float) for words in texts]

    def keyness(texts: Texts) -> list[Scores]:
        extractor = yake.KeywordExtractor(lan="en", n=1, window_size=1, dedup_lim=1.0, top=10**6)
        found = dict(extractor.extract_keywords(" ".join(texts[0]).lower()))
        return [np.array([-found.get(word.lower(), 1.0) for word in texts[0]])]

    def rarity(texts: Texts) -> list[Scores]:
        return [np.array([list(texts[0]).count(word) * frequencies.idf(word.lower()) for word in texts[0]])]

    scorer = Scorer({"tfidf": rarity, "pos": part_of_speech, "yake": keyness}, frozenset())
    for line in lines:
        [encoding] = vocabulary.encode([line])
        [scores] = scorer([encoding.words])
        ids = encoding.ids
        schedule([scores.alpha[encoding.word_of]], [vocabulary.continues[ids]], [np.zeros(len(ids), bool)])


def pipeline(lines: list[str], workers: int) -> float:
    """Seconds of the real command, start-up and both passes included."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.txt"
        corpus.write_text("\n".join(lines) + "\n", "utf-8")
        command = [sys.executable, "-m", "pointer", "prepare", str(corpus), "--out", f"{folder}/data"]
        work = [*command, "--workers", str(workers)]
        return timed(lambda: subprocess.run(work, check=True, capture_output=True))[0]


def parts(lines: list[str], vocabulary: Vocabulary, frequencies: Frequencies) -> dict[str, float]:
    """Seconds of each part on one core, in batches as the pipeline has them."""
    seconds: defaultdict[str, float] = defaultdict(float)
    maker = RowMaker(vocabulary, frequencies, RowSettings())
    maker(lines[:10])  # load the tagger

    def measure(name: str, work: Callable[..., Any], *arguments: Any) -> Any:
        spent, result = timed(lambda: work(*arguments))
        seconds[name] += spent
        return result

    for start in range(0, len(lines), CHUNK_LINES):
        batch = lines[start : start + CHUNK_LINES]
        words = [encoding.words for encoding in measure("tokenise", vocabulary.encode, batch)]
        for name, component in maker.scorer.components.items():
            measure(name, component, words)
        measure("keyword ranks", keyword_ranks, words, maker.yake)
        measure("everything", maker, batch)
    seconds["rescale, add up, schedule"] = 2 * seconds["everything"] - sum(seconds.values())
    return dict(seconds)


def speed(count: int) -> None:
    """Print the rates side by side."""
    lines = corpus_lines(count)
    vocabulary = Vocabulary.open("english")
    words = [encoding.words for encoding in vocabulary.encode(lines)]
    frequencies = Frequencies(len(lines), Counter(word for text in words for word in {w.lower() for w in text}))

    few = lines[: max(200, count // 20)]
    plain = len(few) / timed(lambda: plain_loop(few, vocabulary, frequencies))[0]
    cores = os.cpu_count() or 1
    whole = len(lines) / pipeline(lines, cores)
    single = len(lines) / pipeline(lines, 1)
    print(f"{len(lines):,} lines of Wikipedia, {cores} cores, all three scores")
    print(f"  pointer prepare, {cores} workers   {whole:8,.0f} sentences/s   {whole / plain:5.1f}x")
    print(f"  pointer prepare, 1 worker    {single:8,.0f} sentences/s   {single / plain:5.1f}x")
    print(f"  plain loop ({len(few):,} lines)    {plain:8,.0f} sentences/s     1.0x")
    print("\nshare of each part of the second pass, one core")
    seconds = parts(lines, vocabulary, frequencies)
    everything = seconds.pop("everything")
    for name, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        print(f"  {name:28} {spent / everything:6.1%}   {len(lines) / spent:9,.0f} sentences/s")


def peak_memory(count: int) -> float:
    """The most MiB that `pointer prepare` and its workers hold together, for the first lines of the corpus."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.txt"
        corpus.write_text("\n".join(corpus_lines(count)) + "\n", "utf-8")
        command = [sys.executable, "-m", "pointer", "prepare", str(corpus), "--out", f"{folder}/data"]
        return peak_of([*command, "--workers", "2"])


def peak_of(command: list[str]) -> float:
    """The most MiB that a command and the processes it starts hold together."""
    run = psutil.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    most = 0
    while run.poll() is None:
        most = max(most, sum(_unique_memory(p) for p in [run, *run.children(recursive=True)]))
        time.sleep(0.2)
    if run.returncode:
        raise SystemExit(f"Expected {' '.join(command)} to work, found exit code {run.returncode}.")
    return most / 2**20


def _unique_memory(process: psutil.Process) -> int:
    try:
        found: int = process.memory_info().rss
        return found
    except psutil.Error:  # it ended between the list and the question
        return 0


def memory() -> None:
    """Print the peaks of a small and a ten times larger corpus."""
    small, large = peak_memory(50_000), peak_memory(500_000)
    print(f"peak memory: {small:,.0f} MiB for 50,000 lines, {large:,.0f} MiB for 500,000: {large / small:.2f}x")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--memory", action="store_true")
    arguments = parser.parse_args()
    memory() if arguments.memory else speed(arguments.lines)
