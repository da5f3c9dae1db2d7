"""What the dataclasses of options share: numbers in a range, names out of a few, a sentence under each field.

A field is described once, where it is defined; the error for a wrong value and the help of the command line both come
from there. Light to import, so that a wrong option is refused at once.
"""

import ast
import dataclasses
import inspect
import math
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from pointer.errors import UsageError

Ranges = Mapping[str, tuple[float, float]]
"""For a field that is a number: the lowest and the highest it may be."""
Choices = Mapping[str, tuple[str, ...]]
"""For a field that is a name: those it may be."""


def expected(name: str, ranges: Ranges, choices: Choices) -> str:
    """What a field may be, in words; empty if anything of its type.

    >>> expected("width", {"width": (1, 64)}, {}), expected("steps", {"steps": (1, math.inf)}, {})
    ('a number from 1 to 64', 'a number of at least 1')
    """
    if name in choices:
        return ", ".join(choices[name])
    if name not in ranges:
        return ""
    low, high = ranges[name]
    if (low, high) == (-(2**63), 2**63 - 1):
        return "a number of 64 bits"
    return f"a number from {low} to {high}" if high < math.inf else f"a number of at least {low}"


def check_fields(settings: Any, ranges: Ranges, choices: Choices) -> None:
    """Refuse a value outside its range or its choices; None stands for a field that was left out."""
    names = {field.name for field in dataclasses.fields(settings)}
    for name, (low, high) in ranges.items():
        value = getattr(settings, name) if name in names else None
        if value is not None and not low <= value <= high:
            raise UsageError(f"{name}: expected {expected(name, ranges, choices)}, found {value}.", f"Change {name}.")
    for name in choices.keys() & names:
        value = getattr(settings, name)
        if value not in choices[name]:
            may_be = expected(name, ranges, choices)
            raise UsageError(f'{name}: expected {may_be}, found "{value}".', "Choose one of these.")


@cache
def sentences(kind: type) -> dict[str, str]:
    """What stands under each field of a dataclass, those it inherits included."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__[:-1]):
        for field, below in pairwise(_body(owner)):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
                found[field.target.id] = " ".join(ast.literal_eval(below.value).split())
    return found


def _body(kind: type) -> list[ast.stmt]:
    """The statements of a class as its file has them; `inspect.getsource` takes ten times as long to find them."""
    tree = ast.parse(Path(inspect.getfile(kind)).read_text("utf-8"))
    return next(one.body for one in tree.body if isinstance(one, ast.ClassDef) and one.name == kind.__name__)
