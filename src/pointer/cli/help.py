"""How the help of a command is laid out: options under headings, examples at the end."""

from collections.abc import Callable
from inspect import getdoc
from textwrap import dedent

import typer

Command = Callable[..., None]
WRITING, CONSTRAINTS, OUTPUT, ADVANCED = "Writing", "Constraints", "Output", "Advanced"
"""Headings that several commands have."""


def add_command(app: typer.Typer, command: Command) -> None:
    """Add a command whose docstring says what it does and may end with `Examples:`, which its help ends with, too."""
    about, _, examples = (getdoc(command) or "").partition("\n\nExamples:\n")
    epilog = f"Examples:\n```console\n{dedent(examples)}\n```" if examples else None
    app.command(help=about, epilog=epilog)(command)
