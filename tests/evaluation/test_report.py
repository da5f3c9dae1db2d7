"""The evaluate and compare commands as users call them, and what their tables say."""

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from conftest import Run

from pointer.evaluation.report import mark

HUMAN = [
    "The harbour is quiet in the morning, and the gulls are asleep.",
    "A small boat leaves the harbour before the sun is up.",
    "Nobody in the town knows who painted the old lighthouse red.",
    "The cook buys fish at the harbour and bread in the town.",
    "Rain came early, so the market closed before noon.",
    "Her brother mends nets behind the church every Monday.",
] * 4
KEYS = ["harbour; gulls", "boat; sun", "nobody; lighthouse", "cook; town", "rain; noon", "brother; church"] * 4


def close(text: str) -> str:
    return text.replace("small", "little").replace("early", "late").replace("quiet", "calm").replace("old ", "")


def far(text: str) -> str:
    return " ".join(reversed(text.rstrip(".").split()))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """References, constraints, a good system's jsonl and a bad one's lines."""
    (tmp_path / "refs.txt").write_text("\n".join(HUMAN) + "\n")
    (tmp_path / "keys.txt").write_text("\n".join(KEYS) + "\n")
    records = [
        {"line": i, "rank": 0, "model": "wiki", "options": {}, "seed": 0, "text": close(text)}
        | {"constraints": keys.split("; "), "stages": [["a"], ["a", "b"], ["a", "b"]], "seconds": 0.5}
        for i, (text, keys) in enumerate(zip(HUMAN, KEYS, strict=True), 1)
    ]
    (tmp_path / "good.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "bad.txt").write_text("".join(far(text) + "\n" for text in HUMAN))
    return tmp_path


def report_of(stdout: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(stdout)
    schema = json.loads((resources.files("pointer.evaluation") / "report.schema.json").read_text())
    jsonschema_rs.validate(schema, report)
    return report


def test_evaluate_prints_every_metric_of_the_paper_with_an_interval(pointer: Run, files: Path) -> None:
    done = pointer("evaluate", "good.jsonl", "--references", "refs.txt", "--json", "--bootstrap", "50")
    assert done.returncode == 0, done.stderr
    report = report_of(done.stdout)
    [system] = report["systems"]
    metrics = system["metrics"]
    names = [f"{kind}-{n}" for kind in ("NIST", "BLEU", "Entropy") for n in (1, 2, 3, 4)]
    for name in [*names, "METEOR", "Dist-1", "Dist-2", "PPL", "Length", "Coverage", "Coverage, any order", "Stages"]:
        assert metrics[name]["low"] <= metrics[name]["value"] <= metrics[name]["high"], name
        assert metrics[name]["signature"].endswith("|bs:50|seed:0")
    assert metrics["Seconds"]["value"] == 12 and metrics["Stages"]["value"] == 1
    assert metrics["Coverage"]["value"] == 100
    assert system["made_by"] == {"model": "wiki", "options": {}, "seed": 0}
    assert "BLEU-4" not in report["human"]["metrics"] and report["human"]["metrics"]["PPL"]["value"] > 1
    ratio = metrics["PPL"]["value"] / report["human"]["metrics"]["PPL"]["value"]
    assert metrics["PPL ratio"]["value"] == pytest.approx(ratio)


def test_evaluate_speaks_to_people_in_a_table_and_in_markdown(pointer: Run, files: Path) -> None:
    plain = pointer("evaluate", "bad.txt", "--references", "refs.txt", "--constraints", "keys.txt", "--lm", "none")
    assert plain.returncode == 0, plain.stderr
    assert "Coverage, any order  100.00 %" in plain.stdout and "95 % interval" in plain.stdout
    assert "PPL" not in plain.stdout
    marked = pointer(
        *("evaluate", "bad.txt", "--references", "refs.txt", "--markdown", "--bootstrap", "0", "--plot", "a.png")
    )
    assert "| BLEU-4 |" in marked.stdout and "- `BLEU-4|sacrebleu:" in marked.stdout
    assert (files / "a.png").read_bytes().startswith(b"\x89PNG")


def test_raw_takes_the_lines_as_they_are(pointer: Run, tmp_path: Path) -> None:
    (tmp_path / "refs.txt").write_text("It ' s A test .\nA test . \n")
    done = pointer("evaluate", "refs.txt", "--references", "refs.txt", "--raw", "--json", "--lm", "none")
    metrics = report_of(done.stdout)["systems"][0]["metrics"]
    assert metrics["Length"]["value"] == 4.5
    assert metrics["Dist-1"]["value"] == pytest.approx(100 * 6 / 9)


def test_compare_finds_the_better_system_and_says_how_sure_it_is(pointer: Run, files: Path) -> None:
    command = ["compare", "good.jsonl", "worse=bad.txt", "--references", "refs.txt", "--bootstrap", "99"]
    report = report_of(pointer(*command, "--json", "--examples", "3").stdout)
    assert [system["name"] for system in report["systems"]] == ["good", "worse"]
    [bleu] = [found for found in report["p_values"] if found["metric"] == "BLEU-2"]
    assert bleu["systems"] == ["good", "worse"] and bleu["p"] == pytest.approx(0.01)
    assert len(report["examples"]) == 3 and report["examples"][0]["constraints"]

    marked = pointer(*command, "--markdown", "--examples", "1").stdout
    [row] = [line for line in marked.splitlines() if line.startswith("| good |")]
    assert "**" in row and "*: differs from good, p < 0.05" in marked
    [header] = [line for line in marked.splitlines() if "NIST-1" in line and line.startswith("|")]
    assert header.index("NIST-1") < header.index("BLEU-4") < header.index("METEOR") < header.index("PPL")
    [worse] = [line for line in marked.splitlines() if line.startswith("| worse |")]
    bleu_2 = [cell.strip() for cell in header.split("|")].index("BLEU-2")
    assert row.split("|")[bleu_2].strip().startswith("**") and worse.split("|")[bleu_2].strip().endswith("%*")
    [human] = [line for line in marked.splitlines() if line.startswith("- human: ")]
    assert human.count("**") == 4

    latex = pointer(*command, "--latex", "--title", "50 %").stdout
    assert r"\toprule" in latex and r"\caption{50 \%}" in latex and r"\textbf{" in latex


def test_examples_show_the_constraints_of_every_text(pointer: Run, files: Path) -> None:
    done = pointer(*("compare", "good.jsonl", "bad.txt", "--references", "refs.txt", "--lm", "none", "--examples", "2"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("human: ") == 2 and "\nline " in done.stdout
    assert mark("Rice, brown rice.", ["rice", "rice"], "<", ">") == "<Rice>, brown <rice>."


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("good.jsonl", "--references", "few.txt"), "line 3 is missing"),
        (("few.txt", "--references", "refs.txt"), "found 24 in refs.txt and 2 in few.txt"),
        (("none.jsonl", "--references", "refs.txt"), "found no file at none.jsonl"),
        (("holes.txt", "--references", "refs.txt"), "line 2: expected a text, found an empty one"),
        (("good.jsonl", "--references", "refs.txt", "--constraints", "few.txt"), "found 24 in good.jsonl and 2"),
        (("good.jsonl", "--references", "refs.txt", "--plot", "a.doc"), "expected a .png, .svg or .pdf file"),
        (("good.jsonl", "--references", "refs.txt", "--json", "--markdown"), "Expected one form of output"),
        (("good.jsonl", "--references", "refs.txt", "--bootstrap", "-1"), "expected 0 or more samples"),
    ],
)
def test_bad_input_is_one_sentence(pointer: Run, files: Path, arguments: tuple[str, ...], sentence: str) -> None:
    (files / "few.txt").write_text("one\ntwo\n")
    (files / "holes.txt").write_text("one\n\nthree\n")
    done = pointer("evaluate", *arguments, "--lm", "none")
    assert done.returncode in (1, 2) and done.stdout == ""
    assert sentence in done.stderr and len(done.stderr.splitlines()) == 1


def test_two_systems_of_one_name_are_refused(pointer: Run, files: Path) -> None:
    done = pointer("compare", "good.jsonl", "good=bad.txt", "--references", "refs.txt", "--lm", "none")
    assert done.returncode == 2 and '"good" twice' in done.stderr
