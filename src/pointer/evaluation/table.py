"""A table of results for people: markdown and LaTeX of the same cells, and plain text quoted for either."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_MARKDOWN = re.compile(r"[\\`_|<\[\]]|\*(?!$)")  # one * at the end, as after a number, marks nothing
_LATEX = {
    **{mark: "\\" + mark for mark in "{}$&#%_"},
    **{"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", "<": r"\textless{}", ">": r"\textgreater{}"},
    **{"|": r"\textbar{}", "[": "{[}"},  # a row that begins with [ would be an option of the row before
}
LATEX_NEEDS = r"% \usepackage{booktabs,graphicx}"
"""The first line of what is printed as LaTeX."""
_FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
"""Makes a table that is too wide for the page as wide as it."""


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
        head = " | ".join(map(markdown_text, self.columns))
        rule = "|".join([" --- ", *[" ---: "] * (len(self.columns) - 1)])
        body = [
            " | ".join(f"**{markdown_text(c.text)}**" if c.bold else markdown_text(c.text) for c in row)
            for row in self.rows
        ]
        title = [f"**{markdown_text(self.title)}**\n"] if self.title else []
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
            _FIT,
            rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
            r"\toprule",
            rf"{head} \\",
            r"\midrule",
            *(rf"{row} \\" for row in body),
            r"\bottomrule",
            r"\end{tabular}}",
            *([rf"\caption{{{latex_text(self.title)}}}"] if self.title else []),
            r"\end{table}",
        ]
        return "\n".join(lines)


def markdown_text(text: str) -> str:
    r"""Plain text for markdown.

    >>> print(markdown_text("so_so *** good"))
    so\_so \*\*\* good
    """
    return _MARKDOWN.sub(r"\\\g<0>", text).replace("\n", " ")


def latex_text(text: str) -> str:
    r"""Plain text for LaTeX.

    >>> print(latex_text("50 % of new_york <3"))
    50 \% of new\_york \textless{}3
    """
    return "".join(_LATEX.get(mark, mark) for mark in text)
