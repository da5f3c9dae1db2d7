"""Every kind of corpus file, good and bad: the good lines come out, the bad ones with file and line."""

import gzip
import io
import json
import lzma
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pointer.errors import CorpusError, UsageError
from pointer.prepare.corpus import LONGEST_LINE, Corpus, Skipped, Text

LINES = ["One fine day.", "Zwei schöne Tage — ja!", "Three."]
PLAIN = "".join(f"{line}\n" for line in LINES).encode()


def texts(corpus: Corpus) -> list[str]:
    return [line.text for line in corpus if isinstance(line, Text)]


def skipped(corpus: Corpus) -> list[str]:
    return [str(line) for line in corpus if isinstance(line, Skipped)]


def written(path: Path, content: bytes) -> Corpus:
    path.write_bytes(content)
    return Corpus((str(path),))


def zst_file(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", PLAIN),
        ("a", PLAIN),
        ("a.txt.gz", gzip.compress(PLAIN)),
        ("a.txt.xz", lzma.compress(PLAIN)),
        ("a.txt.zst", zst_file(PLAIN)),
        ("crlf.txt", PLAIN.replace(b"\n", b"\r\n")),
        ("bom.txt", b"\xef\xbb\xbf" + PLAIN),
        ("no-newline.txt", PLAIN[:-1]),
        ("a.jsonl", b"".join(json.dumps({"text": line, "id": 1}).encode() + b"\n" for line in LINES)),
        ("a.jsonl.gz", gzip.compress(b"".join(json.dumps({"text": line}).encode() + b"\n" for line in LINES))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_same_lines_come_out_of_every_form(tmp_path: Path, name: str, content: bytes) -> None:
    corpus = written(tmp_path / name, content)
    assert texts(corpus) == LINES
    assert skipped(corpus) == []


def test_parquet_gives_the_named_column(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"review": [*LINES, None], "stars": [1, 2, 3, 4]}), path)
    corpus = Corpus((str(path),), column="review")
    assert texts(corpus) == LINES
    assert skipped(corpus) == [f'{path}, line 4: expected a text under "review", found None; skipped.']


def test_a_missing_parquet_column_names_those_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"review": LINES}), path)
    with pytest.raises(CorpusError, match=r'"text" in .*, found review\. Name the column'):
        list(Corpus((str(path),)))


def test_a_jsonl_line_without_the_key_is_reported_by_number(tmp_path: Path) -> None:
    corpus = written(tmp_path / "a.jsonl", b'{"text": "good"}\n{"body": "x"}\nnot json\n[1]\n{"text": "also good"}\n')
    assert texts(corpus) == ["good", "also good"]
    assert [line.split(", ")[1].split(":")[0] for line in skipped(corpus)] == ["line 2", "line 3", "line 4"]


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BufferedReader(io.BytesIO(PLAIN))  # type: ignore[arg-type]

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert texts(Corpus(("-",))) == LINES


def test_broken_utf8_costs_its_line_only(tmp_path: Path) -> None:
    corpus = written(tmp_path / "a.txt", b"good\nbad \xff here\nalso good\n")
    assert texts(corpus) == ["good", "also good"]
    assert skipped(corpus) == [f"{tmp_path / 'a.txt'}, line 2: expected UTF-8, found byte 0xff at 5; skipped."]


def test_a_line_of_ten_megabytes_costs_itself_only(tmp_path: Path) -> None:
    corpus = written(tmp_path / "a.txt", b"before\n" + b"word " * 2_000_000 + b"\nafter\n")
    assert texts(corpus) == ["before", "after"]
    [sentence] = skipped(corpus)
    assert "line 2: expected a line of at most 1,000,000 bytes" in sentence


def test_a_binary_file_is_said_to_be_one(tmp_path: Path) -> None:
    corpus = written(tmp_path / "a.txt", bytes(range(256)) * 40)
    assert texts(corpus) == []
    assert skipped(corpus) == [f"{tmp_path / 'a.txt'}: expected text in UTF-8, found a binary file; skipped."]


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    for layout in ("lines", "running"):
        corpus = Corpus((written(tmp_path / "a.txt", b"").paths[0],), layout)
        assert skipped(corpus) == [f"{tmp_path / 'a.txt'}: expected text, found an empty file; skipped."]


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt.xz", "a.txt.zst"])
def test_a_damaged_archive_keeps_what_came_before(tmp_path: Path, name: str) -> None:
    many = b"".join(b"line %d of many\n" % i for i in range(200_000))
    packed = {"gz": gzip.compress, "xz": lzma.compress, "zst": zst_file}[name.rsplit(".", 1)[1]](many)
    corpus = written(tmp_path / name, packed[: len(packed) // 2])
    assert texts(corpus)[:1] == ["line 0 of many"]
    [sentence] = skipped(corpus)
    assert "damaged or cut off" in sentence


def test_something_else_called_parquet_or_gz_is_reported(tmp_path: Path) -> None:
    assert "expected a parquet file" in skipped(written(tmp_path / "a.parquet", PLAIN))[0]
    assert "damaged" in skipped(written(tmp_path / "a.gz", PLAIN))[0]


def test_running_text_is_split_into_sentences_across_lines(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text("It was a dark\nnight. Dr. Hook slept.\n\nChapter two\n\nHe woke.\n")
    corpus = Corpus((str(path),), layout="running")
    assert texts(corpus) == ["It was a dark night.", "Dr. Hook slept.", "Chapter two", "He woke."]


def test_running_text_on_one_enormous_line_comes_out_whole(tmp_path: Path) -> None:
    sentence = "Ein schöner Satz über das Meer."
    path = tmp_path / "book.txt"
    path.write_text(" ".join([sentence] * (3 * LONGEST_LINE // len(sentence))))
    found = texts(Corpus((str(path),), layout="running"))
    assert set(found) == {sentence} and len(found) == 3 * LONGEST_LINE // len(sentence)


def test_a_missing_file_and_a_wrong_layout_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="found no file at"):
        Corpus((str(tmp_path / "nothing.txt"),))
    with pytest.raises(UsageError, match="layout: expected lines or running"):
        Corpus((), layout="sideways")
