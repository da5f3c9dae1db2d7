"""A table of results for people: markdown and LaTeX of the same cells."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_SPECIAL = re.compile(r"[\\{}$&#%_^~]")
_LATEX = {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}"}


class Cell(NamedTuple):
    """What stands in one field; the best of its kind is bold."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class Table:
    """A title, the names of the columns, and rows of cells as wide as them; the first column is left-aligned."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def markdown(self) -> str:
        """The table as GitHub renders it."""
        head = " | ".join(map(_markdown, self.columns))
        rule = "|".join([" --- ", *[" ---: "] * (len(self.columns) - 1)])
        body = [
            " | ".join(f"**{_markdown(c.text)}**" if c.bold else _markdown(c.text) for c in row) for row in self.rows
        ]
        title = [f"**{_markdown(self.title)}**\n"] if self.title else []
        return "\n".join([*title, f"| {head} |", f"|{rule}|", *(f"| {row} |" for row in body)])

    def latex(self) -> str:
        """The table with booktabs rules, as the paper sets it."""
        head = " & ".join(map(latex_text, self.columns))
        body = [
            " & ".join(rf"\textbf{{{latex_text(c.text)}}}" if c.bold else latex_text(c.text) for c in row)
            for row in self.rows
        ]
        lines = [
            r"\begin{table}\centering\small",
            rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
            r"\toprule",
            rf"{head} \\",
            r"\midrule",
            *(rf"{row} \\" for row in body),
            r"\bottomrule",
            r"\end{tabular}",
            *([rf"\caption{{{latex_text(self.title)}}}"] if self.title else []),
            r"\end{table}",
        ]
        return "\n".join(lines)


def _markdown(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def latex_text(text: str) -> str:
    r"""Plain text for LaTeX.

    >>> print(latex_text("50 % of new_york"))
    50 \% of new\_york
    """
    return _SPECIAL.sub(lambda special: _LATEX.get(special[0], "\\" + special[0]), text)
