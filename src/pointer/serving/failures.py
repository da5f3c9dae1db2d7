"""The one shape of every error: `{"error": {"type", "message", "hint"}}`, with a fitting status."""

import json
import logging
import secrets
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pointer.errors import ConstraintError, PointerError, UsageError
from pointer.serving.batching import Busy, Closed

log = logging.getLogger("pointer.serving")


@dataclass(eq=False)
class Refusal(Exception):
    """What the server answers instead of a result."""

    status: int
    type: str
    message: str
    hint: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> dict[str, Any]:
        """The refusal for programs."""
        return {"error": {"type": self.type, "message": self.message, "hint": self.hint}}

    @property
    def response(self) -> JSONResponse:
        """The refusal as an answer."""
        return JSONResponse(self.body, self.status, self.headers)


def gone() -> Refusal:
    """The client went away. Nobody reads this answer; the status, which is nginx's, is for the log and the counts."""
    return Refusal(499, "ClientClosedRequest", "The client went away.")


def not_found(what: str, hint: str) -> Refusal:
    """There is nothing by that name."""
    return Refusal(404, "NotFound", what, hint)


def unauthorised() -> Refusal:
    """The request has no key, or a wrong one."""
    return Refusal(
        401,
        "Unauthorized",
        "Expected one of this server's API keys, found none of them.",
        'Send a header "Authorization: Bearer KEY".',
        {"WWW-Authenticate": "Bearer"},
    )


def unavailable(kind: str, message: str) -> Refusal:
    """The server cannot do it now, but might soon."""
    return Refusal(503, kind, message, "Try again.", {"Retry-After": "1"})


def too_slow(seconds: float) -> Refusal:
    """The time of a request is over."""
    return Refusal(
        503,
        "TimeLimit",
        f"The text was not finished within {seconds:g} seconds.",
        "Ask for fewer lists or texts, a smaller max_length, or greedy decoding; or try again when less is going on.",
        {"Retry-After": "1"},
    )


def refusal_of(error: BaseException) -> Refusal:
    """What the client is told about an error; what nobody expected goes to the log, and the client gets its number."""
    match error:
        case Refusal():
            return error
        case ClientDisconnect():
            return gone()
        case UsageError() | ConstraintError():
            return Refusal(422, type(error).__name__, error.message, error.hint)
        case PointerError():  # a damaged model, say: no fault of the client, but worth a sentence
            return Refusal(500, type(error).__name__, error.message, error.hint)
        case ValidationError():
            return _misunderstood(error)
        case HTTPException():
            return _by_status(error)
        case Busy():
            message = "The server has as much to do as it can take."
            return Refusal(429, "TooManyRequests", message, "Try again in a moment.", {"Retry-After": "1"})
        case Closed():
            return unavailable("Stopping", "The server is about to stop and takes no new work.")
    number = secrets.token_hex(4)
    log.error("error %s", number, exc_info=error)
    return Refusal(
        500, "InternalError", f"Something went wrong that should not (error {number}).", "Report this number."
    )


def _misunderstood(error: ValidationError) -> Refusal:
    """The first thing that is wrong with a body."""
    first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        return Refusal(400, "BadRequest", f"Expected JSON, found something else ({first['ctx']['error']}).", _SEE)
    where = [str(part) for part in first["loc"]]
    if where[:1] == ["constraints"]:
        # Pydantic reports why it is none of the three; people want to know the three.
        where, wrong = ["constraints"], "expected a string, a list of strings, or a list of such lists"
    elif first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return Refusal(422, "UsageError", f"{'.'.join(where)[:100]}: there is no such field.", _SEE)
    elif first["type"] == "missing":
        wrong = "expected a value"
    else:
        wrong = first["msg"].replace("Input should be", "expected")
    found = "none" if first["type"] == "missing" else _shown(first["input"])
    return Refusal(422, "UsageError", f"{'.'.join(where) or 'body'}: {wrong}, found {found}.", _SEE)


_SEE = "See /docs for what a request looks like."


def _shown(value: Any) -> str:
    """What was found, as JSON, but not all of it.

    >>> _shown(["a", None]), _shown("a" * 100)
    ('["a", null]', '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...')
    """
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= 40 else shown[:40] + "..."


def _by_status(error: HTTPException) -> Refusal:
    kinds = {404: "NotFound", 405: "MethodNotAllowed"}
    sentences = {404: "There is nothing at this address.", 405: "This address knows no such method."}
    return Refusal(
        error.status_code,
        kinds.get(error.status_code, "BadRequest"),
        sentences.get(error.status_code, str(error.detail)),
        "See /docs for all addresses.",
        dict(error.headers or {}),
    )


async def answer_error(_: Request, error: Exception) -> JSONResponse:
    """FastAPI's handler for every expected error."""
    return refusal_of(error).response
