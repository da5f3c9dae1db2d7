"""The command line: parse, call, print. Data goes to stdout, talk to stderr.

Exit codes: 0 done, 1 could not, 2 wrong call. A command is imported when it is asked for, and everything heavy inside
the command that needs it, so that no command waits for what only others need.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pointer import __version__
from pointer.errors import PointerError, UsageError

HOME = {
    "prepare": "prepare",
    "explain": "prepare",
    "keywords": "prepare",
    "vocabulary": "prepare",
    "train": "train",
    "convert": "train",
    "export": "export",
    "fetch": "fetch",
    "verify": "verify",
    "generate": "generate",
    "expand": "generate",
    "serve": "serve",
    "evaluate": "evaluate",
    "compare": "evaluate",
    "info": "train",
    "judge": "judge",
}
"""The module of each command, in the order of `pointer --help`."""


class Commands(Mapping[str, Any]):
    """All commands by their names; each is imported and made when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        found = getattr(import_module(f"pointer.cli.{HOME[name]}"), name)
        if not isinstance(found, typer.Typer):
            command, found = found, typer.Typer(add_completion=False, rich_markup_mode=None)
            found.command()(command)
        return typer.main.get_command(found)

    def __iter__(self) -> Iterator[str]:
        return iter(HOME)

    def __len__(self) -> int:
        return len(HOME)


class Group(TyperGroup):
    """`pointer`, whose commands are looked up by name."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands()  # type: ignore[assignment]


app = typer.Typer(
    cls=Group,
    help="Turn a few words into a fluent text that contains every one of them, from coarse to fine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
