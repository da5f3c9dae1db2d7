"""Options of a command that are the fields of a dataclass, whose names, defaults, sentences and limits they take."""

from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from functools import wraps
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from pointer.cli.help import ADVANCED, Command
from pointer.errors import UsageError
from pointer.fields import Choices, Ranges, expected, sentences

KINDS = {int: "a whole number", float: "a number", str: "a text"}


def with_options(
    parameter: str,
    kind: type,
    ranges: Ranges,
    choices: Choices,
    groups: Mapping[str, str],
    *,
    given_only: bool = False,
    **names: str,
) -> Callable[[Command], Command]:
    """Put an option for each field of the dataclass `kind` in the place of one parameter of a command.

    `groups` are the headings of the help with the fields under each, by blanks; all others are advanced. The command
    gets the object that they make; with `given_only` a dictionary of those that were typed, for a command that has
    defaults of its own. `names` are the options that are not called like their field.
    """
    heading = {field: title for title, listed in groups.items() for field in listed.split()}
    rank = {field: number for number, field in enumerate(heading)}

    def extend(command: Command) -> Command:
        types, texts = get_type_hints(kind), sentences(kind)
        options = [
            _option(
                field,
                types[field.name],
                names.get(field.name),
                texts[field.name],
                expected(field.name, ranges, choices),
                given_only,
                heading.get(field.name, ADVANCED),
            )
            for field in sorted(fields(kind), key=lambda one: rank.get(one.name, len(rank)))
        ]

        @wraps(command)
        def run(**values: Any) -> None:
            typed = {option.name: values.pop(option.name) for option in options}
            read = {name: tuple(value) if isinstance(value, list) else value for name, value in typed.items()}
            chosen = {name: value for name, value in read.items() if value not in (None, ())}
            command(**values, **{parameter: chosen if given_only else kind(**chosen)})

        others = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in signature(command).parameters.values()]
        place = [one.name for one in others].index(parameter)
        others[place : place + 1] = options
        run.__signature__ = signature(command).replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return extend


def _help(field: "Field[Any]", text: str, may_be: str, several: bool, silent: bool) -> str:
    """The whole sentence of a field, what it is if left out, and what it may be."""
    shown = not silent and field.default is not None and field.default is not False and field.default != ()
    notes = [f"default: {field.default}"] if shown else []
    notes += [may_be.removeprefix("a number ") if may_be.startswith("a number ") else f"one of {may_be}"] * bool(may_be)
    notes += ["may be repeated"] if several else []
    return f"{text}  [{'; '.join(notes)}]" if notes else text


def _option(
    field: "Field[Any]", hint: Any, name: str | None, text: str, may_be: str, silent: bool, heading: str
) -> Parameter:
    """The parameter of a command that Typer makes an option of; None if it is not given."""
    if isinstance(hint, UnionType):
        hint = next(one for one in get_args(hint) if one is not NoneType)
    single = get_args(hint)[0] if get_origin(hint) is tuple else hint
    several = get_args(hint)[-1:] == (Ellipsis,)
    read = None if single is bool else _reader(field.name, single, may_be)
    about = typer.Option(
        name or f"--{field.name.replace('_', '-')}",
        help=_help(field, text, may_be, several, silent),
        parser=read,
        rich_help_panel=heading,
        metavar=read and " ".join([f"<{single.__name__}>"] * (1 if several else len(get_args(hint)) or 1)),
    )
    kind = list[single] if several else hint  # type: ignore[valid-type]
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, about])


def _reader(name: str, kind: type, may_be: str) -> Callable[[str], Any]:
    """Reads a value as it is typed; one of another kind is one sentence."""

    def read(value: str) -> Any:
        try:
            return kind(value)
        except ValueError:
            raise UsageError(f'{name}: expected {may_be or KINDS[kind]}, found "{value}".', f"Change {name}.") from None

    return read
