"""Work in this process, in several and on a Ray cluster: the same answers in the same order, also when workers die."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import SAMPLE, Run

from pointer import engines
from pointer.decoding.bulk import PART_LINES, Asked, Written, open_results
from pointer.decoding.generator import Generation
from pointer.decoding.grammar import parse
from pointer.decoding.options import Options
from pointer.engines import workers
from pointer.errors import ClusterError, CorpusError, DataError, StorageError, UsageError
from pointer.prepare import shards
from pointer.prepare.corpus import Corpus, Text, listed
from pointer.prepare.shards import Preparation, PreparedData, prepare

# Clusters of tests have a token of their own; Ray reads this as it is imported.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A real Ray cluster of two workers on this machine."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the workers cannot import a test
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


def held(number: int) -> int:
    return number


def add_slowly(number: int, piece: int) -> int:
    time.sleep(0.02 * (piece % 3))
    return number + piece


def die_once(number: int, piece: int, mark: Path) -> int:
    """Killed by `kill -9` in the middle of a piece, the first time."""
    if piece == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number + piece


def refuse(number: int, piece: int) -> int:
    raise DataError(f"Expected another number than {piece}, found it.", "Take another.")


@pytest.mark.parametrize(("engine", "count"), [("local", 1), ("local", 2), ("ray", 2)])
def test_answers_come_in_the_order_of_the_pieces(cluster: None, engine: str, count: int) -> None:
    taken = []

    def pieces() -> Iterator[tuple[int]]:
        for number in range(40):
            taken.append(number)
            yield (number,)

    with workers(partial(int, 100), count, engine) as pool:
        answers = pool.map(add_slowly if engine == "ray" else _plus, pieces())
        assert next(answers) == 100 and len(taken) <= 10  # a few ahead and no more
        assert list(answers) == [100 + number for number in range(1, 40)]


_plus = int.__add__


def test_a_killed_worker_of_a_cluster_is_replaced_and_its_piece_done_again(cluster: None, tmp_path: Path) -> None:
    mark = tmp_path / "died"
    with workers(partial(held, 7), 2, "ray") as pool:
        assert list(pool.map(die_once, [(number, mark) for number in range(12)])) == [*range(7, 19)]
    assert mark.exists()


def test_what_a_piece_raises_arrives_as_it_is(cluster: None) -> None:
    with workers(partial(held, 7), 1, "ray") as pool, pytest.raises(DataError, match="another number than 5") as found:
        list(pool.map(refuse, [(5,)]))
    assert found.value.hint == "Take another."


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"engine": "spark"}, 'engine: expected local or ray, found "spark"'),
        ({"count": 0}, "workers: expected at least 1, found 0"),
        ({"address": "auto"}, "address: expected with --engine ray"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said), workers(partial(held, 7), **options):
        pass


# ---------------------------------------------------------------------------------------------------------------------
# What goes wrong with a cluster is one sentence

HIDES = """
import sys

class Hides:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pointer":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hides())
"""
"""Run when an interpreter starts: it then has no package `pointer`."""


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., str]:
    """What `pointer prepare --engine ray --address ADDRESS`, run by `program`, says as it fails."""

    def run(address: str, program: str = "", **environment: str) -> str:
        arguments = ["prepare", str(SAMPLE), "--out", str(tmp_path / "data"), "--engine", "ray", "--address", address]
        command = [sys.executable, "-c", f"{program}\nfrom pointer.cli import main\nmain()", *arguments]
        everything = os.environ | {"NO_COLOR": "1", "COLUMNS": "120"} | environment
        found = subprocess.run(command, capture_output=True, text=True, env=everything)
        assert found.returncode == 1 and found.stdout == "", found
        said = " ".join(found.stderr.split())
        assert said.startswith("pointer: Expected"), said
        return said

    return run


def address_of(cluster: None) -> str:
    return str(ray.get_runtime_context().gcs_address)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere"])
def test_nobody_at_the_address_is_one_sentence(refused: Callable[..., str], address: str) -> None:
    said = refused(address)
    assert f"Expected a Ray cluster at {address}, found none" in said and "Start one with `ray start --head`" in said


def test_another_version_of_ray_is_one_sentence(cluster: None, refused: Callable[..., str]) -> None:
    said = refused(address_of(cluster), "import ray\nray.__version__ = '2.39.0'")
    assert f"Expected Ray {ray.__version__} and Python" in said and "found Ray 2.39.0 and Python" in said
    assert said.endswith("Install the same here.")


def test_no_token_for_a_cluster_that_wants_one_is_one_sentence(cluster: None, refused: Callable[..., str]) -> None:
    said = refused(address_of(cluster), RAY_AUTH_TOKEN="", RAY_AUTH_TOKEN_PATH=os.devnull)
    assert "found none that lets us in" in said and "RAY_AUTH_TOKEN" in said


def test_a_worker_without_the_package_is_one_sentence(
    cluster: None, refused: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDES)
    job = {"runtime_env": {"env_vars": {"PYTHONPATH": str(tmp_path)}}}
    said = refused(address_of(cluster), RAY_JOB_CONFIG_JSON_ENV_VAR=json.dumps(job))
    assert "Expected the package pointer-text on every node, found one without it." in said
    assert said.endswith('Install it there: pip install "pointer-text[train,cluster]"')


def test_a_worker_with_another_version_of_the_package_is_one_sentence(
    cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "__version__", "0.0.1")  # here, and not there
    with (
        pytest.raises(ClusterError, match=r"Expected pointer-text 0.0.1 on every node, found \d"),
        workers(partial(held, 7), 2, "ray"),
    ):
        pass


def test_more_workers_than_cores_are_refused_rather_than_waited_for(cluster: None) -> None:
    with pytest.raises(UsageError, match="expected at most 2, one a core, found 3"), workers(int, 3, "ray"):
        pass


def fail(number: int, kind: str) -> None:
    """As Ray does where a node has no more of something."""
    raise (MemoryError if kind == "MemoryError" else getattr(ray.exceptions, kind))("1 GB of 1 GB are used")


@pytest.mark.parametrize(
    ("kind", "said", "hint"),
    [
        ("OutOfMemoryError", "a node out of memory", "fewer --workers"),
        ("MemoryError", "a node out of memory", "fewer --workers"),
        ("ObjectStoreFullError", "an object store that is full", "--object-store-memory"),
        ("OutOfDiskError", "a node with a full disk", "Make room"),
        ("RaySystemError", "System error: 1 GB of 1 GB are used", ""),
    ],
)
def test_a_node_that_has_no_more_is_one_sentence(cluster: None, kind: str, said: str, hint: str) -> None:
    with workers(partial(held, 7), 1, "ray") as pool, pytest.raises(ClusterError) as found:
        list(pool.map(fail, [(kind,)]))
    assert f"Expected every worker to finish, found {said}. What was finished is kept" in found.value.message
    assert hint in found.value.hint


def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_piece_that_kills_every_worker_is_given_up_in_one_sentence(
    cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "TRIES", 1)
    with (
        workers(partial(held, 7), 1, "ray") as pool,
        pytest.raises(ClusterError, match=r"\(out of memory\?\)") as found,
    ):
        list(pool.map(die, [()]))
    assert "fewer --workers" in found.value.hint


# ---------------------------------------------------------------------------------------------------------------------
# Preparation


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "CHUNK_LINES", 25)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.usefixtures("small_chunks")
def test_a_cluster_prepares_the_same_bytes(cluster: None, tmp_path: Path) -> None:
    prepare(Preparation(Corpus((str(SAMPLE),))), tmp_path / "here")
    prepare(Preparation(Corpus((str(SAMPLE),))), tmp_path / "there", workers=2, engine="ray")
    assert content(tmp_path / "here") == content(tmp_path / "there")


@pytest.mark.usefixtures("small_chunks")
def test_a_folder_that_only_one_node_sees_is_one_sentence(cluster: None, tmp_path: Path) -> None:
    task = partial(shards._Task, tmp_path / "elsewhere", Preparation(Corpus((str(SAMPLE),))))
    with workers(task, 1, "ray") as pool, pytest.raises(DataError, match="on every node, found none on"):
        list(pool.map(shards._fit_chunk, [(0, [Text("a", 1, "a dog")], [])]))


@pytest.mark.usefixtures("small_chunks")
def test_a_store_of_objects_holds_what_a_folder_does(tmp_path: Path) -> None:
    from upath import UPath

    store = UPath("memory://store")
    lines = SAMPLE.read_bytes().splitlines(keepends=True)
    for number, part in enumerate((lines[:40], lines[40:])):
        (store / "corpus" / f"part-{number}.txt").write_bytes(b"".join(part))
    files = listed(["memory://store/corpus/*.txt"])
    assert [name.rpartition("/")[2] for name in files] == ["part-0.txt", "part-1.txt"]
    prepare(Preparation(Corpus(files)), "memory://store/data")
    prepare(Preparation(Corpus((str(SAMPLE),))), tmp_path / "data")
    there = {path.name: path.read_bytes() for path in (store / "data").iterdir()}
    here = content(tmp_path / "data")
    assert {name: there[name] for name in here if name != "manifest.json"} == {
        name: here[name] for name in here if name != "manifest.json"
    }
    counts = [json.loads(folder["manifest.json"])["counts"] for folder in (here, there)]
    assert counts[0] == counts[1]
    assert len(PreparedData.open("memory://store/data").load()) == counts[0]["rows"]


@pytest.mark.parametrize("address", ["nosuch://bucket/texts.txt", "lakefs://bucket/texts.txt"])
def test_an_address_that_nothing_here_reads_is_one_sentence(address: str) -> None:
    with pytest.raises(StorageError, match="Expected an address that fsspec can read, found"):
        Corpus((address,))


def test_an_address_that_matches_nothing_is_one_sentence() -> None:
    with pytest.raises(CorpusError, match=r"Expected files at memory://nowhere/\*.txt, found none"):
        listed(["memory://nowhere/*.txt"])


# ---------------------------------------------------------------------------------------------------------------------
# Generation


def test_a_cluster_writes_the_same_texts(pointer: Run, tmp_path: Path) -> None:
    words = ["rice", "back", "love", "river", "church", "music"]
    (tmp_path / "keys").write_text("".join(f"{a}; {b}\n" for a in words for b in words if a != b))
    texts = []
    for number, more in enumerate(([], ["--engine", "ray", "--workers", "2"])):
        out = tmp_path / f"{number}.jsonl"
        asked = ["generate", "-f", str(tmp_path / "keys"), "-o", str(out), "--model", "wiki"]
        found = pointer(*asked, "--batch-size", "4", *more, NO_COLOR="1")
        assert found.returncode == 0, found.stderr
        texts.append(out.read_bytes())
    assert texts[0] == texts[1] and len(texts[0].splitlines()) == 30


def test_results_in_a_store_of_objects_go_on_where_they_stopped() -> None:
    from upath import UPath

    address = "memory://store/texts"

    def write(first: int, last: int, close: bool) -> int:
        results = open_results(address, "tiny", Options())
        for line in range(max(first, results.done + 1), last + 1):
            results.add(Written(Asked(line, parse(["dog"])), [generation()]))
        if close:
            results.close()
        return results.done

    assert write(1, PART_LINES + 5, close=False) == 0  # killed: the last five were not written yet
    assert write(1, PART_LINES + 7, close=True) == PART_LINES
    parts = sorted(UPath(address).glob("*.jsonl"))
    lines = [json.loads(line)["line"] for part in parts for line in part.read_bytes().splitlines()]
    assert lines == [*range(1, PART_LINES + 8)]
    with pytest.raises(DataError, match="same model and options"):
        open_results(address, "another", Options())


def generation() -> Generation:
    return Generation("A dog.", ("a", "dog", "."), ((2, 5),), (), 0.0, "converged", ("dog",))


# ---------------------------------------------------------------------------------------------------------------------
# A real object store


@pytest.fixture
def bucket() -> Iterator[tuple[Any, dict[str, str]]]:
    """A bucket of a local server that speaks S3, and the environment that leads there."""
    # Not among the development packages: 50 more of them, and a python-dateutil that others have left behind.
    server = pytest.importorskip("moto.server", reason="needs moto[server] and s3fs").ThreadedMotoServer("127.0.0.1", 0)
    s3fs = pytest.importorskip("s3fs")
    server.start()
    host, port = server.get_host_and_port()
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    store = s3fs.S3FileSystem(key="test", secret="test", endpoint_url=f"http://{host}:{port}", use_listings_cache=False)
    store.mkdir("bucket")
    yield store, keys | {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}
    server.stop()


def test_s3_holds_what_a_folder_does(bucket: tuple[Any, dict[str, str]], pointer: Run, tmp_path: Path) -> None:
    store, environment = bucket

    def run(*arguments: str) -> str:
        found = pointer(*arguments, NO_COLOR="1", **environment)
        assert found.returncode == 0, found.stderr
        return found.stdout

    lines = SAMPLE.read_bytes().splitlines(keepends=True)
    store.pipe("bucket/corpus/part-0.txt", b"".join(lines[:40]))
    store.pipe("bucket/corpus/part-1.txt", b"".join(lines[40:]))
    run("prepare", "s3://bucket/corpus/*.txt", "--out", "s3://bucket/data", "--workers", "2")
    run("prepare", str(SAMPLE), "--out", str(tmp_path / "data"))
    here = content(tmp_path / "data")
    shards = [name for name in here if name.endswith(".parquet")]
    assert shards and all(store.cat(f"bucket/data/{name}") == here[name] for name in shards)

    keys = b"".join(f"{one}; music\n".encode() for one in ("rice", "river", "church", "love"))
    store.pipe("bucket/keys.txt", keys)
    (tmp_path / "keys.txt").write_bytes(keys)
    asked = ["generate", "--model", "wiki", "--batch-size", "2"]
    for _ in range(2):  # all of it is done the second time
        run(*asked, "-f", "s3://bucket/keys.txt", "-o", "s3://bucket/texts")
    run(*asked, "-f", str(tmp_path / "keys.txt"), "-o", str(tmp_path / "texts.jsonl"))
    parts = sorted(name for name in store.find("bucket/texts") if name.endswith(".jsonl"))
    assert b"".join(map(store.cat, parts)) == (tmp_path / "texts.jsonl").read_bytes()
