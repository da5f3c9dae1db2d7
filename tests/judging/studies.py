"""What the tests of judging share: systems of different skill, studies of them, and a real server to judge at."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import SAMPLE

from pointer.evaluation.outputs import System
from pointer.judging.answers import Answer, Answers
from pointer.judging.study import Item, Study, StudySettings, draw_study

TEXTS = tuple(SAMPLE.read_text("utf-8").splitlines())
CONSTRAINTS = tuple(tuple(word.strip('.,;:?!"').lower() for word in text.split()[1:8:3]) for text in TEXTS)
GOOD = System("Zebrafish-XL", tuple(f"Yes: {text}" for text in TEXTS), CONSTRAINTS)
POOR = System("Quokka-7", tuple(f"Well, {' and '.join(words)}." for words in CONSTRAINTS), CONSTRAINTS)
PEOPLE = System("human", TEXTS)


def write_files(folder: Path, lines: int = 80) -> None:
    """`good.jsonl`, `poor.jsonl` and `people.txt`."""
    for name, system in (("good", GOOD), ("poor", POOR)):
        records = [
            {"line": i + 1, "rank": 0, "constraints": CONSTRAINTS[i], "text": system.texts[i]} for i in range(lines)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "people.txt").write_text("".join(f"{text}\n" for text in TEXTS[:lines]))


def small_study(folder: Path | None = None, **settings: Any) -> Study:
    """The two systems and people on some lines; written to a folder if there is one, judge k with token `judge-k`."""
    study = draw_study([GOOD, POOR], PEOPLE, StudySettings(**{"samples": 4, "judges": 2, "seed": 1} | settings))
    if folder is not None:
        folder.mkdir(exist_ok=True)
        (folder / "study.json").write_bytes(study.to_json())
        (folder / "judges.json").write_text(json.dumps({"tokens": tokens(study)}))
    return study


def tokens(study: Study) -> list[str]:
    return [f"judge-{number}" for number in range(1, len(study.sheets) + 1)]


def choice(vote: int, swapped: bool) -> int:
    """Where a vote stands on the scale that the judge sees: from 2 (A is clearly better) to -2, or to 0 (no sense)."""
    return 3 + vote if swapped else 3 - vote


def vote_all(study: Study, vote: Callable[[int, Item, str], int | None]) -> list[Answer]:
    """The answers of judges who vote by a function of judge, item and question; None leaves a question open."""
    found = []
    for judge, sheet in enumerate(study.sheets):
        for place, (item, swapped) in enumerate(sheet):
            for question in study.questions:
                given = vote(judge, study.items[item], question)
                if given is not None:
                    found.append(Answer(judge, place, question, choice(given, swapped), 10.0 + judge))
    return found


def store(folder: Path, study: Study, answers: list[Answer]) -> None:
    stored = Answers(folder, study.fingerprint)
    for answer in answers:
        stored.give(answer)
    stored.close()


@contextmanager
def serving(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", list[str]]]:
    """`pointer judge serve` in a process of its own, and the links that it prints."""
    command = [sys.executable, "-m", "pointer", "judge", "serve", str(folder), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())["links"]
        finally:
            process.kill()


def call(link: str, path: str, body: Any = None) -> tuple[int, Any]:
    """A request over HTTP as the page makes it; status and content."""
    base, _, token = link.partition("#token=")
    request = urllib.request.Request(
        base + path,
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        method="GET" if body is None else "PUT",
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
