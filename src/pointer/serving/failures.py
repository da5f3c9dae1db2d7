"""Which refusal answers which error; the one shape of all refusals is in `pointer.web`."""

import logging
from contextvars import ContextVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pointer import web
from pointer.errors import ConstraintError, PointerError, UsageError
from pointer.serving.batching import Busy, Closed
from pointer.web import Refusal

SEE = "See /openapi.json for all addresses, and for what a request looks like."

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="none")
"""The number of the request that is being answered."""

log = logging.getLogger("pointer.serving")


def unavailable(kind: str, message: str, hint: str = "Try again.") -> Refusal:
    """The server cannot do it now, but might soon."""
    return Refusal(503, kind, message, hint, {"Retry-After": "1"})


def stopping() -> Refusal:
    """The end has begun."""
    return unavailable("Stopping", "The server is about to stop and takes no new work.")


def too_slow(seconds: float) -> Refusal:
    """The time of a request is over."""
    return unavailable(
        "TimeLimit",
        f"The text was not finished within {seconds:g} seconds.",
        "Ask for fewer lists or texts, a smaller max_length, or greedy decoding; or try again when less is going on.",
    )


def refusal_of(error: BaseException) -> Refusal:
    """What the client is told about an error; what nobody expected goes to the log, and the client gets its number."""
    match error:
        case RequestValidationError() if error.errors()[0]["loc"][1:2] == ("constraints",):
            # Pydantic reports why it is none of the three; people want to know the three.
            three = "a string, a list of strings, or a list of such lists"
            found = web.found_instead(error.errors()[0])
            return Refusal(422, "UsageError", f"constraints: expected {three}, found {found}.", SEE)
        case HTTPException() | RequestValidationError():
            return web.refusal_of(error, SEE)
        case ClientDisconnect():
            return web.gone()
        case UsageError() | ConstraintError():
            return Refusal(422, type(error).__name__, error.message, error.hint)
        case PointerError():  # a damaged model, say: no fault of the client, but worth a sentence
            return Refusal(500, type(error).__name__, error.message, error.hint)
        case Busy():
            message = "The server has as much to do as it can take."
            return Refusal(429, "TooManyRequests", message, "Try again in a moment.", {"Retry-After": "1"})
        case Closed():
            return stopping()
    number = REQUEST_ID.get()
    log.error("error in request %s", number, exc_info=error)
    return Refusal(
        500, "InternalError", f"Something went wrong that should not (request {number}).", "Report this number."
    )


async def answer_error(_: Request, error: Exception) -> JSONResponse:
    """FastAPI's handler for every expected error."""
    return refusal_of(error).response
