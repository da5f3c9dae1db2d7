"""How much a server can take: texts that grow together against one request at a time, and a long run with bad clients.

    python benchmarks/serve.py [--model wiki] [--clients 1 8 64] [--seconds 5] [--rounds 3] [--threads 2]
    python benchmarks/serve.py --fair [--model wiki]
    python benchmarks/serve.py --soak 10000 [--model random]
    python benchmarks/serve.py --soak-minutes 60 --clients 8 --pause 1 --threads 1 --plot docs/soak.png

Server and clients are processes of this machine and talk over loopback. A client sends its next request when it has the
answer to the last one. Both servers are the same program; one of them may hold a single text at a time. `--fair` asks
for a small text again and again, alone and beside a client that always has the most expensive legal request under way,
of several kinds. `--soak` sends good requests, malformed ones, and ones whose client leaves; it compares every answer
with what the library gives, counts those that never come, watches memory and open files of the server, and looks
whether its queue is empty in the end. With `--pause` its clients wait between requests, as people do. `--model random`
is a small network with random weights, made for the occasion.
The exit code is 1 if less than 4 times as much was done at 64 clients, a small request took more than 3 times as long
beside an expensive one, or a soaked server did not hold up.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from pointer.decoding.generator import Pointer
from pointer.decoding.options import Options
from pointer.decoding.parallel import ParallelPointer
from pointer.serving.limits import Limits, Settings
from pointer.serving.server import Plan, run
from pointer.vocabulary import Vocabulary
from pointer.web import listen

KEYWORDS = 4
ASKED = 4.0
"""By how much growing together should win at 64 clients."""
FAIR = 3.0
"""By how much a small request may take longer beside an expensive one."""
WARM = 300.0
"""Seconds after which the memory of a server should not grow any more; in a shorter run, a fifth of it."""
FLAT = 1.05
"""By how much the memory of a server may grow in a long run, once it is warm."""
PATIENCE = 600.0
"""Seconds after which an answer counts as lost; the server itself gives a request up after half of that. A machine that
is busy with other things makes answers late, not different."""


class Connection:
    """A client that keeps its connection, as light as can be."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def send(self, path: str, body: bytes) -> None:
        """Send a request."""
        if self.writer is None or self.writer.is_closing():
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await self.writer.drain()

    async def receive(self) -> tuple[int, bytes]:
        """Status and body of the answer."""
        assert self.reader is not None
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        status = int(head.split(" ", 2)[1])
        if "transfer-encoding: chunked" not in head:
            length = int(head.split("content-length: ", 1)[1].split("\r\n", 1)[0])
            return status, await self.reader.readexactly(length)
        body = b""
        while size := int((await self.reader.readuntil(b"\r\n")).strip(), 16):
            body += (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)
        return status, body

    async def ask(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Send a request and wait for its answer."""
        await self.send(path, body)
        return await self.receive()

    def leave(self) -> None:
        """Close the connection, whatever is under way."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None


@dataclass(frozen=True)
class Server:
    """A server in a process of its own."""

    port: int
    process: psutil.Process

    @property
    def megabytes(self) -> float:
        """Its resident memory."""
        return float(self.process.memory_info().rss) / 2**20

    @property
    def processor(self) -> float:
        """Seconds of processor time that it has had."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    @property
    def files(self) -> int:
        """Its open files, connections included."""
        return int(self.process.num_fds())


@contextlib.contextmanager
def serving(model: str, batch: int, threads: int) -> Iterator[Server]:
    """Start a server whose texts grow together up to `batch`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, __file__, "--serve", str(port), "--model", model, "--batch", str(batch)]
    process = subprocess.Popen([*command, "--threads", str(threads)], stderr=subprocess.DEVNULL)
    try:
        asyncio.run(_ready(port))
        yield Server(port, psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait()


async def _ready(port: int) -> None:
    body = json.dumps({"constraints": "ready"}).encode()
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            status, _ = await Connection(port).ask("/v1/generate", body)
            if status == 200:
                return
        await asyncio.sleep(0.2)


def serve(port: int, model: str, batch: int, threads: int) -> None:
    """What the process of a server does."""
    limits = Limits(batch=batch, queue=1024, seconds=PATIENCE / 2)
    with listen("127.0.0.1", port) as listening:
        run(Plan({"measured": model}, Settings(limits), threads), listening)


def word_lists(vocabulary: Vocabulary, count: int, seed: int) -> list[list[str]]:
    """Lists of random words of one piece."""
    usable = [token for token in vocabulary.tokens if token.isalpha() and token.isascii() and len(token) > 3]
    draw = random.Random(seed)
    return [draw.sample(usable, KEYWORDS) for _ in range(count)]


# ---------------------------------------------------------------------------------------------------------------------
# Throughput


@dataclass(frozen=True)
class Measured:
    """What some clients saw."""

    per_second: float
    median: float
    p95: float
    processor: float
    """Of server and clients, in seconds a request."""

    @classmethod
    def of(cls, times: list[float], seconds: float, processor: float) -> "Measured":
        """From the time of every answer."""
        p95 = statistics.quantiles(times, n=100)[94]
        return cls(len(times) / seconds, statistics.median(times), p95, processor / len(times))

    @classmethod
    def middle(cls, rounds: "list[Measured]") -> "Measured":
        """The median of several rounds, each number for itself."""
        return cls(*(statistics.median(values) for values in zip(*map(astuple, rounds), strict=True)))


async def load(server: Server, clients: int, lists: list[list[str]], seconds: float) -> Measured:
    """Keep so many clients busy for some seconds; requests under way at the end are waited for, and counted."""
    bodies = [json.dumps({"constraints": constraints}).encode() for constraints in lists]
    times: list[float] = []
    start, processor = time.perf_counter(), server.processor + time.process_time()

    async def client(number: int) -> None:
        connection, turn = Connection(server.port), 0
        while time.perf_counter() - start < seconds:
            began = time.perf_counter()
            status, answer = await connection.ask("/v1/generate", bodies[(number + turn * clients) % len(bodies)])
            assert status == 200, answer
            times.append(time.perf_counter() - began)
            turn += 1
        connection.leave()

    await asyncio.gather(*(client(number) for number in range(clients)))
    processor = server.processor + time.process_time() - processor
    return Measured.of(times, time.perf_counter() - start, processor)


def throughput(model: str, clients: list[int], seconds: float, rounds: int, threads: int, batch: int) -> bool:
    """The table: for so many clients, requests a second and latency, one at a time and together, taking turns."""
    is_enough = True
    pointer = parallel(model, threads)
    lists = word_lists(pointer.vocabulary, 2048, seed=0)
    with serving(model, 1, threads) as single, serving(model, batch, threads) as together:
        print(
            f"model {model}, {threads} threads, {KEYWORDS} keywords, {rounds} x {seconds:g} s each; times in ms, cpu "
            "with the clients",
            flush=True,
        )
        for server in (single, together):
            asyncio.run(load(server, 8, lists, 1.0))
        print("clients | one at a time: requests/s, median, p95, cpu | together: the same | ratio | p95 ratio")
        for count in clients:
            found: list[list[Measured]] = [[], []]
            for _ in range(rounds):
                for server, measured in zip((single, together), found, strict=True):
                    measured.append(asyncio.run(load(server, count, lists, seconds)))
            one, many = map(Measured.middle, found)
            cells = [
                f"{m.per_second:8.2f} {m.median * 1e3:8.0f} {m.p95 * 1e3:8.0f} {m.processor * 1e3:6.1f}"
                for m in (one, many)
            ]
            ratio, latency = many.per_second / one.per_second, one.p95 / many.p95
            print(f"{count:7} | {cells[0]} | {cells[1]} | {ratio:.2f}x | {latency:.2f}x", flush=True)
            if count == 64:
                is_enough = ratio >= ASKED
                print(f"asked: at least {ASKED:g}x at 64 clients; found {ratio:.2f}x")
                ceiling(pointer, lists[:batch], one, many, threads)
    return is_enough


def ceiling(pointer: ParallelPointer, lists: list[list[str]], one: Measured, many: Measured, threads: int) -> None:
    """What a request takes in a full batch, part by part, and the most that busy cores could make of it."""
    passes: list[float] = []
    predict = pointer.predict

    def timed(*given: Any) -> Any:
        start = time.thread_time()
        logits = predict(*given)
        passes.append(time.thread_time() - start)
        return logits

    timed.side_by_side = threads  # type: ignore[attr-defined]
    pointer.generate_many(lists)
    pointer.predict = timed
    start = time.process_time()
    pointer.generate_many(lists)
    decoding = time.process_time() - start
    print(
        f"what {len(lists)} texts take together, cpu ms each, and what {threads} cores could do if they did only that:"
    )
    parts = {"the whole request": many.processor, "decoding alone": decoding / len(lists)}
    for name, spent in (parts | {"the model alone": sum(passes) / len(lists)}).items():
        times = threads * one.processor / spent
        print(
            f"  {name:20}{spent * 1e3:6.1f}{threads / spent:6.0f} requests/s, {times:.2f}x of one core, one at a time"
        )


# ---------------------------------------------------------------------------------------------------------------------
# Fairness

EXPENSIVE: dict[str, dict[str, Any]] = {
    "a beam of 16, gap by gap": {"decoding": "beam", "width": 16, "rounds": 0, "max_stages": 16},
    "16 samples of many lists": {"decoding": "sample", "n": 16, "max_length": 256, "max_stages": 16},
    "greedy, many lists": {"max_length": 256, "max_stages": 16},
    "a beam of 16, many lists": {"decoding": "beam", "width": 16, "max_length": 256, "max_stages": 16},
    "a length, many lists": {"length": 120, "max_length": 256, "max_stages": 16},
}
"""Kinds of requests that cost as much as a request may: the first by its length, the others by their lists."""


def dearest(pointer: Pointer, kind: dict[str, Any], words: list[str]) -> dict[str, Any]:
    """The most expensive legal request of a kind."""
    limits = Limits()
    if "max_length" not in kind:
        lengths = range(limits.max_length, 3, -1)
        length = next(n for n in lengths if pointer.cost(words, Options(**kind, max_length=n)) <= limits.cost)
        return {"constraints": words[: max(1, length // 4)], "options": kind | {"max_length": length}}
    lists = min(limits.lists, limits.cost // pointer.cost(words, Options(**kind)))
    return {"constraints": [words] * lists, "options": kind}


async def small_times(port: int, bodies: list[bytes]) -> list[float]:
    """How long each of some small requests takes, one after the other."""
    connection, times = Connection(port), []
    for body in bodies:
        start = time.perf_counter()
        status, answer = await connection.ask("/v1/generate", body)
        assert status == 200, answer
        times.append(time.perf_counter() - start)
    connection.leave()
    return times


async def beside(port: int, bodies: list[bytes], expensive: bytes) -> tuple[list[float], Counter[int]]:
    """The same while somebody else always has an expensive request under way; and what becomes of those."""
    is_over = False
    statuses: Counter[int] = Counter()

    async def other() -> None:
        connection = Connection(port)
        while not is_over:
            status, _ = await connection.ask("/v1/generate", expensive)
            statuses[status] += 1
        connection.leave()

    task = asyncio.create_task(other())
    await asyncio.sleep(1.0)
    times = await small_times(port, bodies)
    is_over = True
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return times, statuses


def fairness(model: str, threads: int, batch: int) -> bool:
    """The table: how long a small request takes, alone and beside the most expensive legal ones."""
    pointer = parallel(model, threads)
    lists = word_lists(pointer.vocabulary, 80, seed=0)
    bodies = [json.dumps({"constraints": constraints}).encode() for constraints in lists[:20]]
    words = [word for constraints in lists[20:] for word in constraints][:40]
    worst = 0.0
    with serving(model, batch, threads) as server:
        asyncio.run(small_times(server.port, bodies))
        print(f"model {model}, {threads} threads; a small request, {len(bodies)} times: median and slowest in ms")
        for name, kind in EXPENSIVE.items():
            expensive = dearest(pointer, kind, words)
            cost = pointer.cost(words, Options(**expensive["options"]))
            cost *= len(expensive["constraints"]) if "max_length" in kind else 1
            alone = asyncio.run(small_times(server.port, bodies))
            with_it, statuses = asyncio.run(beside(server.port, bodies, json.dumps(expensive).encode()))
            assert set(statuses) <= {200, 503}, statuses
            ratio = statistics.median(with_it) / statistics.median(alone)
            worst = max(worst, ratio)
            cells = [f"{statistics.median(t) * 1e3:6.0f} {max(t) * 1e3:6.0f}" for t in (alone, with_it)]
            print(f"{name:26} (cost {cost:10,}) | alone {cells[0]} | beside it {cells[1]} | {ratio:.2f}x", flush=True)
            asyncio.run(left_over(server.port))
    print(f"asked: at most {FAIR:g}x; found {worst:.2f}x")
    return worst <= FAIR


# ---------------------------------------------------------------------------------------------------------------------
# Soak

KINDS: list[dict[str, Any]] = [
    {},
    {"decoding": "sample", "seed": 3},
    {"preset": "plain"},
    {"decoding": "beam", "width": 2},
]
SHORT = {"max_stages": 4, "max_length": 32}
MALFORMED = [b"", b"{", b"[]", b"null", b'{"constraints": 3}', b'{"constraints": ""}', b"\xff" * 50, b"a" * 70_000,
             b'{"constraints": "a", "options": {"n": 99}}', b'{"constraints": "a", "model": "../x"}']  # fmt: skip


@dataclass(frozen=True)
class Known:
    """A request whose answer is known."""

    body: bytes
    texts: list[str]


def parallel(model: str, threads: int | None = None) -> ParallelPointer:
    """A parallel model, whose vocabulary lists are drawn from."""
    pointer = Pointer.from_pretrained(model, threads=threads)
    assert isinstance(pointer, ParallelPointer)
    return pointer


def known(pointer: ParallelPointer, count: int) -> list[Known]:
    """Requests with what the library answers."""
    found: list[Known] = []
    for kind in KINDS:
        lists = word_lists(pointer.vocabulary, count, seed=len(found))
        texts = pointer.generate_many(lists, **SHORT, **kind)
        for constraints, generations in zip(lists, texts, strict=True):
            body = json.dumps({"constraints": constraints, "options": SHORT | kind}).encode()
            found.append(Known(body, [generation.text for generation in generations]))
    return found


def outcome(status: int, answer: bytes, expected: list[str]) -> str:
    """What became of a request, streamed or not: right or WRONG texts, a kind of error, or LOST if there is no end."""
    if answer.startswith((b"event: ", b": ")):  # the last event of a stream says how it ended
        answer = re.split(rb"^event: (?:done|error)\ndata: ", answer, flags=re.MULTILINE)[-1]
    try:
        end = json.loads(answer)
    except ValueError:
        return "LOST"
    if "error" in end:
        return str(end["error"]["type"])
    texts = [generation["text"] for generation in end["results"][0]]
    return "right" if status == 200 and texts == expected else "WRONG"


class Sample(NamedTuple):
    """What a server holds at some moment."""

    seconds: float
    megabytes: float
    files: int


async def soak(
    server: Server, expected: list[Known], requests: float, seconds: float, clients: int, pause: float
) -> tuple[Counter[str], list[Sample]]:
    """Send good requests, bad ones, and ones that are given up; count what became of them, and watch the server."""
    counts: Counter[str] = Counter()
    held: list[Sample] = []
    start = time.perf_counter()

    async def good(connection: Connection, one: Known, path: str) -> None:
        counts[outcome(*await asyncio.wait_for(connection.ask(path, one.body), PATIENCE), one.texts)] += 1

    async def leaving(connection: Connection, one: Known, path: str, patience: float) -> None:
        await connection.send(path, one.body)
        await asyncio.sleep(patience)
        connection.leave()
        counts["left"] += 1

    async def bad(connection: Connection, body: bytes) -> None:
        status, answer = await asyncio.wait_for(connection.ask("/v1/generate", body), PATIENCE)
        shaped = set(json.loads(answer)["error"]) == {"type", "message", "hint"}
        counts["refused" if 400 <= status < 500 and shaped else "WRONG"] += 1
        connection.leave()

    async def client(draw: random.Random) -> None:
        connection = Connection(server.port)
        while sum(counts.values()) < requests and time.perf_counter() - start < seconds:
            one, path = draw.choice(expected), draw.choice(("/v1/generate", "/v1/generate/stream"))
            chance = draw.random()
            try:
                if chance < 0.1:
                    await bad(connection, draw.choice(MALFORMED))
                elif chance < 0.25:
                    await leaving(connection, one, path, draw.random() * 0.2)
                else:
                    await good(connection, one, path)
            except (TimeoutError, asyncio.IncompleteReadError, OSError):
                counts["LOST"] += 1
                connection.leave()
            await asyncio.sleep(2 * pause * draw.random())
        connection.leave()

    async for _ in _while_running(asyncio.gather(*(client(random.Random(number)) for number in range(clients)))):
        held.append(Sample(time.perf_counter() - start, server.megabytes, server.files))
        if len(held) % 120 == 0:  # about every minute
            print(f"{held[-1].seconds:.0f} s, {held[-1].megabytes:.0f} MB, {held[-1].files} files: {dict(counts)}")
    return counts, held


async def _while_running(work: "asyncio.Future[Any]") -> AsyncIterator[None]:
    while not work.done():
        yield
        await asyncio.wait({work}, timeout=0.5)
    work.result()


async def left_over(port: int) -> float:
    """Lists that a server still has in its queue although nobody waits for them; it gets a moment to drop them."""
    for _ in range(50):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        lines = (await reader.read()).decode().splitlines()
        writer.close()
        found = sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("pointer_queue_lists{"))
        if not found:
            break
        await asyncio.sleep(0.2)
    return found


def long_run(
    model: str, requests: int, minutes: float, clients: int, pause: float, threads: int, batch: int, plot: Path | None
) -> bool:
    """Soak a server by a number of requests or for some time, and say whether it held up."""
    expected = known(parallel(model, threads), 50)
    with serving(model, batch, threads) as server:
        asyncio.run(left_over(server.port))
        files = server.files
        most, longest = (requests, math.inf) if requests else (math.inf, 60 * minutes)
        counts, held = asyncio.run(soak(server, expected, most, longest, clients, pause))
        queued = asyncio.run(left_over(server.port))
        warm = [one.megabytes for one in held if one.seconds >= min(WARM, held[-1].seconds / 5)]
        tenth = max(1, len(warm) // 10)
        before, after = statistics.median(warm[:tenth]), statistics.median(warm[-tenth:])
        print(f"{sum(counts.values()):,} requests of {clients} clients in {held[-1].seconds:.0f} s: {dict(counts)}")
        print(f"lost {counts['LOST']}, wrong or crossed {counts['WRONG']}, left in the queue {queued:g}")
        print(f"memory once warm {before:.0f} MB, at the end {after:.0f} MB: {after / before - 1:+.1%}")
        print(f"open files at the start {files}, at most {max(one.files for one in held)}, at the end {server.files}")
        held_up = set(counts) <= {"right", "refused", "left", "LOST", "WRONG"} and not counts["LOST"] + counts["WRONG"]
        held_up &= not queued and after <= FLAT * before and server.files <= files
    if plot:
        draw(held, plot)
    print("held up" if held_up else "DID NOT HOLD UP")
    return held_up


def draw(held: list[Sample], path: Path) -> None:
    """Memory and open files against time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (memory, files) = pyplot.subplots(2, 1, sharex=True, figsize=(7, 4), layout="constrained")
    minutes = [one.seconds / 60 for one in held]
    memory.plot(minutes, [one.megabytes for one in held], linewidth=1)
    memory.set(ylabel="memory, MB", ylim=(0, None))
    files.plot(minutes, [one.files for one in held], linewidth=1)
    files.set(ylabel="open files", xlabel="minutes", ylim=(0, None))
    figure.savefig(path, dpi=110)
    print(f"wrote {path}")


@contextlib.contextmanager
def chosen(model: str) -> Iterator[str]:
    """The model, made first if it is to be random."""
    if model != "random":
        yield model
        return
    import torch  # here alone: a server without it holds less

    from pointer.model import InsertionTransformer

    torch.manual_seed(0)
    network = InsertionTransformer.start("tiny", Vocabulary.open("english"), positions=64)
    assert network.vocabulary is not None
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        network.cls.predictions.bias.normal_(0, 2)
        network.cls.predictions.bias[network.vocabulary.noi] = 8.0
        network.save_pretrained(Path(folder) / "random")
        yield str(Path(folder) / "random")


def main() -> None:
    """Print the table, or what became of a long run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="wiki")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--batch", type=int, default=Limits().batch)
    parser.add_argument("--fair", action="store_true")
    parser.add_argument("--soak", type=int, default=0, metavar="REQUESTS")
    parser.add_argument("--soak-minutes", type=float, default=0.0)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between the requests of a client that soaks")
    parser.add_argument("--plot", type=Path, help="draw what a soaked server held")
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.model, options.batch, options.threads)
        return
    with chosen(options.model) as model:
        if options.fair:
            held = fairness(model, options.threads, options.batch)
        elif options.soak or options.soak_minutes:
            clients, threads, batch = max(options.clients), options.threads, options.batch
            held = long_run(
                model, options.soak, options.soak_minutes, clients, options.pause, threads, batch, options.plot
            )
        else:
            held = throughput(model, options.clients, options.seconds, options.rounds, options.threads, options.batch)
    sys.exit(not held)


if __name__ == "__main__":
    main()
