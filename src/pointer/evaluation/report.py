"""Reports: systems beside each other and beside people, as the paper's tables, as JSON, as a plot, in examples."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pointer import __version__
from pointer.errors import UsageError, missing_extra
from pointer.evaluation.metrics import Evaluation, Evaluator, Result, p_value
from pointer.evaluation.outputs import System
from pointer.evaluation.table import Cell, Table, latex_text
from pointer.writing import constraint_spans

FORMAT = 1
"""Of the JSON; `report.schema.json` beside this file describes it."""
SIGNIFICANT = 0.05
HUMAN = "human"

PAPER = (
    *("NIST-1", "NIST-2", "NIST-3", "NIST-4", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR"),
    *("Entropy-1", "Entropy-2", "Entropy-3", "Entropy-4", "Dist-1", "Dist-2", "PPL", "Length"),
)
"""The columns of the paper's table of automatic results, in its order."""


@dataclass(frozen=True)
class Report:
    """Systems measured by one evaluator, and the human text itself."""

    evaluator: Evaluator
    systems: Sequence[Evaluation]
    human: Evaluation

    def __post_init__(self) -> None:
        names = [one.system.name for one in self.systems]
        twice = next((name for name in [*names, HUMAN] if [*names, HUMAN].count(name) > 1), None)
        if twice is not None:
            raise UsageError(f'Expected systems with different names, found "{twice}" twice.', "Name them: NAME=FILE.")

    @property
    def metrics(self) -> list[str]:
        """All that was measured of some system, in order."""
        return list(dict.fromkeys(name for one in self.systems for name in one.results))

    @cached_property
    def p_values(self) -> dict[str, dict[tuple[str, str], float]]:
        """For every metric and every two systems: the paired bootstrap test."""
        found: dict[str, dict[tuple[str, str], float]] = {}
        for one, other in combinations(self.systems, 2):
            for name in one.results.keys() & other.results.keys():
                p = p_value(one.results[name], other.results[name])
                if p is not None:
                    found.setdefault(name, {})[one.system.name, other.system.name] = p
        return found

    def to_dict(self) -> dict[str, Any]:
        """The report for programs, as `report.schema.json` says."""
        return {
            "format": FORMAT,
            "versions": _versions(),
            "settings": {
                "form": self.evaluator.form,
                "bootstrap": self.evaluator.replications,
                "seed": self.evaluator.seed,
                "judge": self.evaluator.judge.signature if self.evaluator.judge else None,
            },
            "texts": len(self.evaluator.references),
            "systems": [_evaluation_dict(one) for one in self.systems],
            "human": _evaluation_dict(self.human),
            "p_values": [
                {"metric": metric, "systems": list(pair), "p": self.p_values[metric][pair]}
                for metric in self.metrics
                for pair in self.p_values.get(metric, {})
            ],
        }

    def table(self, title: str = "") -> Table:
        """A row a system, then the human row: the paper's columns, then all others; the best is bold."""
        rest = [name for name in self.metrics if name not in PAPER]
        columns = [name for name in PAPER if name in self.metrics] + rest
        best = {name: _best([one.results[name] for one in self.systems if name in one.results]) for name in columns}
        rows = [
            [Cell(one.system.name), *(self._cell(one, name, best[name]) for name in columns)] for one in self.systems
        ]
        human = [Cell(HUMAN), *(Cell(shown(self.human.results.get(name))) for name in columns)]
        return Table(title, ["", *columns], [*rows, human])

    def transposed(self) -> Table:
        """A row a metric: what fits a terminal. One system comes with its intervals."""
        flat = self.table()
        if len(self.systems) > 1:
            rows = [list(row) for row in zip(*flat.rows, strict=True)]
            return Table(
                "",
                ["", *(cell.text for cell in rows[0])],
                [[Cell(n), *r] for n, r in zip(flat.columns[1:], rows[1:], strict=True)],
            )
        [one] = self.systems
        return Table(
            "",
            ["", one.system.name, "95 % interval", HUMAN],
            [
                [
                    Cell(name),
                    Cell(shown(result)),
                    Cell(shown_interval(result)),
                    Cell(shown(self.human.results.get(name))),
                ]
                for name, result in one.results.items()
            ],
        )

    def _cell(self, one: Evaluation, name: str, best: float | None) -> Cell:
        result = one.results.get(name)
        if result is None:
            return Cell("-")
        p = self.p_values.get(name, {}).get((self.systems[0].system.name, one.system.name))
        mark = "*" if p is not None and p < SIGNIFICANT else ""
        bold = len(self.systems) > 1 and best is not None and np.isclose(result.metric.value, best)
        return Cell(shown(result) + mark, bool(bold))

    def notes(self) -> list[str]:
        """What a reader of the table has to know."""
        first = self.systems[0].system.name
        notes = [f"{len(self.evaluator.references):,} texts."]
        if len(self.systems) > 1:
            notes.append(f"Bold: the best system. *: differs from {first}, p < {SIGNIFICANT} (paired bootstrap).")
        return notes

    def signatures(self) -> list[str]:
        """The signature of every metric of the first system."""
        return [result.metric.signature for result in self.systems[0].results.values()]


def shown(result: Result | None) -> str:
    """A value as tables show it."""
    if result is None:
        return "-"
    value = result.metric.value
    if result.metric.percent:
        return f"{value:.2f} %"
    return f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def shown_interval(result: Result) -> str:
    """An interval as tables show it."""
    return "" if result.low is None or result.high is None else f"{result.low:.2f} - {result.high:.2f}"


def _best(results: Sequence[Result]) -> float | None:
    better = results[0].metric.better if results else 0
    return better * max(better * result.metric.value for result in results) if better else None


def _versions() -> dict[str, str]:
    packages = ("numpy", "nltk", "sacrebleu", "scipy")
    return {"pointer": __version__, "python": platform.python_version()} | {name: version(name) for name in packages}


def _evaluation_dict(one: Evaluation) -> dict[str, Any]:
    return {
        "name": one.system.name,
        "made_by": one.system.made_by,
        "metrics": {
            name: {
                "value": result.metric.value,
                "low": result.low,
                "high": result.high,
                "better": {1: "higher", -1: "lower", 0: None}[result.metric.better],
                "percent": result.metric.percent,
                "signature": result.metric.signature,
            }
            for name, result in one.results.items()
        },
    }


def plot(report: Report, path: Path) -> None:
    """A panel a metric: every system with its interval, and the human text as a line."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("Drawing", "matplotlib", "eval") from error
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UsageError(f"plot: expected a .png, .svg or .pdf file, found {path}.", "Give it such a name.")
    wide, names = 4, report.metrics
    high = -(-len(names) // wide)
    figure = Figure(figsize=(3.2 * wide, 0.9 + high * (1.0 + 0.28 * len(report.systems))), layout="constrained")
    axes = figure.subplots(high, wide, squeeze=False).flat
    for axis, name in zip(axes, names, strict=False):
        _panel(axis, name, report)
    for axis in list(axes)[len(names) :]:
        axis.set_visible(False)
    figure.suptitle(f"{len(report.evaluator.references):,} texts, 95 % intervals; dotted: human text")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _panel(axis: Any, name: str, report: Report) -> None:
    shown_systems = [one for one in report.systems if name in one.results]
    for row, one in enumerate(shown_systems):
        metric, low, high, _ = one.results[name]
        error = None if low is None or high is None else [[metric.value - low], [high - metric.value]]
        axis.barh(row, metric.value, xerr=error, color=f"C{row}", alpha=0.85, height=0.7, capsize=2)
    axis.set_yticks(range(len(shown_systems)), [one.system.name for one in shown_systems], fontsize=8)
    axis.invert_yaxis()
    if name in report.human.results:
        axis.axvline(report.human.results[name].metric.value, color="black", linestyle=":")
    unit = ", %" if shown_systems[0].results[name].metric.percent else ""
    arrow = {1: " \u2191", -1: " \u2193", 0: ""}[shown_systems[0].results[name].metric.better]
    axis.set_title(f"{name}{unit}{arrow}", fontsize=9)
    axis.tick_params(axis="x", labelsize=8)


class Example(NamedTuple):
    """What was asked, what people wrote and what every system wrote."""

    line: int
    constraints: tuple[str, ...]
    texts: Mapping[str, str]

    def marked(self, begin: str, end: str) -> dict[str, str]:
        """The texts with the constraints between marks."""
        return {name: mark(text, self.constraints, begin, end) for name, text in self.texts.items()}


def mark(text: str, constraints: Sequence[str], begin: str, end: str) -> str:
    """A text with its constraints between marks.

    >>> mark("Great food and cheap drinks.", ["food", "drinks", "bar"], "[", "]")
    'Great [food] and cheap [drinks].'
    """
    for span in reversed([span for span in constraint_spans(text, constraints) if span is not None]):
        text = text[: span[0]] + begin + text[span[0] : span[1]] + end + text[span[1] :]
    return text


def examples(systems: Sequence[System], references: Sequence[str], number: int, seed: int = 0) -> list[Example]:
    """So many lines drawn at random, with the constraints of the first system that has them."""
    constraints = next((one.constraints for one in systems if one.constraints is not None), None)
    drawn = np.random.default_rng(seed).choice(len(references), size=min(number, len(references)), replace=False)
    return [
        Example(
            line + 1,
            constraints[line] if constraints else (),
            {HUMAN: references[line]} | {one.name: one.texts[line] for one in systems},
        )
        for line in sorted(drawn.tolist())
    ]


def examples_markdown(found: Sequence[Example]) -> str:
    """Examples with the constraints in bold."""
    blocks = []
    for one in found:
        rows = [f"- {name}: {text}" for name, text in one.marked("**", "**").items()]
        blocks.append("\n".join([f"Line {one.line}: {', '.join(one.constraints) or '(no constraints)'}", "", *rows]))
    return "\n\n".join(blocks)


def examples_latex(found: Sequence[Example]) -> str:
    """Examples as the paper's appendix sets them: a row a text, the constraints in bold."""
    rows = []
    for one in found:
        rows.append(rf"Keywords & \textbf{{{latex_text(', '.join(one.constraints))}}} \\ \midrule")
        # Marks that LaTeX text cannot contain, replaced once the rest is quoted.
        for name, text in one.marked("\0", "\1").items():
            marked = latex_text(text).replace("\0", r"\textbf{").replace("\1", "}")
            rows.append(rf"{latex_text(name)} & {marked} \\")
        rows.append(r"\midrule")
    body = "\n".join(rows[:-1])
    return "\n".join([r"\begin{tabular}{lp{4.5in}}", r"\toprule", body, r"\bottomrule", r"\end{tabular}"])
