"""What the commands share: options that mean the same everywhere, the bar and the reports."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pointer.cli.help import ADVANCED, OUTPUT
from pointer.progress import BETWEEN_LINES, Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointer.decoding.generator import Generation
    from pointer.evaluation.table import Table
    from pointer.prepare.corpus import Skipped
    from pointer.stage import Token

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.", rich_help_panel=OUTPUT)]
Importance = Annotated[
    str,
    typer.Option(
        help="Parts of the importance score, by commas: tfidf, pos, yake; or none (interleaved masking).",
        rich_help_panel=ADVANCED,
    ),
]
Tagger = Annotated[
    str,
    typer.Option(help="Part-of-speech tagger: perceptron (English) or spacy:MODEL.", rich_help_panel=ADVANCED),
]
Language = Annotated[str, typer.Option(help="Language of the stop words, two letters.", rich_help_panel=ADVANCED)]
Skeleton = Annotated[
    str, typer.Option(help="What stage 0 holds: importance, keywords, or mixed.", rich_help_panel=ADVANCED)
]
Seed = Annotated[int, typer.Option(help="Seed of all random draws.", rich_help_panel=ADVANCED)]
System = Annotated[
    str,
    typer.Option(
        help="pointer, or a system to compare it with: cgmh, nmstg, autoregressive, grid-beam, keywords.",
        rich_help_panel=ADVANCED,
    ),
]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME=VALUE of what only that system has, as hidden=300; may be repeated.", rich_help_panel=ADVANCED
    ),
]
Workers = Annotated[
    int | None, typer.Option(help="How many work at once; left out, one a core.", rich_help_panel=ADVANCED)
]
Engine = Annotated[
    str, typer.Option(help="Who does the work: local, or ray for a Ray cluster.", rich_help_panel=ADVANCED)
]
Address = Annotated[
    str | None,
    typer.Option(
        help="The Ray cluster, as auto or HOST:PORT; left out, --engine ray uses the cores of this machine.",
        rich_help_panel=ADVANCED,
    ),
]


class Reporter:
    """Tells about skipped lines and lost constraints: the first few of each kind, the others as a number."""

    most = 5

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.incomplete = 0
        self.remarks = 0

    def __call__(self, skipped: "Skipped") -> None:
        self.counts[skipped.reason] += 1
        if self.counts[skipped.reason] <= self.most:
            print(f"pointer: {skipped}", file=sys.stderr)

    def about(self, line: int, text: "Generation") -> None:
        """What a text is not."""
        if text.missing:
            self.lost(line, text.missing)
        if text.remark:
            self.remarks += 1
            if self.remarks <= self.most:
                print(f"pointer: line {line}: {text.remark}", file=sys.stderr)

    def lost(self, line: int, constraints: "Sequence[str]") -> None:
        self.incomplete += 1
        if self.incomplete <= self.most:
            print(f"pointer: line {line}: lost {', '.join(constraints)}", file=sys.stderr)

    def rest(self) -> None:
        if self.incomplete > self.most:
            print(f"pointer: {self.incomplete - self.most:,} more texts lost constraints.", file=sys.stderr)
        if self.remarks > self.most:
            print(f"pointer: {self.remarks - self.most:,} more texts are not all that was asked for.", file=sys.stderr)
        for reason, count in self.counts.items():
            if count > self.most:
                print(f"pointer: {count - self.most:,} more like the last: {reason}.", file=sys.stderr)


@contextmanager
def bar() -> Iterator[Progress]:
    """A progress bar on stderr, one task a phase; where that is no terminal, a line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}
        told = time.monotonic()

        def progress(phase: str, done: int, total: int | None) -> None:
            nonlocal told
            if not console.is_terminal and time.monotonic() - told >= BETWEEN_LINES:
                told = time.monotonic()
                print(f"pointer: {phase} {done:,}{f' of {total:,}' if total else ''}", file=sys.stderr, flush=True)
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase, total=total)
            bar.update(tasks[phase], completed=done, total=total)

        yield progress


def draw_stages(stages: "Sequence[Sequence[Token]]", title: str, html: Path) -> None:
    from pointer.picture import stage_page
    from pointer.storage import write_whole

    write_whole(html, stage_page(stages, title).encode())
    print(f"pointer: wrote {html}", file=sys.stderr)


def show_table(table: "Table") -> None:
    """A table of results on the terminal."""
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=None, pad_edge=False)
    for number, column in enumerate(table.columns):
        grid.add_column(column, justify="right" if number else "left")
    for row in table.rows:
        grid.add_row(*(Text(cell.text, "bold" if cell.bold else "") for cell in row))
    console = Console(highlight=False)
    if table.title:
        console.print(Text(table.title, "bold"))
    console.print(grid)
