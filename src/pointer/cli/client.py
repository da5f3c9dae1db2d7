"""`pointer generate --server URL`: a server that is running writes, and this process only asks."""

import json
import os
import socket
from dataclasses import asdict
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from pointer.decoding.options import Options
from pointer.errors import PointerError, ServerError, UsageError

KEY = "POINTER_API_KEY"
"""The environment variable that holds the key for servers that ask for one."""
PORTS = {"http": 80, "https": 443}
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
    if place.scheme not in PORTS or not place.hostname:
        raise UsageError(f'server: expected a URL such as http://127.0.0.1:8000, found "{url}".', "Change --server.")
    try:
        head, _, content = _exchange(place, json.dumps(asked).encode()).partition(b"\r\n\r\n")
        status, answer = int(head.split(maxsplit=2)[1]), json.loads(content)
        return status, answer if isinstance(answer, dict) else {}
    except (OSError, ValueError, IndexError) as error:
        raise ServerError(
            f"Expected a POINTER server at {url}, found none that answers ({type(error).__name__}).",
            "Start one with: pointer serve",
        ) from error


def _exchange(place: SplitResult, body: bytes) -> bytes:
    """Send a request and read the answer, which in HTTP/1.0 ends with the connection.

    To import `http.client` takes longer than all the rest of asking, as it brings `ssl` and the parser of e-mail.
    """
    head = [
        f"POST {quote(place.path.rstrip('/'), safe='/%')}/v1/generate HTTP/1.0",
        f"Host: {place.netloc.rpartition('@')[2]}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    if key := os.environ.get(KEY):
        head.append(f"Authorization: Bearer {key}")
    connection = socket.create_connection((place.hostname, place.port or PORTS[place.scheme]), PATIENCE)
    if place.scheme == "https":
        import ssl

        connection = ssl.create_default_context().wrap_socket(connection, server_hostname=place.hostname)
    with connection, connection.makefile("rb") as answer:
        connection.sendall("\r\n".join([*head, "", ""]).encode("ascii") + body)
        return answer.read()
