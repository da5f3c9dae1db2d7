"""Who may import whom, and that everything imported from elsewhere is declared."""

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest

import pointer

PACKAGE = Path(pointer.__file__).parent
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"

# What everything may import; it imports nothing else of the package, and never torch.
GROUND = {
    "errors", "fields", "storage", "english", "stage", "checkpoint", "text", "writing", "language", "vocabulary",
    "picture", "card", "integrity", "progress",
}  # fmt: skip

# What each part may import beside that: a sub-package, or a module of the top level.
ALLOWED = {
    "engines": "",
    "prepare": "engines",
    "model": "runtime",
    "gguf": "",
    "base": "gguf",
    "runtime": "base",
    "causal": "base model runtime",
    "training": "base causal model prepare",
    "decoding": "base causal engines model prepare runtime",
    "runs": "base causal decoding training",
    "evaluation": "base model prepare",
    "web": "",
    "llm_plugin": "decoding",
    "pipelines": "decoding",
    "judging": "evaluation web",
    "baselines": "decoding model prepare runtime training",
    "information": "",
    "serving": "base decoding model prepare web",
    "cli": "base baselines decoding engines evaluation information judging model prepare runs runtime serving training",
    "__main__": "cli",
    "__init__": "decoding model prepare runs training",  # the public names, which are imported when they are used
}


class Import(NamedTuple):
    """`from MODULE import NAME`, or `import MODULE` without a name, somewhere in a file: in a function, too."""

    file: Path
    module: str
    name: str

    @property
    def part(self) -> str:
        """The part of our package that imports."""
        return self.file.relative_to(PACKAGE).parts[0].removesuffix(".py")

    @property
    def imported_part(self) -> str:
        """The part of our package that is imported."""
        _, *inside = self.module.split(".")
        if inside:
            return inside[0]
        is_part = (PACKAGE / self.name).is_dir() or (PACKAGE / f"{self.name}.py").is_file()
        return self.name if is_part else "__init__"


def imports() -> Iterator[Import]:
    """All imports of the package, those for type checkers included."""
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                yield from (Import(file, name.name, "") for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0 and node.module, f"{file}: expected an absolute import"
                yield from (Import(file, node.module, name.name) for name in node.names)


ALL = list(imports())
OURS = [one for one in ALL if one.module.split(".")[0] == "pointer"]
OTHERS = [one for one in ALL if one.module.split(".")[0] not in {"pointer", *sys.stdlib_module_names}]


def test_parts_import_only_what_they_may() -> None:
    found = {(one.part, one.imported_part) for one in OURS if one.part != one.imported_part}
    found = {edge for edge in found if edge[1] != "__init__"}  # the version
    assert {part for part, _ in found} <= {*GROUND, *ALLOWED}, "say in ALLOWED what a new part may import"
    assert not {edge for edge in found if edge[1] not in {*GROUND, *ALLOWED.get(edge[0], "").split()}}


def test_the_allowed_graph_points_one_way() -> None:
    """Whoever can be imported by a part cannot import it, not even by way of others."""
    above = {part: set(below.split()) for part, below in ALLOWED.items()}

    def reached(part: str) -> set[str]:
        return set(above[part]).union(*(reached(one) for one in above[part]))

    assert not [part for part in above if part in reached(part)]


def test_the_server_and_the_command_line_meet_in_the_command_that_starts_it() -> None:
    meeting = {one.file.name for one in OURS if {one.part, one.imported_part} == {"cli", "serving"}}
    assert meeting == {"serve.py"}


@pytest.mark.parametrize("heavy", ["torch", "transformers"])
def test_preparing_data_and_what_all_share_need_no_model_library(heavy: str) -> None:
    light = {*GROUND, "prepare"}
    assert not [one for one in OTHERS if one.part in light and one.module.split(".")[0] == heavy]


def test_no_module_imports_a_private_name_of_another() -> None:
    assert not [one for one in OURS if re.match(r"_[^_]", one.name)]


def test_everything_that_is_imported_is_declared() -> None:
    tomllib = pytest.importorskip("tomllib")  # since Python 3.11
    project = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    declared = {_plain(re.split(r"[\[<>=!~; ]", line)[0]) for lines in lists for line in lines}
    homes = packages_distributions()
    missing = {}
    for one in OTHERS:
        name = one.module.split(".")[0]
        if not {_plain(home) for home in homes.get(name, [name])} & declared:
            missing[name] = str(one.file)
    assert not missing


def _plain(distribution: str) -> str:
    """The name of a distribution in the form in which equal names are equal."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
