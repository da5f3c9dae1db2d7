"""Around every request: one line in the log, the counts, the last net for errors; in front of the API: the keys."""

import hmac
import logging
import re
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pointer.serving.failures import REQUEST_ID, refusal_of
from pointer.serving.limits import Settings
from pointer.serving.metrics import Metrics
from pointer.web import Refusal

BATCH = "pointer.batch"
"""Where a request's scope says how many texts grew together with its own."""
KEY = "pointer.key"
"""Where it has the API key that it came with."""
NUMBER = "X-Request-Id"
"""The header with the number of a request, in requests and answers."""
BEARER = HTTPBearer(auto_error=False)

log = logging.getLogger("pointer.serving")


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and see to it that it gets an answer."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        start, status, number = time.perf_counter(), 0, _number(Headers(scope=scope).get(NUMBER, ""))
        REQUEST_ID.set(number)

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[NUMBER] = number
            await send(message)

        try:
            await self.app(scope, receive, send_noted)
        except Exception as error:
            refusal = refusal_of(error)
            if status:  # too late for another answer: the connection breaks, so that the client takes nothing for whole
                raise
            await refusal.response(scope, receive, send_noted)
        finally:
            self._note(scope, status, time.perf_counter() - start, number)

    def _note(self, scope: Scope, status: int, seconds: float, number: str) -> None:
        # Only addresses that exist are named: any other could be anything, and as many as somebody likes.
        route = getattr(scope.get("route"), "path", "other")
        self.metrics.requests.labels(route, status).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        batch = f" batch {scope[BATCH]}" if scope.get(BATCH) else ""
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "OPTIONS") else "other"
        log.info("%s %s %s %d %.0f ms%s", number, method, route, status, seconds * 1000, batch)


def _number(given: str) -> str:
    """The number of a request: the one that a client or a proxy gave it, if that can stand in a log; else a new one.

    >>> _number("run-7.a"), len(_number("two words"))
    ('run-7.a', 16)
    """
    return given if re.fullmatch(r"[\w.-]{1,64}", given, re.ASCII) else secrets.token_hex(8)


def guarded_route(settings: Settings) -> type[APIRoute]:
    """Routes that ask for a key and for JSON before any of the body is read; a dependency would ask after that."""
    keys = [key.encode() for key in settings.keys]

    class GuardedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def guarded(request: Request) -> Response:
                if keys:
                    request.scope[KEY] = await _checked_key(request, keys)
                if self.body_field:
                    _check_kind(request)
                return await handle(_Unparsed(request.scope, request.receive))

            return guarded

    return GuardedRoute


class _Unparsed(Request):
    """A request whose body Pydantic parses (see `schemas.AsJson`): Python's parser lets half characters through."""

    async def json(self) -> bytes:
        """The body as it is."""
        return await self.body()


async def _checked_key(request: Request, keys: list[bytes]) -> str:
    given = await BEARER(request)
    key = given.credentials.encode() if given else b""
    # Compared with every key, whichever it is, so that the time tells nothing about them.
    if sum(hmac.compare_digest(key, one) for one in keys) == 0:
        message = "Expected one of this server's API keys, found none of them."
        hint = 'Send a header "Authorization: Bearer KEY".'
        raise Refusal(401, "Unauthorized", message, hint, {"WWW-Authenticate": "Bearer"})
    return key.decode()


def _check_kind(request: Request) -> None:
    """Only JSON: the other kinds are those that a page of any site may send without asking."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        message = f'Expected "Content-Type: application/json", found "{kind[:100]}".'
        raise Refusal(415, "UnsupportedMediaType", message, "Send JSON.")


class Cors(CORSMiddleware):
    """Pages of other sites that may call; a refusal has the shape of all errors."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """What a browser is told that asks whether a page may."""
        answer = super().preflight_response(request_headers)
        if answer.status_code < 400:
            return answer
        message = "This server does not let a page of that site make this request."
        return Refusal(answer.status_code, "NotAllowed", message, "Start it with --allow-origin SITE.").response
