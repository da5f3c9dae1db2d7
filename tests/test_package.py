"""What the package promises to those who import it."""

import re
import subprocess
import sys
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


def test_the_lock_has_the_pinned_versions_with_their_hashes() -> None:
    root = Path(__file__).parents[1]
    pinned = re.findall(r"^([\w.-]+)==([\w.]+)$", (root / "constraints.txt").read_text(), re.MULTILINE)
    locked = re.findall(
        r"^([\w.-]+)==(\S+) --hash=sha256:[0-9a-f]{64}$", (root / "requirements.lock").read_text(), re.M
    )
    versions = {re.sub("[_.]", "-", name.lower()): version for name, version in locked}
    assert len(locked) == len((root / "requirements.lock").read_text().splitlines()) - 1 > 100
    for name, version in pinned:
        assert versions.get(re.sub("[_.]", "-", name.lower()), version) == version, name


def test_the_demo_installs_what_it_needs_and_the_image_what_is_pinned() -> None:
    root = Path(__file__).parents[1]
    said = subprocess.run(["make", "-n", "-B", "demo"], capture_output=True, text=True, cwd=root).stdout
    assert '".[writer]"' in said and "[dev]" not in said and "source .venv/bin/activate" in said
    image = (root / "Dockerfile").read_text()
    assert image.count("pip install") == image.count("--constraint constraints.txt") == 1 and "torch" not in image
