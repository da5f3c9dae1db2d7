"""The command line: parse, call, print. Data goes to stdout, talk to stderr.

Exit codes: 0 done, 1 could not, 2 wrong call. Everything heavy is imported inside the command that needs it, so that
`pointer --help` answers at once.
"""

import os
import sys
from typing import Annotated

import typer

from pointer import __version__
from pointer.cli.evaluate import compare, evaluate
from pointer.cli.export import export
from pointer.cli.fetch import fetch
from pointer.cli.generate import expand, generate
from pointer.cli.judge import app as judge
from pointer.cli.prepare import explain, keywords, prepare, vocabulary
from pointer.cli.serve import serve
from pointer.cli.train import convert, info, train
from pointer.cli.verify import verify
from pointer.errors import PointerError, UsageError

app = typer.Typer(
    help="Turn a few words into a fluent text that contains every one of them, from coarse to fine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (
    prepare,
    explain,
    keywords,
    vocabulary,
    train,
    convert,
    export,
    fetch,
    verify,
    generate,
    expand,
    serve,
    evaluate,
    compare,
    info,
):
    app.command()(command)
app.add_typer(judge, name="judge")


def main() -> None:
    """Run the command line; an expected failure prints one sentence, never a traceback."""
    try:
        app()
    except PointerError as error:
        print(f"pointer: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except BrokenPipeError:  # the reader of our output has seen enough, as in `pointer ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"pointer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = (
        False
    ),
) -> None:
    """Options that come before the command."""
