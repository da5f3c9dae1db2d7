"""What the README tells people to type works as written, in an empty folder."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import SAMPLE, Run

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    # One does not end (tests/serving starts it), the other needs a network (tests/test_base.py has a stand-in for it).
    if line.startswith("pointer ") and not line.startswith(("pointer serve", "pointer fetch"))
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_works(pointer: Run, tmp_path: Path, command: str) -> None:
    shutil.copy(SAMPLE, tmp_path / "mine.txt")
    (tmp_path / "keys.txt").write_text("river; church\nfood; music; loud\n")
    lines = SAMPLE.read_text("utf-8").splitlines()[:12]
    (tmp_path / "refs.txt").write_text("\n".join(lines) + "\n", "utf-8")
    (tmp_path / "theirs.txt").write_text("\n".join(reversed(lines)) + "\n", "utf-8")
    ours = [{"text": line.lower(), "constraints": line.split()[:2]} for line in lines]
    (tmp_path / "ours.jsonl").write_text("\n".join(map(json.dumps, ours)) + "\n", "utf-8")
    if command.startswith("pointer train") or "--model rival" in command:
        assert pointer("prepare", "mine.txt", "--out", "data").returncode == 0
    if "--model rival" in command:
        _run(pointer, next(one for one in COMMANDS if "--out rival" in one))
    done = _run(pointer, command)
    written = re.search(r" -o (\S+)", command)
    assert done.stdout.strip() or (written and (tmp_path / written[1]).stat().st_size)


def _run(pointer: Run, command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command as it stands, but for what would take long."""
    short = re.sub(r"--minutes \d+", r"\g<0> --steps 2", command)
    done = pointer(*shlex.split(short, comments=True)[1:])
    assert done.returncode == 0, done.stderr
    return done


def test_the_python_of_the_readme_works(capsys: pytest.CaptureFixture[str]) -> None:
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(block, {})
    assert "breakfast" in capsys.readouterr().out


@pytest.mark.parametrize("document", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda d: d.name)
def test_every_link_to_a_file_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", document.read_text("utf-8")):
        assert (document.parent / target).exists(), target


def test_the_readme_names_make_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"^make (\w+)", README, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
