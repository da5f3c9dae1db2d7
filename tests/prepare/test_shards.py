"""Data folders: what they hold, that they survive being killed, and that nothing half-written is taken for whole."""

import gzip
import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import SAMPLE, Run

from pointer.errors import CorpusError, DataError, UsageError
from pointer.prepare import shards
from pointer.prepare.corpus import Corpus, Skipped
from pointer.prepare.importance import Frequencies
from pointer.prepare.rows import RowMaker, RowSettings
from pointer.prepare.shards import Preparation, PreparedData, prepare
from pointer.text import normalise

CORPUS = Corpus((str(SAMPLE),))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "CHUNK_LINES", 25)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("whole") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "CHUNK_LINES", 25)
        prepare(Preparation(CORPUS), out)
    return content(out)


def test_a_folder_holds_every_text_once_in_order(tmp_path: Path, sentences: list[str]) -> None:
    manifest = prepare(Preparation(CORPUS), tmp_path / "data")
    data = PreparedData.open(tmp_path / "data")
    rows = data.load()
    texts = [rows.ids[a:b].tolist() for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True)]
    assert texts == [encoding.ids.tolist() for encoding in data.vocabulary.encode(sentences)]
    assert manifest["counts"]["rows"] == len(rows) == len(sentences)
    assert manifest["counts"]["tokens"] == sum(map(len, texts)) == sum(s["tokens"] for s in manifest["shards"])
    assert sum(manifest["counts"]["rows_by_stages"].values()) == len(rows)
    assert len(manifest["shards"]) == 4 and not (tmp_path / "data" / ".work").exists()


def test_the_manifest_says_how_the_data_was_made(uninterrupted: dict[str, bytes]) -> None:
    manifest = json.loads(uninterrupted["manifest.json"])
    assert manifest["settings"]["max_length"] == 64 and manifest["settings"]["importance"] == ["tfidf", "pos", "yake"]
    assert manifest["seed"] == 0 and {"pointer", "yake", "pyarrow"} <= set(manifest["versions"])
    assert manifest["vocabulary"]["size"] == 10_000


def test_one_sentence_is_scored_later_as_it_was_in_the_corpus(tmp_path: Path, sentences: list[str]) -> None:
    prepare(Preparation(CORPUS), tmp_path / "data")
    data = PreparedData.open(tmp_path / "data")
    frequencies = Frequencies.open(tmp_path / "data" / shards.FREQUENCIES)
    [row] = RowMaker(data.vocabulary, frequencies, RowSettings())([normalise(sentences[0])])
    rows = data.load()
    assert row.stage.tolist() == rows.stage[: rows.offsets[1]].tolist()
    # Words of a single text are left out of the file, which moves their idf a little.
    assert np.allclose(row.importance, rows.importance[: rows.offsets[1]], atol=0.2)


def test_casing_and_frequencies_are_learned_from_the_corpus(tmp_path: Path) -> None:
    corpus = tmp_path / "names.txt"
    corpus.write_text("We met Obama in New York with a new car.\n" * 5 + "It was a new day in a new year.\n" * 5)
    prepare(Preparation(Corpus((str(corpus),))), tmp_path / "data")
    table = json.loads(gzip.decompress((tmp_path / "data" / shards.CASING).read_bytes()))
    assert table == {"words": {"obama": "Obama", "york": "York"}, "pairs": {"new york": "New York"}}
    frequencies = Frequencies.open(tmp_path / "data" / shards.FREQUENCIES)
    assert frequencies.texts == 10 and frequencies.counts["new"] == 10 and frequencies.counts["car"] == 5


def test_long_texts_are_split_at_sentence_ends_and_never_inside(tmp_path: Path, sentences: list[str]) -> None:
    corpus = tmp_path / "long.txt"
    corpus.write_text(" ".join(sentences[:20]) + "\n" + "word " * 100 + ". Short end.\n")
    seen: list[Skipped] = []
    prepare(Preparation(Corpus((str(corpus),)), max_length=32), tmp_path / "data", report=seen.append)
    data = PreparedData.open(tmp_path / "data")
    rows, tokens = data.load(), data.vocabulary.tokens
    for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True):
        assert b - a <= 30 and tokens[rows.ids[b - 1]] in '.!?"'
    assert [str(skip).split(": ")[1] for skip in seen] == [
        "expected sentences of at most 32 tokens, found a longer one; skipped."
    ]


@pytest.mark.parametrize("workers", [2, 3])
def test_the_number_of_workers_changes_no_byte(tmp_path: Path, uninterrupted: dict[str, bytes], workers: int) -> None:
    prepare(Preparation(CORPUS), tmp_path / "data", workers=workers)
    assert content(tmp_path / "data") == uninterrupted


KILLED = """
import os, signal, sys
from pointer import storage
from pointer.prepare import shards
shards.CHUNK_LINES = 25
left = int(sys.argv.pop(1))
whole = storage.write_whole
def write_whole(path, content):
    global left
    left -= 1
    if left == 0:
        path.with_name(f".{path.name}.{os.getpid()}.partial").write_bytes(content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    whole(path, content)
shards.write_whole = write_whole
from pointer.cli import main
main()
"""


def start(out: Path, *arguments: str, program: str = KILLED, kill_at: int = 0) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", program, str(kill_at), "prepare", str(SAMPLE), "--out", str(out), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("kill_at", [1, 3, 8, 10, 13, 15])
def test_killed_at_any_write_the_same_command_finishes_to_the_same_bytes(
    tmp_path: Path, uninterrupted: dict[str, bytes], kill_at: int
) -> None:
    out = tmp_path / "data"
    killed = start(out, "--workers", "1", kill_at=kill_at)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(DataError, match="found an unfinished preparation"):
        PreparedData.open(out)
    prepare(Preparation(CORPUS), out)
    assert content(out) == uninterrupted


def test_killed_with_workers_none_is_left_running_and_the_rest_is_finished(
    tmp_path: Path, uninterrupted: dict[str, bytes]
) -> None:
    out = tmp_path / "data"
    killed = start(out, "--workers", "2")
    while killed.poll() is None and not (out / "shard-00000.parquet").exists():
        time.sleep(0.01)
    children = Path(f"/proc/{killed.pid}/task/{killed.pid}/children").read_text().split()
    killed.kill()
    killed.communicate()
    give_up = time.monotonic() + 60
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
    prepare(Preparation(CORPUS), out)
    assert content(out) == uninterrupted


def test_a_finished_folder_is_left_as_it_is(tmp_path: Path) -> None:
    first = prepare(Preparation(CORPUS), tmp_path / "data")
    before = content(tmp_path / "data")
    assert prepare(Preparation(CORPUS), tmp_path / "data") == first
    assert content(tmp_path / "data") == before


def test_other_settings_never_mix_with_what_is_there(tmp_path: Path) -> None:
    prepare(Preparation(CORPUS), tmp_path / "data")
    before = content(tmp_path / "data")
    with pytest.raises(DataError, match="settings was max_length 64 and is now max_length 128"):
        prepare(Preparation(CORPUS, max_length=128), tmp_path / "data")
    assert content(tmp_path / "data") == before


def test_input_that_changed_since_the_kill_is_noticed(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("A first line here.\n" * 40)
    out = tmp_path / "data"
    program = KILLED.replace("main()", f"sys.argv[2] = {str(corpus)!r}\nmain()")
    start(out, "--workers", "1", program=program, kill_at=4).communicate()
    corpus.write_text("A third line here.\n" * 40)
    with pytest.raises(DataError, match="found other lines in chunk 0"):
        prepare(Preparation(Corpus((str(corpus),))), out)


def test_a_folder_with_something_else_is_never_touched(tmp_path: Path) -> None:
    out = tmp_path / "photos"
    out.mkdir()
    (out / "beach.jpg").write_bytes(b"precious")
    with pytest.raises(DataError, match="found something else in"):
        prepare(Preparation(CORPUS), out)
    assert content(out) == {"beach.jpg": b"precious"}


@pytest.mark.parametrize(("limit", "workers"), [(20_000, "1"), (160_000, "2")])
def test_a_full_disk_is_one_sentence_and_leaves_nothing_half_written(
    tmp_path: Path, pointer: Run, limit: int, workers: str
) -> None:
    corpus, out = tmp_path / "corpus.txt", tmp_path / "data"
    random = np.random.default_rng(1)
    words = np.array(SAMPLE.read_text().split())
    corpus.write_text("".join(" ".join(random.choice(words, 12)) + "\n" for _ in range(4000)))
    arguments = ["prepare", str(corpus), "--out", str(out), "--workers", workers]
    done = subprocess.run(
        [sys.executable, "-m", "pointer", *arguments],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("pointer: Could not write ") and done.stderr.count("\n") == 1
    assert "give the same command again" in done.stderr
    assert not list(out.rglob("*.partial")) and not (out / "manifest.json").exists()
    assert pointer(*arguments).returncode == 0


def test_a_corpus_without_a_usable_text_leaves_no_folder(tmp_path: Path) -> None:
    corpus = tmp_path / "nothing.txt"
    corpus.write_bytes(b"\xff\xfe\xfd\n\xff\n")
    with pytest.raises(CorpusError, match=r"found none that can be used among 2 lines \(2 skipped\)"):
        prepare(Preparation(Corpus((str(corpus),))), tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_line_that_tokenises_to_nothing_is_counted(tmp_path: Path) -> None:
    corpus = tmp_path / "odd.txt"
    corpus.write_text("A good line.\n\u200b\u200b \u00ad\nAnother good one.\n")
    seen: list[Skipped] = []
    manifest = prepare(Preparation(Corpus((str(corpus),))), tmp_path / "data", report=seen.append)
    assert manifest["counts"]["rows"] == 2 and manifest["counts"]["lines"] == 3
    assert [(skip.line, skip.reason) for skip in seen] == [(2, "expected words, found nothing that tokenises")]


def test_importance_none_is_interleaved_and_keywords_are_kept(tmp_path: Path) -> None:
    prepare(Preparation(CORPUS, rows=RowSettings(importance=())), tmp_path / "none")
    rows = PreparedData.open(tmp_path / "none").load()
    assert not rows.importance.any()
    prepare(Preparation(CORPUS, rows=RowSettings(skeleton="keywords", keywords=3)), tmp_path / "keywords")
    rows = PreparedData.open(tmp_path / "keywords").load()
    kept = [rows.rank[a:b][rows.stage[a:b] == 0] for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True)]
    assert all((ranks > 0).all() for ranks in kept if ranks.any())


def test_a_damaged_or_foreign_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"with a manifest\.json in .*, found none"):
        PreparedData.open(tmp_path)
    out = tmp_path / "data"
    prepare(Preparation(CORPUS), out)
    shard = out / "shard-00001.parquet"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(DataError, match=r"shard-00001\.parquet to have the hash in the manifest, found another"):
        PreparedData.open(out)
    shard.unlink()
    with pytest.raises(DataError, match="found no such file"):
        PreparedData.open(out)
    (out / "manifest.json").write_text("[]")
    with pytest.raises(DataError, match="Expected a manifest"):
        PreparedData.open(out)


def test_counting_tables_stay_bounded_and_keep_the_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    table = shards.Counter({f"rare{i}": 1 for i in range(30)} | {"often": 9})
    shards._forget_rarest(table, most=10)
    assert len(table) == 10 and table["often"] == 9


@pytest.mark.parametrize("wrong", [{"max_length": 4}, {"max_length": 4096}])
def test_a_wrong_length_is_named(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="max_length: expected a number from 8 to 512"):
        Preparation(CORPUS, **wrong)
