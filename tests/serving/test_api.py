"""The API over HTTP: `pointer serve` in a subprocess, or a scripted model in this process where a test holds time."""

import json
import multiprocessing
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psutil
import pytest
import tiny_causal
from conftest import Run
from scripted import small_vocabulary
from servers import (
    LOCKED,
    PATIENCE,
    Command,
    Running,
    Turnstile,
    connected,
    events,
    is_error,
    metric,
    request_head,
    running,
    until,
)

from pointer import Pointer
from pointer.decoding.options import Options
from pointer.errors import UsageError
from pointer.prepare.explain import explain
from pointer.serving.keys import read_keys
from pointer.serving.limits import Limits
from pointer.serving.metrics import MANY_PROCESSES
from pointer.serving.quota import Quotas
from pointer.serving.server import Plan, _run_many, embedded_models, served_names
from pointer.web import Refusal, listen

pytest_plugins = ("shared",)
DOCUMENT = (Path(__file__).parents[2] / "docs" / "serving.md").read_text("utf-8")
SENTENCE = "My sources have suggested the company sees no reason to change its tax structure."


def plain(found: list[list[Any]]) -> Any:
    """Generations as JSON has them."""
    return json.loads(json.dumps([[g.to_dict() for g in texts] for texts in found]))


@pytest.fixture
def model(tmp_path: Path) -> Turnstile:
    return Turnstile(small_vocabulary(tmp_path))


@pytest.fixture
def callers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as pool:
        yield pool


# ---------------------------------------------------------------------------------------------------------------------
# Generating


@pytest.mark.parametrize("constraints", [["rice", "back"], "rice; back", [["rice", "back"]]])
def test_constraints_are_a_list_a_string_or_lists(server: Command, tiny: Pointer, constraints: Any) -> None:
    answer = server.client.post("/v1/generate", json={"constraints": constraints})
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert found["model"] == "tiny" and len(found["results"]) == 1
    expected = plain(tiny.generate_many(["rice; back"]))
    found["results"][0][0].pop("score"), expected[0][0].pop("score")
    assert found["results"] == expected


def test_several_lists_come_back_in_order(server: Command, tiny: Pointer) -> None:
    lists = [["new york", "tax cuts"], ["rice"], ["mole", "love"]]
    found = server.client.post("/v1/generate", json={"constraints": lists}).json()
    texts = [texts[0]["text"] for texts in found["results"]]
    assert texts == [found[0].text for found in tiny.generate_many(lists)]


@pytest.mark.parametrize(
    "options",
    [
        {"decoding": "sample", "n": 3, "seed": 4, "temperature": 1.5, "top_k": 50, "top_p": 0.9},
        {"decoding": "beam", "width": 3, "n": 2, "rounds": 2, "max_length": 30},
        {"length": 12, "max_length": 40},
        {"preset": "plain", "noi_offset": -1.0, "max_stages": 3, "lock_start": True, "lock_end": True},
        {"forbid": ["The", "of"], "presence_penalty": 3.0},
    ],
    ids=lambda options: next(iter(options)),
)
def test_every_option_means_what_it_means_in_the_library(
    server: Command, tiny: Pointer, options: dict[str, Any]
) -> None:
    answer = server.client.post("/v1/generate", json={"constraints": "rice; back; love", "options": options})
    given = options | ({"forbid": tuple(options["forbid"])} if "forbid" in options else {})
    expected = tiny.generate_many(["rice; back; love"], **given)
    assert [g["tokens"] for g in answer.json()["results"][0]] == [list(g.tokens) for g in expected[0]]


def test_a_model_is_chosen_by_name_and_a_score_that_is_no_number_is_null(server: Command, converted: Path) -> None:
    body = {"constraints": "good; food", "model": "converted", "options": {"preset": "released"}}
    found = server.client.post("/v1/generate", json=body).json()
    [expected] = Pointer.from_pretrained(converted).generate_many(["good; food"], preset="released")
    assert found["model"] == "converted"
    assert found["results"][0][0]["text"] == expected[0].text and found["results"][0][0]["score"] is None


def test_64_clients_at_once_get_their_own_answers(server: Command, tiny: Pointer, callers: ThreadPoolExecutor) -> None:
    draw = random.Random(0)
    words = ["rice", "back", "love", "mole", "new york", "prime minister", "tax cuts", "river", "church", "music"]
    short = {"max_stages": 3, "max_length": 24}
    kinds: list[dict[str, Any]] = [short, short | {"decoding": "sample"}, short | {"decoding": "sample", "seed": 2}]
    asked = [(draw.sample(words, draw.randint(1, 4)), draw.choice(kinds)) for _ in range(96)]

    def ask(one: tuple[list[str], dict[str, Any]]) -> list[str]:
        answer = server.client.post("/v1/generate", json={"constraints": one[0], "options": one[1]})
        tokens: list[str] = answer.json()["results"][0][0]["tokens"]
        return tokens

    before = server.client.get("/metrics").text
    found = list(callers.map(ask, asked))
    for kind in kinds:
        mine = [i for i, (_, options) in enumerate(asked) if options is kind]
        expected = tiny.generate_many([asked[i][0] for i in mine], **kind)
        assert [found[i] for i in mine] == [list(texts[0].tokens) for texts in expected]
    after = server.client.get("/metrics").text
    names = "pointer_batch_texts_sum", "pointer_batch_texts_count"
    texts, batches = (metric(after, name) - metric(before, name) for name in names)
    assert texts > 2 * batches


def test_an_answer_has_the_texts_of_a_request_whatever_script_they_are_in(server: Command) -> None:
    found = server.client.post("/v1/generate", json={"constraints": ["東京", "🎉", "naïve café"]}).json()
    text = found["results"][0][0]["text"]
    assert [text[a:b] for a, b in found["results"][0][0]["spans"]] == ["東京", "🎉", "naïve café"]


# ---------------------------------------------------------------------------------------------------------------------
# Streaming


def streamed(client: httpx.Client, **body: Any) -> list[tuple[str, dict[str, Any]]]:
    answer = client.post("/v1/generate/stream", json=body)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
    return events(answer.text)


def test_a_stream_has_every_stage_and_then_the_result(server: Command, tiny: Pointer) -> None:
    *stages, (last, done) = streamed(server.client, constraints="rice; back")
    expected = list(tiny.stream("rice; back"))
    assert [name for name, _ in stages] == ["stage"] * len(expected) and last == "done"
    assert [data["text"] for _, data in stages] == [stage.text for stage in expected]
    assert [data["stage"] for _, data in stages] == list(range(len(expected)))
    assert [data["tokens"] for _, data in stages] == done["results"][0][0]["stages"]
    assert done["model"] == "tiny" and done["results"][0][0]["text"] == expected[-1].text


@pytest.mark.parametrize(
    "options",
    [
        {"decoding": "sample", "n": 3},
        {"decoding": "beam", "n": 2},
        {"length": 10},
        {"decoding": "beam", "max_length": 20},
    ],
)
def test_what_is_decoded_as_a_whole_streams_in_the_same_form(
    server: Command, tiny: Pointer, options: dict[str, Any]
) -> None:
    *stages, (last, done) = streamed(server.client, constraints="rice; back", options=options)
    best = tiny.generate_many(["rice; back"], **options)[0][0]
    assert last == "done" and {name for name, _ in stages} == {"stage"}
    assert [data["text"] for _, data in stages] == tiny.drafts(best)
    assert [data["tokens"] for _, data in stages] == done["results"][0][0]["stages"]


def test_the_released_preset_streams_too(server: Command) -> None:
    options = {"preset": "released"}
    *stages, (_, done) = streamed(server.client, constraints="good; food", model="converted", options=options)
    assert len(stages) == 7 and stages[-1][1]["text"] == done["results"][0][0]["text"]


def test_a_stream_tells_again_what_a_writer_has_chosen_since() -> None:
    language = tiny_causal.chat_language()
    scribe = tiny_causal.writer(language, tiny_causal.hostile(language, "random", 3), longest=400)
    body = {"constraints": "[~love; dog; rice; park]", "options": {"max_length": 40}}
    with running(lambda: scribe) as server:
        *stages, (_, done) = streamed(server.client, **body)
    best = done["results"][0][0]
    assert best["order"] != [0, 1, 2, 3]
    known: list[Any] = []
    for _, data in stages:
        known[data["stage"] :] = [data["tokens"]]
        assert len(data["constraints"]) == 4
    assert known == best["stages"] and stages[-1][1]["constraints"] == best["constraints"]


def test_a_stage_is_sent_before_the_next_one_is_begun(model: Turnstile) -> None:
    with running(lambda: model.pointer) as server:
        model.close()
        body = {"constraints": "great; food", "options": LOCKED | {"max_stages": 2}}
        with server.client.stream("POST", "/v1/generate/stream", json=body) as answer:
            lines = answer.iter_lines()
            for number in range(3):
                stage = []
                while (line := next(lines)) != "":
                    stage.append(line)
                assert stage[0] == "event: stage" and json.loads(stage[1][6:])["stage"] == number
                assert len(model.passes) == number
                model.permit()
            assert next(lines) == "event: done"


def test_a_stream_that_fails_says_so_in_an_event(server: Command) -> None:
    [(name, data)] = streamed(server.client, constraints=["word"] * 64, options={"max_length": 20})
    assert name == "error" and data["error"]["type"] == "ConstraintError"
    assert "at most 20 tokens, found 66" in data["error"]["message"]


def test_a_silent_stream_shows_signs_of_life(model: Turnstile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pointer.serving.app.KEEP_ALIVE", 0.01)
    with running(lambda: model.pointer) as server:
        model.close()
        body = {"constraints": "great", "options": {"max_stages": 1}}
        with server.client.stream("POST", "/v1/generate/stream", json=body) as answer:
            lines = answer.iter_lines()
            assert any(line.startswith(": ") for line in lines)
            model.open()
            assert "event: done" in list(lines)


def test_only_one_list_can_be_streamed(server: Command) -> None:
    answer = server.client.post("/v1/generate/stream", json={"constraints": [["rice"], ["back"]]})
    assert is_error(answer, 422, "UsageError") and "expected one list to stream, found 2" in answer.text


# ---------------------------------------------------------------------------------------------------------------------
# Explaining, models, pages


def test_explain_answers_what_the_library_says(server: Command) -> None:
    found = server.client.post("/v1/explain", json={"text": SENTENCE, "skeleton": "keywords"}).json()
    assert found["text"] == SENTENCE and [t["token"] for t in found["stages"][-1]] == [
        t["token"] for t in found["tokens"]
    ]
    plain_one = server.client.post("/v1/explain", json={"text": SENTENCE}).json()
    assert plain_one == json.loads(json.dumps(explain(SENTENCE).to_dict()))
    assert is_error(server.client.post("/v1/explain", json={"text": ""}), 422, "UsageError")
    assert is_error(server.client.post("/v1/explain", json={"text": "word " * 600}), 422, "UsageError")
    assert is_error(server.client.post("/v1/explain", json={"text": "a", "skeleton": "x"}), 422, "UsageError")


def test_models_limits_and_options_are_told(server: Command) -> None:
    found = server.client.get("/v1/models").json()
    assert found["default"] == "tiny" and [model["name"] for model in found["models"]] == ["tiny", "converted"]
    assert found["models"][0]["vocabulary"] == 10_000 and found["models"][0]["parameters"] > 1_000_000
    assert found["models"][1]["description"].startswith("Weights of the authors' 2020 release")
    assert set(found["limits"]) == set(Limits.__dataclass_fields__) and found["limits"]["n"] == 16
    assert set(found["options"]) == set(Options.__dataclass_fields__)
    assert found["options"]["n"]["minimum"] == 1 and found["options"]["n"]["maximum"] == 16
    assert found["options"]["decoding"]["enum"] == ["greedy", "sample", "beam"]
    assert found["options"]["temperature"]["description"] and found["options"]["max_length"]["default"] == 128


def test_the_page_and_its_files_are_what_they_say_and_need_nothing_from_elsewhere(server: Command) -> None:
    page = server.client.get("/")
    assert page.headers["content-type"].startswith("text/html") and server.client.head("/").status_code == 200
    assert "http:" not in page.text and "https:" not in page.text
    files = re.findall(r'(?:href|src)="(static/[^"]+)"', page.text)
    kinds = {name.rsplit(".", 1)[1]: server.client.get("/" + name).headers["content-type"] for name in files}
    assert kinds["js"].startswith("text/javascript") and kinds["css"].startswith("text/css")
    for elsewhere in ("/docs", "/redoc"):  # FastAPI's pages load their scripts from another host
        assert is_error(server.client.get(elsewhere), 404, "NotFound")


def test_openapi_has_examples_errors_and_the_ranges_of_this_server(server: Command) -> None:
    openapi = server.client.get("/openapi.json").json()
    generate = openapi["paths"]["/v1/generate"]["post"]
    assert generate["requestBody"]["content"]["application/json"]["examples"]
    assert generate["responses"]["429"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/ErrorAnswer"
    }
    assert openapi["components"]["schemas"]["Options"]["properties"]["n"]["maximum"] == 16


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/static/",
        "/static/app.py",
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/limits.py",
        "/static/%2fetc%2fpasswd",
        "/static/page",
        "/static/%00",
        "/static/" + "x" * 5000,
        "//etc/passwd",
    ],
)
def test_no_path_leads_out_of_the_page(server: Command, path: str) -> None:
    with connected(server.url) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 404") and b'"type":"NotFound"' in answer


@pytest.mark.parametrize("name", ["../tiny", "/etc/passwd", "tiny/../converted", "bert-base-uncased", "", "x" * 5000])
def test_a_model_name_is_looked_up_and_nothing_else(server: Command, name: str) -> None:
    answer = server.client.post("/v1/generate", json={"constraints": "rice", "model": name})
    assert is_error(answer, 404, "NotFound") and len(answer.content) < 400


def test_every_answer_has_the_security_headers_and_nobody_else_may_call(server: Command) -> None:
    origin = {"Origin": "https://elsewhere.example"}
    for answer in (
        server.client.get("/health", headers=origin),
        server.client.get("/nothing", headers=origin),
        server.client.post("/v1/generate", json={"constraints": ""}, headers=origin),
        server.client.post("/v1/generate", json={"constraints": "rice"}, headers=origin),
        server.client.post("/v1/generate/stream", json={"constraints": "rice"}, headers=origin),
        server.client.get("/openapi.json", headers=origin),
    ):
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers


# ---------------------------------------------------------------------------------------------------------------------
# What cannot be


@pytest.mark.parametrize(
    ("body", "status", "kind", "sentence"),
    [
        ("", 400, "BadRequest", "Expected JSON"),
        ("{", 400, "BadRequest", "Expected JSON"),
        ("[" * 10_000, 400, "BadRequest", "Expected JSON"),
        (b"\xff\xfe", 400, "BadRequest", "Expected JSON"),
        ('{"constraints": ["\\ud800"]}', 400, "BadRequest", "Expected JSON"),
        ("[]", 422, "UsageError", "body: expected an object, found []."),
        ("null", 422, "UsageError", "body: expected an object, found null."),
        ("{}", 422, "UsageError", "constraints: expected a string, a list of strings, or a list of such lists, found"),
        ('{"constraints": 1}', 422, "UsageError", "or a list of such lists, found 1."),
        ('{"constraints": ["a", ["b"]]}', 422, "UsageError", "constraints: expected a string, a list of strings"),
        ('{"constraints": ["a", null]}', 422, "UsageError", "constraints: expected a string, a list of strings"),
        ('{"constraints": []}', 422, "ConstraintError", "Expected at least one constraint"),
        ('{"constraints": [[]]}', 422, "ConstraintError", "Expected at least one constraint"),
        ('{"constraints": [["a"], ["b", " "]]}', 422, "ConstraintError", "list 2: constraint 2 (' ') is empty"),
        ('{"constraints": "a", "model": 3}', 422, "UsageError", "model: expected a valid string, found 3."),
        ('{"constraints": "a", "colour": 3}', 422, "UsageError", "colour: there is no such field"),
        ('{"constraints": "a", "options": []}', 422, "UsageError", "options: expected"),
        ('{"constraints": "a", "options": {"magic": 1}}', 422, "UsageError", "options.magic: there is no such field"),
        (f'{{"constraints": "a", "{"z" * 5000}": 1}}', 422, "UsageError", "z" * 100 + ": there is no such field."),
        ('{"constraints": "a", "options": {"n": "2"}}', 422, "UsageError", 'n: expected a valid integer, found "2".'),
        ('{"constraints": "a", "options": {"n": true}}', 422, "UsageError", "options.n: expected a valid integer"),
        ('{"constraints": "a", "options": {"sentences": "3-2"}}', 422, "UsageError", "sentences: expected 1"),
        ('{"constraints": "a", "options": {"temperature": NaN}}', 422, "UsageError", "temperature: expected a number"),
        ('{"constraints": "a", "options": {"decoding": "magic"}}', 422, "UsageError", "decoding: expected greedy"),
        ('{"constraints": "a", "options": {"seed": 1e400}}', 422, "UsageError", "options.seed: expected"),
        ('{"constraints": "a", "options": {"seed": 99999999999999999999}}', 422, "UsageError", "seed: expected a num"),
        ('{"constraints": "a", "options": {"length": "a lot"}}', 422, "UsageError", "length: expected a number"),
    ],
)  # fmt: skip
def test_a_body_that_makes_no_sense_is_one_sentence(
    server: Command, body: str | bytes, status: int, kind: str, sentence: str
) -> None:
    for path in ("/v1/generate", "/v1/generate/stream"):
        answer = server.client.post(path, content=body, headers={"Content-Type": "application/json"})
        assert is_error(answer, status, kind) and sentence in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"constraints": [["a"]] * 65}, "at most 64 constraint lists in one request on this server, found 65"),
        ({"constraints": ["a"] * 65}, "at most 64 constraints in one list on this server, found 65"),
        ({"constraints": ["a" * 201]}, "at most 200 characters in one constraint on this server, found 201"),
        ({"constraints": [["a" * 180] * 60] * 2}, "at most 20,000 characters in all constraints on this server"),
        ({"options": {"decoding": "sample", "n": 17}}, "n of at most 16 on this server, found 17"),
        ({"options": {"decoding": "beam", "width": 17}}, "width of at most 16 on this server, found 17"),
        ({"options": {"max_length": 257}}, "max_length of at most 256 on this server, found 257"),
        ({"options": {"max_stages": 17}}, "max_stages of at most 16 on this server, found 17"),
        ({"options": {"forbid": ["a"] * 101}}, "at most 100 forbidden words on this server, found 101"),
    ],
)
def test_a_limit_is_one_sentence(server: Command, body: dict[str, Any], sentence: str) -> None:
    answer = server.client.post("/v1/generate", json={"constraints": "a"} | body)
    assert is_error(answer, 422, "UsageError") and sentence in answer.json()["error"]["message"]


def test_a_request_that_costs_too_much_is_refused_with_the_number_before_any_work(model: Turnstile) -> None:
    options = {"decoding": "beam", "width": 16, "rounds": 0, "max_length": 256}
    with running(lambda: model.pointer) as server:
        model.close()
        for path in ("/v1/generate", "/v1/generate/stream"):
            answer = server.post(path, constraints=["great"] * 40, options=options)
            assert is_error(answer, 422, "UsageError")
            # Fillings x tokens x stages x rounds of a stage.
            cost = f"{16 * 256 * 12 * 256:,}"
            assert f"costs at most 10,000,000 on this server, found one of {cost}" in answer.text
        assert not model.passes and not model.waiting


def test_a_length_costs_the_same_wherever_it_is_said(model: Turnstile) -> None:
    with running(lambda: model.pointer, cost=30_000, quota=30_000) as server:
        assert server.post(constraints=["great", "food"]).status_code == 200
        refused = [
            server.post(constraints=constraints, options=options)
            for constraints, options in ((["great"], {"length": 5}), (["great", "=5"], {}), ("[great; ?food]; =5", {}))
        ]
        assert all(is_error(answer, 422, "UsageError") for answer in refused)
        assert len({answer.json()["error"]["message"] for answer in refused}) == 1
        assert is_error(server.post(constraints="A ___ place."), 422, "UsageError")  # a template is drafted too


def test_a_long_body_is_not_read_to_its_end_whether_or_not_its_length_is_known(server: Command) -> None:
    known = server.client.post("/v1/generate", json={"constraints": "a" * 70_000})
    assert is_error(known, 413, "ContentTooLarge")
    with connected(server.url) as raw:
        raw.sendall(request_head("/v1/generate", "Transfer-Encoding: chunked"))
        raw.sendall(b"10000\r\n" + b"a" * 65_536 + b"\r\n" + b"10\r\n" + b"a" * 16 + b"\r\n")
        # The body goes on for ever, and yet there is an answer.
        assert b" 413 " in raw.recv(4096).splitlines()[0]
    with connected(server.url) as raw:
        raw.sendall(request_head("/v1/generate", "Content-Length: 1000000000", "Expect: 100-continue"))
        # Whoever asks first is spared the way.
        assert b" 413 " in raw.recv(4096).splitlines()[0]


@pytest.mark.parametrize(("kind", "status"), [("application/json", 413), ("text/plain", 415)])
def test_who_sends_too_much_still_gets_to_read_the_answer(server: Command, kind: str, status: int) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(10):
            yield b"a" * 50_000

    for _ in range(8):  # without care for the rest of the body, the connection is reset nearly every other time
        answer = server.client.post("/v1/generate", content=chunks(), headers={"Content-Type": kind})
        assert answer.status_code == status and answer.json()["error"]["hint"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
def test_only_json_is_taken(server: Command, kind: str) -> None:
    answer = server.client.post("/v1/generate", content='{"constraints": "a"}', headers={"Content-Type": kind})
    assert is_error(answer, 415, "UnsupportedMediaType")
    declared = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert server.client.post("/v1/generate", content='{"constraints": "a"}', headers=declared).status_code == 200


def test_wrong_addresses_and_methods_have_the_shape_too(server: Command) -> None:
    assert is_error(server.client.get("/v1/nothing"), 404, "NotFound")
    for path, method, allowed in (
        ("/v1/generate", "GET", "POST"),
        ("/health", "POST", "GET"),
        ("/v1/models", "PUT", "GET"),
    ):
        answer = server.client.request(method, path)
        assert is_error(answer, 405, "MethodNotAllowed") and answer.headers["allow"] == allowed


def test_what_nobody_expected_is_a_number_for_the_client_and_a_traceback_for_the_log(
    model: Turnstile, caplog: pytest.LogCaptureFixture
) -> None:
    with running(lambda: model.pointer) as server:

        def broken(*_: Any) -> Any:
            raise RuntimeError("secret detail")

        writes, model._predict = model._predict, broken
        answer = server.post(constraints="great")
        assert is_error(answer, 500, "InternalError") and "secret" not in answer.text
        number = answer.headers["x-request-id"]
        assert f"(request {number})" in answer.json()["error"]["message"]
        assert f"error in request {number}" in caplog.text and "secret detail" in caplog.text
        # A model that cannot write any more is not said to be well, and taken back when it can.
        until(lambda: server.client.get("/health").json() == {"status": "failing"})
        assert server.client.get("/health").status_code == 503
        assert is_error(server.post("/v1/generate/stream", constraints="great"), 503, "Failing")
        model._predict = writes
        until(lambda: server.client.get("/health").status_code == 200)
        assert server.post(constraints="great", options={"max_stages": 1}).status_code == 200


def test_a_stream_in_which_nobody_expected_an_error_ends_with_it(model: Turnstile) -> None:
    def allergic(ids: Any, *others: Any) -> Any:
        if (ids == model.vocabulary.id("rice")).any():
            raise RuntimeError("secret detail")
        return writes(ids, *others)

    writes, model._predict = model._predict, allergic
    with running(lambda: model.pointer) as server:
        [(name, data)] = streamed_all(server, constraints="rice")[-1:]
        assert name == "error" and data["error"]["type"] == "InternalError" and "secret" not in str(data)
        assert server.client.get("/health").status_code == 200
        assert server.post(constraints="great", options={"max_stages": 1}).status_code == 200


def streamed_all(server: Running, **body: Any) -> list[tuple[str, dict[str, Any]]]:
    return events(server.client.post("/v1/generate/stream", json=body).text)


# ---------------------------------------------------------------------------------------------------------------------
# Under load, and at the ends of its life


def test_more_than_the_queue_holds_is_refused_at_once(model: Turnstile, callers: ThreadPoolExecutor) -> None:
    with running(lambda: model.pointer, queue=4, lists=4) as server:
        model.close()
        taken = [callers.submit(server.post, constraints="great", options={"max_stages": 1}) for _ in range(4)]
        until(lambda: server.metric("pointer_queue_lists") == 4)
        for path in ("/v1/generate", "/v1/generate/stream"):
            refused = server.post(path, constraints="food")
            assert is_error(refused, 429, "TooManyRequests") and int(refused.headers["retry-after"]) >= 1
        assert is_error(server.post("/v1/explain", text="Some text."), 429, "TooManyRequests")
        assert server.client.head("/health").status_code == 200
        model.open()
        assert {future.result(PATIENCE).status_code for future in taken} == {200}
        assert server.post(constraints="great", options={"max_stages": 1}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/generate", "/v1/generate/stream"])
def test_who_leaves_is_dropped_from_the_batch_at_the_next_stage(model: Turnstile, path: str) -> None:
    with running(lambda: model.pointer) as server:
        model.close()
        body = json.dumps({"constraints": "great; food", "options": LOCKED | {"max_stages": 5}}).encode()
        with connected(server.url) as raw:
            raw.sendall(request_head(path, f"Content-Length: {len(body)}") + body)
            until(lambda: model.waiting == 1)
        until(lambda: server.metric("pointer_queue_lists") == 0)
        model.permit()
        until(lambda: server.metric("pointer_cancelled_lists_total") == 1)
        assert len(model.passes) == 1
        model.open()
        assert server.post(constraints="great", options={"max_stages": 1}).status_code == 200


def test_a_request_that_takes_too_long_is_given_up(model: Turnstile) -> None:
    with running(lambda: model.pointer, seconds=0.2) as server:
        model.close()
        slow = server.post(constraints="great", options={"max_stages": 1})
        assert is_error(slow, 503, "TimeLimit") and "within 0.2 seconds" in slow.text
        [(name, end)] = streamed_all(server, constraints="great")[-1:]
        assert name == "error" and end["error"].keys() == {"type", "message", "hint"}
        assert end["error"]["type"] == "TimeLimit" and "within 0.2 seconds" in end["error"]["message"]
        model.permit()
        until(lambda: server.metric("pointer_cancelled_lists_total") == 2)
        model.open()
        assert server.post(constraints="great", options={"max_stages": 1}).status_code == 200


def test_a_body_that_never_arrives_is_not_waited_for(model: Turnstile) -> None:
    with running(lambda: model.pointer, seconds=0.2) as server, connected(server.url) as raw:
        raw.sendall(request_head("/v1/generate", "Content-Length: 10") + b"{")
        assert b" 408 " in raw.recv(4096).splitlines()[0]


def test_health_is_starting_until_the_model_has_written_a_text(model: Turnstile) -> None:
    model.close()
    with running(lambda: model.pointer, wait_until_ready=False) as server:
        until(lambda: model.waiting == 1)
        health = server.client.get("/health")
        assert health.status_code == 503 and health.json() == {"status": "starting"}
        for early in (server.post(constraints="great"), server.post("/v1/generate/stream", constraints="great")):
            assert is_error(early, 503, "Starting") and early.headers["retry-after"]
        assert is_error(server.client.get("/v1/models"), 503, "Starting")
        model.open()
        until(lambda: server.client.get("/health").status_code == 200)
        assert server.post(constraints="great", options={"max_stages": 1}).status_code == 200


def test_a_server_that_is_told_to_stop_finishes_what_it_took(model: Turnstile, callers: ThreadPoolExecutor) -> None:
    with running(lambda: model.pointer) as server:
        model.close()
        body = {"constraints": "great; food", "options": LOCKED | {"max_stages": 3}}
        taken: list[Future[httpx.Response]] = [callers.submit(server.post, **body) for _ in range(3)]
        taken.append(callers.submit(server.post, "/v1/generate/stream", **body))
        until(lambda: server.metric("pointer_queue_lists") == 4)
        server.server.handle_exit(signal.SIGTERM, None)
        health = server.client.get("/health")
        assert health.status_code == 503 and health.json() == {"status": "stopping"}
        assert is_error(server.post(constraints="food"), 503, "Stopping")
        model.open()
        answers = [future.result(PATIENCE) for future in taken]
        assert {answer.status_code for answer in answers} == {200} and "event: done" in answers[-1].text
        server.thread.join(PATIENCE)
        assert not server.thread.is_alive()
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url + "/health")


def test_one_line_of_log_for_each_request_and_no_text_of_a_user_in_it(server: Command) -> None:
    server.client.post("/v1/generate", json={"constraints": "rice; zanzibar", "options": {"max_stages": 1}})
    server.client.get("/zanzibar")
    server.client.post("/v1/generate", json={"constraints": "zanzibar", "model": "zanzibar"})
    server.client.get("/health")
    until(lambda: " GET /health 200 " in server.lines[-1])
    assert re.search(r"\d \w{16} POST /v1/generate 200 \d+ ms batch \d+\n$", server.lines[-4])
    assert re.search(r"\d \w{16} GET other 404 \d+ ms\n$", server.lines[-3])
    assert not any("zanzibar" in line for line in server.lines)


def test_the_metrics_count_requests_times_batches_and_tokens(server: Command) -> None:
    before = server.client.get("/metrics").text
    found = server.client.post("/v1/generate", json={"constraints": "rice; back"}).json()["results"][0][0]
    after = server.client.get("/metrics").text

    def grown(name: str) -> float:
        return metric(after, name) - metric(before, name)

    assert grown("pointer_tokens_total") == len(found["tokens"])
    assert grown("pointer_batch_texts_count") == len(found["stages"]) - 1
    assert grown("pointer_requests_total") == grown("pointer_request_seconds_count") == 2
    assert 'pointer_requests_total{route="/v1/generate",status="200"}' in after
    assert metric(after, "pointer_queue_lists") == 0


# ---------------------------------------------------------------------------------------------------------------------
# Keys, other sites, several processes


def test_with_keys_the_api_is_closed_to_everybody_else(model: Turnstile) -> None:
    with running(lambda: model.pointer, keys=("first-key", "second-key")) as server:
        body = {"constraints": "great", "options": {"max_stages": 1}}
        wrong = ("Bearer wrong", "Bearer", "first-key", "Bearer first-key-and-more", "Basic Zmlyc3Qta2V5")
        for header in ({}, *({"Authorization": value} for value in wrong)):
            for path in ("/v1/generate", "/v1/generate/stream", "/v1/explain"):
                answer = server.client.post(path, json=body, headers=header)
                assert is_error(answer, 401, "Unauthorized") and answer.headers["www-authenticate"] == "Bearer"
            assert is_error(server.client.get("/v1/models", headers=header), 401, "Unauthorized")
            assert is_error(server.client.get("/metrics", headers=header), 401, "Unauthorized")
        for key in ("first-key", "second-key"):
            header = {"Authorization": f"Bearer {key}"}
            assert server.client.post("/v1/generate", json=body, headers=header).status_code == 200
            assert server.client.get("/metrics", headers=header).status_code == 200
        for path in ("/", "/static/pointer.css", "/openapi.json", "/health"):
            assert server.client.get(path).status_code == 200
        assert server.client.get("/openapi.json").json()["components"]["securitySchemes"]
        # A key is asked for before anything of the body is read.
        long = server.client.post("/v1/generate", content=b"a" * 100_000)
        assert is_error(long, 401, "Unauthorized")


def test_a_key_can_spend_its_quota_and_no_more(model: Turnstile) -> None:
    with running(lambda: model.pointer, keys=("mine", "yours"), cost=1000, quota=1000) as server:

        def ask(key: str, stages: int) -> httpx.Response:
            options = {"preset": "plain", "max_length": 100, "max_stages": stages}
            header = {"Authorization": f"Bearer {key}"}
            return server.client.post("/v1/generate", json={"constraints": "great", "options": options}, headers=header)

        assert is_error(ask("mine", 11), 422, "UsageError")  # more than any request may cost: 100 positions, 11 stages
        assert ask("mine", 9).status_code == 200
        spent = ask("mine", 9)
        assert is_error(spent, 429, "QuotaExceeded") and "may spend 1,000 a minute" in spent.text
        assert 1 < int(spent.headers["retry-after"]) <= 60
        assert ask("yours", 9).status_code == 200  # what one key spends is nobody else's


def test_a_quota_fills_up_evenly_and_what_was_not_taken_comes_back() -> None:
    now = 0.0
    quotas = Quotas(600, clock=lambda: now)
    quotas.spend("key", 600)
    with pytest.raises(Refusal, match="0 are left, and this costs 100") as refused:
        quotas.spend("key", 100)
    assert refused.value.headers == {"Retry-After": "10"}
    now = 10.0
    quotas.spend("key", 100)
    quotas.give_back("key", 100)
    assert quotas.left("key") == 100
    now = 1e6
    assert quotas.left("key") == 600
    for _ in range(10):
        quotas.spend("", 600)  # a server without keys counts nothing


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "localhost."])
def test_this_machine_may_be_called_by_its_own_names(server: Command, host: str) -> None:
    assert server.client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "[::1.x"])
def test_a_foreign_name_reaches_nothing_and_is_not_redirected_to(server: Command, host: str) -> None:
    for path in ("/", "/health", "/v1/models", "/static/pointer.js", "/v1/generate/", "/static"):
        answer = server.client.get(path, headers={"Host": host})
        assert is_error(answer, 421, "MisdirectedRequest") and "location" not in answer.headers


def test_nothing_is_redirected(server: Command) -> None:
    for path in ("/v1/generate/", "/v1/models/", "/health/", "/static"):
        answer = server.client.get(path)
        assert answer.status_code == 404 and "location" not in answer.headers


def test_other_names_are_allowed_on_request(model: Turnstile) -> None:
    with running(lambda: model.pointer, hosts=("pointer.example",)) as server:
        assert server.client.get("/health", headers={"Host": "pointer.example:8000"}).status_code == 200
        assert server.client.get("/health").status_code == 421
    with running(lambda: model.pointer, hosts=("*",)) as server:
        assert server.client.get("/health", headers={"Host": "anything"}).status_code == 200


def test_a_request_has_a_number_in_the_answer_and_in_the_log(server: Command) -> None:
    given = server.client.get("/health", headers={"X-Request-Id": "run-7.a"})
    assert given.headers["x-request-id"] == "run-7.a"
    until(lambda: any(" run-7.a GET /health 200 " in line for line in server.lines))
    for unfit in ("two words", "x" * 65, "a=b"):
        found = server.client.get("/nothing", headers={"X-Request-Id": unfit}).headers["x-request-id"]
        assert re.fullmatch(r"\w{16}", found)
        until(lambda found=found: any(f" {found} GET other 404 " in line for line in server.lines))  # type: ignore[misc]


def everything(raw: socket.socket) -> bytes:
    """All that comes before the other side closes."""
    return b"".join(iter(lambda: raw.recv(65536), b""))


def test_a_connection_on_which_no_head_arrives_is_closed(model: Turnstile) -> None:
    body = b'{"constraints": "great", "options": {"max_stages": 1}}'
    whole = request_head("/v1/generate", f"Content-Length: {len(body)}") + body
    with running(lambda: model.pointer, header_seconds=0.3) as server:
        silent, slow, second = (connected(server.url) for _ in range(3))
        with silent, slow, second:
            slow.sendall(whole[:20])
            second.sendall(whole)
            assert b" 200 " in second.recv(65536).splitlines()[0]
            second.sendall(whole[:20])  # as part of a second request, on a connection that was good before
            for raw in (silent, slow, second):
                last = everything(raw).rpartition(b"HTTP/1.1 ")[2]
                answer = json.loads(last.partition(b"\r\n\r\n")[2])
                assert last.startswith(b"408 ") and answer["error"]["type"] == "RequestTimeout"
        # Who is waiting for an answer is not taken for slow.
        model.close()
        with connected(server.url) as raw:
            raw.sendall(whole)
            until(lambda: model.waiting == 1)
            with connected(server.url) as other:
                assert everything(other).startswith(b"HTTP/1.1 408 ")
            model.open()
            assert b" 200 " in raw.recv(65536).splitlines()[0]


def test_more_connections_than_allowed_are_refused_and_the_others_are_served(model: Turnstile) -> None:
    with running(lambda: model.pointer, connections=3) as server:
        held = [connected(server.url) for _ in range(3)]
        until(lambda: len(server.server.server_state.connections) == 3)
        with connected(server.url) as fourth:
            answer = everything(fourth)
        assert answer.startswith(b"HTTP/1.1 503 ") and b'"type":"TooManyConnections"' in answer
        for raw in held:
            raw.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b" 200 " in raw.recv(4096).splitlines()[0]
            raw.close()
        until(lambda: not server.server.server_state.connections)
        assert server.client.get("/health").status_code == 200


def test_another_site_may_call_if_it_is_allowed(model: Turnstile) -> None:
    with running(lambda: model.pointer, origins=("https://app.example",), keys=("key",)) as server:
        asks = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type"}  # fmt: skip
        allowed = server.client.options("/v1/generate", headers=asks)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        refused = server.client.options("/v1/generate", headers=asks | {"Origin": "https://evil.example"})
        assert is_error(refused, 400, "NotAllowed") and "access-control-allow-origin" not in refused.headers
        # Errors can be read there too.
        answer = server.client.post("/v1/generate", json={}, headers={"Origin": "https://app.example"})
        assert is_error(answer, 401, "Unauthorized")
        assert answer.headers["access-control-allow-origin"] == "https://app.example"


def test_several_processes_share_the_work_and_end_together(
    checkpoint: Path, tmp_path: Path, tiny: Pointer, callers: ThreadPoolExecutor
) -> None:
    (tmp_path / "keys").write_text("top-secret\n")
    server = Command("--model", checkpoint, "--workers", "2", "--api-key-file", "keys", "--threads", "1", cwd=tmp_path)
    try:
        server.wait_until_ready()
        header = {"Authorization": "Bearer top-secret"}
        assert is_error(server.client.get("/v1/models"), 401, "Unauthorized")
        body = {"constraints": [["rice", "back"]] * 4, "options": {"decoding": "sample", "n": 4, "max_length": 40}}
        futures: list[Future[httpx.Response]] = []

        def ask() -> httpx.Response:
            return httpx.post(server.url + "/v1/generate", json=body, headers=header, timeout=PATIENCE)

        def waiting() -> float:
            return metric(httpx.get(server.url + "/metrics", headers=header).text, "pointer_queue_lists")

        def is_at_work() -> bool:
            """Is a question in the queue? A fast machine answers them before we look: then it gets more."""
            if all(future.done() for future in futures):
                futures.extend(callers.submit(ask) for _ in range(6))
            return waiting() > 0

        long = json.dumps({"constraints": [["rice", "back"]] * 64, "options": {"decoding": "sample", "n": 16}}).encode()
        head = request_head("/v1/generate", "Authorization: Bearer top-secret", f"Content-Length: {len(long)}")
        with connected(server.url) as raw:
            raw.sendall(head + long)
            until(lambda: waiting() == 64)
            [worker] = processes_with(raw, server)
            worker.kill()
            worker.wait(PATIENCE)
        until(lambda: waiting() == 0)  # what it had in its queue went with it, and the other one goes on
        until(is_at_work)
        server.process.send_signal(signal.SIGTERM)
        answers = [future.result(PATIENCE) for future in futures]
        expected = [list(g.tokens) for g in tiny.generate_many(["rice; back"], **body["options"])[0]]
        taken = [answer for answer in answers if answer.status_code == 200]
        assert taken and {answer.status_code for answer in answers} <= {200, 503}
        for answer in taken:
            assert [[g["tokens"] for g in texts] for texts in answer.json()["results"]] == [expected] * 4
        assert server.process.wait(PATIENCE) == 0
    finally:
        server.stop()


class Deaf:
    """A process that is started at the very moment at which a signal arrives."""

    pid, exitcode = None, 0

    def __init__(self, **_: Any) -> None:
        self.is_told, self.looks = False, 0
        self.sentinel, other = os.pipe()
        os.close(other)

    def start(self) -> None:
        signal.raise_signal(signal.SIGTERM)

    def is_alive(self) -> bool:
        self.looks += 1
        assert self.looks < 100, "nobody ends it"
        return not self.is_told

    def terminate(self) -> None:
        self.is_told = True


def test_a_signal_that_comes_while_processes_are_started_ends_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MANY_PROCESSES, "")  # which it sets for its processes; afterwards it is as it was
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: SimpleNamespace(Process=Deaf))
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        with socket.socket() as listening:
            _run_many(Plan({}), listening, 2)  # comes back
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def processes_with(raw: socket.socket, server: Command) -> list[psutil.Process]:
    """Which of the processes of a server has a connection?"""
    mine = raw.getsockname()[1]
    return [
        process
        for process in psutil.Process(server.process.pid).children()
        if any(one.raddr and one.raddr.port == mine for one in process.net_connections())
    ]


# ---------------------------------------------------------------------------------------------------------------------
# The command


def test_a_key_file_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    with pytest.raises(UsageError, match=r"could not read .*keys \(No such file"):
        read_keys(path)
    with pytest.raises(UsageError, match="could not read"):
        read_keys(tmp_path)
    for content, sentence in (
        ("\n \n", "found none in"),
        ("a b\n", "without blanks"),
        ("schlüssel\n", "plain characters"),
    ):
        path.write_text(content, "utf-8")
        with pytest.raises(UsageError, match=sentence):
            read_keys(path)
    path.write_bytes(b"\xff\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_keys(path)
    path.write_text("one\n\n two \n")
    assert read_keys(path) == ("one", "two")


def test_a_folder_is_served_under_its_last_name(tmp_path: Path) -> None:
    for folder in ("a/mine", "b/mine"):
        (tmp_path / folder).mkdir(parents=True)
    assert served_names([str(tmp_path / "a" / "mine"), "wiki"]) == {
        "mine": str(tmp_path / "a" / "mine"),
        "wiki": "wiki",
    }
    with pytest.raises(UsageError, match='found "mine" twice'):
        served_names([str(tmp_path / "a" / "mine"), str(tmp_path / "b" / "mine")])
    assert embedded_models()[0] == "everyday" and "wiki" in embedded_models()  # the tests have no base for the writer


def test_a_server_that_cannot_start_is_one_sentence(pointer: Run, checkpoint: Path, tmp_path: Path) -> None:
    done = pointer("serve", "--api-key-file", "missing")
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert done.stderr.startswith("pointer: api_key_file: expected a file with one key a line, could not read missing")
    shutil.copytree(checkpoint, tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"")
    done = pointer("serve", "--model", "broken", "--port", "0")
    address, sentence = done.stderr.splitlines()
    assert done.returncode == 1 and address.startswith("pointer: serving broken at http")
    assert sentence.startswith("pointer: Expected") and "model.safetensors has 0 bytes instead of" in sentence


def test_without_the_extra_a_sentence_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['fastapi'] = None; sys.argv = ['pointer', 'serve']\n"
        "from pointer.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.endswith('Install it with: pip install "pointer-text[serve]"\n')


# ---------------------------------------------------------------------------------------------------------------------
# The documentation


def test_the_documentation_names_every_endpoint_option_limit_metric_and_error(server: Command) -> None:
    models, openapi = server.client.get("/v1/models").json(), server.client.get("/openapi.json").json()
    names = [*models["options"], *models["limits"], *models, "stage", "done", "error"]
    names += re.findall(r"^# TYPE (\w+)", server.client.get("/metrics").text, re.MULTILINE)
    names += openapi["components"]["schemas"]["Health"]["properties"]["status"]["enum"]
    for name in [*names, *openapi["paths"], *openapi["paths"]["/v1/generate"]["post"]["responses"]]:
        assert name in DOCUMENT, name
    for name, value in models["limits"].items():
        assert f"| `{name}` | {value:,} |".replace(".0 |", " |") in DOCUMENT


def test_the_commands_and_the_program_of_the_documentation_work(
    server: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    here = DOCUMENT.replace("http://127.0.0.1:8000", server.url)
    commands = re.findall(r"```sh\n(curl .+)\n```", here)
    assert len(commands) == 4
    for command in commands if shutil.which("curl") else []:
        done = subprocess.run(shlex.split(command), capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout and '"error"' not in done.stdout
    [program] = re.findall(r"```python\n(.*?)```", here, re.DOTALL)
    exec(program, {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "New york tax cuts" and lines[-1] in ("converged", "max_stages", "max_length")


def test_the_server_speaks_the_constraint_language(server: Command, tiny: Pointer) -> None:
    for constraints in ("[~love; rice|beans]; !the; =6-9", ["~love", "?back", "rice"], "Dear ___, thank you for ___."):
        answer = server.client.post("/v1/generate", json={"constraints": constraints})
        [[found]] = answer.json()["results"]
        expected = tiny.generate(constraints)
        assert found["text"] == expected.text and found["asked"] == list(expected.asked)
        assert found["order"] == list(expected.order) and found["constraints"] == list(expected.constraints)
    wrong = server.client.post("/v1/generate", json={"constraints": "rice; tea|"})
    assert wrong.status_code == 422 and "^" in wrong.json()["error"]["message"]
    asked = {"constraints": "[rice; ~love]", "options": {"sentences": 1}}
    *stages, (last, done) = streamed(server.client, **asked)
    assert last == "done" and stages and set(done["results"][0][0]["order"]) == {0, 1}


def test_the_body_of_an_answer_does_not_wait_until_its_head_is_acknowledged() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
