"""The notebook in examples/ runs from top to bottom, with the small model that the package carries."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from pointer.decoding.demand import count_words

EXAMPLES = Path(__file__).parents[1] / "examples"
QUICKSTART = EXAMPLES / "quickstart.ipynb"


@pytest.fixture(scope="module")
def outputs() -> dict[str, str]:
    """What every cell of code shows, by its source: HTML where there is any."""
    notebook = nbformat.read(QUICKSTART, 4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    return {cell.source: _shown(cell) for cell in notebook.cells if cell.cell_type == "code"}


def _shown(cell: nbformat.NotebookNode) -> str:
    shown = ""
    for output in cell.outputs:
        kinds = output.get("data", {})
        shown += output.get("text") or kinds.get("text/html") or kinds.get("text/plain")
    return shown


def _of(outputs: dict[str, str], part: str) -> str:
    [shown] = [shown for source, shown in outputs.items() if part in source]
    return shown


def test_a_text_is_drawn_with_its_words_underlined(outputs: dict[str, str]) -> None:
    drawn = _of(outputs, '"moon; lake; night"')
    in_text = re.findall(r"<u [^>]*>(\w+)</u>", drawn.split("<table")[0])
    assert [word.lower() for word in in_text] == ["moon", "lake", "night"] and "<b " in drawn


def test_constraints_of_the_language_are_kept(outputs: dict[str, str]) -> None:
    text = _of(outputs, "print(out)").splitlines()[0].lower()
    words = re.findall(r"\w+", text)
    assert {"park", "dog"} <= {*words} and {"frisbee", "ball"} & {*words} and "cat" not in words
    assert any(word.startswith(("catch", "caught")) for word in words) and 8 <= count_words(text) <= 14
    assert re.fullmatch(r"Dear .*, thank you for .*\.", _of(outputs, "Template").strip())


def test_a_stream_begins_with_the_words_and_a_batch_has_a_row_a_list(outputs: dict[str, str]) -> None:
    first, *_, last = _of(outputs, "pointer.stream").lower().split("\n")[:-1]
    assert first == "kitten ball of yarn floor" and "ball of yarn" in last and len(last) > len(first)
    assert _of(outputs, "generate_many(table").count("<tr>") == 3


def test_a_model_is_trained_and_measured(outputs: dict[str, str]) -> None:
    assert re.search("bread.* gate", _of(outputs, "TrainingSettings.preset"), re.I)
    assert re.search(r"Coverage</th>\s*<td>100\.0+</td>", _of(outputs, "Evaluator("))


def test_what_is_stored_in_the_notebook_is_a_run_without_errors_or_paths_of_a_machine() -> None:
    notebook = nbformat.read(QUICKSTART, 4)
    stored = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert stored and not [one for one in stored if one.output_type == "error" or one.get("name") == "stderr"]
    assert not re.search(r"/(home|root|tmp|work)/", str(stored))
