"""How well models write around the concepts of CommonGen: in the form and order that a person chose, or as they are.

    POINTER_DATA=... python benchmarks/commongen.py writer wiki [--sets 200] [--best-of 8] [--out texts.jsonl]
    POINTER_DATA=... python benchmarks/commongen.py writer --corpus news [--sets 200] [--without as_written]
    POINTER_DATA=... python benchmarks/commongen.py writer --as-they-are [--sets 200] [--seed 0] [--page PAGE.md]

The constraints of a set are the words of its first reference that has all concepts. BLEU-4 (sacrebleu, lower case) is
against that reference (`one`) and against all of the set (`all`). With `--as-they-are` they are what CommonGen gives:
lemmas in no order, of sets drawn by a seed; the figures are those of `pointer evaluate --benchmark commongen`, and
`--page` puts them on a page of the documentation. With `--corpus` they are keywords of validation texts of news or
reviews, which a writer is asked for in that style. Only validation data is read.
"""

import argparse
import json
import lzma
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import sacrebleu
from corpora import CORPORA, corpus_file, validation

from pointer.decoding.causal import GUIDANCE
from pointer.decoding.generator import Generation, Pointer
from pointer.decoding.grammar import concept_set
from pointer.decoding.writer import Writer
from pointer.english import inflections
from pointer.evaluation.benchmark import Benchmark, read_concept_sets
from pointer.evaluation.outputs import System
from pointer.storage import write_whole
from pointer.training.examples import WORD
from pointer.writing import as_written, missing_constraints

OFF: dict[str, Any] = {
    "as_written": False,
    "forms": None,
    "turns": False,
    "urgency": 0.0,
    "take_back": False,
    "no_repeat": False,
    "full_stop": False,
}
"""The parts of a writer's guidance, and what switches each off."""


GLUED = re.compile(r"[.!?][A-Za-z]{4}")
"""Noise where a model has nothing to say: a word glued to the end of a sentence."""


class Asked(NamedTuple):
    """A concept set with its words as a reference has them, and all references, that one first."""

    constraints: list[str]
    references: list[str]


def validation_file() -> Path:
    """Where the validation sets are."""
    return corpus_file("commongen/valid").with_name("valid.jsonl.xz")


def asked_sets(count: int, seed: int = 0) -> list[Asked]:
    """Some sets of the validation data whose concepts can be found in a reference, drawn by a seed; 0: all 980.

    The first of the file would be its smallest, which are the hardest.
    """
    with lzma.open(validation_file(), "rt", encoding="utf-8") as file:
        found = (asked(**json.loads(line)) for line in file)
        usable = [one for one in found if one is not None]
    return Random(seed).sample(usable, count) if count else usable


def of_corpus(name: str, count: int) -> list[Asked]:
    """The keywords of the first validation texts of a corpus, and these texts."""
    lists, texts = validation(*CORPORA[name], count)
    return [Asked(words, [as_written(text)]) for words, text in zip(lists, texts, strict=True)]


def asked(concepts: list[str], texts: list[str]) -> Asked | None:
    """The words of the first reference that has all concepts, in its order and form."""
    for text in texts:
        places: dict[str, int] = {}
        for word in WORD.finditer(text):
            for concept in concepts:
                if word[0].lower() in inflections(concept):
                    places.setdefault(concept, word.start())
        if len(places) == len(concepts):
            words = [WORD.match(text, start) for start in sorted(set(places.values()))]
            given = [word[0].lower() if word.start() == 0 else word[0] for word in words if word]
            return Asked(given, [text, *(other for other in texts if other != text)])
    return None


def bleu(texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """BLEU-4 against any number of references a text."""
    most = max(map(len, references))
    columns: Any = [[some[i] if i < len(some) else None for some in references] for i in range(most)]
    return float(sacrebleu.corpus_bleu(list(texts), columns, lowercase=True).score)


def figures(found: list[Generation], sets: list[Asked]) -> dict[str, Any]:
    """What is printed about a model."""
    texts = [one.text for one in found]
    words = [text.lower().split() for text in texts]
    repeated = sum(any(a == b for a, b in pairwise(line)) for line in words)
    lost = sum(bool(missing_constraints(one.text, asked.constraints)) for one, asked in zip(found, sets, strict=True))
    return {
        "BLEU-4 one": round(bleu(texts, [one.references[:1] for one in sets]), 2),
        "BLEU-4 all": round(bleu(texts, [one.references for one in sets]), 2),
        "words": round(sum(map(len, words)) / len(words), 2),
        "lost": lost,
        "repeated word": repeated,
        "noise": sum(bool(GLUED.search(text)) for text in texts),
    }


def as_they_are(models: Sequence[str], count: int, seed: int, batch_size: int, best_of: int) -> str:
    """A table with a row for every model: lemmas in no order, each set as `pointer generate -f` reads it."""
    sets = Random(seed).sample(read_concept_sets(str(validation_file())), count)
    lines: list[str] = []
    for name in models:
        started = time.process_time()
        asked = [concept_set(one.concepts) for one in sets]
        found = Pointer.from_pretrained(name, threads=1).generate_many(asked, batch_size, best_of=best_of)
        seconds = (time.process_time() - started) / count
        measured = Benchmark(System(name, tuple(texts[0].text for texts in found)), sets).figures()
        shown = {one.name: f"{one.value:.1f}" for one in measured} | {"CPU seconds a text": f"{seconds:.2f}"}
        lines = lines or [f"| | {' | '.join(shown)} |", "|---" * (len(shown) + 1) + "|"]
        lines.append(f"| `{name}` | {' | '.join(shown.values())} |")
    return "\n".join([*lines, "", f"{count} validation sets, seed {seed}; coverage and repeated words in %."])


def put_between(page: Path, name: str, content: str) -> None:
    """Put something on a page, between the two comments that have its name."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = page.read_text("utf-8").partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"Expected {begin} and {end} in {page}, found neither or one.")
    write_whole(page, f"{before}{begin}\n{content}\n{end}{after}".encode())


def main() -> None:
    """Print a row for every model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--corpus", choices=("news", "reviews"), help="Keywords of its texts in the place of sets.")
    parser.add_argument("--best-of", type=int, default=1)
    parser.add_argument("--decoding", default="greedy")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--noi-offset", type=float, default=0.0)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--as-they-are", action="store_true", help="Lemmas in no order.")
    parser.add_argument("--seed", type=int, default=0, help="Of --as-they-are.")
    parser.add_argument("--page", type=Path, help="Of --as-they-are: the page that gets the table.")
    parser.add_argument("--without", nargs="*", choices=OFF, default=[], help="Also without each of these alone.")
    parser.add_argument("--out", type=Path, help="Write constraints, references and texts as jsonl.")
    options = parser.parse_args()
    if options.as_they_are:
        table = as_they_are(options.models, options.sets, options.seed, options.batch_size, options.best_of)
        print(table)
        if options.page:
            put_between(options.page, "commongen", table)
        return
    sets = of_corpus(options.corpus, options.sets) if options.corpus else asked_sets(options.sets)
    people = sum(len(one.references[0].split()) for one in sets) / len(sets)
    print(f"{len(sets)} sets; people write {people:.2f} words")
    for name, without in [(name, one) for name in options.models for one in ("", *options.without)]:
        pointer = Pointer.from_pretrained(name)
        if without:
            assert isinstance(pointer, Writer)
            pointer.guidance = replace(GUIDANCE, **{without: OFF[without]})
        started = time.perf_counter()
        found = pointer.generate_many(
            [one.constraints for one in sets],
            options.batch_size,
            decoding=options.decoding,
            best_of=options.best_of,
            temperature=options.temperature,
            noi_offset=options.noi_offset,
            style=options.corpus,
        )
        seconds = time.perf_counter() - started
        best = [texts[0] for texts in found]
        row = figures(best, sets) | {"seconds": round(seconds, 1)}
        shown = f"{name} without {without}" if without else name
        print(f"{shown}: {'; '.join(f'{key} {value}' for key, value in row.items())}", flush=True)
        if options.out:
            lines = [one._asdict() | {"text": text.text} for one, text in zip(sets, best, strict=True)]
            options.out.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


if __name__ == "__main__":
    main()
