"""From a corpus to a data folder: parquet shards of rows, and a manifest that says what they are.

Two passes, so that every text is scored against the whole corpus. The first reads the corpus in chunks of lines, cuts
them into texts that fit, and counts document frequencies and casing; the second turns every chunk into one shard.
What a chunk or a shard holds depends on the input and the settings alone, never on the number of workers, and each file
appears whole or not at all: so a killed run is continued by the same command, to the same bytes.

    DIR/shard-00000.parquet ...          ids, stage, importance, rank: a row a text
    DIR/document_frequencies.json.gz     what tf-idf knows
    DIR/casing.json.gz                   how words are usually written
    DIR/tokenizer.json                   the vocabulary
    DIR/manifest.json                    settings, seed, versions, counts, sha256 of every shard; written last
    DIR/.work/                           chunks on their way; gone when the manifest is there
"""

import gzip
import hashlib
import io
import json
import platform
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from pointer import __version__
from pointer.checkpoint import EMBEDDED
from pointer.engines import Workers
from pointer.engines import workers as start_workers
from pointer.errors import CorpusError, DataError, UsageError
from pointer.prepare.corpus import Corpus, Skipped, Text, arrow_for
from pointer.prepare.importance import Frequencies
from pointer.prepare.manifest import AGAIN, FORMAT, MANIFEST, read_manifest
from pointer.prepare.rows import RowMaker, RowSettings
from pointer.progress import Progress
from pointer.storage import file_hash, location, remove_folder, remove_partial, write_whole
from pointer.text import Casing, normalise, split_sentences
from pointer.vocabulary import Vocabulary

FREQUENCIES = "document_frequencies.json.gz"
CASING = "casing.json.gz"
LONGEST_TEXT = 512

CHUNK_LINES = 2048
CHUNK_CHARACTERS = 4_000_000
MIXED_SHARDS = 32
"""Shards whose rows are mixed where they are streamed."""
MERGED_CHUNKS = 64
"""Chunks whose counts one worker adds up."""
MOST_COUNTED = 200_000
"""Entries of a counting table; beyond twice that, the rarest are forgotten, so that memory stays flat."""


@dataclass(frozen=True)
class Preparation:
    """Everything that decides what the shards hold."""

    corpus: Corpus
    vocabulary: str = EMBEDDED
    """An embedded name, a folder or a Hub id."""
    max_length: int = 64
    """Tokens of a text with `[CLS]` and `[SEP]`; longer texts are split at sentence ends."""
    rows: RowSettings = field(default_factory=RowSettings)

    def __post_init__(self) -> None:
        if not 8 <= self.max_length <= LONGEST_TEXT:
            raise UsageError(
                f"max_length: expected a number from 8 to {LONGEST_TEXT}, found {self.max_length}.",
                "The paper has 64 for Wikipedia; reviews want 128.",
            )


def prepare(
    preparation: Preparation,
    out: str | Path,
    workers: int | None = 1,
    progress: Progress = lambda phase, done, total: None,
    report: Callable[[Skipped], None] = lambda skipped: None,
    engine: str = "local",
    address: str | None = None,
) -> dict[str, Any]:
    """Prepare a corpus into the folder `out` and return its manifest; continues what was begun there.

    `report` is told about every line that is skipped. A corpus without a usable text is a `CorpusError`. Who does the
    work (`workers`, `engine`, `address`: see `pointer.engines`) changes no byte of the folder.
    """
    arrow_for("Preparing data")
    out = location(out)
    vocabulary = Vocabulary.open(preparation.vocabulary)
    run = _description(preparation, vocabulary)
    finished = _claim(out, run)
    if finished is not None:
        return finished
    vocabulary.save(out)
    task = _Task(out, preparation)
    with start_workers(partial(_Task, out, preparation), workers, engine, address) as pool:
        lines, skipped = _first_pass(task, pool, progress, report)
        chunks = sorted((out / ".work").glob("texts-*.json.gz"))
        _merge_counts(task, pool, progress)
        counts, entries = _second_pass(task, pool, chunks, progress)
    if not counts["rows"]:
        remove_folder(out)
        raise CorpusError(
            f"Expected texts, found none that can be used among {lines:,} lines ({skipped.total():,} skipped).",
            "Check the files, --layout and --column.",
        )
    manifest = run | {"counts": {"lines": lines, "skipped": dict(sorted(skipped.items())), **counts}}
    manifest["shards"] = entries
    write_whole(out / MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())
    remove_folder(out / ".work")
    return manifest


def _description(preparation: Preparation, vocabulary: Vocabulary) -> dict[str, Any]:
    settings = asdict(preparation)
    inputs = [
        {"file": path, "bytes": None if path == "-" else location(path).stat().st_size}
        for path in settings.pop("corpus").pop("paths")
    ]
    settings |= {"layout": preparation.corpus.layout, "column": preparation.corpus.column}
    settings |= settings.pop("rows") | {"importance": list(preparation.rows.importance)}
    return {
        "format": FORMAT,
        "seed": settings.pop("seed"),
        "settings": settings,
        "inputs": inputs,
        "vocabulary": {"fingerprint": vocabulary.fingerprint, "size": len(vocabulary)},
        "versions": {"pointer": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("numpy", "pyarrow", "tokenizers", "yake")},
    }


def _claim(out: Path, run: dict[str, Any]) -> dict[str, Any] | None:
    """Make sure that `out` is ours to write: new, or begun by the same command. A finished one is returned."""
    begun, manifest = out / ".work" / "run.json", out / MANIFEST
    for path in (manifest, begun):
        if not path.exists():
            continue
        try:
            found = json.loads(path.read_text("utf-8"))
        except ValueError:
            found = {}
        differs = [key for key in run if found.get(key) != run[key]]
        if differs:
            was, now = _first_difference(found.get(differs[0]), run[differs[0]])
            raise DataError(
                f"Expected an empty folder or one of the same preparation, found in {out} one whose {differs[0]} was "
                f"{was} and is now {now}.",
                "Choose another --out, or delete that folder.",
            )
        if path == manifest:
            if begun.parent.exists():  # killed between the manifest and the clean-up
                remove_folder(begun.parent)
            return dict(found)
    if out.exists() and not begun.exists() and (not out.is_dir() or {path.name for path in out.iterdir()} - {".work"}):
        raise DataError(
            f"Expected a new or empty folder for the output, found something else in {out}.", "Choose another --out."
        )
    begun.parent.mkdir(parents=True, exist_ok=True)
    remove_partial(out)
    remove_partial(begun.parent)
    if not begun.exists():
        write_whole(begun, json.dumps(run).encode())
    return None


def _first_difference(was: Any, now: Any) -> tuple[Any, Any]:
    if isinstance(was, dict) and isinstance(now, dict):
        key = next(key for key in now if was.get(key) != now[key])
        return f"{key} {was.get(key)}", f"{key} {now[key]}"
    return was, now


# ---------------------------------------------------------------------------------------------------------------------
# The first pass: lines -> texts that fit, document frequencies, casing


@dataclass(frozen=True)
class _Task:
    """What a worker holds; it opens vocabulary and frequencies once."""

    out: Path
    preparation: Preparation

    @cached_property
    def vocabulary(self) -> Vocabulary:
        if not (self.out / ".work" / "run.json").exists():
            raise DataError(
                f"Expected the folder {self.out} on every node, found none on {socket.gethostname()}.",
                "Name a folder that all nodes share, or an address such as s3://bucket/folder.",
            )
        return Vocabulary.open(self.out)

    @cached_property
    def row_maker(self) -> RowMaker:
        return RowMaker(self.vocabulary, Frequencies.open(self.out / FREQUENCIES), self.preparation.rows)

    def path(self, kind: str, chunk: int) -> Path:
        return self.out / ".work" / f"{kind}-{chunk:05d}.json.gz"


def _first_pass(
    task: _Task, pool: Workers, progress: Progress, report: Callable[[Skipped], None]
) -> tuple[int, Counter[str]]:
    """Cut the corpus into chunks of texts that fit. Returns how many lines there were and how many were skipped why."""
    lines, skipped = 0, Counter[str]()
    for found, dropped in pool.map(_fit_chunk, _chunks(task)):
        lines += found
        for item in dropped:
            skipped[item.reason] += 1
            report(item)
        progress("reading", lines, None)
    return lines, skipped


def _chunks(task: _Task) -> Iterator[tuple[int, list[Text], list[Skipped]]]:
    """The corpus in chunks of lines. Where a chunk ends depends on the lines alone."""
    number, size = 0, 0
    texts: list[Text] = []
    skipped: list[Skipped] = []
    for line in task.preparation.corpus:
        if isinstance(line, Skipped):
            skipped.append(line)
        else:
            texts.append(line)
            size += len(line.text)
        if len(texts) + len(skipped) >= CHUNK_LINES or size >= CHUNK_CHARACTERS:
            yield number, texts, skipped
            number, size, texts, skipped = number + 1, 0, [], []
    if texts or skipped:
        yield number, texts, skipped


def _fit_chunk(task: _Task, chunk: int, lines: list[Text], skipped: list[Skipped]) -> tuple[int, list[Skipped]]:
    """Normalise, split and count one chunk; its texts go to a file of their own. Returns lines and what was skipped."""
    digest = hashlib.sha256(json.dumps([lines, skipped]).encode()).hexdigest()
    path = task.path("texts", chunk)
    if path.exists():
        done = _read_json(path)
        if done["digest"] != digest:
            raise DataError(
                f"Expected the same input as when {task.out} was begun, found other lines in chunk {chunk}.",
                "Choose another --out, or delete that folder.",
            )
        return done["lines"], [Skipped(*item) for item in done["skipped"]]
    texts, words, dropped = _fitting_texts(lines, task.vocabulary, task.preparation.max_length - 2)
    casing = Casing()
    casing.add(words)
    frequencies = Counter(word for text in words for word in {word.lower() for word in text})
    counts = {"texts": len(texts), "frequencies": frequencies, "words": casing.words, "pairs": casing.pairs}
    _write_json(task.path("counts", chunk), counts)
    dropped = skipped + dropped
    total = len(lines) + len(skipped)
    _write_json(path, {"digest": digest, "lines": total, "skipped": dropped, "texts": texts})
    return total, dropped


def _fitting_texts(
    lines: list[Text], vocabulary: Vocabulary, longest: int
) -> tuple[list[str], list[list[str]], list[Skipped]]:
    """Texts of at most `longest` tokens, their words, and what could not be used."""
    texts: list[str] = []
    words: list[list[str]] = []
    skipped: list[Skipped] = []
    normal = [normalise(line.text) for line in lines]
    for line, text, encoding in zip(lines, normal, vocabulary.encode(normal), strict=True):
        if len(encoding.ids) == 0:
            skipped.append(Skipped(line.source, line.line, "expected words, found nothing that tokenises"))
        elif len(encoding.ids) <= longest:
            texts.append(text)
            words.append(encoding.words)
        else:
            for passage in _passages(text, vocabulary, longest):
                if passage is None:
                    reason = f"expected sentences of at most {longest + 2} tokens, found a longer one"
                    skipped.append(Skipped(line.source, line.line, reason))
                else:
                    texts.append(passage[0])
                    words.append(passage[1])
    return texts, words, skipped


def _passages(text: str, vocabulary: Vocabulary, longest: int) -> Iterator[tuple[str, list[str]] | None]:
    """Neighbouring sentences together as long as they fit; None for a sentence that does not fit alone."""
    sentences = split_sentences(text)
    parts: list[str] = []
    words: list[str] = []
    size = 0
    for sentence, encoding in zip(sentences, vocabulary.encode(sentences), strict=True):
        if parts and size + len(encoding.ids) > longest:
            yield " ".join(parts), words
            parts, words, size = [], [], 0
        if len(encoding.ids) > longest:
            yield None
        elif len(encoding.ids):
            parts.append(sentence)
            words = words + encoding.words
            size += len(encoding.ids)
    if parts:
        yield " ".join(parts), words


def _merge_counts(task: _Task, pool: Workers, report: Progress) -> None:
    """Add up the counts of all chunks and write document frequencies and casing.

    Workers add up groups of chunks, so that little is left for the one who adds up the groups.
    """
    if (task.out / FREQUENCIES).exists() and (task.out / CASING).exists():
        return
    chunks = sorted((task.out / ".work").glob("counts-*.json.gz"))
    groups = [chunks[start : start + MERGED_CHUNKS] for start in range(0, len(chunks), MERGED_CHUNKS)]
    total = Counts()
    for done, group in enumerate(pool.map(_add_up, ((paths,) for paths in groups)), 1):
        total.add(group)
        report("counting", done, len(groups))
    casing = Casing(total.words, total.pairs)
    write_whole(task.out / CASING, gzip.compress(json.dumps(casing.table(), ensure_ascii=False).encode(), mtime=0))
    write_whole(task.out / FREQUENCIES, Frequencies(total.texts, total.frequencies).to_bytes())


@dataclass
class Counts:
    """How often there is what, in some texts; of the rarest nothing is known."""

    texts: int = 0
    frequencies: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    pairs: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Counts") -> None:
        """Those of other texts."""
        self.texts += other.texts
        for name in ("frequencies", "words", "pairs"):
            table = getattr(self, name)
            table.update(getattr(other, name))
            _forget_rarest(table)


def _add_up(task: _Task, paths: list[Path]) -> Counts:
    total = Counts()
    for path in paths:
        total.add(Counts(**_read_json(path)))
    return total


def _forget_rarest(table: Counter[str], most: int = MOST_COUNTED) -> None:
    """Keep a counting table bounded: what has been seen least is forgotten, ties in alphabetical order."""
    if len(table) > 2 * most:
        kept = sorted(table.items(), key=lambda item: (-item[1], item[0]))[:most]
        table.clear()
        table.update(dict(kept))


# ---------------------------------------------------------------------------------------------------------------------
# The second pass: texts -> rows -> shards


def _second_pass(
    task: _Task, pool: Workers, chunks: list[Path], progress: Progress
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Write all shards. Returns what is in them together, and the entry of each for the manifest."""
    counts: Counter[str] = Counter()
    entries: list[dict[str, Any]] = []
    stages: Counter[int] = Counter()
    numbers = ((int(path.name[6:11]),) for path in chunks)
    for done, (entry, found, births) in enumerate(pool.map(_write_shard, numbers), 1):
        entries += [entry] if entry is not None else []
        counts.update(found)
        stages.update(births)
        progress("scheduling", done, len(chunks))
    fixed = {name: counts[name] for name in ("rows", "tokens", "pair_tokens")}
    return fixed | {"rows_by_stages": {str(k): stages[k] for k in sorted(stages)}}, entries


def _write_shard(task: _Task, chunk: int) -> tuple[dict[str, Any] | None, dict[str, int], dict[int, int]]:
    """One chunk of texts becomes one shard.

    Returns its entry for the manifest, its counts, and how many rows have how many stages.
    """
    pa, parquet = arrow_for("Preparing data")
    path = task.out / f"shard-{chunk:05d}.parquet"
    if not path.exists():
        texts = _read_json(task.path("texts", chunk))["texts"]
        if not texts:
            return None, {"rows": 0}, {}
        rows = task.row_maker(texts)
        columns = {
            "ids": pa.array([row.ids for row in rows], pa.list_(pa.int32())),
            "stage": pa.array([row.stage for row in rows], pa.list_(pa.uint8())),
            "importance": pa.array([row.importance for row in rows], pa.list_(pa.float32())),
            "rank": pa.array([row.rank for row in rows], pa.list_(pa.uint8())),
        }
        sink = pa.BufferOutputStream()
        parquet.write_table(pa.table(columns), sink, compression="zstd")
        write_whole(path, sink.getvalue().to_pybytes())
    found, births = _shard_counts(Rows.read([path]))
    entry = {"file": path.name, "rows": found["rows"], "tokens": found["tokens"], "sha256": file_hash(path)}
    return entry, found, births


def _shard_counts(rows: "Rows") -> tuple[dict[str, int], dict[int, int]]:
    lengths = np.diff(rows.offsets)
    stages = np.maximum.reduceat(rows.stage, rows.offsets[:-1]).astype(np.int64)
    # Token t is an input of every pair after its birth, the closing one included; each pair adds [CLS] and [SEP].
    pair_tokens = (np.repeat(stages, lengths) - rows.stage + 1).sum() + 2 * (stages + 1).sum()
    found = {"rows": len(rows), "tokens": len(rows.ids), "pair_tokens": int(pair_tokens)}
    return found, {int(k): int(n) for k, n in zip(*np.unique(stages, return_counts=True), strict=True)}


def _read_json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return content


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_whole(path, gzip.compress(json.dumps(content, ensure_ascii=False).encode(), compresslevel=1, mtime=0))


# ---------------------------------------------------------------------------------------------------------------------
# Reading a data folder


class RowSource(Protocol):
    """Rows to train on, all of them in memory (`Rows`) or each read when its turn comes (`StreamedRows`)."""

    @property
    def longest(self) -> int:
        """The tokens that no text has more of, `[CLS]` and `[SEP]` not counted."""

    def __len__(self) -> int:
        """How many there are."""

    def numbers(self, seed: int, epoch: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Which rows come from `start` to `stop` of an epoch, which has each of them once."""

    def take(self, which: npt.NDArray[np.int64]) -> "Rows":
        """The rows of these numbers, in this order."""


@dataclass(frozen=True)
class Rows:
    """Many texts as flat arrays; text i is `[offsets[i]:offsets[i + 1]]` of each."""

    ids: npt.NDArray[np.int32]
    stage: npt.NDArray[np.uint8]
    importance: npt.NDArray[np.float32]
    rank: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def longest(self) -> int:
        """The tokens of the longest text."""
        return int(np.diff(self.offsets).max(initial=0))

    def numbers(self, seed: int, epoch: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Which rows come from `start` to `stop` of an epoch: all of them in a random order."""
        return np.random.default_rng([seed, epoch]).permutation(len(self))[start:stop]

    def take(self, which: npt.NDArray[np.int64]) -> "Rows":
        """The rows of these numbers, in this order."""
        lengths = self.offsets[which + 1] - self.offsets[which]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        flat = np.repeat(self.offsets[which] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Rows(self.ids[flat], self.stage[flat], self.importance[flat], self.rank[flat], offsets)

    @classmethod
    def joined(cls, parts: Sequence["Rows"]) -> "Rows":
        """All rows of some parts, in order."""
        names = ("ids", "stage", "importance", "rank")
        flat: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        return cls(**flat, offsets=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    @classmethod
    def read(cls, paths: Iterable[Path]) -> "Rows":
        """All rows of some shards, in order."""
        parts = []
        for path in paths:
            with path.open("rb") as file:
                parts.append(cls.of(file))
        return cls.joined(parts)

    @classmethod
    def of(cls, file: BinaryIO) -> "Rows":
        """All rows of one shard."""
        _, parquet = arrow_for("Reading prepared data")
        table = parquet.read_table(file)
        flat: dict[str, Any] = {
            name: table[name].combine_chunks().flatten().to_numpy() for name in ("ids", "stage", "importance", "rank")
        }
        return cls(**flat, offsets=table["ids"].combine_chunks().offsets.to_numpy().astype(np.int64))


class StreamedRows:
    """The rows of a data folder, each shard read when its turn comes: a few of them are in memory, the others nowhere.

    An epoch goes through the shards in a random order, some at a time, whose rows are mixed.
    """

    def __init__(self, folder: Path, shards: Sequence[dict[str, Any]], longest: int) -> None:
        self.folder, self.shards, self.longest = folder, shards, longest
        self.starts = np.concatenate([[0], np.cumsum([shard["rows"] for shard in shards], dtype=np.int64)])
        self.shard = lru_cache(2 * MIXED_SHARDS)(self._shard)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def _shard(self, number: int) -> Rows:
        path, expected = self.folder / self.shards[number]["file"], self.shards[number]["sha256"]
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != expected:
            raise DataError(f"Expected {path} to have the hash in the manifest, found another.", AGAIN)
        return Rows.of(io.BytesIO(content))

    def numbers(self, seed: int, epoch: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Which rows come from `start` to `stop` of an epoch; it takes no more memory for more shards."""
        order = np.random.default_rng([seed, epoch]).permutation(len(self.shards))
        found, end = [], 0
        for number, first in enumerate(range(0, len(order), MIXED_SHARDS)):
            some = order[first : first + MIXED_SHARDS]
            begin, end = end, end + int((self.starts[some + 1] - self.starts[some]).sum())
            if begin < stop and start < end:
                rows = np.concatenate([np.arange(self.starts[i], self.starts[i + 1]) for i in some])
                rows = np.random.default_rng([seed, epoch, number]).permutation(rows)
                found.append(rows[max(0, start - begin) : stop - begin])
        return np.concatenate(found)

    def take(self, which: npt.NDArray[np.int64]) -> Rows:
        """The rows of these numbers, in this order."""
        shard = np.searchsorted(self.starts, which, side="right") - 1
        by_shard = np.argsort(shard, kind="stable")
        parts = [self.shard(int(i)).take(which[shard == i] - self.starts[i]) for i in np.unique(shard)]
        back = np.empty(len(which), np.int64)
        back[by_shard] = np.arange(len(which))
        return Rows.joined(parts).take(back)


@dataclass(frozen=True)
class PreparedData:
    """A data folder that `prepare` finished."""

    folder: Path
    manifest: dict[str, Any]
    vocabulary: Vocabulary

    @classmethod
    def open(cls, folder: str | Path, verify: bool = True) -> "PreparedData":
        """Open a data folder; `verify` compares every shard with the hash in the manifest."""
        folder = location(folder)
        manifest = read_manifest(folder)
        for shard in manifest["shards"] if verify else ():
            path = folder / shard["file"]
            if file_hash(path) != shard["sha256"]:
                raise DataError(f"Expected {path} to have the hash in the manifest, found another.", AGAIN)
        vocabulary = Vocabulary.open(folder)
        if vocabulary.fingerprint != manifest["vocabulary"]["fingerprint"]:
            raise DataError(f"Expected the vocabulary of the manifest in {folder}, found another.", AGAIN)
        return cls(folder, manifest, vocabulary)

    def stream(self) -> StreamedRows:
        """All rows, read when they are asked for."""
        return StreamedRows(self.folder, self.manifest["shards"], self.manifest["settings"]["max_length"] - 2)

    def load(self) -> Rows:
        """All rows, in memory, as flat arrays."""
        return Rows.read(self.folder / shard["file"] for shard in self.manifest["shards"])
