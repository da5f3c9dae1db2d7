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
from pointer.engines import Workers
from pointer.errors import ConstraintError, DataError
from pointer.prepare.corpus import Corpus, Skipped, read_lines
from pointer.storage import full_disk_explained, is_address, location, write_whole

BATCHES = 4
"""Batches that are decoded before their results are given: what a killed run loses."""


PART_LINES = 1000
"""Input lines whose texts make one file where results go to an object store."""


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
    seconds: float | None = None
    """Its share of the time that decoding took for all that was decoded together, where that is to be told."""


def generate_lines(
    workers: Workers,
    asked: Iterator[Asked | Skipped],
    options: Options,
    batch_size: int,
    report: Callable[[Skipped], None],
    done: int = 0,
    timed: bool = False,
) -> Iterator[Written]:
    """The texts of every usable line after `done`, in order; what cannot be used is reported and left out.

    `workers` hold a generator each; if `timed`, they say how long a text took. Lines are decoded in the company that
    they have in a run from the start, so that both give the same bytes.
    """

    def tell(skipped: Skipped) -> None:
        if skipped.line > done:
            report(skipped)

    groups = (group for group in _groups(asked, BATCHES * batch_size, tell) if group[-1].line > done)
    for found, skipped in workers.map(_decode_what_fits, ((group, options, batch_size, timed) for group in groups)):
        for one in skipped:
            tell(one)
        yield from (written for written in found if written.asked.line > done)


def _decode_what_fits(
    generator: Generator, together: list[Asked], options: Options, batch_size: int, timed: bool
) -> tuple[list[Written], list[Skipped]]:
    """The texts of some lines, and those that do not fit the model."""
    try:
        return _decode(generator, together, options, batch_size, timed), []
    except ConstraintError:
        pass  # Some list does not fit: find out which, and keep the others.
    found: list[Written] = []
    skipped: list[Skipped] = []
    for one in together:
        try:
            found += _decode(generator, [one], options, batch_size, timed)
        except ConstraintError as error:
            skipped.append(Skipped("input", one.line, str(error).rstrip(".")))
    return found, skipped


def _decode(
    generator: Generator, together: list[Asked], options: Options, batch_size: int, timed: bool
) -> list[Written]:
    start = time.perf_counter()
    texts = generator.generate_many([one.constraints for one in together], batch_size, **asdict(options))
    seconds = round((time.perf_counter() - start) / max(1, len(together)), 4) if timed else None
    return [Written(one, found, seconds) for one, found in zip(together, texts, strict=True)]


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


def _made_by(name: str, options: Options) -> dict[str, Any]:
    """What made a text: the model, and the options that differ from the defaults, as JSON has them."""
    defaults = asdict(Options())
    changed = {name: value for name, value in asdict(options).items() if value != defaults[name]}
    made: dict[str, Any] = json.loads(json.dumps({"model": name, "options": changed, "seed": options.seed}))
    return made


def records(name: str, written: Written, options: Options) -> Iterator[dict[str, Any]]:
    """What is written for one line: each text with its constraints, what made it and, if it was timed, how long."""
    made = _made_by(name, options)
    seconds = {} if written.seconds is None else {"seconds": written.seconds}
    for rank, generation in enumerate(written.found):
        yield {"line": written.asked.line, "rank": rank} | made | generation.to_dict() | seconds


class ResultFile:
    """A jsonl file of results that grows line by line; opening it again finds where it was left."""

    def __init__(self, path: Path, name: str, options: Options) -> None:
        self.path = path
        self.name = name
        self.options = options
        self.done = self._last_line() if path.exists() else 0

    def _last_line(self) -> int:
        """The last input line that has all its texts; a line that was cut off while being written is removed."""
        raw_lines = self.path.read_bytes().splitlines(keepends=True)
        if raw_lines and not raw_lines[-1].endswith(b"\n"):
            raw_lines.pop()
        whole = [(_line_of(raw, _made_by(self.name, self.options), self.path), raw) for raw in raw_lines]
        # The texts of the last line may not be complete, so it is decoded again.
        done = whole[-1][0] - 1 if whole else 0
        write_whole(self.path, b"".join(raw for line, raw in whole if line <= done))
        return done

    def add(self, written: Written) -> None:
        """Append the texts of one line."""
        with full_disk_explained(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(_as_lines(self.name, written, self.options))

    def close(self) -> None:
        """All is written already."""


class ResultFolder:
    """Results as `texts-00000.jsonl` and so on in a folder of an object store, where no file can grow.

    Files appear whole, each with the texts of some input lines; opening the folder again finds the last.
    """

    def __init__(self, folder: Path, name: str, options: Options) -> None:
        self.folder = folder
        self.name = name
        self.options = options
        self.waiting: list[str] = []
        parts = sorted(folder.glob("texts-*.jsonl")) if folder.exists() else []
        self.parts = len(parts)
        last = parts[-1].read_bytes().splitlines()[-1] if parts else b""
        self.done = _line_of(last, _made_by(name, options), parts[-1]) if parts else 0

    def add(self, written: Written) -> None:
        """Keep the texts of one line, and write them with those of others."""
        self.waiting.append(_as_lines(self.name, written, self.options))
        if len(self.waiting) == PART_LINES:
            self.close()

    def close(self) -> None:
        """Write what is left."""
        if self.waiting:
            write_whole(self.folder / f"texts-{self.parts:05d}.jsonl", "".join(self.waiting).encode())
            self.parts, self.waiting = self.parts + 1, []


def open_results(path: str, name: str, options: Options) -> ResultFile | ResultFolder:
    """Where results go: a file, or a folder at an address such as `s3://bucket/texts`."""
    return ResultFolder(location(path), name, options) if is_address(path) else ResultFile(Path(path), name, options)


def _as_lines(name: str, written: Written, options: Options) -> str:
    return "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records(name, written, options))


def _line_of(raw: bytes, made: dict[str, Any], path: Path) -> int:
    """The input line of a record, if the same model and options made it."""
    try:
        record = json.loads(raw)
        line, found = int(record["line"]), {name: record[name] for name in made}
    except (ValueError, KeyError, TypeError):
        raise DataError(
            f"Expected results of `pointer generate` in {path}, found something else.", "Choose another output file."
        ) from None
    if found != made:
        raise DataError(
            f"Expected results of the same model and options in {path}, found others.",
            "Choose another output file, or delete that one.",
        )
    return line
