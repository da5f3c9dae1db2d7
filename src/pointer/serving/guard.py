"""Around every request: security headers, one line in the log, the counts, and the last net for errors."""

import asyncio
import logging
import time
from contextlib import suppress

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pointer.serving.failures import Refusal, refusal_of
from pointer.serving.metrics import Metrics

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
REST_BYTES, REST_SECONDS = 2**20, 1.0
"""How much of a body that is refused is read all the same, and thrown away: to close a connection on which something
still arrives resets it, and the client would see that instead of the answer."""
BATCH = "pointer.batch"
"""Where a request's scope says how many texts grew together with its own."""

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
        start, status = time.perf_counter(), 0
        body = _Body(receive, is_held="expect" in Headers(scope=scope))

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if status >= 400 and status != 408:  # which is a body that does not arrive
                    await body.discard_rest()
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self.app(scope, body.receive, send_guarded)
        except Exception as error:
            refusal = refusal_of(error)
            if status:  # too late for another answer: the connection breaks, so that the client takes nothing for whole
                raise
            await refusal.response(scope, receive, send_guarded)
        finally:
            self._note(scope, status, time.perf_counter() - start)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        # Only addresses that exist are named: any other could be anything, and as many as somebody likes.
        route = getattr(scope.get("route"), "path", "other")
        self.metrics.requests.labels(route, status).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        batch = f" batch {scope[BATCH]}" if scope.get(BATCH) else ""
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "OPTIONS") else "other"
        log.info("%s %s %d %.0f ms%s", method, route, status, seconds * 1000, batch)


class _Body:
    """The body of a request, which knows whether all of it has been read.

    One that is held back does not come before it is asked for (`Expect: 100-continue`).
    """

    def __init__(self, receive: Receive, is_held: bool) -> None:
        self._receive = receive
        self._is_held = is_held
        self._is_over = False

    async def receive(self) -> Message:
        """The next part."""
        self._is_held = False
        message = await self._receive()
        self._is_over = not message.get("more_body", False)
        return message

    async def discard_rest(self) -> None:
        """Read on to the end, if it is not too far away."""

        async def read() -> None:
            found = 0
            while not self._is_held and not self._is_over and found < REST_BYTES:
                found += len((await self.receive()).get("body", b""))

        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(read(), REST_SECONDS)


class Cors(CORSMiddleware):
    """Pages of other sites that may call; a refusal has the shape of all errors."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """What a browser is told that asks whether a page may."""
        answer = super().preflight_response(request_headers)
        if answer.status_code < 400:
            return answer
        refusal = Refusal(
            answer.status_code,
            "NotAllowed",
            "This server does not let a page of that site make this request.",
            "Start it with --allow-origin SITE.",
        )
        return refusal.response
