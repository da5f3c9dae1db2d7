"""What the project says of itself is what its files say: the page of results, the README, the cards."""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pointer.checkpoint import causal_config
from pointer.evaluation.outputs import System
from pointer.judging.report import count
from pointer.judging.study import StudySettings, draw_study

ROOT = Path(__file__).parents[1]
CHECKPOINTS = sorted((ROOT / "src" / "pointer" / "checkpoints").iterdir())
PAGE = """# Results

<!-- table news-all: BLEU-2, PPL -->
<!-- end of table -->

By hand: | not touched |, and <!-- news-all theirs: PPL -->?<!-- --> in a sentence.
"""


@pytest.fixture(scope="module")
def recipe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results", ROOT / "recipes" / "results.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def metric(value: float, better: str | None = "higher", percent: bool = True) -> dict[str, Any]:
    return {"value": value, "better": better, "percent": percent}


def report(first: float = 19.014) -> dict[str, Any]:
    """What `pointer compare --json` prints of two systems and two metrics, as far as tables need it."""
    return {
        "systems": [
            {"name": "ours", "metrics": {"BLEU-2": metric(first), "PPL": metric(57.2, "lower", False)}},
            {"name": "theirs", "metrics": {"BLEU-2": metric(4.2), "PPL": metric(3612.84, "lower", False)}},
        ],
        "human": {"name": "human", "metrics": {"PPL": metric(129.8, "lower", False)}},
        "p_values": [{"metric": "BLEU-2", "systems": ["ours", "theirs"], "p": 0.01}],
    }


def test_rows_that_were_measured_again_take_the_place_of_those_before(recipe: ModuleType) -> None:
    before, after = report(), report()
    after["systems"][1]["metrics"]["BLEU-2"] = metric(5.1)
    after["p_values"][0]["p"] = 0.2
    found = recipe.renewed(before, after)
    assert found == before | {"systems": after["systems"], "p_values": after["p_values"]}
    after["systems"][0]["metrics"]["BLEU-2"] = metric(19.9)
    with pytest.raises(recipe.DataError, match="Expected the same first system and the same texts of people"):
        recipe.renewed(before, after)


@pytest.fixture
def project(tmp_path: Path, recipe: ModuleType) -> Path:
    """A project of one output file, a page with a table of it, a README and cards that quote it."""
    for name, title in recipe.SECTIONS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"BLEU-2 77.7 is the past.\n\n## {title}\n\nBLEU-2 19.0 %.\n\n## Other\n\nPPL 1\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "results.md").write_text(PAGE)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "news-all.json").write_text(json.dumps(report()))
    return tmp_path


@pytest.fixture
def run(project: Path) -> Callable[..., tuple[int, str]]:
    def call(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, str(ROOT / "recipes" / "results.py"), "--root", str(project), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return call


def test_tables_are_written_between_their_marks_and_then_agree(run: Callable[..., Any], project: Path) -> None:
    assert run("--check")[0] == 1
    assert run() == (0, "")
    page = (project / "docs" / "results.md").read_text()
    assert "| ours | **19.01 %** | **57.20** |\n| theirs | 4.20 %* | 3612.8 |\n| human | - | 129.8 |\n" in page
    assert page.endswith("By hand: | not touched |, and <!-- news-all theirs: PPL -->3612.8<!-- --> in a sentence.\n")
    assert run("--check") == (0, "The page and all figures agree with the files.\n")
    assert run() == (0, "") and (project / "docs" / "results.md").read_text() == page


def test_a_page_that_went_stale_is_named(run: Callable[..., Any], project: Path) -> None:
    run()
    page = project / "docs" / "results.md"
    page.write_text(page.read_text().replace("19.01", "19.11"))
    assert run("--check") == (1, "docs/results.md: the table news-all is not what results/news-all has.\n")
    page.write_text(page.read_text().replace("19.11", "19.01").replace("3612.8<", "3612.9<"))
    assert run("--check") == (1, "docs/results.md: the figure news-all is not what results/news-all has.\n")
    run()
    (project / "results" / "news-all.json").write_text(json.dumps(report(18.96)))
    code, said = run("--check")
    assert code == 1 and said.startswith("docs/results.md: the table news-all is not")


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("BLEU-2 19.0 % and PPL 3,613 beside 57", []),
        ("BLEU-2 19.1 %", ["BLEU-2 19.1"]),
        ("PPL 19.0", ["PPL 19.0"]),  # of another metric
        ("| | BLEU-2 | speed |\n|---|---|---|\n| ours | **19.01 %*** | 55 |\n| theirs | 4.21 % | |", ["BLEU-2 4.21"]),
        ("13.3 times as fast, in 4.9 s", []),  # no metric of texts
    ],
)
def test_every_figure_of_a_metric_has_to_be_in_a_file(
    run: Callable[..., Any], project: Path, text: str, unknown: list[str]
) -> None:
    run()
    (project / "README.md").write_text(f"# Ours\n\n## Results\n\n{text}\n")
    code, said = run("--check")
    assert code == (1 if unknown else 0)
    assert re.findall(r"README.md: (.*) is in no file", said) == unknown


def test_a_table_without_its_file_or_column_is_one_sentence(run: Callable[..., Any], project: Path) -> None:
    page = project / "docs" / "results.md"
    page.write_text(PAGE.replace("PPL", "Charm"))
    assert run() == (1, f'results.py: Expected the column "Charm" in {project}/results/news-all.json, found no such '
                        "metric. Correct the page.\n")  # fmt: skip
    page.write_text(PAGE.replace("theirs", "nobody"))
    assert run()[1].startswith('results.py: Expected PPL of "nobody" in ')
    page.write_text(PAGE.replace("news-all", "none"))
    code, said = run("--check")
    assert code == 1 and said.startswith("results.py: Expected the output of a recipe at") and said.count("\n") == 1


def test_a_report_of_judges_is_a_table_too(recipe: ModuleType, project: Path) -> None:
    texts = tuple(f"This is text number {i} of all of them here." for i in range(4))
    system = System("ours", texts, (("text",),) * 4)
    found = count(draw_study([system], None, StudySettings("ratings", samples=2, judges=1)), [])
    (project / "results" / "readings.json").write_text(json.dumps(found.to_dict()))
    page = recipe.composed("<!-- table readings -->\n<!-- end of table -->", project / "results")
    assert "**Sense: Does this text make sense?**" in page and "| ours | - | - | - | - | 0 |" in page


def test_a_piece_of_a_page_is_put_in_as_it_is(recipe: ModuleType, project: Path) -> None:
    (project / "results" / "texts.md").write_text("**a, b**\n")
    page = recipe.composed("<!-- table texts -->\n<!-- end of table -->", project / "results")
    assert page == "<!-- table texts -->\n\n**a, b**\n\n<!-- end of table -->"


def test_pages_and_cards_agree_with_the_files(recipe: ModuleType) -> None:
    assert list(recipe.complaints(ROOT)) == []


def test_what_is_kept_of_a_run_names_no_place_on_the_machine_that_ran_it() -> None:
    for path in sorted((ROOT / "results").glob("*.json")):
        report = path.read_text("utf-8")
        assert not re.findall(r'["\s:=]/\w+/[^"]*', report), path.name  # a model, or a file of a study
        for system in json.loads(report).get("systems", ()):
            made_by = system.get("made_by")
            assert not made_by or not Path(made_by["model"]).is_absolute(), path.name


@pytest.mark.parametrize("folder", CHECKPOINTS, ids=lambda folder: folder.name)
def test_a_card_says_what_the_config_says(folder: Path) -> None:
    card = (folder / "README.md").read_text("utf-8")
    config = json.loads((folder / "config.json").read_text("utf-8"))["pointer"]
    assert f"{config['tokens_seen']:,}" in card
    if causal_config(folder) is None:
        assert f"| schedule | {config['schedule']} |" in card
    else:
        assert f"base_model: {config['base']}" in card and all(f"style {style}" in card for style in config["styles"])
