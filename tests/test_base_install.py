"""What `pip install pointer-text` brings is enough to write, and no more is imported than that."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

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
    ],
)
def test_what_needs_more_says_so_in_one_sentence(program: str, sentence: str) -> None:
    done = alone(
        f"from pointer import Pointer, PointerError\ntry: {program}\nexcept PointerError as error: print(error)"
    )
    assert sentence in done.stdout and "pip install" in done.stdout, done.stderr


@pytest.mark.slow
def test_a_wheel_in_a_clean_environment_writes(tmp_path: Path) -> None:
    root = Path(__file__).parents[1]
    python = tmp_path / "clean" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "clean"], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--constraint", root / "constraints.txt", root]
    subprocess.run(install, check=True)
    listed = subprocess.run([python, "-m", "pip", "list"], check=True, capture_output=True, text=True).stdout
    assert "onnxruntime" in listed and not [name for name in HEAVY if f"\n{name} " in listed]
    done = subprocess.run([python, "-c", WRITES], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
