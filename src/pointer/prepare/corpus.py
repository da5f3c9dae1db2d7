"""Reading corpora: plain text, jsonl and parquet, compressed or not, line by line in flat memory.

A bad line never costs the good ones beside it: whatever cannot be used comes out as `Skipped`, with file and line.
"""

import codecs
import gzip
import io
import json
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from pointer.errors import CorpusError, UsageError, missing_extra
from pointer.storage import is_address, location
from pointer.text import normalise, split_sentences

LAYOUTS = ("lines", "running")
LONGEST_LINE = 1_000_000
"""Bytes; a longer line is hardly a text, and reading it whole would cost the flat memory."""

_CUT_OFF = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)
"""What the end of a damaged archive raises."""


def _damaged(name: str) -> tuple[type[Exception], ...]:
    """What says that a file is damaged. An OSError of a network says nothing of the kind."""
    return _CUT_OFF if is_address(name) else (*_CUT_OFF, OSError)


def listed(names: Sequence[str]) -> tuple[str, ...]:
    """Corpus files by name: an address with a `*` in it stands for all that it matches, in order."""
    found: list[str] = []
    for name in names:
        if not is_address(name) or "*" not in name:
            found.append(name)
            continue
        folder = name.partition("*")[0].rpartition("/")[0]
        matches = sorted(str(path) for path in location(folder).glob(name[len(folder) + 1 :]))
        if not matches:
            raise CorpusError(f"Expected files at {name}, found none.", "Check the address.")
        found += matches
    return tuple(found)


class Text(NamedTuple):
    """One usable text and where it came from."""

    source: str
    line: int
    text: str


class Skipped(NamedTuple):
    """A line (or, with line 0, a file) that cannot be used, and why."""

    source: str
    line: int
    reason: str

    def __str__(self) -> str:
        where = f"{self.source}, line {self.line}" if self.line else self.source
        return f"{where}: {self.reason}; skipped."


@dataclass(frozen=True)
class Corpus:
    """Files (or `-` for standard input) and how to read them."""

    paths: tuple[str, ...]
    layout: str = "lines"
    column: str = "text"

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise UsageError(
                f'layout: expected {" or ".join(LAYOUTS)}, found "{self.layout}".',
                "lines: one text a line; running: text that is split into sentences.",
            )
        if self.paths.count("-") > 1:
            raise UsageError("corpus: expected standard input (-) once, found it twice.", "Remove one of them.")
        for path in self.paths:
            if path != "-" and not location(path).is_file():
                raise CorpusError(f"Expected a corpus file, found no file at {path}.", "Check the path.")

    def __iter__(self) -> Iterator[Text | Skipped]:
        for path in self.paths:
            try:
                yield from self._read(path)
            except OSError as error:
                if not is_address(path):
                    raise
                raise CorpusError(
                    f"Expected to read {path} to its end, found {type(error).__name__} ({error}).",
                    "What was finished is kept; the same command goes on.",
                ) from error

    def _read(self, path: str) -> Iterator[Text | Skipped]:
        suffixes = [suffix.lower() for suffix in Path(path).suffixes]
        if suffixes and suffixes[-1] == ".parquet":
            yield from self._parquet(path)
            return
        if {".jsonl", ".ndjson"} & set(suffixes[-2:]):
            yield from self._jsonl(path)
        else:
            yield from _texts(path, _running if self.layout == "running" else _lines)

    def _jsonl(self, path: str) -> Iterator[Text | Skipped]:
        for line in read_lines(path):
            if isinstance(line, Skipped):
                yield line
                continue
            try:
                record = json.loads(line.text)
            except ValueError:
                yield Skipped(line.source, line.line, "expected a JSON object, found something else")
                continue
            text = record.get(self.column) if isinstance(record, dict) else None
            if isinstance(text, str):
                yield from self._as_texts(line._replace(text=text))
            else:
                reason = f'expected a text under "{self.column}", found none (see --column)'
                yield Skipped(line.source, line.line, reason)

    def _parquet(self, path: str) -> Iterator[Text | Skipped]:
        arrow, parquet = arrow_for("Reading parquet")
        try:
            file = parquet.ParquetFile(location(path).open("rb"))
        except (arrow.ArrowException, OSError):
            yield Skipped(path, 0, "expected a parquet file, found something else")
            return
        if self.column not in file.schema_arrow.names:
            raise CorpusError(
                f'Expected a column "{self.column}" in {path}, found {", ".join(file.schema_arrow.names)}.',
                "Name the column that holds the text with --column.",
            )
        number = 0
        for batch in file.iter_batches(batch_size=1024, columns=[self.column]):
            for text in batch.column(0).to_pylist():
                number += 1
                if isinstance(text, str):
                    yield from self._as_texts(Text(path, number, text))
                else:
                    yield Skipped(path, number, f'expected a text under "{self.column}", found {text!r:.40}')

    def _as_texts(self, record: Text) -> Iterator[Text]:
        if self.layout == "lines":
            yield record
            return
        for sentence in split_sentences(normalise(record.text)):
            yield record._replace(text=sentence)


def arrow_for(feature: str) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing_extra(feature, "pyarrow", "train") from error
    return pyarrow, pyarrow.parquet


def open_bytes(path: str) -> io.BufferedReader:
    """The bytes of a file as a buffered stream, decompressed by its suffix.

    Of an address (`s3://`, ...) it reads range by range, never the whole at once.
    """
    if path == "-":
        return cast(io.BufferedReader, sys.stdin.buffer)
    suffix = Path(path).suffix.lower()
    source: Any = location(path).open("rb") if is_address(path) else path
    if suffix == ".gz":
        return io.BufferedReader(gzip.open(source, "rb"))
    if suffix == ".xz":
        return io.BufferedReader(lzma.open(source, "rb"))
    if suffix == ".zst":
        arrow, _ = arrow_for("Reading .zst")
        return io.BufferedReader(arrow.input_stream(source, compression="zstd"))
    return io.BufferedReader(source) if is_address(path) else Path(path).open("rb")


def read_lines(path: str) -> Iterator[Text | Skipped]:
    """Every line of a file as it stands, whatever format its name promises."""
    return _texts(path, _lines)


def _texts(path: str, read: Callable[[str, BinaryIO], Iterator[Text | Skipped]]) -> Iterator[Text | Skipped]:
    with open_bytes(path) as stream:
        name = "standard input" if path == "-" else path
        try:
            beginning = stream.peek(4096)[:4096]
        except _damaged(name):
            beginning = b""  # reading the lines will say so
        if b"\0" in beginning:
            yield Skipped(name, 0, "expected text in UTF-8, found a binary file")
        else:
            yield from read(name, stream)


def _raw_lines(name: str, stream: BinaryIO) -> Iterator[tuple[int, bytes, bool] | Skipped]:
    """Lines as `(number, bytes, is it the whole line)`; a damaged archive ends them."""
    number, whole = 1, True
    try:
        while block := stream.readline(LONGEST_LINE):
            whole = block.endswith(b"\n")
            yield number, block, whole
            number += whole
    except _damaged(name):
        yield Skipped(name, number, "the compressed data is damaged or cut off here, and the rest of the file is lost")


def _lines(name: str, stream: BinaryIO) -> Iterator[Text | Skipped]:
    """One text a line. A line that comes in several blocks is too long to be a text."""
    overlong = 0
    found = False
    for raw in _raw_lines(name, stream):
        found = True
        if isinstance(raw, Skipped):
            yield raw
            continue
        number, block, whole = raw
        if overlong or (not whole and len(block) == LONGEST_LINE):
            if not overlong:
                yield Skipped(name, number, f"expected a line of at most {LONGEST_LINE:,} bytes, found a longer one")
            overlong = 0 if whole else number
            continue
        try:
            text = block.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            yield Skipped(name, number, f"expected UTF-8, found byte 0x{block[error.start]:02x} at {error.start + 1}")
            continue
        if "\0" in text:
            yield Skipped(name, number, "expected text, found a NUL byte")
        elif text.strip():
            yield Text(name, number, text)
    if not found:
        yield Skipped(name, 0, "expected text, found an empty file")


def _running(name: str, stream: BinaryIO) -> Iterator[Text | Skipped]:
    """Running text: lines belong together until a blank one; sentences come out as soon as they are complete."""
    pending, start = "", 1
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    found = False
    for raw in _raw_lines(name, stream):
        found = True
        if isinstance(raw, Skipped):
            yield raw
            continue
        number, block, whole = raw
        try:
            text = decoder.decode(block, final=whole)
        except UnicodeDecodeError as error:
            decoder.reset()
            yield Skipped(name, number, f"expected UTF-8, found byte 0x{error.object[error.start]:02x}")
            continue
        if text.strip():
            start = start if pending else number
            pending += text
            if len(pending) < LONGEST_LINE // 4:
                continue
            space = " " if pending[-1].isspace() else ""
            *complete, rest = split_sentences(normalise(pending)) or [""]
            pending = rest + space
        else:
            complete, pending = split_sentences(normalise(pending)), ""
        for sentence in complete:
            yield Text(name, start, sentence)
        start = number
        if len(pending) > LONGEST_LINE:
            yield Skipped(name, number, f"expected a sentence end within {LONGEST_LINE:,} characters, found none")
            pending = ""
    for sentence in split_sentences(normalise(pending)):
        yield Text(name, start, sentence)
    if not found:
        yield Skipped(name, 0, "expected text, found an empty file")
