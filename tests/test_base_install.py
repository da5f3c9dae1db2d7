"""What `pip install pointer-text` brings is enough to write, and no more is imported than that."""

import contextlib
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "onnx", "peft", "accelerate", "pyarrow", "gguf")
WRITES = (
    "from pointer import Pointer\n"
    "text = Pointer.from_pretrained('reviews').generate(['staff', 'coffee']).text\n"
    "assert 'staff' in text.lower() and 'coffee' in text.lower(), text\n"
    "print(text)\n"
)


def needed(distribution: str, seen: set[str]) -> set[str]:
    """A distribution and all that it needs, extras left out."""
    name = re.sub(r"[-_.]+", "-", distribution).lower()
    if name in seen:
        return seen
    seen.add(name)
    for line in metadata.requires(name) or []:
        if "extra ==" not in line:
            try:
                needed(re.split(r"[\s\[<>=!~;(]", line)[0], seen)
            except metadata.PackageNotFoundError:
                continue  # for another platform or an older Python
    return seen


def alone(program: str) -> "subprocess.CompletedProcess[str]":
    """Run a program that can import nothing but the standard library and what a base install brings."""
    allowed = needed("pointer-text", set())
    homes = metadata.packages_distributions()
    hidden = [
        package
        for package, found in homes.items()
        if not {re.sub(r"[-_.]+", "-", one).lower() for one in found} & allowed
    ]
    assert "torch" in hidden and "transformers" in hidden and "numpy" not in hidden
    blocked = f"import sys\nfor name in {hidden!r}: sys.modules[name] = None\n"
    return subprocess.run([sys.executable, "-c", blocked + program], capture_output=True, text=True)


def test_the_base_install_writes() -> None:
    done = alone(WRITES)
    assert done.returncode == 0, done.stderr


def test_writing_with_an_embedded_model_imports_nothing_heavy() -> None:
    heavy = (*HEAVY, "yake", "networkx")
    done = subprocess.run(
        [sys.executable, "-c", WRITES + f"import sys; print({heavy!r} and [n for n in {heavy!r} if n in sys.modules])"],
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("Pointer.from_pretrained('wiki', backend='torch')", "with PyTorch needs the package torch"),
        ("from pointer.runtime.export import export; export('wiki', 'out')", "needs the package onnx"),
        ("from pointer import keywords; keywords('a text')", "Finding keywords needs the package yake"),
        ("from pointer import explain; explain('a text')", "Finding keywords needs the package yake"),
    ],
)
def test_what_needs_more_says_so_in_one_sentence(program: str, sentence: str) -> None:
    done = alone(
        f"from pointer import Pointer, PointerError\ntry: {program}\nexcept PointerError as error: print(error)"
    )
    assert sentence in done.stdout and "pip install" in done.stdout, done.stderr


def claimed() -> list[str]:
    """The Pythons that the package says it runs on."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["classifiers"]
    return [one.rpartition(" ")[2] for one in classifiers if one.startswith("Programming Language :: Python :: 3.")]


def interpreter(version: str) -> str | None:
    """A Python of this machine: on the PATH, or among those of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    names = [f"python{version}", *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    for name in names:
        # What pyenv puts on the PATH is there for every version, and works for those that are switched on.
        with contextlib.suppress(OSError):
            asked = subprocess.run([name, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True)
            if asked.returncode == 0 and asked.stdout.decode().split() == version.split("."):
                return name
    return None


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", [one for one in claimed() if not sys.version.startswith(f"{one}.")])
def test_a_fresh_install_works_on_every_python_that_is_claimed(version: str, tmp_path: Path) -> None:
    # The Python that runs this has the files below in its own run of the tests.
    found = interpreter(version)
    if found is None:
        pytest.skip(f"there is no Python {version} on this machine")
    python = tmp_path / "clean" / "bin" / "python"
    subprocess.run([found, "-m", "venv", tmp_path / "clean"], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt"]
    subprocess.run([*install, f"{ROOT}[serve]", "pytest", "pytest-timeout"], check=True)
    listed = subprocess.run([python, "-m", "pip", "list"], check=True, capture_output=True, text=True).stdout
    assert "onnxruntime" in listed and not [name for name in HEAVY if f"\n{name} " in listed]
    tests = ["tests/test_every_python.py", "tests/abuse/test_forks_and_threads.py"]
    command = [python, "-m", "pytest", "--noconftest", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
