"""Reports: systems beside each other and beside people, as the paper's tables, as JSON, as a plot, in examples."""

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pointer import __version__
from pointer.base import SMOLLM2
from pointer.checkpoint import base_of
from pointer.errors import UsageError
from pointer.evaluation.drawing import check_picture, new_figure, save_picture
from pointer.evaluation.metrics import Evaluation, Evaluator, Result, p_value
from pointer.evaluation.outputs import System
from pointer.evaluation.table import LATEX_NEEDS, Cell, Table, latex_text, markdown_text
from pointer.writing import constraint_spans

FORMAT = 1
"""Of the JSON; `report.schema.json` beside this file describes it."""
SIGNIFICANT = 0.05
HUMAN = "human"

PAPER = (
    *("NIST-1", "NIST-2", "NIST-3", "NIST-4", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "METEOR 1.5"),
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
                "scorer": " + ".join(scorer.signature for scorer in self.evaluator.scorers) or None,
            },
            "texts": len(self.evaluator.references),
            "systems": [_evaluation_dict(one) for one in self.systems],
            "human": _evaluation_dict(self.human),
            "notes": self.notes(),
            "p_values": [
                {"metric": metric, "systems": list(pair), "p": self.p_values[metric][pair]}
                for metric in self.metrics
                for pair in self.p_values.get(metric, {})
            ],
        }

    def table(self, title: str = "", columns: Sequence[str] | None = None) -> Table:
        """A row a system, then the human row: the paper's columns, then all others; the best is bold."""
        return table_of(self.to_dict(), self._columns() if columns is None else columns, title)

    def _columns(self) -> list[str]:
        return sorted(self.metrics, key=lambda name: PAPER.index(name) if name in PAPER else len(PAPER))

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
                    Cell(shown_result(result)),
                    Cell(shown_interval(result)),
                    Cell(shown_result(self.human.results.get(name))),
                ]
                for name, result in one.results.items()
            ],
        )

    def notes(self) -> list[str]:
        """What a reader of the table has to know."""
        first = self.systems[0].system.name
        notes = [f"{len(self.evaluator.references):,} texts."]
        if len(self.systems) > 1:
            notes.append(f"Bold: the best system. *: differs from {first}, p < {SIGNIFICANT} (paired bootstrap).")
        for scorer in self.evaluator.scorers:
            for how, names in self._kin(scorer.name).items():
                notes.append(f"PPL: {scorer.name} also {how} {', '.join(names)}, which it is bound to find easy.")
        return notes

    def _kin(self, scorer: str) -> dict[str, list[str]]:
        """Systems that a scorer of perplexity has a part in, as far as their files say so, by that part."""
        found: dict[str, list[str]] = {}
        for one in self.systems:
            made_by = one.system.made_by or {}
            options = made_by.get("options") or {}
            if scorer == base_of(str(made_by.get("model"))):
                found.setdefault("is the model behind", []).append(one.system.name)
            elif scorer == SMOLLM2 and options.get("best_of", 1) > 1 and options.get("pick_by") not in ("model", "mbr"):
                found.setdefault("picked among the drafts of", []).append(one.system.name)
        return found

    def signatures(self) -> list[str]:
        """What made each number."""
        found = (result.metric.signature for one in self.systems for result in one.results.values())
        return list(dict.fromkeys(found))

    def markdown(self, title: str = "") -> str:
        """The table, what a reader has to know, and the signatures."""
        table = self.table(title) if len(self.systems) > 1 else self.transposed()
        signatures = "\n".join(f"- `{signature}`" for signature in self.signatures())
        return "\n\n".join([table.markdown(), " ".join(self.notes()), signatures])

    def latex(self, title: str = "") -> str:
        """The paper's table, one of the columns that it does not have, and the signatures as comments."""
        columns, notes = self._columns(), " ".join(self.notes())
        parts = [[name for name in columns if name in PAPER], [name for name in columns if name not in PAPER]]
        tables = [self.table(f"{title} {notes}".strip(), part).latex() for part in parts if part]
        signatures = "\n".join(f"% {signature}" for signature in self.signatures())
        return "\n\n".join([LATEX_NEEDS, *tables, signatures])


def table_of(report: Mapping[str, Any], columns: Sequence[str], title: str = "") -> Table:
    """Some columns of a report as `to_dict` gives it and `--json` writes it.

    The best system is bold; a star differs from the first one.
    """
    systems = report["systems"]
    first = systems[0]["name"]
    differs = {
        (one["metric"], one["systems"][1])
        for one in report["p_values"]
        if one["systems"][0] == first and one["p"] < SIGNIFICANT
    }
    best = {name: _best([one["metrics"][name] for one in systems if name in one["metrics"]]) for name in columns}

    def cell(system: Mapping[str, Any], name: str) -> Cell:
        found = system["metrics"].get(name)
        if found is None:
            return Cell("-")
        wanted = best[name] if len(systems) > 1 else None
        bold = wanted is not None and np.isclose(found["value"], wanted)
        mark = "*" if (name, system["name"]) in differs else ""
        return Cell(shown(found["value"], found["percent"]) + mark, bool(bold))

    rows = [[Cell(one["name"]), *(cell(one, name) for name in columns)] for one in systems]
    if "human" in report:
        people = (report["human"]["metrics"].get(name) for name in columns)
        last = [Cell("-" if one is None else shown(one["value"], one["percent"])) for one in people]
        rows.append([Cell(HUMAN), *last])
    return Table(title, ["", *columns], rows)


def shown(value: float, percent: bool) -> str:
    """A value as tables show it."""
    if percent:
        return f"{value:.2f} %"
    return f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def shown_result(result: Result | None) -> str:
    """A result as tables show it."""
    return "-" if result is None else shown(result.metric.value, result.metric.percent)


def shown_interval(result: Result) -> str:
    """An interval as tables show it."""
    return "" if result.low is None or result.high is None else f"{result.low:.2f} - {result.high:.2f}"


def _best(found: Sequence[Mapping[str, Any]]) -> float | None:
    """The best value of a metric, where one is better than another."""
    better = found[0]["better"] if found else None
    values = [float(one["value"]) for one in found]
    return max(values) if better == "higher" else min(values) if better == "lower" else None


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
    """A panel a metric: every system with its interval, then the human text, whose value is a line through all."""
    check_picture(path)
    wide, names = 4, sorted(report.metrics, key=_panel_order)
    high, rows = -(-len(names) // wide), len(report.systems) + 1
    longest = max(len(one.system.name) for one in report.systems)
    figure = new_figure(2.6 * wide + 0.07 * longest, 0.5 + high * (0.65 + 0.24 * rows))
    axes = figure.subplots(high, wide, squeeze=False)
    for axis, name in zip(axes.flat, names, strict=False):
        _panel(axis, name, report)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    for axis in axes[:, 0]:
        axis.set_yticks(range(rows), [*(one.system.name for one in report.systems), HUMAN], fontsize=8)
    intervals = " with 95 % intervals" if report.evaluator.replications else ""
    figure.suptitle(
        f"{len(report.evaluator.references):,} texts{intervals}. \u2191 higher is better, \u2193 lower is better",
        fontsize=10,
    )
    save_picture(figure, path)


def _panel_order(name: str) -> int:
    """The families of four first, a row each; then the others, in their order."""
    return next((i for i, family in enumerate(("NIST-", "BLEU-", "Entropy-")) if name.startswith(family)), 3)


def _panel(axis: Any, name: str, report: Report) -> None:
    rows = [one.results.get(name) for one in (*report.systems, report.human)]
    reach = [0.0 if one is None else one.metric.value if one.high is None else one.high for one in rows]
    for row, (result, end) in enumerate(zip(rows, reach, strict=True)):
        # A box, since the line of the human text may run through it.
        axis.text(
            end,
            row,
            f" {shown_result(result)} ",
            va="center",
            fontsize=7,
            bbox={"facecolor": "white", "lw": 0, "pad": 0},
        )
        if result is not None:
            colour = "0.55" if row == len(report.systems) else f"C{row % 10}"
            axis.barh(row, result.metric.value, color=colour, alpha=0.8, height=0.62)
            axis.plot(
                [result.metric.value if result.low is None else result.low, end], [row, row], color="black", linewidth=1
            )
    if rows[-1] is not None:
        axis.axvline(rows[-1].metric.value, color="black", linewidth=0.8, linestyle=":")
    axis.set(xlim=(0, 1.35 * max(reach) or 1), ylim=(len(rows) - 0.5, -0.5))
    axis.set_yticks([])
    axis.spines[["top", "right"]].set_visible(False)
    better = next(one.metric.better for one in rows if one is not None)
    axis.set_title(name + {1: " \u2191", -1: " \u2193", 0: ""}[better], fontsize=9, loc="left")
    axis.tick_params(axis="x", labelsize=7)
    axis.locator_params(axis="x", nbins=4)


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
        rows = [f"- {markdown_text(name)}: {_bold(markdown_text(text), '**', '**')}" for name, text in _marked(one)]
        asked = markdown_text(", ".join(one.constraints)) or "(no constraints)"
        blocks.append("\n".join([f"Line {one.line}: {asked}", "", *rows]))
    return "\n\n".join(blocks)


def examples_latex(found: Sequence[Example]) -> str:
    """Examples as the paper's appendix sets them: a row a text, the constraints in bold; a table for each."""
    tables = []
    for one in found:
        rows = [
            rf"{latex_text(name)} & {_bold(latex_text(text), chr(92) + 'textbf{', '}')} \\"
            for name, text in _marked(one)
        ]
        asked = latex_text(", ".join(one.constraints))
        head = [r"\noindent\begin{tabular}{@{}p{0.2\linewidth}p{0.75\linewidth}@{}}", r"\toprule"]
        keywords = rf"Keywords & \textbf{{{asked}}} \\ \midrule"
        tables.append("\n".join([*head, keywords, *rows, r"\bottomrule", r"\end{tabular}\par\medskip"]))
    return "\n\n".join(tables)


def _marked(one: Example) -> Iterable[tuple[str, str]]:
    """Names and texts, the constraints between marks that no text contains, so that the rest can be quoted first."""
    return one.marked("\0", "\1").items()


def _bold(text: str, begin: str, end: str) -> str:
    return text.replace("\0", begin).replace("\1", end)
