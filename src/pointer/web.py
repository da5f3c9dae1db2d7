"""What the servers of `serving` and `judging` share: how they refuse, what they let in, how they listen."""

import asyncio
import json
import mimetypes
import socket
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from fastapi import HTTPException
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from pointer.errors import UsageError

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
REST_BYTES, REST_SECONDS = 2**20, 1.0
"""How much of a body that is refused is read all the same, and thrown away: to close a connection on which something
still arrives resets it, and the client would see that instead of the answer."""

# The registry of a Windows machine may say something else, and under `nosniff` a browser would then run no script.
mimetypes.add_type("text/javascript", ".js")


class Refusal(HTTPException):
    """What a server answers instead of a result: `{"error": {"type", "message", "hint"}}`, with a fitting status."""

    def __init__(
        self, status: int, type: str, message: str, hint: str = "", headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(status, message, headers)
        self.body = {"error": {"type": type, "message": message, "hint": hint}}

    @property
    def response(self) -> JSONResponse:
        """The refusal as an answer."""
        return JSONResponse(self.body, self.status_code, self.headers)

    @property
    def raw(self) -> bytes:
        """The refusal as it goes over a connection on which there is no request to answer."""
        answer = self.response
        head = [f"HTTP/1.1 {self.status_code} {HTTPStatus(self.status_code).phrase}".encode(), b"Connection: close"]
        return b"\r\n".join([*head, *(b": ".join(header) for header in answer.raw_headers), b"", bytes(answer.body)])


def refusal_of(error: AnyHTTPException | RequestValidationError, hint: str) -> Refusal:
    """How a client is told of an error that FastAPI knows; `hint` is for those that have none."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, RequestValidationError):
        return _misunderstood(error.errors()[0], hint)
    phrase = HTTPStatus(error.status_code).phrase
    sentences = {404: "There is nothing at this address.", 405: "This address knows no such method."}
    message = sentences.get(error.status_code, f"{phrase}.")
    return Refusal(error.status_code, phrase.replace(" ", ""), message, hint, dict(error.headers or {}))


def _misunderstood(first: dict[str, Any], hint: str) -> Refusal:
    """The first thing that is wrong with a request, as Pydantic reports it."""
    kind, where = first["type"], ".".join(map(str, first["loc"][1:])) or "body"
    if kind == "json_invalid" or (kind == "missing" and where == "body"):
        reason = first.get("ctx", {}).get("error", "nothing at all")
        return Refusal(400, "BadRequest", f"Expected JSON, found something else ({reason}).", hint)
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return Refusal(422, "UsageError", f"{where[:100]}: there is no such field.", hint)
    expected = _IN_JSON.get(kind, first["msg"].replace("Input should be ", ""))
    return Refusal(422, "UsageError", f"{where}: expected {expected}, found {found_instead(first)}.", hint)


_OBJECTS = ("model_type", "model_attributes_type", "dataclass_type")
_IN_JSON = {"missing": "a value", **dict.fromkeys(_OBJECTS, "an object")}
"""What Pydantic would say in the words of Python, or not at all."""


def found_instead(first: dict[str, Any]) -> str:
    """What Pydantic found in place of what was expected, as JSON, but not all of it.

    >>> found_instead({"type": "string_type", "input": ["a", None]})
    '["a", null]'
    """
    if first["type"] == "missing":
        return "none"
    shown = json.dumps(first["input"], ensure_ascii=False, default=str)
    return shown if len(shown) <= 40 else shown[:40] + "..."


def gone() -> Refusal:
    """The client went away. Nobody reads this answer; the status, which is nginx's, is for the log and the counts."""
    return Refusal(499, "ClientClosedRequest", "The client went away.")


class Shield:
    """An ASGI application around another one: no long or slow bodies in, security headers out."""

    def __init__(self, app: ASGIApp, body_bytes: int, seconds: float) -> None:
        self.app, self.body_bytes, self.seconds = app, body_bytes, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        body = _Body(Headers(scope=scope), receive, self.body_bytes, self.seconds)

        async def send_shielded(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                if status >= 400 and status != 408:  # which is a body that does not arrive
                    await body.discard_rest()
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self.app(scope, body.receive, send_shielded)


class _Body:
    """The body of a request, which is not read beyond its longest, and not waited for beyond its time."""

    def __init__(self, headers: Headers, receive: Receive, most: int, seconds: float) -> None:
        self._receive, self._most, self._seconds = receive, most, seconds
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._announced = int(headers.get("content-length", 0))
        self._length = 0
        self._is_held = "expect" in headers
        """Does the client wait to be asked for it (`Expect: 100-continue`)?"""
        self._is_over = False

    async def receive(self) -> Message:
        """The next part; once the body is over, whatever the connection has to say."""
        if self._is_over:
            return await self._receive()
        self._refuse_beyond(self._announced)
        try:
            message = await asyncio.wait_for(self._next(), self._deadline - asyncio.get_running_loop().time())
        except TimeoutError as error:
            sentence = f"The body did not arrive within {self._seconds:g} seconds."
            raise Refusal(408, "RequestTimeout", sentence, "Send it again.", {"Connection": "close"}) from error
        if message["type"] == "http.disconnect":
            raise gone()
        self._refuse_beyond(self._length)
        return message

    async def _next(self) -> Message:
        self._is_held = False
        message = await self._receive()
        self._is_over = not message.get("more_body", False)
        self._length += len(message.get("body", b""))
        return message

    def _refuse_beyond(self, length: int) -> None:
        if length > self._most:
            message = f"Expected a body of at most {self._most:,} bytes, found a longer one."
            raise Refusal(413, "ContentTooLarge", message, "Send several requests.", {"Connection": "close"})

    async def discard_rest(self) -> None:
        """Read on to the end, if it is not too far away."""
        most = self._length + REST_BYTES

        async def read() -> None:
            while not self._is_held and not self._is_over and self._length < most:
                await self._next()

        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(read(), REST_SECONDS)


class Hosts:
    """An ASGI application around another one that answers to its own names only.

    A browser lets the page of a site talk to that site, and the site may say that its name means this machine (DNS
    rebinding); but the request still carries the name.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self.app = app
        self.hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on that calls the server by one of its names."""
        if scope["type"] != "http" or "*" in self.hosts or self.named(scope) in self.hosts:
            return await self.app(scope, receive, send)
        message = "This server is not to be called by that name."
        refusal = Refusal(421, "MisdirectedRequest", message, "Start it with --allowed-host NAME.")
        await refusal.response(scope, receive, send)

    @staticmethod
    def named(scope: Scope) -> str:
        """The name in the `Host` header, without port and brackets."""
        given = Headers(scope=scope).get("host", "").lower()
        name = given[1:].partition("]")[0] if given.startswith("[") else given.partition(":")[0]
        return name.removesuffix(".")


class Connection(H11Protocol):
    """A connection to a client: one of not too many, and closed if the head of a request does not arrive in time."""

    most = 512
    """Connections of a process at once."""
    seconds = 10.0
    """That a head may take."""
    _timer: asyncio.TimerHandle | None = None

    @classmethod
    def limited(cls, most: int, seconds: float) -> type["Connection"]:
        """The same with other limits."""
        return type(cls.__name__, (cls,), {"most": most, "seconds": seconds})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody connects."""
        super().connection_made(transport)
        if len(self.connections) <= self.most:
            return self._watch()
        message = f"The server has {self.most:,} connections, as many as it takes."
        self._close(Refusal(503, "TooManyConnections", message, "Try again in a moment.", {"Retry-After": "1"}))

    def data_received(self, data: bytes) -> None:
        """Something arrives."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Let the time run from the first byte on while a head is awaited, and only then."""
        is_awaited = self.cycle is None or self.cycle.response_complete
        if not is_awaited:
            self._unwatch()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self._give_up)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.cycle is None or self.cycle.response_complete:
            message = f"The head of the request did not arrive within {self.seconds:g} seconds."
            self._close(Refusal(408, "RequestTimeout", message, "Send it again."))

    def _close(self, refusal: Refusal) -> None:
        if not self.transport.is_closing():
            self.transport.write(refusal.raw)
            self.transport.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket that accepts connections; port 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = str(error).rstrip(".")
        raise UsageError(
            f"Could not listen at {host}, port {port}: {reason}.", "Choose another --port or --host."
        ) from error
    # Or the body of an answer waits for the client to acknowledge its head: 40 ms on a connection that is kept. asyncio
    # sets it where the protocol is named, and `create_server` names none.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def address_of(host: str, listening: socket.socket) -> str:
    """Where a server can be reached that listens at `host`."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}"
