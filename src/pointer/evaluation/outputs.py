"""Reading what systems and people wrote, line beside line, and the one form in which texts are compared."""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from pointer.errors import DataError
from pointer.prepare.corpus import open_bytes
from pointer.text import normalise

_WORD_OR_MARK = re.compile(r"[^\W_]+|[^\w\s]|_")
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "constraints": (
        "a list of words and phrases",
        lambda found: isinstance(found, list) and all(isinstance(one, str) and one.strip() for one in found),
    ),
    "stages": (
        "a list of stages or their number",
        lambda found: (
            all(isinstance(one, list) for one in found) if isinstance(found, list) else _is_number(found, int)
        ),
    ),
    "seconds": ("a number of seconds", lambda found: _is_number(found, int | float)),
}
"""What a record may say besides its text: what is expected under a name, and how to know it."""


def canonical(text: str) -> str:
    """Lower case, every mark a word of its own: recased text and text with its own spacing meet in this form.

    >>> canonical("It's 1,600 dollars.")
    "it ' s 1 , 600 dollars ."
    """
    return " ".join(_WORD_OR_MARK.findall(normalise(text).lower()))


@dataclass(frozen=True)
class System:
    """The texts of one system, one for each reference."""

    name: str
    texts: tuple[str, ...]
    constraints: tuple[tuple[str, ...], ...] | None = None
    """What each text had to contain, where the file says so."""
    stages: tuple[int, ...] | None = None
    """How many stages inserted something, where the file says so."""
    seconds: float | None = None
    """What decoding took, where the file says so."""
    made_by: dict[str, Any] | None = None
    """Model, options and seed, where the file says so."""


def read_system(path: str, name: str | None = None) -> System:
    """The texts in a file: what `pointer generate -o` writes (the best of each line), other jsonl, or lines."""
    name = name or _stem(path)
    if not _is_jsonl(path):
        return System(name, read_texts(path))
    records = list(_best_records(path))
    if not records:
        raise DataError(f"Expected texts in {path}, found none.", "Check the path.")
    texts = tuple(_text(path, number, record.get("text")) for number, record in records)
    last = records[-1][1]
    made_by: dict[str, Any] = {key: last[key] for key in ("model", "options", "seed") if key in last}
    constraints, stages, seconds = (_of_all(records, key) for key in ("constraints", "stages", "seconds"))
    lacking = next((number for number, record in records if not record.get("constraints")), None)
    if lacking is not None and any(record.get("constraints") for _, record in records):
        raise DataError(
            f"{path}, line {lacking:,}: expected constraints as in other lines, found none.", "Add them, or remove all."
        )
    return System(
        name,
        texts,
        tuple(map(tuple, constraints)) if constraints else None,
        tuple(_growth(stage) for stage in stages) if stages else None,
        sum(seconds) if seconds else None,
        made_by or None,
    )


def read_texts(path: str) -> tuple[str, ...]:
    """The texts of a file, one a line, or jsonl with `text`; a line without one is an error that names it."""
    if _is_jsonl(path):
        return tuple(_text(path, number, record.get("text")) for number, record in _best_records(path))
    texts = tuple(_text(path, number, line) for number, line in _lines(path))
    if not texts:
        raise DataError(f"Expected texts in {path}, found none.", "Check the path.")
    return texts


def named_file(given: str) -> tuple[str | None, str]:
    """`NAME=FILE`, or a file that is named after itself."""
    found = re.fullmatch(r"([^=/\\]+)=(.+)", given)
    return (found[1], found[2]) if found and not Path(given).is_file() else (None, given)


def check_aligned(path: str, texts: Sequence[object], other: str, others: Sequence[object]) -> None:
    """Two files that belong together line by line must have as many lines."""
    if len(texts) != len(others):
        (short, few), (long, many) = sorted(((path, len(texts)), (other, len(others))), key=lambda file: file[1])
        raise DataError(
            f"Expected files with as many texts, found {many:,} in {long} and {few:,} in {short}: its "
            f"line {few + 1:,} is missing.",
            "Give the files that belong together.",
        )


def _check(path: str) -> None:
    if path != "-" and not Path(path).is_file():
        raise DataError(f"Expected a file of texts, found no file at {path}.", "Check the path.")


def _suffixes(path: str) -> list[str]:
    return [suffix.lower() for suffix in Path(path).suffixes[-2:]]


def _is_jsonl(path: str) -> bool:
    return bool({".jsonl", ".ndjson"} & set(_suffixes(path)))


def _stem(path: str) -> str:
    return "standard input" if path == "-" else re.sub(r"\.(txt|jsonl|ndjson|gz|xz|zst)", "", Path(path).name)


def _lines(path: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; blank ones at the end of the file are none."""
    _check(path)
    blank: list[tuple[int, str]] = []
    number = 0
    with open_bytes(path) as stream:
        try:
            for number, raw in enumerate(stream, 1):
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                blank.append((number, line))
                if line.strip():
                    yield from blank
                    blank.clear()
        except (UnicodeDecodeError, EOFError, OSError, ValueError) as error:
            where = number if isinstance(error, UnicodeDecodeError) else number + 1
            raise DataError(
                f"Expected text in UTF-8 in {path}, found something else in line {where:,}.", "Check the file."
            ) from error


def _text(path: str, number: int, found: object) -> str:
    if isinstance(found, str) and canonical(found):  # nor is one of invisible characters a text
        return found.strip()
    what = "an empty one" if isinstance(found, str) else 'no "text"'
    raise DataError(
        f"{path}, line {number:,}: expected a text, found {what}.",
        "Generate it again, or leave that line out everywhere.",
    )


def _best_records(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The first text of every line; records that say which input line they answer must leave none out."""
    expected = 1
    for number, line in _lines(path):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise DataError(
                f"{path}, line {number:,}: expected a JSON object, found something else.", "Check the file."
            )
        if record.get("rank", 0) != 0:
            continue
        for name, (kind, fits) in _KINDS.items():
            if record.get(name) is not None and not fits(record[name]):
                raise DataError(
                    f'{path}, line {number:,}: expected under "{name}" {kind}, found something else.', "Mend that line."
                )
        if record.get("line", expected) != expected:
            raise DataError(
                f"Expected a text for input line {expected:,} in {path}, found one for line {record['line']} (line "
                f"{number:,} of the file).",
                "That input could not be used: leave its line out everywhere, or mend it and generate again.",
            )
        expected += 1
        yield number, record


def _is_number(found: object, kind: Any) -> bool:
    return isinstance(found, kind) and not isinstance(found, bool) and 0 <= found < math.inf


def _of_all(records: Sequence[tuple[int, dict[str, Any]]], key: str) -> list[Any] | None:
    """What every record has under a key; None where one has nothing."""
    values = [record.get(key) for _, record in records]
    return None if any(value is None for value in values) else values


def _growth(stages: Any) -> int:
    """Stages that inserted something: of `X0 ... XK` without the first, and without a last that repeats XK."""
    if isinstance(stages, int):
        return stages
    return sum(len(after) > len(before) for before, after in pairwise(stages))
