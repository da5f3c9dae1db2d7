"""The real command line in a subprocess: what it prints where, and how it fails."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SAMPLE, Run

SENTENCE = "My sources have suggested the company sees no reason to change its tax structure."


def test_help_names_every_command_and_imports_nothing_heavy(pointer: Run) -> None:
    done = pointer("--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("prepare", "train", "calibrate", "generate", "info"))
    program = (
        "import sys, pointer.cli; "
        "print({'torch', 'transformers', 'numpy', 'yake', 'pyarrow', 'nltk'} & set(sys.modules) or 'light')"
    )
    light = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert light.stdout == "light\n"


def test_preparing_data_never_imports_torch() -> None:
    program = "import sys, pointer.prepare.explain; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


def test_explain_shows_scores_and_stages(pointer: Run) -> None:
    done = pointer("explain", SENTENCE)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["token", "tfidf", "pos", "yake", "factor", "importance", "born", "at"]
    assert lines[-1].split(maxsplit=1)[1].strip() == SENTENCE.lower().replace(".", " .")


def test_explain_speaks_json(pointer: Run) -> None:
    found = json.loads(pointer("explain", "--json", SENTENCE).stdout)
    assert found["text"] == SENTENCE
    for token in found["tokens"]:
        assert token["importance"] == pytest.approx(sum(token["scores"].values()) * token["factor"])
    assert [token["token"] for token in found["stages"][-1]] == [token["token"] for token in found["tokens"]]


def test_explain_draws_a_page_and_escapes_what_it_shows(pointer: Run, tmp_path: Path) -> None:
    done = pointer("explain", "A <b>bold</b> claim & a reply.", "--html", "stages.html")
    assert done.returncode == 0 and "wrote stages.html" in done.stderr
    page = (tmp_path / "stages.html").read_text()
    assert "<b>bold" not in page and "&lt;" in page and "http" not in page


def test_explain_in_colour_on_a_terminal(pointer: Run) -> None:
    assert "\x1b[" in pointer("explain", SENTENCE, FORCE_COLOR="1").stdout
    assert "\x1b[" not in pointer("explain", SENTENCE).stdout


def test_explain_takes_a_prepared_folder(pointer: Run) -> None:
    assert pointer("prepare", SAMPLE, "--out", "data").returncode == 0
    done = pointer("explain", SENTENCE, "--from", "data", "--importance", "tfidf", "--skeleton", "keywords")
    assert done.returncode == 0 and "yake" not in done.stdout.splitlines()[0]


def test_keywords_of_a_text_a_file_and_stdin_agree(pointer: Run, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text(SENTENCE + "\n")
    outputs = {
        pointer("keywords", SENTENCE).stdout,
        pointer("keywords", "one.txt").stdout,
        pointer("keywords", "-", stdin=SENTENCE + "\n").stdout,
    }
    assert len(outputs) == 1 and len(outputs.pop().split()) == 4


def test_keywords_of_a_file_keep_its_lines(pointer: Run, sentences: list[str]) -> None:
    done = pointer("keywords", SAMPLE, "--max", "3", "--json")
    lists = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lists) == len(sentences)
    assert all(word in text.lower() for text, words in zip(sentences, lists, strict=True) for word in words)


def test_prepare_reads_stdin_and_reports_bad_lines(pointer: Run) -> None:
    done = pointer("prepare", "-", "--out", "data", stdin=b"A good line.\nA \xff bad one.\nAnother good line.\n")
    assert done.returncode == 0
    assert done.stderr == "pointer: standard input, line 2: expected UTF-8, found byte 0xff at 3; skipped.\n"
    assert done.stdout.startswith("data: 2 texts, ") and "from 3 lines (1 skipped)" in done.stdout


def test_prepare_speaks_json(pointer: Run) -> None:
    done = pointer("prepare", SAMPLE, "--out", "data", "--json")
    assert json.loads(done.stdout)["counts"]["rows"] == 80


def test_many_bad_lines_are_summed_up(pointer: Run) -> None:
    done = pointer("prepare", "-", "--out", "data", stdin=b"A good line.\n" + b"\xff\n" * 30)
    assert done.returncode == 0 and done.stderr.count("\n") == 6 and "25 more like the last" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["prepare", "missing.txt", "--out", "data"], 1, "found no file at missing.txt"),
        (["prepare", str(SAMPLE), "--out", "data", "--max-length", "2"], 2, "max_length: expected a number from 8"),
        (["prepare", str(SAMPLE), "--out", "data", "--importance", "magic"], 2, 'found "magic"'),
        (["prepare", str(SAMPLE), "--out", "data", "--vocabulary", str(SAMPLE.parent)], 1, "found neither in"),
        (["prepare", str(SAMPLE), "--out", "data", "--tagger", "spacy:en_none"], 1, "spacy"),
        (["explain", ""], 2, "text: expected 1 to 510 tokens, found 0"),
        (["explain", "word " * 600], 2, "found 600"),
        (["explain", SENTENCE, "--from", str(SAMPLE.parent)], 1, "found neither in"),
        (["calibrate", "wiki", str(SAMPLE)], 2, "Copy an embedded model to change it"),
        (["keywords", SENTENCE, "--max", "0"], 2, "max: expected a number from 1 to 16"),
    ],
)
def test_a_failure_is_one_sentence_with_a_way_out(pointer: Run, arguments: list[str], code: int, sentence: str) -> None:
    done = pointer(*arguments)
    assert done.returncode == code
    assert done.stdout == "" and done.stderr.startswith("pointer: ") and done.stderr.count("\n") == 1
    assert sentence in done.stderr


def test_a_reader_that_leaves_early_is_no_error(sentences: list[str]) -> None:
    command = f"{sys.executable} -m pointer keywords {SAMPLE} | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout.count("\n") == 1 and "Traceback" not in done.stderr


def test_vocabulary_shrinks_to_a_domain(pointer: Run, tmp_path: Path) -> None:
    done = pointer("vocabulary", SAMPLE, "--from", "english", "--size", "600", "--out", "small")
    assert done.stdout == "small: 600 of 10,000 entries\n"
    assert pointer("prepare", SAMPLE, "--vocabulary", "small", "--out", "data").returncode == 0


def test_info_tells_what_is_here(pointer: Run) -> None:
    found = json.loads(pointer("info", "--json").stdout)
    assert {"pointer", "python", "device", "threads", "models", "packages", "optional parts"} <= set(found)
    assert found["packages"]["yake"] != "missing"
    assert pointer("info").stdout.startswith("pointer:")
    assert pointer("--version").stdout == f"pointer {found['pointer']}\n"
