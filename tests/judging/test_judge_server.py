"""The server lets judges in and nobody else, tells them nothing they should not know, and loses nothing."""

import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from studies import GOOD, PEOPLE, POOR, call, serving, small_study, tokens

from pointer.errors import DataError, StorageError
from pointer.judging.answers import Answer, Answers, read_answers
from pointer.judging.server import LONGEST_BODY, PAGE, create_app, highlighted
from pointer.judging.study import FORMS, Study, StudySettings, draw_study


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return small_study(tmp_path)


@pytest.fixture
def answers(tmp_path: Path, study: Study) -> Iterator[Answers]:
    found = Answers(tmp_path, study.fingerprint)
    yield found
    found.close()


@pytest.fixture
def client(study: Study, answers: Answers) -> TestClient:
    """Without a token."""
    return TestClient(create_app(study, tokens(study), answers))


ME = {"Authorization": "Bearer judge-1"}
OTHER = {"Authorization": "Bearer judge-2"}
FLUENCY = "/api/items/2/answers/fluency"


def body(choice: Any, seconds: Any = 3.5) -> dict[str, Any]:
    return {"choice": choice, "seconds": seconds}


def test_a_judge_gets_questions_pairs_and_progress(client: TestClient, study: Study) -> None:
    found = client.get("/api/study", headers=ME).json()
    assert (found["items"], found["done"], found["next"]) == (10, 0, 1)
    assert [question["name"] for question in found["questions"]] == ["semantics", "fluency", "informativeness"]
    assert found["questions"][1]["wording"] == "A and B, which is more grammatical and fluent?"
    for number in range(1, 11):
        pair = client.get(f"/api/items/{number}", headers=ME).json()
        showing = study.sheets[0][number - 1]
        item = study.items[showing.item]
        shown = ["".join(piece["text"] for piece in pieces) for pieces in pair["texts"]]
        assert shown == list(item.texts[::-1] if showing.swapped else item.texts)
        assert pair["keywords"] == list(item.constraints)
        if POOR.name in item.systems:
            marked = [piece["text"] for piece in pair["texts"][not showing.swapped] if piece["keyword"]]
            assert [word.lower() for word in marked] == pair["keywords"]


def test_the_first_pair_with_an_open_question_is_next(client: TestClient) -> None:
    for number in (1, 3):
        for name in ("semantics", "fluency", "informativeness"):
            found = client.put(f"/api/items/{number}/answers/{name}", json=body(4), headers=ME).json()
    assert (found["done"], found["next"]) == (2, 2)
    assert client.get("/api/study", headers=OTHER).json()["done"] == 0


def test_an_answer_again_changes_nothing_and_another_one_takes_its_place(
    client: TestClient, answers: Answers, tmp_path: Path
) -> None:
    def stored() -> list[Any]:
        with sqlite3.connect(tmp_path / "answers.sqlite") as connection:
            return connection.execute("SELECT * FROM answers").fetchall()

    replies = [client.put(FLUENCY, json=body(4), headers=ME)]
    with sqlite3.connect(tmp_path / "answers.sqlite") as connection:
        connection.execute("UPDATE answers SET given = 'long ago'")
    first = stored()
    replies.append(client.put(FLUENCY, json=body(4, 99.0), headers=ME))
    assert stored() == first
    replies.append(client.put(FLUENCY, json=body(1, 99.0), headers=ME))
    assert [reply.status_code for reply in replies] == [200] * 3
    assert answers.all() == [Answer(0, 1, "fluency", 1, 3.5)]
    assert client.get("/api/items/2", headers=ME).json()["answers"] == {"fluency": 1}
    assert client.get("/api/items/2", headers=OTHER).json()["answers"] == {}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Basic judge-1"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Bearer judge-"}, 403),
        ({"Authorization": "Bearer judge-11"}, 403),
        ({"Authorization": b"Bearer judg\xe9"}, 403),
    ],
)
@pytest.mark.parametrize("path", ["/api/study", "/api/items/1", FLUENCY])
def test_who_has_no_token_learns_nothing(
    client: TestClient, answers: Answers, headers: dict[str, Any], status: int, path: str
) -> None:
    given = {"json": body(3)} if path == FLUENCY else {}
    reply = client.request("PUT" if given else "GET", path, headers=headers, **given)  # type: ignore[arg-type]
    assert reply.status_code == status
    assert set(reply.json()) == {"error"} and reply.json()["error"]["hint"] == "Open the link that you were given."
    assert answers.all() == []


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/api/items/0/answers/fluency", body(3), 404),
        ("/api/items/11/answers/fluency", body(3), 404),
        ("/api/items/99999999999999999999999/answers/fluency", body(3), 404),
        ("/api/items/two/answers/fluency", body(3), 422),
        ("/api/items/2/answers/style", body(3), 404),
        (FLUENCY, body(0), 422),
        (FLUENCY, body(6), 422),
        (FLUENCY, body(2.5), 422),
        (FLUENCY, body("3"), 422),
        (FLUENCY, body(True), 422),
        (FLUENCY, body(3, -1), 422),
        (FLUENCY, body(3) | {"judge": 2}, 422),
        (FLUENCY, [], 422),
        (FLUENCY, body(3) | {"padding": "x" * LONGEST_BODY}, 413),
    ],
)
def test_an_answer_that_cannot_be_is_refused_in_the_one_shape(
    client: TestClient, answers: Answers, path: str, content: Any, status: int
) -> None:
    reply = client.put(path, json=content, headers=ME)
    assert reply.status_code == status
    assert set(reply.json()["error"]) == {"type", "message", "hint"} and reply.json()["error"]["message"]
    assert answers.all() == []


def test_not_a_number_is_no_time(client: TestClient, answers: Answers) -> None:
    for content in (b'{"choice": 3, "seconds": NaN}', b'{"choice": 3, "seconds": 1e999}', b"{", b"\xff"):
        reply = client.put(FLUENCY, content=content, headers=ME | {"Content-Type": "application/json"})
        assert reply.status_code in (400, 422) and reply.json()["error"]["message"]
    assert answers.all() == []


def test_a_long_body_is_refused_also_when_it_does_not_say_how_long_it_is(client: TestClient) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(1000):
            yield b" " * 500

    assert client.put(FLUENCY, content=endless(), headers=ME).status_code == 413


@pytest.mark.parametrize("path", ["/", "/judge.js", "/judge.css", "/icon.svg", "/api/study", "/nothing"])
def test_every_response_carries_security_headers(client: TestClient, path: str) -> None:
    headers = client.get(path, headers=ME).headers
    assert headers["Content-Security-Policy"].startswith("default-src 'self';")
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"


def test_there_is_nothing_else_to_find(client: TestClient) -> None:
    for path in (
        "/docs",
        "/openapi.json",
        "/redoc",
        "/../study.json",
        "/%2e%2e/server.py",
        "/study.json",
        "/judges.json",
    ):
        reply = client.get(path)
        assert reply.status_code == 404 and reply.json()["error"]["type"] == "NotFound"


def test_the_page_needs_nothing_from_elsewhere_and_has_no_inline_script() -> None:
    for path in PAGE.iterdir():
        content = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "//" not in re.sub(r"^\s*//.*|/\*.*?\*/|\s//\s.*", "", content, flags=re.MULTILINE), path.name
    page = (PAGE / "index.html").read_text("utf-8")
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page)


def test_a_text_to_rate_comes_alone_and_has_three_answers(tmp_path: Path) -> None:
    study = small_study(tmp_path, form="ratings")
    answers = Answers(tmp_path, study.fingerprint)
    client = TestClient(create_app(study, tokens(study), answers))
    found = client.get("/api/study", headers=ME).json()
    assert (found["form"], found["items"], len(found["choices"])) == ("ratings", 14, 3)
    assert all(len(client.get(f"/api/items/{n}", headers=ME).json()["texts"]) == 1 for n in range(1, 15))
    replies = [client.put("/api/items/1/answers/sense", json=body(choice), headers=ME) for choice in (4, 3)]
    assert [reply.status_code for reply in replies] == [422, 200]
    assert replies[0].json()["error"]["message"] == "choice: expected a number from 1 to 3, found 4."
    assert [answer.choice for answer in answers.all()] == [3]
    answers.close()


def everything_served(study: Study, folder: Path) -> list[bytes]:
    """The bodies and headers of all that each judge can ask for."""
    folder.mkdir()
    answers = Answers(folder, study.fingerprint)
    client = TestClient(create_app(study, tokens(study), answers))
    found, [question, *_] = [], study.questions
    for judge, sheet in enumerate(study.sheets, 1):
        headers = {"Authorization": f"Bearer judge-{judge}"}
        replies = [client.get(path, headers=headers) for path in ("/api/study", "/", "/judge.js", "/api/items/0")]
        for number in range(1, len(sheet) + 1):
            replies.append(client.get(f"/api/items/{number}", headers=headers))
            replies.append(client.put(f"/api/items/{number}/answers/{question}", json=body(3), headers=headers))
        found += [reply.content + repr(sorted(reply.headers.items())).encode() for reply in replies]
    answers.close()
    return found


@pytest.mark.parametrize("form", FORMS)
def test_nothing_that_is_served_depends_on_who_wrote_a_text(form: str, tmp_path: Path) -> None:
    settings = StudySettings(form, samples=4, judges=2, seed=1)
    names = ("Zebrafish-XL", "Quokka-7", "human")
    studies = [
        draw_study([replace(GOOD, name=a), replace(POOR, name=b)], replace(PEOPLE, name=human), settings)
        for a, b, human in (names, names[::-1])
    ]
    one, other = (everything_served(study, tmp_path / str(i)) for i, study in enumerate(studies))
    dated = re.compile(rb"\('(last-modified|etag)', '[^']*'\)")  # of the page's own files
    assert [dated.sub(b"", reply) for reply in one] == [dated.sub(b"", reply) for reply in other]
    for word in (*(name.encode() for name in names[:2]), b"whole", b"debris", b"swapped", b'"check"', b'"line"'):
        assert not any(word in reply for reply in one)


def test_a_pair_has_no_field_that_could_tell(client: TestClient) -> None:
    pairs = [client.get(f"/api/items/{number}", headers=ME).json() for number in range(1, 11)]
    assert all(set(pair) == {"number", "keywords", "texts", "answers"} for pair in pairs)
    assert {key for pair in pairs for pieces in pair["texts"] for piece in pieces for key in piece} == {
        "text",
        "keyword",
    }


def test_keywords_are_marked_beside_emoji_too() -> None:
    pieces = highlighted("\U0001f600\U0001f600 Good food\U0001f600!", ["food"])
    assert [piece["text"] for piece in pieces if piece["keyword"]] == ["food"]
    assert highlighted("No such word.", ["food"]) == [{"text": "No such word.", "keyword": False}]


def test_answers_to_another_study_are_not_mixed_in(tmp_path: Path, answers: Answers) -> None:
    with pytest.raises(DataError, match="found those of another one"):
        read_answers(tmp_path, "another fingerprint")


def test_answers_are_written_through_to_the_disk(answers: Answers) -> None:
    connection = answers._connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_a_damaged_or_full_store_is_one_sentence(tmp_path: Path, study: Study, answers: Answers) -> None:
    pages = answers._connection.execute("PRAGMA page_count").fetchone()[0]
    answers._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError, match="full"):
        for place in range(10_000):
            answers.give(Answer(0, place, "fluency", 3, 1.0))
    client = TestClient(create_app(study, tokens(study), answers))
    replies = [
        client.put(f"/api/items/{number}/answers/fluency", json=body(3), headers=OTHER) for number in range(1, 11)
    ]
    assert 507 in {reply.status_code for reply in replies}
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "answers.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(DataError, match="damaged"):
        read_answers(broken, study.fingerprint)
    assert read_answers(tmp_path / "nowhere", study.fingerprint) == []


def test_two_judges_at_once_and_a_killed_server_lose_nothing(tmp_path: Path) -> None:
    study = small_study(tmp_path, samples=10)
    acknowledged: list[tuple[int, int, str, int]] = []
    enough = threading.Event()

    def judge(number: int, link: str) -> None:
        for place in range(len(study.sheets[number])):
            for question in study.questions:
                choice = (place + number) % 5 + 1
                try:
                    status, _ = call(link, f"api/items/{place + 1}/answers/{question}", body(choice))
                except OSError:  # the server is gone
                    return
                assert status == 200
                acknowledged.append((number, place, question, choice))
                if len(acknowledged) >= 20:
                    enough.set()

    with serving(tmp_path) as (process, links):
        threads = [threading.Thread(target=judge, args=given) for given in enumerate(links)]
        for thread in threads:
            thread.start()
        assert enough.wait(60)
        process.kill()  # SIGKILL, while both are answering
        for thread in threads:
            thread.join()
    assert {number for number, *_ in acknowledged} == {0, 1}

    with serving(tmp_path) as (_, links):
        for number, place, question, choice in acknowledged:
            status, pair = call(links[number], f"api/items/{place + 1}")
            assert status == 200 and pair["answers"][question] == choice
        threads = [threading.Thread(target=judge, args=given) for given in enumerate(links)]  # again, to the end
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [call(link, "api/study")[1]["next"] for link in links] == [None, None]
    found = {answer[:4] for answer in read_answers(tmp_path, study.fingerprint)}
    assert found == set(acknowledged) and len(found) == 3 * sum(map(len, study.sheets))
    assert json.loads((tmp_path / "judges.json").read_text())["tokens"] == tokens(study)
