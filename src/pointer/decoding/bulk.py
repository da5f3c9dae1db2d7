"""Many lists of constraints from a file, their texts to a file: a bad line costs itself only, a killed run goes on."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from pointer.decoding.generator import Generation, Generator
from pointer.decoding.grammar import Constraints, concept_set, parse
from pointer.decoding.options import Options
from pointer.errors import ConstraintError, DataError
from pointer.prepare.corpus import Corpus, Skipped, read_lines
from pointer.storage import full_disk_explained, write_whole

BATCHES = 4
"""Batches that are decoded before their results are given: what a killed run loses."""


class Asked(NamedTuple):
    """The constraints of one line of the input."""

    line: int
    constraints: Constraints


def read_lists(path: str, separator: str = ";") -> Iterator[Asked | Skipped]:
    """The constraint lists of a file, one a line: words with a separator between them, or JSON.

    A JSON list of strings is a list, a string or an object's `text` is read as the line would be, and an object with
    `concepts`, as a line of CommonGen has them, is a set: in any form, in any order.
    """
    for line in Corpus((path,)) if path.lower().endswith(".parquet") else read_lines(path):
        if isinstance(line, Skipped):
            yield line
            continue
        try:
            yield Asked(line.line, _constraints(line.text.strip(), separator))
        except ConstraintError as error:
            yield Skipped(line.source, line.line, str(error).rstrip("."))


def _constraints(line: str, separator: str) -> Constraints:
    try:
        found = json.loads(line)
    except ValueError:
        return parse(line, separator)
    if isinstance(found, dict) and isinstance(concepts := found.get("concepts"), list):
        return concept_set(list(map(str, concepts)))
    text = found.get("text") if isinstance(found, dict) else found
    if isinstance(text, list):
        return parse(text)
    if isinstance(text, str):
        return parse(text.strip(), separator)
    if isinstance(found, dict):
        raise ConstraintError('Expected "concepts" or "text" in a JSON object, found neither.', "Give one of them.")
    return parse(line, separator)  # 1984 and null are words, too


class Written(NamedTuple):
    """The texts of one line, best first."""

    asked: Asked
    found: list[Generation]
    seconds: float
    """Its share of the time that decoding took for all that was decoded together."""


def generate_lines(
    generator: Generator,
    asked: Iterator[Asked | Skipped],
    options: Options,
    batch_size: int,
    report: Callable[[Skipped], None],
    done: int = 0,
) -> Iterator[Written]:
    """The texts of every usable line after `done`, in order; what cannot be used is reported and left out.

    Lines are decoded in the company that they have in a run from the start, so that both give the same bytes.
    """

    def tell(skipped: Skipped) -> None:
        if skipped.line > done:
            report(skipped)

    def decode(together: list[Asked]) -> list[Written]:
        start = time.perf_counter()
        texts = generator.generate_many([one.constraints for one in together], batch_size, **asdict(options))
        seconds = (time.perf_counter() - start) / max(1, len(together))
        return [Written(one, found, seconds) for one, found in zip(together, texts, strict=True)]

    def decode_what_fits(together: list[Asked]) -> Iterator[Written]:
        try:
            yield from decode(together)
        except ConstraintError:
            # Some list does not fit the model: find out which, and keep the others.
            for one in together:
                try:
                    yield from decode([one])
                except ConstraintError as error:
                    tell(Skipped("input", one.line, str(error).rstrip(".")))

    for together in _groups(asked, BATCHES * batch_size, tell):
        if together[-1].line > done:
            yield from (written for written in decode_what_fits(together) if written.asked.line > done)


def _groups(asked: Iterator[Asked | Skipped], size: int, tell: Callable[[Skipped], None]) -> Iterator[list[Asked]]:
    """So many usable lines at a time; `tell` gets the others."""
    waiting: list[Asked] = []
    for one in asked:
        if isinstance(one, Skipped):
            tell(one)
            continue
        waiting.append(one)
        if len(waiting) == size:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _made_by(generator: Generator, options: Options) -> dict[str, Any]:
    """What made a text: the model, and the options that differ from the defaults, as JSON has them."""
    defaults = asdict(Options())
    changed = {name: value for name, value in asdict(options).items() if value != defaults[name]}
    made: dict[str, Any] = json.loads(json.dumps({"model": generator.name, "options": changed, "seed": options.seed}))
    return made


def records(generator: Generator, written: Written, options: Options) -> Iterator[dict[str, Any]]:
    """What is written for one line: each text with its constraints, what made it, and the time it took."""
    made = _made_by(generator, options)
    for rank, generation in enumerate(written.found):
        seconds = round(written.seconds, 4)
        yield {"line": written.asked.line, "rank": rank} | made | generation.to_dict() | {"seconds": seconds}


class ResultFile:
    """A jsonl file of results that grows line by line; opening it again finds where it was left."""

    def __init__(self, path: Path, generator: Generator, options: Options) -> None:
        self.path = path
        self.generator = generator
        self.options = options
        self.done = self._last_line() if path.exists() else 0

    def _last_line(self) -> int:
        """The last input line that has all its texts; a line that was cut off while being written is removed."""
        made = _made_by(self.generator, self.options)
        whole: list[tuple[int, bytes]] = []
        for raw in self.path.read_bytes().splitlines(keepends=True):
            try:
                record = json.loads(raw)
                line, found = int(record["line"]), {name: record[name] for name in made}
            except (ValueError, KeyError, TypeError):
                if raw.endswith(b"\n"):
                    raise DataError(
                        f"Expected results of `pointer generate` in {self.path}, found something else.",
                        "Choose another output file.",
                    ) from None
                break
            if found != made:
                raise DataError(
                    f"Expected results of the same model and options in {self.path}, found others.",
                    "Choose another output file, or delete that one.",
                )
            whole.append((line, raw))
        # The texts of the last line may not be complete, so it is decoded again.
        done = whole[-1][0] - 1 if whole else 0
        write_whole(self.path, b"".join(raw for line, raw in whole if line <= done))
        return done

    def add(self, written: Written) -> None:
        """Append the texts of one line."""
        lines = [json.dumps(record, ensure_ascii=False) for record in records(self.generator, written, self.options)]
        with full_disk_explained(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
