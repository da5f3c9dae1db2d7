"""Commands after generation: evaluate and compare."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pointer.cli.help import ADVANCED, OUTPUT
from pointer.cli.shared import Json, Seed, bar, show_table
from pointer.errors import DataError, UsageError

if TYPE_CHECKING:
    from pointer.evaluation.outputs import System
    from pointer.evaluation.report import Example, Report

References = Annotated[str, typer.Option(help="What people wrote, one text a line.")]
MaybeReferences = Annotated[str | None, typer.Option(help="What people wrote, one text a line.")]
ConstraintFile = Annotated[
    str | None, typer.Option("--constraints", help="What each text had to contain, a list a line.")
]
Separator = Annotated[str, typer.Option(help="What stands between constraints in one line.")]
Raw = Annotated[bool, typer.Option("--raw", help="Take lines as they are: keep case, split at blanks only.")]
LanguageModel = Annotated[
    list[str] | None,
    typer.Option(
        help="Scorer of perplexity: embedded (unless said), smollm2, none, kenlm:FILE, or a causal model (folder or "
        "Hub id). Give it twice to hear two."
    ),
]
MeteorJar = Annotated[Path | None, typer.Option(help="Also METEOR 1.5, by this jar (needs Java).")]
Bootstrap = Annotated[
    int, typer.Option(help="How many bootstrap samples to draw; 0 for no intervals.", rich_help_panel=ADVANCED)
]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print markdown, with signatures.", rich_help_panel=OUTPUT)]
Latex = Annotated[bool, typer.Option("--latex", help="Print a LaTeX table.", rich_help_panel=OUTPUT)]
Plot = Annotated[
    Path | None, typer.Option(help="Also draw the numbers into this .png, .svg or .pdf.", rich_help_panel=OUTPUT)
]


def evaluate(
    output: Annotated[str, typer.Argument(help="What `pointer generate -o` wrote, or texts, one a line.")],
    references: MaybeReferences = None,
    benchmark: Annotated[str | None, typer.Option(help="A public benchmark: commongen.")] = None,
    sets: Annotated[str | None, typer.Option(help="Of a benchmark: its concept sets, jsonl.")] = None,
    meteor_jar: MeteorJar = None,
    constraints: ConstraintFile = None,
    separator: Separator = ";",
    raw: Raw = False,
    lm: LanguageModel = None,
    bootstrap: Bootstrap = 1000,
    seed: Seed = 0,
    markdown: Markdown = False,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Measure texts beside references: the paper's metrics, with intervals and signatures.

    Examples:
        pointer evaluate ours.jsonl --references refs.txt
        pointer evaluate ours.jsonl --references refs.txt --markdown --plot table.png
    """
    _check_forms(plot, as_json, markdown)
    if benchmark is not None:
        _benchmark(output, benchmark, sets, meteor_jar, as_json, markdown)
        return
    if references is None or sets is not None:
        raise UsageError(
            "Expected --references, or --benchmark with --sets, found neither or both.", "Give one of the two."
        )
    report, _ = _measure([output], references, constraints, separator, raw, lm, bootstrap, seed, meteor_jar)
    _write(report, "", as_json, markdown, False, plot, [])


def _benchmark(
    output: str, benchmark: str, sets: str | None, meteor_jar: Path | None, as_json: bool, markdown: bool
) -> None:
    """Print the figures of a benchmark."""
    if benchmark != "commongen":
        raise UsageError(f'benchmark: expected commongen, found "{benchmark}".', "Choose this one.")
    if sets is None:
        raise UsageError("sets: expected the concept sets of the benchmark, found none.", "Give --sets FILE.")
    from pointer.evaluation.benchmark import Benchmark, read_concept_sets
    from pointer.evaluation.outputs import read_system
    from pointer.evaluation.table import Cell, Table

    system = read_system(output)
    found = Benchmark(system, read_concept_sets(sets)).figures(meteor_jar)
    rows = [[Cell(one.name), Cell(f"{one.value:.2f}"), Cell(one.signature)] for one in found]
    table = Table("", ["", system.name, "signature"], rows)
    if as_json:
        print(json.dumps({"system": system.name, "figures": [one._asdict() for one in found]}, indent=2))
    elif markdown:
        print(table.markdown())
    else:
        show_table(table)


def compare(
    outputs: Annotated[
        list[str], typer.Argument(help="Files of `pointer generate -o` or of texts; NAME=FILE names one.")
    ],
    references: References,
    constraints: ConstraintFile = None,
    separator: Separator = ";",
    raw: Raw = False,
    lm: LanguageModel = None,
    meteor_jar: MeteorJar = None,
    bootstrap: Bootstrap = 1000,
    seed: Seed = 0,
    examples: Annotated[int, typer.Option(min=0, help="Also show so many lines as each system wrote them.")] = 0,
    title: Annotated[str, typer.Option(help="Of the table.")] = "",
    markdown: Markdown = False,
    latex: Latex = False,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Put systems beside each other and beside people: the paper's table, with significance.

    Examples:
        pointer compare ours.jsonl theirs.txt --references refs.txt --examples 2
        pointer compare first=ours.jsonl second=theirs.txt --references refs.txt --latex
    """
    from pointer.evaluation.report import examples as draw

    _check_forms(plot, as_json, markdown, latex)
    report, systems = _measure(outputs, references, constraints, separator, raw, lm, bootstrap, seed, meteor_jar)
    shown = draw(systems, report.evaluator.references, examples, seed) if examples > 0 else []
    _write(report, title, as_json, markdown, latex, plot, shown)


def _check_forms(plot: Path | None, *wanted: bool) -> None:
    from pointer.evaluation.drawing import check_picture

    if sum(wanted) > 1:
        raise UsageError("Expected one form of output, found several.", "Choose --json, --markdown or --latex.")
    if plot is not None:
        check_picture(plot)


def _measure(
    outputs: list[str],
    references: str,
    constraints: str | None,
    separator: str,
    raw: bool,
    lm: list[str] | None,
    bootstrap: int,
    seed: int,
    meteor_jar: Path | None,
) -> "tuple[Report, list[System]]":
    from pointer.evaluation.metrics import Evaluator
    from pointer.evaluation.outputs import read_texts
    from pointer.evaluation.perplexity import open_scorer
    from pointer.evaluation.report import Report

    expected = read_texts(references)
    systems = [_system(output, references, expected, constraints, separator) for output in outputs]
    with bar() as progress:
        scorers = tuple(open_scorer(name) for name in _scorers(lm or ["embedded"]))
        evaluator = Evaluator(expected, raw, scorers, bootstrap, seed, progress, meteor_jar)
        found = []
        for done, system in enumerate(systems):
            progress("measuring", done, len(systems) + 1)
            found.append(evaluator.evaluate(system))
        progress("measuring", len(systems), len(systems) + 1)
        return Report(evaluator, found, evaluator.human()), systems


def _scorers(lm: list[str]) -> list[str]:
    """The names of the scorers that are wanted."""
    if len(set(lm)) < len(lm) or ("none" in lm and len(lm) > 1):
        found = ", ".join(lm)
        raise UsageError(f"lm: expected different scorers, or none alone, found {found}.", "Leave one away.")
    return [] if lm == ["none"] else lm


def _system(
    output: str, references: str, expected: tuple[str, ...], constraints: str | None, separator: str
) -> "System":
    from pointer.evaluation.outputs import check_aligned, named_file, read_system

    name, path = named_file(output)
    system = read_system(path, name)
    check_aligned(path, system.texts, references, expected)
    if constraints is not None:
        asked = read_constraints(constraints, separator)
        check_aligned(path, system.texts, constraints, asked)
        system = replace(system, constraints=asked)
    return system


def read_constraints(path: str, separator: str = ";") -> tuple[tuple[str, ...], ...]:
    """The constraints of every text, a list a line as `pointer generate -f` reads them."""
    from pointer.decoding.bulk import read_lists
    from pointer.prepare.corpus import Skipped

    found = []
    for number, asked in enumerate(read_lists(path, separator), 1):
        if isinstance(asked, Skipped) or asked.line != number:
            reason = asked.reason if isinstance(asked, Skipped) else "expected constraints, found an empty line"
            raise DataError(f"{path}, line {number}: {reason}.", "Every text needs its constraints.")
        if asked.constraints.phrases is None:
            raise DataError(
                f"{path}, line {number}: expected words and phrases in order, found {asked.constraints}.",
                "Texts of `pointer generate -o` say themselves which forms and which order they have.",
            )
        found.append(asked.constraints.phrases)
    return tuple(found)


def _write(
    report: "Report", title: str, as_json: bool, markdown: bool, latex: bool, plot: Path | None, shown: "list[Example]"
) -> None:
    from pointer.evaluation import report as reports

    if as_json:
        found = report.to_dict()
        if shown:
            found["examples"] = [one._asdict() for one in shown]
        print(json.dumps(found, indent=2, ensure_ascii=False))
    elif latex:
        print("\n\n".join([report.latex(title), *([reports.examples_latex(shown)] if shown else [])]))
    elif markdown:
        print("\n\n".join([report.markdown(title), *([reports.examples_markdown(shown)] if shown else [])]))
    else:
        show_table(report.transposed())
        print(" ".join(report.notes()))
        print("pointer: --markdown and --json give the signature of every number.", file=sys.stderr)
        _show_examples(shown)
    if plot is not None:
        reports.plot(report, plot)
        print(f"pointer: wrote {plot}", file=sys.stderr)


def _show_examples(shown: "list[Example]") -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for one in shown:
        console.print(f"\nline {one.line}: {', '.join(one.constraints)}", style="dim", markup=False)
        for name, text in one.marked("\0", "\1").items():
            line = Text(f"{name}: ", "dim")
            for part in re.split("(\0[^\1]*\1)", text):
                line.append(part.strip("\0\1"), "bold cyan" if part.startswith("\0") else "default")
            console.print(line)
