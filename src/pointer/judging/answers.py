"""The answers of a study: one for each judge, item and question, in SQLite, on disk before the judge is told so.

A second answer to the same question takes the place of the first; the same answer again changes nothing.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pointer.errors import DataError, StorageError
from pointer.judging.study import Study

NAME = "answers.sqlite"

_TABLES = """
CREATE TABLE IF NOT EXISTS study (fingerprint TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS answers (
    judge INTEGER NOT NULL, place INTEGER NOT NULL, question TEXT NOT NULL,
    choice INTEGER NOT NULL,
    seconds REAL NOT NULL, given TEXT NOT NULL,
    PRIMARY KEY (judge, place, question)
) WITHOUT ROWID;
"""
_GIVE = """
INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET choice = excluded.choice, given = excluded.given WHERE choice != excluded.choice
"""


class Answer(NamedTuple):
    """What one judge answered to one question about one item."""

    judge: int
    """From 0, as in the study's sheets."""
    place: int
    """Of the item in the judge's sheet, from 0."""
    question: str
    choice: int
    """From 1, in the order of the form's choices, for the texts as they were shown."""
    seconds: float
    """How long the item had been on the screen when the question was first answered."""


class Answers:
    """The store of one study, for any number of threads; processes may share the file as well."""

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self._path = folder / NAME
        self._lock = threading.Lock()
        with self._explained():
            self._connection = sqlite3.connect(self._path, timeout=30, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")  # an answer that was acknowledged survives anything
            self._connection.executescript(_TABLES)
            with self._connection as connection:
                connection.execute("INSERT INTO study SELECT ? WHERE NOT EXISTS (SELECT * FROM study)", (fingerprint,))
            belongs = self._connection.execute("SELECT fingerprint FROM study").fetchall()
        if belongs != [(fingerprint,)]:
            self.close()
            raise DataError(
                f"Expected answers to the study beside it in {self._path}, found those of another one.",
                "Restore the study.json that they were given to.",
            )

    def give(self, answer: Answer) -> None:
        """Store an answer; when this returns it is on disk."""
        given = datetime.now(UTC).isoformat(timespec="seconds")
        with self._lock, self._explained(), self._connection as connection:
            connection.execute(_GIVE, (*answer, given))

    def of(self, judge: int) -> dict[int, dict[str, int]]:
        """A judge's choices, by place and question."""
        choices: dict[int, dict[str, int]] = {}
        for answer in self._select("WHERE judge = ?", judge):
            choices.setdefault(answer.place, {})[answer.question] = answer.choice
        return choices

    def open_places(self, study: Study, judge: int) -> list[int]:
        """Where a judge has not answered every question yet."""
        given = self.of(judge)
        return [place for place in range(len(study.sheets[judge])) if len(given.get(place, ())) < len(study.questions)]

    def all(self) -> list[Answer]:
        """Every answer so far."""
        return self._select("")

    def _select(self, condition: str, *values: int) -> list[Answer]:
        columns = ", ".join(Answer._fields)
        with self._lock, self._explained():
            rows = self._connection.execute(f"SELECT {columns} FROM answers {condition}", values).fetchall()
        return [Answer(*row) for row in rows]

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:  # a full disk, a folder without permission, a lock that stays
            raise StorageError(
                f"Could not use {self._path}: {error}.", "Make room, or see to it that the folder can be written."
            ) from error
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"Expected answers in {self._path}, found a damaged file: {error}.", "Restore it."
            ) from error


def read_answers(folder: Path, fingerprint: str) -> list[Answer]:
    """The answers in a folder so far; none where judging has not begun."""
    if not (folder / NAME).exists():
        return []
    answers = Answers(folder, fingerprint)
    try:
        return answers.all()
    finally:
        answers.close()
