"""What README, quickstart and the help of commands tell people to type works as written, in an empty folder."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SAMPLE, Run

from pointer.cli import Commands

ROOT = Path(__file__).parents[1]
PAGES = {name: (ROOT / name).read_text("utf-8") for name in ("docs/quickstart.md", "docs/integrations.md", "README.md")}


def typed(page: str) -> list[str]:
    """The lines of all blocks that are for a shell."""
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if not line.startswith("#")]


def examples() -> list[str]:
    """The commands with which the help of commands ends."""
    groups = {**Commands(), **Commands()["judge"].commands}
    helps = [command.epilog or "" for command in groups.values()]
    return [line for text in helps for line in text.splitlines() if line.startswith("pointer ")]


NEEDS_MORE = ("pointer serve", "pointer judge serve", "pointer fetch")
"""Two do not end (tests/serving and tests/judging start them), one needs a network (tests/test_base.py stands in)."""
COMMANDS = [
    line
    for line in dict.fromkeys([*(line for page in PAGES.values() for line in typed(page)), *examples()])
    # An adapter needs the base that is fetched; tests/training has a stand-in.
    if line.startswith(("pointer ", "llm ")) and not line.startswith(NEEDS_MORE) and "--backbone" not in line
]
FIRST = {
    "train data": "pointer prepare mine.txt --out data",
    "-f asked.txt": 'pointer keywords refs.txt --max 7 --separator "; " > asked.txt',
    "evaluate written": "pointer generate -f asked.txt -o written.jsonl",
    "--model mine": "pointer train data --init wiki --minutes 30 --out mine",
    "export mine": "pointer train data --init wiki --minutes 30 --out mine",
    "--model rival": "pointer train data --system autoregressive --minutes 40 --out rival",
    "report study": "pointer judge new ours.jsonl theirs.txt --human refs.txt --samples 4 --judges 2 --out study",
    "rate ratings": "pointer judge new --form ratings ours.jsonl --human refs.txt --samples 4 --judges 1 --out ratings",
}
"""What has to be done before a command that has this in it."""


def give_files(folder: Path) -> None:
    """The files that people have when they type the commands."""
    shutil.copy(SAMPLE, folder / "mine.txt")
    (folder / "keys.txt").write_text("river; church\nfood; music; loud\n")
    lines = SAMPLE.read_text("utf-8").splitlines()[:12]
    (folder / "refs.txt").write_text("\n".join(lines) + "\n", "utf-8")
    (folder / "theirs.txt").write_text("\n".join(reversed(lines)) + "\n", "utf-8")
    ours = [{"text": line.lower(), "constraints": line.split()[:2]} for line in lines]
    (folder / "ours.jsonl").write_text("\n".join(map(json.dumps, ours)) + "\n", "utf-8")
    shutil.copytree(ROOT / "tests" / "golden" / "released-tiny", folder / "released")


def done_before(command: str) -> list[str]:
    """What has to be typed before a command, in order."""
    needed = [one for part, one in FIRST.items() if part in command]
    return [line for one in needed for line in (*done_before(one), one)]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works_as_it_is_written(pointer: Run, tmp_path: Path, command: str) -> None:
    give_files(tmp_path)
    for before in done_before(command):
        _run(pointer, before, tmp_path)
    done = _run(pointer, command, tmp_path)
    written = re.search(r" (?:-o|>) (\S+)", command)
    assert done.stdout.strip() or (written and (tmp_path / written[1]).stat().st_size)


def _run(pointer: Run, command: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command as it stands, but for what would take long."""
    command, _, to = _short(command).partition(" > ")
    program, *arguments = shlex.split(command, comments=True)
    if program == "llm":
        environment = os.environ | {"LLM_USER_PATH": str(folder)}
        command_line = [sys.executable, "-m", "llm", *arguments]
        done = subprocess.run(command_line, capture_output=True, text=True, cwd=folder, env=environment)
    else:
        done = pointer(*arguments)
    assert done.returncode == 0, done.stderr
    if to:
        (folder / to).write_text(done.stdout, "utf-8")
    return done


def _short(command: str) -> str:
    return re.sub(r"--minutes \d+|--steps \d+", "--steps 2", command)


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_works(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGES[page], re.DOTALL)
    for block in blocks:
        exec(block, {})
    assert blocks and capsys.readouterr().out.strip()


def test_the_readme_shows_a_text_with_the_words_of_its_python() -> None:
    python, text = re.findall(r"```(?:python|text)\n(.*?)```", PAGES["README.md"], re.DOTALL)
    [words] = re.findall(r'generate\("(.*?)"', python)
    assert re.search(".*".join(words.split("; ")), text) and text.count("\n") == 1


def test_demo_lists_are_among_those_that_were_read() -> None:
    chosen, read = (
        (ROOT / "examples" / name).read_text("utf-8").splitlines() for name in ("demo.txt", "demo-candidates.txt")
    )
    assert len(chosen) >= 5 and len(read) >= 60 and {*chosen} <= {*read}


@pytest.mark.parametrize(
    "document",
    [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))],
    ids=lambda d: d.name,
)
def test_every_link_to_a_file_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", document.read_text("utf-8")):
        assert (document.parent / target).exists(), target


def test_the_readme_names_make_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"^make (\w+)", PAGES["README.md"], re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


SERVED = "http://127.0.0.1:8000"
KEPT = ("PATH", "LANG", "PIP_", "SSL_", "CURL_", "REQUESTS_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""What a machine may need to reach its packages; nothing else of the environment is left."""


def as_a_script(lines: list[str]) -> str:
    """Lines as somebody would type them one after the other, who leaves the server running in another window."""
    script = ["set -eu", "served="]
    for line in lines:
        if line.startswith("pointer serve"):
            wait = f"for i in $(seq 100); do curl -sf {SERVED}/health && break; sleep 1; done"
            script.append(f'[ -n "$served" ] || {{ {line.split("#")[0]} & served=$!; {wait}; }}')
        elif not line.startswith("make test"):  # that is this suite
            script.append(_short(line))
    return "\n".join([*script, '[ -z "$served" ] || kill "$served"', ""])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_everything_can_be_typed_in_a_fresh_clone_with_an_empty_environment(tmp_path: Path) -> None:
    """Needs a network, ten minutes, and port 8000."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    environment = {name: value for name, value in os.environ.items() if name.upper().startswith(KEPT)}
    environment["PATH"] = os.pathsep.join(
        part for part in environment["PATH"].split(os.pathsep) if not Path(part).is_relative_to(ROOT)
    )
    environment["HOME"] = str(tmp_path)

    def run(script: str) -> str:
        command = ["bash", "-xc", script]
        done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    activate = ""
    for name in PAGES:
        subprocess.run(["git", "clean", "-fdxq", "--exclude=.venv"], cwd=clone, check=True)
        give_files(clone)
        page = (clone / name).read_text("utf-8")
        printed = run(activate + as_a_script(typed(page)))
        activate = "source .venv/bin/activate\n"  # as the first page says
    assert "The first text was there after" in printed
    python, text = re.findall(r"```(?:python|text)\n(.*?)```", page, re.DOTALL)
    assert run(f"{activate}python - <<'END'\n{python}END\n") == text
