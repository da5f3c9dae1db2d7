"""The real command line in a subprocess: what it prints where, and how it fails."""

import contextlib
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import SAMPLE, Run

from pointer.cli import HEADING, HOMES, Commands
from pointer.cli.help import Command
from pointer.cli.options import with_options
from pointer.decoding import options
from pointer.decoding.options import Options
from pointer.fields import Choices, Ranges, expected, sentences
from pointer.training import settings
from pointer.training.settings import TrainingSettings

SENTENCE = "My sources have suggested the company sees no reason to change its tax structure."


def test_help_names_every_command_and_imports_nothing_heavy(pointer: Run) -> None:
    done = pointer("--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("prepare", "train", "generate", "info"))
    program = (
        "import sys, pointer.cli; "
        "print({'torch', 'transformers', 'numpy', 'yake', 'pyarrow', 'nltk'} & set(sys.modules) or 'light')"
    )
    light = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert light.stdout == "light\n"


def test_a_command_imports_no_other() -> None:
    program = (
        "import sys; from pointer.cli import main\n"
        "try: main()\n"
        "finally: print(*sorted(name for name in sys.modules if name.startswith('pointer.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", program, "verify", "--help"], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "pointer.cli.help pointer.cli.verify"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ("generate a b --top-p 3", 2, "top_p: expected a number from 0.0001 to 1, found 3.0. Change top_p."),
        ("generate a b --top-p x", 2, 'top_p: expected a number from 0.0001 to 1, found "x". Change top_p.'),
        ("generate a b --decoding x", 2, 'decoding: expected greedy, sample, beam, found "x". Choose one of these.'),
        ("generate a b --dtype x", 2, 'dtype: expected float32, bfloat16, float16, found "x".'),
        ("generate -f nowhere.txt", 1, "found no file at nowhere.txt. Check the path."),
        ("generate a b --model nothing", 1, 'a folder or a Hub id (OWNER/NAME), found "nothing". Check the name.'),
        ("generate a b --system cgmh --model nothing", 1, "a trained cgmh, found no nothing. Train it"),
        ("generate a b --system magic", 2, 'found "magic". Choose one of these.'),
        ("train nowhere --out run --init wiki --steps x", 2, 'steps: expected a number of at least 1, found "x".'),
        (
            "train nowhere --out run --init wiki --steps 1 --keywords 3 x",
            2,
            'keywords: expected a whole number, found "x"',
        ),
        (
            "train nowhere --out run --init wiki --steps 1",
            1,
            "a manifest.json in nowhere, found none. Make it",
        ),
        ("train nowhere --out run --system cgmh --steps 1", 1, "manifest.json in nowhere, found none."),
        ("train nowhere --out run --backbone smollm2 --steps 1", 1, "found no file at nowhere. Check the path."),
    ],
)
def test_what_cannot_be_is_one_sentence_before_anything_heavy_is_imported(
    tmp_path: Path, arguments: str, code: int, sentence: str
) -> None:
    program = (
        "import sys; from pointer.cli import main\n"
        "try: main()\n"
        "finally: print({'torch', 'transformers', 'numpy', 'tokenizers', 'pyarrow'} & set(sys.modules) or 'light')"
    )
    command = [sys.executable, "-c", program, *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "light\n" and done.returncode == code
    assert done.stderr.startswith("pointer: ") and done.stderr.count("\n") == 1 and sentence in done.stderr


@pytest.mark.parametrize(
    ("command", "kind", "ranges", "choices", "names"),
    [
        ("generate", Options, options.RANGES, options.CHOICES, {"n": "-n"}),
        ("train", TrainingSettings, settings.RANGES, settings.CHOICES, {}),
    ],
)
def test_help_shows_every_field_with_its_whole_sentence_and_its_limits(
    pointer: Run, command: str, kind: type, ranges: Ranges, choices: Choices, names: dict[str, str]
) -> None:
    printed = pointer(command, "--help", COLUMNS="80").stdout
    assert max(map(len, printed.splitlines())) <= 80
    said = " ".join(printed.replace("│", " ").split())
    for field in fields(kind):
        assert f" {names.get(field.name, '--' + field.name.replace('_', '-'))} " in said
        assert sentences(kind)[field.name].replace("`", "") in said
        assert expected(field.name, ranges, choices).removeprefix("a number ") in said


COMMANDS = [*HEADING, "judge new", "judge serve", "judge rate", "judge report"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_cuts_nothing_and_ends_with_examples(pointer: Run, command: str) -> None:
    printed = pointer(*command.split(), "--help", COLUMNS="80").stdout
    assert "…" not in printed and "..." not in printed.replace("]...", "").replace("}...", "").replace("train ...", "")
    if command != "judge":  # a group, whose commands have examples
        assert f"pointer {command}" in printed.split("Examples:")[1]


def test_help_of_all_commands_has_the_whole_first_sentence_of_each_under_a_heading(pointer: Run) -> None:
    printed = pointer("--help", COLUMNS="80").stdout
    said = " ".join(printed.replace("│", " ").split())
    assert all(f"─ {heading} ─" in printed for heading in HOMES)
    for name, command in Commands().items():
        about = " ".join(str(command.help).split("\n\n")[0].split())
        assert f" {name} {about}" in said


def test_options_stand_in_groups_with_the_advanced_ones_last(pointer: Run) -> None:
    printed = pointer("generate", "--help").stdout
    headings = re.findall(r"─ (\w+) ─", printed)
    assert headings == ["Arguments", "Options", "Writing", "Constraints", "Output", "Advanced"]
    groups = dict(zip(headings, re.split(r"╭─ \w+ ─", printed)[1:], strict=True))
    assert "--best-of" in groups["Writing"] and "--forbid " in groups["Constraints"]
    assert "--show-stages" in groups["Output"] and "--noi-offset" in groups["Advanced"]


def test_the_command_alone_shows_three_to_try(pointer: Run) -> None:
    done = pointer()
    tries = [line.split("#")[0].split()[1] for line in done.stdout.splitlines() if line.startswith("  pointer ")]
    assert done.returncode == 0 and len(tries) == 3 and {*tries} <= {*HEADING}


def in_a_terminal(command: str, **environment: str) -> str:
    """What a command prints where there is a terminal."""
    ours, theirs = pty.openpty()
    everything = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    everything |= {"TERM": "xterm-256color", "COLUMNS": "80"} | environment
    arguments = [sys.executable, "-m", "pointer", *shlex.split(command)]
    with subprocess.Popen(arguments, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=everything):
        os.close(theirs)
        printed = b""
        with contextlib.suppress(OSError):  # how Linux says that the other end is closed
            while part := os.read(ours, 4096):
                printed += part
    os.close(ours)
    return printed.decode()


COLOUR = re.compile(r"\x1b\[[\d;]*(?:3[0-8]|9[0-7])[\d;]*m")


@pytest.mark.parametrize("command", ["generate --help", "generate --model wiki river church --show-stages"])
def test_there_are_colours_on_a_terminal_alone_and_none_for_who_wants_none(pointer: Run, command: str) -> None:
    assert COLOUR.search(in_a_terminal(command))
    assert not COLOUR.search(in_a_terminal(command, NO_COLOR="1"))
    assert "\x1b" not in pointer(*shlex.split(command)).stdout


def test_a_shell_completes_commands_once_it_is_told_to(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("pointer")
    environment = os.environ | {"HOME": str(tmp_path), "PATH": f"{command.parent}:{os.environ['PATH']}"}
    script = """
        pointer --install-completion > installed || exit 1
        source ~/.bash_completions/pointer.sh
        COMP_WORDS=(pointer gen) COMP_CWORD=1
        $(complete -p pointer | sed 's/.*-F \\([^ ]*\\).*/\\1/') pointer gen pointer
        echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.stdout.strip() == "generate", done.stderr
    assert "pointer.sh" in (tmp_path / ".bashrc").read_text()


def test_options_of_a_command_make_the_object() -> None:
    found: list[Options | dict[str, Any]] = []

    @with_options("made", Options, options.RANGES, options.CHOICES, {}, n="-n")
    def whole(word: str, *, made: Options) -> None:
        found.append(made)

    @with_options("given", TrainingSettings, settings.RANGES, settings.CHOICES, {}, given_only=True)
    def part(*, given: dict[str, Any]) -> None:
        found.append(given)

    def run(command: Command, arguments: str) -> object:
        app = typer.Typer()
        app.command()(command)
        app(arguments.split(), standalone_mode=False)
        return found.pop()

    assert run(whole, "a") == Options()
    assert run(whole, "a -n 2 --decoding sample --forbid x --forbid y --lock-end --length 9 --top-p 0.5") == Options(
        decoding="sample", n=2, forbid=("x", "y"), lock_end=True, length=9, top_p=0.5
    )
    assert run(part, "") == {}
    assert run(part, "--keywords 1 4 --half --steps 3") == {"keywords": (1, 4), "half": True, "steps": 3}


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
    assert {"pointer", "python", "device", "models", "packages", "optional parts"} <= set(found)
    assert found["packages"]["onnxruntime"] != "missing" and found["optional parts"]["keywords"] == "present"
    assert pointer("info").stdout.startswith("pointer:")
    assert pointer("--version").stdout == f"pointer {found['pointer']}\n"


def test_long_work_tells_how_far_it_is_where_there_is_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text("river; church\nfood; music\n")
    program = "from pointer.cli import main, shared\nshared.BETWEEN_LINES = 0.0\nmain()\n"
    asked = ["generate", "-f", "keys.txt", "-o", "texts.jsonl", "--model", "wiki", "--batch-size", "1"]
    done = subprocess.run([sys.executable, "-c", program, *asked], cwd=tmp_path, capture_output=True, text=True)
    assert "pointer: generating 1\npointer: generating 2\n" in done.stderr and not done.stdout


def test_info_names_the_extra_that_brings_what_is_missing() -> None:
    program = (
        "from importlib import metadata\n"
        "version = metadata.version\n"
        "def without_ray(name):\n"
        "    if name == 'ray': raise metadata.PackageNotFoundError(name)\n"
        "    return version(name)\n"
        "metadata.version = without_ray\n"
        "from pointer.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program, "info"], capture_output=True, text=True)
    assert 'missing ray: pip install "pointer-text[cluster]"' in done.stdout  # brackets mean colours to a console
