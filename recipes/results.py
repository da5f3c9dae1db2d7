"""Writes the tables of docs/results.md from the files in results/, or says where a document and the files disagree.

    python recipes/results.py            # at the end of recipes/tables.sh, which writes the files
    recipes/tables.sh --check            # changes nothing; a test asks this, too

The files are what `pointer compare --json` and `pointer judge report --json` print. A table stands between two marks:

    <!-- table news-all: NIST-4, BLEU-2, BLEU-4 -->
    <!-- end of table -->

where `news-all` is `results/news-all.json`, and the names behind the colon are its columns (none for a judge report).
Figures elsewhere are not written but looked up: a number under the name of a metric in a table, or right behind it in
a sentence, has to be that metric of some system in some file, or stand under that name on the page. This is asked of
the README's results and of the scores of model cards.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pointer.errors import DataError
from pointer.evaluation.report import table_of
from pointer.judging.report import tables_of

ROOT = Path(__file__).parents[1]
MARKED = re.compile(r"(<!-- table ([\w-]+)(?:: ([^>]+?))? -->\n).*?(<!-- end of table -->)", re.DOTALL)
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
SECTIONS = {"README.md": "Results"} | {
    f"src/pointer/checkpoints/{name}/README.md": "Scores" for name in ("wiki", "reviews", "news", "writer")
}
"""Where documents besides the page have figures of systems."""
METRICS = (
    *(f"{kind}-{n}" for kind in ("NIST", "BLEU", "Entropy") for n in range(1, 5)),
    *("METEOR", "Dist-1", "Dist-2", "PPL", "PPL ratio", "Length", "Coverage", "Repeated 3-gram", "Within 4 stages"),
)


class Figure(NamedTuple):
    """A number in a document, and the metric that it is of."""

    metric: str
    number: str

    @property
    def decimals(self) -> int:
        """How many are given."""
        return len(self.number.partition(".")[2])

    def is_rounded(self, value: float) -> bool:
        """Can this be what is shown of a value?"""
        return abs(float(self.number.replace(",", "")) - value) <= 0.5 * 10**-self.decimals + 1e-9


def composed(page: str, results: Path) -> str:
    """The page with its tables as the files have them."""

    def table(found: re.Match[str]) -> str:
        begin, name, columns, end = found.groups()
        return f"{begin}\n{_table(results / f'{name}.json', columns)}\n\n{end}"

    return MARKED.sub(table, page)


def _table(path: Path, columns: str | None) -> str:
    if not path.is_file():
        raise DataError(f"Expected the output of a recipe at {path}, found no file.", "Run recipes/tables.sh.")
    report = json.loads(path.read_text("utf-8"))
    if columns is None:
        return "\n\n".join(table.markdown() for table in tables_of(report))
    names = [name.strip() for name in columns.split(",")]
    for name in names:
        if not any(name in system["metrics"] for system in report["systems"]):
            raise DataError(f'Expected the column "{name}" in {path}, found no such metric.', "Correct the page.")
    return table_of(report, names).markdown()


def figures(text: str) -> Iterator[Figure]:
    """The figures of metrics: under a name in a table, or right behind it in a sentence or a cell."""
    names = {name.lower(): name for name in METRICS}
    columns: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip(" *") for cell in line.strip()[1:-1].split("|")] if line.startswith("|") else []
        is_head = any(cell.lower() in names for cell in cells)
        columns = cells if is_head else columns if cells else []
        for name, cell in zip(columns, cells, strict=False):
            number = NUMBER.match(cell)
            if not is_head and number and name.lower() in names:
                yield Figure(names[name.lower()], number[0])
        for name in METRICS:
            for said in re.finditer(rf"\b{re.escape(name)} ({NUMBER.pattern})", line):
                yield Figure(name, said[1])


def filed(results: Path) -> Iterator[tuple[str, float]]:
    """Every metric of every system, and of people, in the files."""
    for path in sorted(results.glob("*.json")):
        report: dict[str, Any] = json.loads(path.read_text("utf-8"))
        for system in (*report.get("systems", ()), *([report["human"]] if "human" in report else [])):
            for name, metric in system["metrics"].items():
                yield name, metric["value"]


def section(text: str, title: str) -> str:
    """What stands below a heading of the second level."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def complaints(root: Path) -> Iterator[str]:
    """What does not agree, a sentence each."""
    results, page = root / "results", (root / "docs" / "results.md").read_text("utf-8")
    fresh = composed(page, results)
    for now, then in zip(MARKED.finditer(page), MARKED.finditer(fresh), strict=True):
        if now[0] != then[0]:
            yield f"docs/results.md: the table {now[2]} is not what results/{now[2]}.json has."
    shown = [(one.metric, one.decimals, float(one.number.replace(",", ""))) for one in figures(page)]
    known = list(filed(results))
    for name, title in SECTIONS.items():
        for figure in figures(section((root / name).read_text("utf-8"), title)):
            in_files = any(metric == figure.metric and figure.is_rounded(value) for metric, value in known)
            on_page = any(
                metric == figure.metric and decimals >= figure.decimals and figure.is_rounded(value)
                for metric, decimals, value in shown
            )
            if not in_files and not on_page:
                yield f"{name}: {figure.metric} {figure.number} is in no file of results/ and not on docs/results.md."


def main() -> None:
    """Write the page, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where page and files disagree")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project, or something laid out like it")
    arguments = parser.parse_args()
    page = arguments.root / "docs" / "results.md"
    try:
        if arguments.check:
            found = list(complaints(arguments.root))
            print("\n".join(found) or "The page and all figures agree with the files.")
            sys.exit(1 if found else 0)
        page.write_text(composed(page.read_text("utf-8"), arguments.root / "results"), "utf-8")
    except DataError as error:
        sys.exit(f"results.py: {error}")


if __name__ == "__main__":
    main()
