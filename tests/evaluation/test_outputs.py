"""Reading outputs: texts line beside line, and one sentence with the line number where something is wrong."""

import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointer.cli.evaluate import read_constraints
from pointer.errors import DataError
from pointer.evaluation.outputs import canonical, check_aligned, read_system, read_texts
from pointer.evaluation.table import Cell, Table, latex_text, markdown_text


def record(line: int, text: str = "a text", **more: object) -> str:
    return json.dumps({"line": line, "rank": 0, "text": text} | more) + "\n"


def test_natural_text_and_text_with_its_own_spacing_have_one_canonical_form() -> None:
    assert canonical("It\u2019s 1,600 dollars (or so) \u2014 well-known!") == canonical(
        "it ' s 1 , 600 dollars ( or so ) \u2014 well - known !"
    )
    assert canonical("Don't STOP") == "don ' t stop"


@given(st.text(max_size=60))
def test_the_canonical_form_of_a_canonical_form_is_itself(text: str) -> None:
    once = canonical(text)
    assert canonical(once) == once


def test_the_output_of_generate_is_read_with_its_constraints_stages_and_time(tmp_path: Path) -> None:
    stages = [[{"token": "a", "new": False}], [{"token": "a", "new": False}, {"token": "b", "new": True}]]
    made = {"model": "wiki", "options": {}, "seed": 3}
    lines = [
        record(1, "a b", constraints=["a"], stages=[*stages, stages[-1]], seconds=0.25, **made),
        record(1, "a c", constraints=["a"], stages=stages, seconds=0.25, **made).replace('"rank": 0', '"rank": 1'),
        record(2, "d", constraints=["d"], stages=stages[:1], seconds=0.5, **made),
    ]
    (tmp_path / "out.jsonl").write_text("".join(lines))
    system = read_system(str(tmp_path / "out.jsonl"))
    assert system.name == "out" and system.texts == ("a b", "d")
    assert system.constraints == (("a",), ("d",))
    assert system.stages == (1, 0) and system.seconds == 0.75
    assert system.made_by == made


def test_plain_lines_are_read_also_when_they_are_compressed(tmp_path: Path) -> None:
    with lzma.open(tmp_path / "human.txt.xz", "wt") as file:
        file.write("one text\nanother\n\n")
    system = read_system(str(tmp_path / "human.txt.xz"))
    assert system.texts == ("one text", "another")
    assert system.name == "human" and system.constraints is None


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", "one\n\nthree\n", "line 2: expected a text, found an empty one"),
        ("a.txt", "", "Expected texts in .*a.txt, found none"),
        ("a.jsonl", "", "Expected texts in .*a.jsonl, found none"),
        ("a.jsonl", record(1) + "no json\n", "line 2: expected a JSON object"),
        ("a.jsonl", record(1) + '{"line": 2}\n', 'line 2: expected a text, found no "text"'),
        ("a.jsonl", record(1) + record(2, " "), "line 2: expected a text, found an empty one"),
        ("a.jsonl", record(1, constraints=["a"]) + record(2), "line 2: expected constraints as in other lines"),
        ("a.txt", "one\n\u200b\n", "line 2: expected a text, found an empty one"),
        ("a.jsonl", record(1, constraints="a b"), 'line 1: expected under "constraints" a list of words'),
        ("a.jsonl", record(1) + record(2, constraints=["a", 3]), 'line 2: expected under "constraints" a list'),
        ("a.jsonl", record(1, stages="many"), 'line 1: expected under "stages" a list of stages or their number'),
        ("a.jsonl", record(1, stages=[1, 2]), 'line 1: expected under "stages"'),
        ("a.jsonl", record(1, seconds="0.5"), 'line 1: expected under "seconds" a number of seconds'),
        ("a.jsonl", record(1, seconds=float("nan")), 'line 1: expected under "seconds"'),
        ("a.jsonl", record(1) + record(3), r"for input line 2 in .*, found one for line 3 \(line 2 of the file\)"),
    ],
)
def test_a_line_without_a_text_is_named(tmp_path: Path, name: str, content: str, sentence: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=sentence):
        read_system(str(tmp_path / name))


def test_a_file_that_is_no_text_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"fine\n\xff\xfe\n")
    with pytest.raises(DataError, match=r"UTF-8 in .*a.txt, found something else in line 2"):
        read_texts(str(tmp_path / "a.txt"))
    with pytest.raises(DataError, match="found no file at"):
        read_texts(str(tmp_path / "b.txt"))


def test_constraints_need_a_list_for_every_line(tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text('rice; prime minister\n["a; b", "c"]\n')
    assert read_constraints(str(tmp_path / "keys.txt")) == (("rice", "prime minister"), ("a; b", "c"))
    (tmp_path / "keys.txt").write_text("rice\n\nback\n")
    with pytest.raises(DataError, match="line 2: expected constraints, found an empty line"):
        read_constraints(str(tmp_path / "keys.txt"))


def test_files_of_different_lengths_name_the_first_missing_line() -> None:
    with pytest.raises(DataError, match=r"found 3 in refs and 2 in out: its line 3 is missing"):
        check_aligned("out", ["a", "b"], "refs", ["a", "b", "c"])


def test_a_table_is_the_same_in_markdown_and_latex() -> None:
    table = Table("50 % better", ["", "BLEU_2"], [[Cell("a|b"), Cell("1", bold=True)]])
    assert table.markdown() == "**50 % better**\n\n|  | BLEU\\_2 |\n| --- | ---: |\n| a\\|b | **1** |"
    latex = table.latex()
    assert r"a\textbar{}b & \textbf{1} \\" in latex and r"BLEU\_2" in latex and r"\caption{50 \% better}" in latex


def test_plain_text_stays_plain_in_markdown_and_latex() -> None:
    assert markdown_text("[so] *good* `x` a_b <i> \\ 3*") == r"\[so\] \*good\* \`x\` a\_b \<i> \\ 3*"
    assert latex_text(r"[so] \ {100%} & #1 $5 a_b ^ ~ <i> |") == (
        r"{[}so] \textbackslash{} \{100\%\} \& \#1 \$5 a\_b \^{} \~{} \textless{}i\textgreater{} \textbar{}"
    )
