"""`pointer judge` as people type it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Run
from studies import small_study, store, vote_all, write_files

from pointer.cli import main
from pointer.judging.answers import read_answers
from pointer.judging.study import open_study


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_files(tmp_path, lines=12)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def judge(*arguments: str) -> int:
    """The command line in this process, which has imported what is heavy already; the exit code."""
    sys.argv = ["pointer", "judge", *arguments]
    with pytest.raises(SystemExit) as exit:
        main()
    return int(exit.value.code or 0)


@pytest.fixture(autouse=True)
def keep_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)


def test_from_files_to_a_report(here: Path, pointer: Run) -> None:
    command = (
        "judge new good.jsonl poor.jsonl people.txt --questions fluency --samples 4 --judges 2 --seed 1 --out study"
    )
    done = pointer(*command.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "study: 8 pairs (good - poor; good - human), 2 people with 10 each, 2 attention checks among them\n"
    )
    done = pointer("judge", "report", "study")
    assert done.returncode == 0, done.stderr
    assert "Fluency: A and B, which is more grammatical and fluent?" in done.stdout
    assert "0 of 20 answers are given; 100.0% are missing" in done.stdout


def test_new_speaks_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judge("new", "good.jsonl", "poor.jsonl", "--samples", "5", "--panel", "7", "--out", "study", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found.pop("systems") == [["good", "poor"]]
    assert found == {"study": "study", "form": "pairs", "items": 5, "judges": 7, "checks": 2, "fewest": 5, "most": 6}


def test_texts_are_rated_in_the_terminal_and_the_page_would_go_on_there(here: Path, pointer: Run) -> None:
    command = "judge new --form ratings good.jsonl --human people.txt --samples 2 --judges 1 --checks 1 --out study"
    assert pointer(*command.split()).stdout == (
        "study: 4 texts (good; human), 1 person with 5 each, 1 attention checks among them\n"
    )
    first = pointer("judge", "rate", "study", stdin="2\nfour\n1\n\n")  # a number is asked for again; then stops
    assert first.returncode == 0, first.stderr
    assert first.stdout.count("Does this text make sense?") == 3
    assert "Expected a number from 1 to 3, or nothing to stop." in first.stdout
    assert "Text 3 of 5: " in first.stdout and "good" not in first.stdout and "human" not in first.stdout
    second = pointer("judge", "rate", "study", stdin="3\n3\n3\n")
    assert "Text 2 of 5" not in second.stdout and "Text 3 of 5: " in second.stdout
    assert second.stdout.endswith("All 5 are judged. pointer judge report study counts them.\n")
    study = open_study(here / "study")
    given = sorted(read_answers(here / "study", study.fingerprint))
    assert [(answer.place, answer.choice) for answer in given] == list(enumerate([2, 1, 3, 3, 3]))


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ("good.jsonl short.jsonl", 1, "found 12 in good.jsonl and 9 in short.jsonl: its line 10 is missing."),
        ("good.jsonl people.txt --samples 13", 2, "samples: expected at most 12, as good ends at line 12, found 13."),
        ("people.txt again=people.txt --human people.txt", 1, "line 1: expected constraints, found none"),
        ("good.jsonl other.jsonl", 1, "Line 3: expected the same constraints of all systems"),
        ("good.jsonl gap.jsonl", 1, "gap.jsonl, line 5: expected a text, found an empty one."),
        ("good.jsonl bad.jsonl", 1, "bad.jsonl, line 2: expected a JSON object, found something else."),
        ("good.jsonl missing.jsonl", 1, "found no file at missing.jsonl."),
        ("good.jsonl", 2, "Expected at least two files to compare, found one."),
        ("good.jsonl good.jsonl", 2, 'found "good" twice.'),
        ("good.jsonl -", 2, "found standard input."),
        ("good.jsonl poor.jsonl --questions taste", 2, 'found "taste".'),
        ("good.jsonl poor.jsonl --panel 2", 2, "panel: expected at least 5 people"),
        ("good.jsonl poor.jsonl --out people.txt/x", 1, "Could not make the folder people.txt/x: Not a directory."),
        ("good.jsonl poor.jsonl --out people.txt", 2, "out: expected a folder, found a file at people.txt."),
    ],
)
def test_what_cannot_become_a_study_is_one_sentence_and_leaves_nothing_behind(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: str, code: int, sentence: str
) -> None:
    lines = (here / "poor.jsonl").read_text().splitlines()
    (here / "short.jsonl").write_text("\n".join(lines[:9]))
    (here / "bad.jsonl").write_text("\n".join([lines[0], "{", *lines[2:]]))
    for name, number, changed in (("gap", 5, {"text": " "}), ("other", 3, {"constraints": ["other"]})):
        mended = [
            json.dumps(json.loads(lines[number - 1]) | changed) if i == number - 1 else line
            for i, line in enumerate(lines)
        ]
        (here / f"{name}.jsonl").write_text("\n".join(mended))
    assert judge("new", *("--samples", "3", "--out", "study"), *arguments.split()) == code
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("pointer: ") and said.err.count("\n") == 1
    assert sentence in said.err
    assert not (here / "study").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ("report nowhere", 1, "Expected a study in nowhere, found no readable study.json."),
        ("serve nowhere", 1, "Expected a study in nowhere"),
        ("rate study --judge 3", 2, "judge: expected a number from 1 to 2, found 3."),
        ("report study --json --latex", 2, "Expected one of --json, --markdown and --latex, found several."),
        (
            "report study --plot study/study.json/bars.png",
            1,
            "Could not make the folder study/study.json: File exists.",
        ),
        ("report study --plot bars.gif", 2, "plot: expected a .png, .svg or .pdf file, found bars.gif."),
        ("serve study --host 203.0.113.1", 2, "Could not listen at 203.0.113.1, port 8001"),
        ("serve study --port 99999", 2, "Could not listen at 127.0.0.1, port 99999"),
    ],
)
def test_a_wrong_call_is_one_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: str, code: int, sentence: str
) -> None:
    small_study(here / "study")
    assert judge(*arguments.split()) == code
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("pointer: ") and said.err.count("\n") == 1
    assert sentence in said.err


def test_every_field_of_a_report_on_ratings_is_documented(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = small_study(here / "study", form="ratings")
    store(here / "study", study, vote_all(study, lambda judge, item, question: 1))
    assert judge("report", "study", "--json", "--everyone") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["results"][0]["percent_one_slip_at_most"] == 100
    documented = (Path(__file__).parents[2] / "docs" / "judging.md").read_text("utf-8")
    assert all(f"`{key}`" in documented for key in keys(found) - {"questions", "sources"})


def test_report_in_every_form(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = small_study(here / "study")
    store(here / "study", study, vote_all(study, lambda judge, item, question: 1))
    for form, part in (
        ("--markdown", "| Zebrafish-XL | **100.0 %** |"),
        ("--latex", r"\textbf{100.0 \%}"),
        ("--everyone", "No judge is left out."),
    ):
        assert judge("report", "study", form) == 0
        assert part in capsys.readouterr().out
    assert judge("report", "study", "--json", "--plot", "bars.png") == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert said.err == "pointer: wrote bars.png\n" and (here / "bars.png").stat().st_size > 1000
    assert found["answers"] == {"asked": 60, "given": 60}
    assert found["study"]["fingerprint"] == study.fingerprint
    documented = (Path(__file__).parents[2] / "docs" / "judging.md").read_text("utf-8")
    assert all(f"`{key}`" in documented for key in keys(found) - {"questions", "sources"})


def keys(found: object) -> set[str]:
    """The names of fields on every level; those of `versions` and the names of questions speak for themselves."""
    if isinstance(found, list):
        return set().union(*map(keys, found)) if found else set()
    if not isinstance(found, dict):
        return set()
    inside = {
        name: value for name, value in found.items() if name not in ("versions", "settings", "questions", "alpha")
    }
    return set(found) | set().union(*map(keys, inside.values()))


def hear_interrupts() -> None:
    """For a child of tests that run in the background: a shell has SIGINT ignored there, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_serve_prints_a_link_for_each_judge_and_ends_without_a_word_when_interrupted(here: Path) -> None:
    study = small_study(here / "study", panel=3)
    command = [
        sys.executable,
        "-m",
        "pointer",
        *["judge", "serve", "study", "--port", "0", "--url", "https://example.org/x/"],
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hear_interrupts
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            links = [process.stdout.readline() for _ in study.sheets]
            assert "Ctrl-C" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()  # one that goes on would be waited for without end
    assert links == [f"judge {number}: https://example.org/x/#token=judge-{number}\n" for number in (1, 2, 3)]
    assert (out, err, process.returncode) == ("", "", 0)


def test_the_command_line_is_light_and_a_missing_part_says_what_to_install(here: Path) -> None:
    small_study(here / "study")
    program = (
        "import sys; sys.modules['fastapi'] = None; sys.argv = ['pointer', 'judge', 'serve', 'study']\n"
        "from pointer.cli import main; import pointer.judging.study\n"
        "print({'torch', 'numpy', 'krippendorff', 'uvicorn'} & set(sys.modules) or 'light'); main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "light\n" and done.returncode == 1
    assert done.stderr.startswith("pointer: Serving a study needs the package fastapi or uvicorn")
    assert 'pip install "pointer-text[eval]"' in done.stderr
