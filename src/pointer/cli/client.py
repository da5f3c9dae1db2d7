"""`pointer generate --server URL`: a server that is running writes, and this process only asks."""

import http.client
import json
import os
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from pointer.decoding.options import Options
from pointer.errors import PointerError, ServerError, UsageError

KEY = "POINTER_API_KEY"
"""The environment variable that holds the key for servers that ask for one."""
PATIENCE = 120
"""Seconds until a server that says nothing counts as lost."""


def ask_server(url: str, constraints: str | list[str], model: str | None, options: Options) -> list[dict[str, Any]]:
    """The texts for some constraints, best first, as `/v1/generate` of a server tells them."""
    defaults = asdict(Options())
    changed = {name: value for name, value in asdict(options).items() if value != defaults[name]}
    asked: dict[str, Any] = {"constraints": constraints, "options": changed}
    status, answer = _post(url, asked | ({"model": model} if model else {}))
    if status != 200:
        error = answer.get("error", {})
        message, hint = str(error.get("message", f"found status {status}.")), str(error.get("hint", ""))
        raise (UsageError if status == 422 else PointerError)(message, hint)
    found: list[dict[str, Any]] = answer["results"][0]
    return found


def _post(url: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    place = urlsplit(url)
    kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    if place.scheme not in kinds or not place.hostname:
        raise UsageError(f'server: expected a URL such as http://127.0.0.1:8000, found "{url}".', "Change --server.")
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(KEY):
        headers["Authorization"] = f"Bearer {key}"
    connection = kinds[place.scheme](place.hostname, place.port, timeout=PATIENCE)
    try:
        connection.request("POST", f"{place.path.rstrip('/')}/v1/generate", json.dumps(asked).encode(), headers)
        answer = connection.getresponse()
        content = json.loads(answer.read())
        return answer.status, content if isinstance(content, dict) else {}
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ServerError(
            f"Expected a POINTER server at {url}, found none that answers ({type(error).__name__}).",
            "Start one with: pointer serve",
        ) from error
    finally:
        connection.close()
