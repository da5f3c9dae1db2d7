"""Writes the figures of docs/results*.md and of cards from the files in results/, or says where they disagree.

    python recipes/results.py            # at the end of recipes/tables.sh, which writes the files
    recipes/tables.sh --check            # changes nothing; a test asks this, too
    python recipes/results.py --renew results/news-all.json NEW.json   # rows of systems that were measured again

The files are what `pointer compare --json` and `pointer judge report --json` print, or pieces of a page. A table stands
between two marks, and so does a figure in a sentence:

    <!-- table news-all: NIST-4, BLEU-2, BLEU-4 -->
    <!-- end of table -->
    It reaches <!-- news-all pointer-greedy: BLEU-4 -->5.18 %<!-- -->.

where `news-all` is `results/news-all.json`, or `results/news-all.md`, which is put in as it is, and the names behind
the colon are its columns (none for a judge report). Figures elsewhere are not written but looked up: a number under the
name of a metric in a table, or right behind it in a sentence, has to be that metric of some system in some file, or
stand under that name on the page. This is asked of the README's results and of the scores of model cards.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pointer.errors import DataError
from pointer.evaluation.report import shown, table_of
from pointer.judging.report import tables_of

ROOT = Path(__file__).parents[1]
MARKED = re.compile(r"(<!-- table ([\w-]+)(?:: ([^>]+?))? -->\n).*?(<!-- end of table -->)", re.DOTALL)
VALUE = re.compile(r"(<!-- ([\w-]+) ([\w-]+): ([^>]+?) -->)(.*?)(<!-- -->)")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
SECTIONS = {"README.md": "Results"} | {
    f"src/pointer/checkpoints/{name}/README.md": "Scores" for name in ("wiki", "reviews", "news", "writer")
}
"""Where documents besides the page have figures of systems."""
PAGES = ("docs/results.md", "docs/results-texts.md", *SECTIONS)
"""Where tables and figures are written."""
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
    """The page with its tables and figures as the files have them."""

    def table(found: re.Match[str]) -> str:
        begin, name, columns, end = found.groups()
        return f"{begin}\n{_table(results / name, columns)}\n\n{end}"

    def value(found: re.Match[str]) -> str:
        begin, name, system, metric, _, end = found.groups()
        return begin + _value(results / f"{name}.json", system, metric) + end

    return VALUE.sub(value, MARKED.sub(table, page))


def _report(path: Path) -> Any:
    if not path.is_file():
        raise DataError(f"Expected the output of a recipe at {path}, found no file.", "Run recipes/tables.sh.")
    return json.loads(path.read_text("utf-8"))


def _value(path: Path, system: str, metric: str) -> str:
    report = _report(path)
    for one in (*report["systems"], *([report["human"]] if "human" in report else [])):
        if one["name"] == system and metric in one["metrics"]:
            return shown(one["metrics"][metric]["value"], one["metrics"][metric]["percent"])
    raise DataError(f'Expected {metric} of "{system}" in {path}, found no such figure.', "Correct the page.")


def _table(name: Path, columns: str | None) -> str:
    piece, path = name.with_suffix(".md"), name.with_suffix(".json")
    if piece.is_file():
        return piece.read_text("utf-8").strip()
    report = _report(path)
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


def _pages(root: Path) -> list[str]:
    return [name for name in PAGES if (root / name).is_file()]


def complaints(root: Path) -> Iterator[str]:
    """What does not agree, a sentence each."""
    results, pages = root / "results", {name: (root / name).read_text("utf-8") for name in _pages(root)}
    for name, page in pages.items():
        fresh = composed(page, results)
        for kind, marks in (("table", MARKED), ("figure", VALUE)):
            for now, then in zip(marks.finditer(page), marks.finditer(fresh), strict=True):
                if now[0] != then[0]:
                    yield f"{name}: the {kind} {now[2]} is not what results/{now[2]} has."
    stated = figures(pages[PAGES[0]])
    shown = [(one.metric, one.decimals, float(one.number.replace(",", ""))) for one in stated]
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


def renewed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """A report with the rows of another in place of its own, where a model was trained on and its rivals were not.

    Both have the same texts of people and the same first system, whose figures may differ by a fiftieth (on another
    processor int8 rounds some texts into others): then it is about what measuring all of them once more would give.
    """
    pairs = zip(*((report["systems"][0], report["human"]) for report in (before, after)), strict=True)
    for (old, new), most in zip(pairs, (0.02, 0.0), strict=True):
        for name in old["metrics"].keys() & new["metrics"].keys() - {"Seconds"}:
            values = old["metrics"][name]["value"], new["metrics"][name]["value"]
            if abs(values[0] - values[1]) > most * abs(values[0]):
                raise DataError(
                    f"Expected the same first system and the same texts of people in both reports, found a {name} of "
                    f"{values[0]:.2f} and {values[1]:.2f}.",
                    "Measure the systems beside the first one of the report, on its lists.",
                )
    rows = {system["name"]: system for system in (*before["systems"], *after["systems"][1:])}
    first = before["systems"][0]["name"]
    systems = [rows.pop(first), *(rows[name] for name in sorted(rows))]
    p_values = {(one["metric"], *one["systems"]): one for one in before["p_values"]}
    p_values |= {(one["metric"], *one["systems"]): one for one in after["p_values"]}
    return before | {"systems": systems, "p_values": list(p_values.values())}


def main() -> None:
    """Write the page, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where page and files disagree")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project, or something laid out like it")
    parser.add_argument("--renew", type=Path, nargs=2, metavar=("REPORT", "NEW"), help="put rows of NEW into REPORT")
    arguments = parser.parse_args()
    try:
        if arguments.renew:
            before, after = map(_report, arguments.renew)
            arguments.renew[0].write_text(json.dumps(renewed(before, after), indent=2) + "\n", "utf-8")
            return
        if arguments.check:
            found = list(complaints(arguments.root))
            print("\n".join(found) or "The page and all figures agree with the files.")
            sys.exit(1 if found else 0)
        for page in (arguments.root / name for name in _pages(arguments.root)):
            page.write_text(composed(page.read_text("utf-8"), arguments.root / "results"), "utf-8")
    except DataError as error:
        sys.exit(f"results.py: {error}")


if __name__ == "__main__":
    main()
