"""A study is fair, repeatable and recorded before anybody is asked."""

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from studies import CONSTRAINTS, GOOD, PEOPLE, POOR, TEXTS, small_study, write_files

from pointer.errors import DataError, UsageError
from pointer.judging.study import Study, StudySettings, assign, draw_study, new_study, open_study, read_tokens
from pointer.storage import file_hash


@given(st.integers(1, 80), st.integers(1, 6), st.integers(0, 8), st.integers(0, 2**32))
def test_every_item_has_its_judges_and_every_judge_as_much_to_do(items: int, judges: int, more: int, seed: int) -> None:
    shares = assign(items, judges, judges + more, random.Random(seed))
    assert Counter(item for share in shares for item in share) == dict.fromkeys(range(items), judges)
    assert all(len(set(share)) == len(share) for share in shares)
    loads = list(map(len, shares))
    assert max(loads) - min(loads) <= 1


@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 3), st.integers(0, 5), st.integers(0, 999))
def test_sheets_are_balanced_in_load_and_side(samples: int, judges: int, more: int, checks: int, seed: int) -> None:
    study = small_study(samples=samples, judges=judges, panel=judges + more, checks=checks, seed=seed)
    loads = list(map(len, study.sheets))
    assert max(loads) - min(loads) <= 1
    for sheet in study.sheets:
        for kind in (False, True):
            sides = [showing.swapped for showing in sheet if study.items[showing.item].check == kind]
            assert abs(sum(sides) - (len(sides) - sum(sides))) <= 1
        assert sum(study.items[showing.item].check for showing in sheet) == checks
    seen = Counter(showing.item for sheet in study.sheets for showing in sheet)
    assert all(seen[i] == (len(loads) if item.check else judges) for i, item in enumerate(study.items))


def test_the_first_system_meets_every_other_one_and_people_on_the_same_lines() -> None:
    study = small_study(samples=6)
    assert study.lineups == [(GOOD.name, POOR.name), (GOOD.name, "human")]
    lines = [[item.line for item in study.items if not item.check and item.systems == both] for both in study.lineups]
    assert lines[0] == lines[1] and len(set(lines[0])) == 6
    for item in study.items[:6]:
        line = item.line - 1
        assert item.texts == (GOOD.texts[line], POOR.texts[line])
        assert item.constraints == CONSTRAINTS[line]


def test_an_attention_check_is_a_text_beside_half_its_words() -> None:
    study = small_study(samples=3, checks=5)
    checks = [item for item in study.items if item.check]
    assert len(checks) == 5
    assert {item.line for item in checks}.isdisjoint(item.line for item in study.items if not item.check)
    for item in checks:
        whole, debris = (text.split() for text in item.texts)
        assert item.texts[0] == TEXTS[item.line - 1]  # people's text
        assert not Counter(debris) - Counter(whole) and len(debris) == len(whole) // 2


def test_a_study_of_ratings_shows_every_text_alone_on_the_same_lines() -> None:
    study = small_study(form="ratings", samples=6, checks=3)
    assert study.lineups == [(GOOD.name,), (POOR.name,), ("human",)]
    rated = {item.systems[0]: [] for item in study.items if not item.check}  # type: dict[str, list[int]]
    for item in study.items[:18]:
        [system], [text] = item.systems, item.texts
        rated[system].append(item.line)
        assert text == {GOOD.name: GOOD, POOR.name: POOR, "human": PEOPLE}[system].texts[item.line - 1]
    assert len(set(map(tuple, rated.values()))) == 1 and len(set(rated["human"])) == 6
    for item in study.items[18:]:
        assert item.check and item.systems == ("debris",)
        assert len(item.texts[0].split()) == len(TEXTS[item.line - 1].split()) // 2
    for sheet in study.sheets:
        assert sorted(showing.item for showing in sheet) == list(range(21))
        assert [study.items[showing.item].systems for showing in sheet] != [item.systems for item in study.items]
    assert Study.from_json(study.to_json()) == study


def test_one_system_can_be_rated_alone() -> None:
    assert draw_study([GOOD], None, StudySettings("ratings", samples=3)).lineups == [(GOOD.name,)]


def test_a_person_gets_an_attention_check_for_every_twenty_pairs() -> None:
    assert small_study(samples=40, judges=1).settings.checks == 4
    assert small_study(samples=2, judges=1).settings.checks == 2
    assert small_study(checks=0).settings.checks == 0


def test_order_is_random_and_another_seed_draws_another_study() -> None:
    study, other = small_study(samples=20), small_study(samples=20, seed=2)
    assert study.sheets[0] != study.sheets[1]
    assert [showing.item for showing in study.sheets[0]] != sorted(showing.item for showing in study.sheets[0])
    assert [item.line for item in study.items] != [item.line for item in other.items]


def test_a_study_comes_back_as_it_was_written(tmp_path: Path) -> None:
    study = small_study(tmp_path)
    assert Study.from_json(study.to_json()) == study
    assert open_study(tmp_path).fingerprint == study.fingerprint


def test_the_same_files_and_seed_make_the_same_study_with_other_tokens(tmp_path: Path) -> None:
    write_files(tmp_path)
    files = [str(tmp_path / name) for name in ("good.jsonl", "POOR=poor.jsonl", "people.txt")]
    files[1] = f"POOR={tmp_path / 'poor.jsonl'}"
    for name in ("one", "two"):
        new_study(files, tmp_path / name, StudySettings(samples=5, seed=3))
    one, two = tmp_path / "one", tmp_path / "two"
    assert (one / "study.json").read_bytes() == (two / "study.json").read_bytes()
    study = open_study(one)
    assert set(read_tokens(one, study)).isdisjoint(read_tokens(two, study))
    assert study.lineups == [("good", "POOR"), ("good", "human")]
    assert [source["sha256"] for source in study.sources] == [
        file_hash(tmp_path / name) for name in ("good.jsonl", "poor.jsonl", "people.txt")
    ]
    assert study.settings == StudySettings(
        "pairs", tuple(study.questions), samples=5, judges=5, panel=5, checks=2, seed=3
    )
    assert {"pointer", "python"} <= set(study.versions)
    assert sorted(path.name for path in one.iterdir()) == ["judges.json", "study.json"]
    assert one.stat().st_mode & 0o077 == 0


def test_a_txt_given_last_is_the_human_text_unless_human_is_named(tmp_path: Path) -> None:
    write_files(tmp_path)
    good, people = str(tmp_path / "good.jsonl"), str(tmp_path / "people.txt")
    settings = StudySettings(samples=5)
    assert new_study([good, people], tmp_path / "1", settings).lineups == [("good", "human")]
    named = new_study([good, f"us={people}"], tmp_path / "2", settings, human=str(tmp_path / "poor.jsonl"))
    assert named.lineups == [("good", "us"), ("good", "human")]


def test_a_folder_that_was_left_half_made_can_be_finished_and_a_study_is_never_overwritten(tmp_path: Path) -> None:
    write_files(tmp_path)
    files, settings = [str(tmp_path / "good.jsonl"), str(tmp_path / "poor.jsonl")], StudySettings(samples=5)
    out = tmp_path / "study"
    out.mkdir()
    (out / "judges.json").write_text("{}")  # killed before study.json
    with pytest.raises(DataError, match=r"found no readable study.json"):
        open_study(out)
    new_study(files, out, settings)
    assert (out / "judges.json").stat().st_mode & 0o077 == 0
    before = (out / "judges.json").read_bytes()
    with pytest.raises(UsageError, match="found a study"):
        new_study(files, out, settings)
    assert (out / "judges.json").read_bytes() == before
    (out / "study.json").unlink()
    (out / "answers.sqlite").touch()
    with pytest.raises(UsageError, match="found a study"):
        new_study(files, out, settings)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"constraints": None}, "line 1: expected constraints, found none"),
        ({"constraints": ((), *CONSTRAINTS[1:])}, "line 1: expected constraints, found none"),
    ],
)
def test_texts_without_constraints_cannot_be_judged(changed: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        draw_study([replace(GOOD, **changed)], PEOPLE, StudySettings(samples=3))  # type: ignore[arg-type]


def test_systems_that_wrote_for_other_constraints_cannot_be_compared() -> None:
    others = (*CONSTRAINTS[:6], ("other", "words"), *CONSTRAINTS[7:])
    with pytest.raises(DataError, match=r"Line 7: expected the same constraints .* other; words in Quokka-7"):
        draw_study([GOOD, replace(POOR, constraints=others)], None, StudySettings(samples=3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"form": "stars"}, 'form: expected pairs or ratings, found "stars"'),
        ({"form": "ratings", "questions": ("fluency",)}, 'questions: expected some of sense, found "fluency"'),
        ({"questions": ("style",)}, 'questions: expected some of semantics, .*, found "style"'),
        ({"questions": ("fluency", "fluency")}, '"fluency" twice'),
        ({"questions": ()}, "questions: expected at least one"),
        ({"samples": 0}, "samples: expected a number from 1"),
        ({"samples": 81}, r"samples: expected at most 80, as Zebrafish-XL ends at line 80, found 81"),
        ({"judges": 0}, "judges: expected a number from 1"),
        ({"judges": 3, "panel": 2}, "panel: expected at least 3 people"),
        ({"checks": -1}, "checks: expected a number from 0"),
        ({"checks": 81}, "checks: expected at most"),
    ],
)
def test_settings_that_cannot_be_name_themselves(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        small_study(**settings)


def test_two_systems_need_two_names() -> None:
    with pytest.raises(UsageError, match='found "Zebrafish-XL" twice'):
        draw_study([GOOD, GOOD], None, StudySettings(samples=3))
    with pytest.raises(UsageError, match="at least two files"):
        draw_study([GOOD], None, StudySettings(samples=3))


def test_a_damaged_study_is_named(tmp_path: Path) -> None:
    study = small_study(tmp_path)
    (tmp_path / "judges.json").write_text(json.dumps({"tokens": ["same", "same"]}))
    with pytest.raises(DataError, match="2 different tokens"):
        read_tokens(tmp_path, study)
    (tmp_path / "study.json").write_bytes(study.to_json().replace(b'"format": 2', b'"format": 1'))
    with pytest.raises(DataError, match=f"found one of format 1. Open it with pointer {study.versions['pointer']}"):
        open_study(tmp_path)
    (tmp_path / "study.json").write_bytes(study.to_json()[:-9])
    with pytest.raises(DataError, match="Expected a study of format 2"):
        open_study(tmp_path)
