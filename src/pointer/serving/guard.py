"""Around every request: security headers, one line in the log, the counts, and the last net for errors."""

import logging
import time

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pointer.serving.failures import refusal_of
from pointer.serving.metrics import Metrics

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
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

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self.app(scope, receive, send_guarded)
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
