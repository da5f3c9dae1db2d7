"""The evaluate and compare commands as users call them, and what their tables say."""

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from conftest import Run
from tiny_causal import llama_folder

from pointer.base import GGUF_SHA256, SMOLLM2
from pointer.evaluation.metrics import Evaluator
from pointer.evaluation.outputs import System
from pointer.evaluation.report import Report, mark, plot
from pointer.storage import replaced

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


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's cache in which a tiny llama stands for the language model that is fetched."""
    folder = tmp_path_factory.mktemp("cache")
    with replaced(folder / SMOLLM2, source={"sha256": GGUF_SHA256}) as beside:
        llama_folder(beside)
    return folder


def test_smollm2_scores_once_it_is_fetched_and_its_kin_are_named(pointer: Run, files: Path, cache: Path) -> None:
    good = (files / "good.jsonl").read_text()
    (files / "kin.jsonl").write_text(good.replace('"model": "wiki"', '"model": "writer"'))
    (files / "picked.jsonl").write_text(good.replace('"options": {}', '"options": {"best_of": 8}'))
    (files / "own.jsonl").write_text(good.replace('"options": {}', '"options": {"best_of": 8, "pick_by": "model"}'))
    systems = ["good.jsonl", "kin.jsonl", "picked.jsonl", "own.jsonl", "bad.txt"]
    command = ["compare", *systems, "--references", "refs.txt", "--bootstrap", "0"]
    missing = pointer(*command, "--lm", "smollm2")
    assert missing.returncode == 1 and missing.stderr.count("\n") == 1
    assert "Expected the language model SmolLM2 on this machine, found none." in missing.stderr
    assert "pointer fetch smollm2" in missing.stderr

    fetched = {"POINTER_CACHE": str(cache)}
    report = report_of(pointer(*command, "--lm", "smollm2", "--json", **fetched).stdout)
    assert report["settings"]["scorer"].startswith("scorer:smollm2|begin:document|end:no|")
    assert all(system["metrics"]["PPL"]["value"] > 1 for system in report["systems"])
    assert report["notes"][-2:] == [
        "PPL: smollm2 also is the model behind kin, which it is bound to find easy.",
        "PPL: smollm2 also picked among the drafts of picked, which it is bound to find easy.",
    ]
    embedded = report_of(pointer(*command, "--json").stdout)
    assert not any("also" in note for note in embedded["notes"])

    both = report_of(pointer(*command, "--lm", "embedded", "--lm", "smollm2", "--json", **fetched).stdout)
    assert both["notes"][-2:] == report["notes"][-2:]
    assert both["settings"]["scorer"] == " + ".join(one["settings"]["scorer"] for one in (embedded, report))
    for system, first, second in zip(both["systems"], embedded["systems"], report["systems"], strict=True):
        for name in ("PPL", "PPL ratio"):
            assert system["metrics"][name] == first["metrics"][name]
            assert system["metrics"][f"{name} (smollm2)"]["value"] == second["metrics"][name]["value"]


@pytest.mark.parametrize("wanted", [["embedded", "embedded"], ["none", "embedded"]])
def test_scorers_that_exclude_each_other_are_refused(pointer: Run, files: Path, wanted: list[str]) -> None:
    scorers = [argument for name in wanted for argument in ("--lm", name)]
    done = pointer("evaluate", "refs.txt", "--references", "refs.txt", *scorers)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f"lm: expected different scorers, or none alone, found {', '.join(wanted)}." in done.stderr


def test_latex_is_the_paper_s_table_and_fits_its_page(pointer: Run, files: Path) -> None:
    command = ["compare", "good.jsonl", "50%_=bad.txt", "--references", "refs.txt", "--lm", "none", "--bootstrap", "99"]
    latex = pointer(*command, "--latex", "--title", "All & more:", "--examples", "2").stdout
    table, rest, comments, *examples = latex.split("\n\n")[1:]
    assert latex.startswith("% \\usepackage{booktabs,graphicx}") and table.splitlines()[1].startswith(r"\resizebox{")
    assert r" & NIST-1 & " in table and " & Length " in table and "Coverage" not in table and " & Coverage & " in rest
    assert r"\caption{All \& more: 24 texts. Bold: the best system. *: differs from good, p \textless{} 0.05" in table
    assert r"50\%\_ & " in table and r"\textbf{" in table
    for part in (table, rest, *examples):
        assert part.count("{") == part.count("}") and part.count(r"\begin{") == part.count(r"\end{") > 0
    rows = [line for line in table.splitlines() if line.endswith(r"\\")]
    assert {row.count(" & ") for row in rows} == {16} and len(rows) == 4
    assert all(line.startswith("% ") and "|" in line for line in comments.splitlines())
    assert len(examples) == 2 and all(example.count(r" & ") == 4 for example in examples)
    assert all(example.count(r"\textbf{") >= 5 for example in examples)  # the keywords, and two in most texts


def test_the_plot_has_a_panel_for_every_metric_and_a_row_for_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr("pointer.evaluation.report.save_picture", lambda figure, path: drawn.append(figure))
    # Texts of one word: everything is constant, and rounding must not turn an interval round.
    texts = ("one", "two", "three")
    evaluator = Evaluator(texts, replications=20)
    systems = [System("a", texts, (("one",), ("two",), ("four",)), seconds=2.0), System("b", texts)]
    report = Report(evaluator, [evaluator.evaluate(system) for system in systems], evaluator.human())
    plot(report, Path("a.png"))
    [figure] = drawn
    panels = [axis for axis in figure.axes if axis.get_visible()]
    titles = [panel.get_title("left").rstrip(" \u2191\u2193") for panel in panels]
    assert sorted(titles) == sorted(report.metrics) and titles[:4] == ["NIST-1", "NIST-2", "NIST-3", "NIST-4"]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["a", "b", "human"]
    coverage = panels[titles.index("Coverage")]
    assert [text.get_text().strip() for text in coverage.texts] == ["66.67 %", "-", "-"]


def test_markdown_examples_show_a_text_as_it_is(pointer: Run, tmp_path: Path) -> None:
    (tmp_path / "refs.txt").write_text("Good *** food_here\n")
    (tmp_path / "keys.txt").write_text("good\n")
    done = pointer(
        *("compare", "a=refs.txt", "--references", "refs.txt", "--constraints", "keys.txt"),
        *("--lm", "none", "--bootstrap", "0", "--markdown", "--examples", "1"),
    )
    assert "- a: **Good** \\*\\*\\* food\\_here\n" in done.stdout


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
        (
            ("good.jsonl", "--references", "refs.txt", "--plot", "refs.txt/a.png"),
            "not make the folder refs.txt: File ex",
        ),
        (("good.jsonl", "--references", "refs.txt", "--plot", "folder.png"), "expected a file, found the folder"),
        (
            ("latin.txt", "--references", "refs.txt"),
            "Expected text in UTF-8 in latin.txt, found something else in line 2",
        ),
        (("good.jsonl", "--references", "refs.txt", "--json", "--markdown"), "Expected one form of output"),
        (("good.jsonl", "--references", "refs.txt", "--bootstrap", "-1"), "expected 0 or more samples"),
    ],
)
def test_bad_input_is_one_sentence(pointer: Run, files: Path, arguments: tuple[str, ...], sentence: str) -> None:
    (files / "few.txt").write_text("one\ntwo\n")
    (files / "holes.txt").write_text("one\n\nthree\n")
    (files / "latin.txt").write_bytes(b"one\ncaf\xe9\n")
    (files / "folder.png").mkdir()
    done = pointer("evaluate", *arguments, "--lm", "none")
    assert done.returncode in (1, 2) and done.stdout == ""
    assert sentence in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_plot_that_cannot_be_written_costs_no_numbers(pointer: Run, files: Path) -> None:
    done = pointer(*("evaluate", "bad.txt", "--references", "refs.txt", "--lm", "none", "--plot", "/proc/a.png"))
    assert done.returncode == 1 and "BLEU-4" in done.stdout
    assert done.stderr.splitlines()[-1].startswith("pointer: Could not write /proc/a.png: ")


def test_two_systems_of_one_name_are_refused(pointer: Run, files: Path) -> None:
    done = pointer("compare", "good.jsonl", "good=bad.txt", "--references", "refs.txt", "--lm", "none")
    assert done.returncode == 2 and '"good" twice' in done.stderr
