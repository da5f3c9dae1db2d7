"""What the package promises to those who import it."""

import re
import subprocess
import sys
import venv
from importlib.resources import files
from pathlib import Path

import pytest

import pointer
from pointer import errors


@pytest.mark.parametrize("name", pointer.__all__)
def test_every_public_name_can_be_used_and_has_a_docstring(name: str) -> None:
    assert getattr(pointer, name).__doc__


def test_public_names_are_all_there_is() -> None:
    assert sorted(pointer.__all__) == sorted(pointer._HOME)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pointer.nothing  # noqa: B018


def test_types_travel_with_the_package() -> None:
    assert (files("pointer") / "py.typed").is_file()


def test_the_error_tree_is_drawn_in_its_docstring() -> None:
    raised = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.PointerError)]
    assert all(error.__name__ in (errors.__doc__ or "") for error in raised)


def test_a_feature_without_its_extra_says_which_one_to_install() -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from pathlib import Path\nfrom pointer import Corpus, Preparation\n"
        "from pointer.prepare.shards import prepare\n"
        "prepare(Preparation(Corpus(('-',))), Path('data'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "Preparing data needs the package pyarrow, which is not installed." in done.stderr
    assert 'Install it with: pip install "pointer-text[train]"' in done.stderr


ROOT = Path(__file__).parents[1]
LOCKED = r"^([\w.-]+)==(\S+)(?: ; .*)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)"


@pytest.mark.parametrize(("name", "least"), [("requirements.lock", 40), ("requirements-dev.lock", 190)])
def test_the_locks_have_the_pinned_versions_with_their_hashes(name: str, least: int) -> None:
    pinned = re.findall(r"^([\w.-]+)==([\w.]+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    text = (ROOT / name).read_text()
    locked = {re.sub("[_.]", "-", package.lower()): version for package, version, _ in re.findall(LOCKED, text, re.M)}
    assert (
        not re.sub(LOCKED, "", text, flags=re.M) and len(locked) >= least
    )  # a package that is not pinned would stand alone
    assert ("torch" in locked) == (name == "requirements-dev.lock")
    for package, version in pinned:
        assert locked.get(re.sub("[_.]", "-", package.lower()), version) == version, package


@pytest.mark.slow
def test_a_fresh_environment_is_made_of_locked_files_alone(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT]
    subprocess.run(wheel, check=True)
    subprocess.run([*install, "--require-hashes", "-r", ROOT / "requirements.lock"], check=True)
    subprocess.run([*install, "--no-deps", *tmp_path.glob("*.whl")], check=True)
    subprocess.run([python, "-m", "pip", "check"], check=True)
    command = [python, "-m", "pointer", "generate", "river; church", "--model", "wiki"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "river" in done.stdout and "church" in done.stdout, done.stderr


@pytest.mark.slow
def test_all_that_development_takes_can_be_had_with_these_hashes(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv")
    uv = [Path(sys.executable).parent / "uv", "pip", "install", "--python", tmp_path / "venv" / "bin" / "python"]
    given = ["--dry-run", "--require-hashes", "-r", ROOT / "requirements-dev.lock"]
    done = subprocess.run([*uv, *given], capture_output=True, text=True)
    assert done.returncode == 0 and "torch==" in done.stderr, done.stderr


def test_the_demo_installs_what_it_needs_and_the_image_what_is_pinned() -> None:
    root = Path(__file__).parents[1]
    said = subprocess.run(["make", "-n", "-B", "demo"], capture_output=True, text=True, cwd=root).stdout
    assert '".[writer]"' in said and "[dev]" not in said and "source .venv/bin/activate" in said
    image = (root / "Dockerfile").read_text()
    assert image.count("pip install") == image.count("--constraint constraints.txt") == 1 and "torch" not in image
