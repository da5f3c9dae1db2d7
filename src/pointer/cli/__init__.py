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
from pointer.cli.help import add_command
from pointer.errors import PointerError, UsageError

HOMES = {
    "Write": {"generate": "generate", "expand": "generate", "serve": "serve", "fetch": "fetch"},
    "Train on your own texts": {"prepare": "prepare", "train": "train", "export": "export", "verify": "verify"},
    "Measure": {"keywords": "prepare", "evaluate": "evaluate", "compare": "evaluate", "judge": "judge"},
    "Look inside": {"explain": "prepare", "info": "train", "vocabulary": "prepare", "convert": "train"},
}
"""The module of each command, under the heading and in the order of `pointer --help`."""
HEADING = {name: heading for heading, commands in HOMES.items() for name in commands}

WELCOME = """\
POINTER turns a few words into a fluent text that contains every one of them. Try:

  pointer fetch smollm2                                  # once: the best model
  pointer generate "dog; frisbee; park" --show-stages    # how a text grows
  pointer serve                                          # a page in your browser

All commands: pointer --help"""


class Commands(Mapping[str, Any]):
    """All commands by their names; each is imported and made when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        found = getattr(import_module(f"pointer.cli.{HOMES[HEADING[name]][name]}"), name)
        if not isinstance(found, typer.Typer):
            command, found = found, typer.Typer(add_completion=False, rich_markup_mode="markdown")
            add_command(found, command)
        made = typer.main.get_command(found)
        made.name, made.rich_help_panel = name, HEADING[name]  # type: ignore[attr-defined]
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(HEADING)

    def __len__(self) -> int:
        return len(HEADING)


class Group(TyperGroup):
    """`pointer`, whose commands are looked up by name."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands()  # type: ignore[assignment]


app = typer.Typer(
    cls=Group,
    help="Turn a few words into a fluent text that contains every one of them, from coarse to fine.",
    epilog="`pointer COMMAND --help` explains a command and ends with examples.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
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
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = (
        False
    ),
) -> None:
    """Options that come before the command."""
    if context.invoked_subcommand is None:
        print(WELCOME)
