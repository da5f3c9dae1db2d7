"""The endpoints of `pointer serve`."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pointer import __version__
from pointer.errors import ConstraintError, UsageError, missing_extra

try:
    from fastapi import APIRouter, Body, Depends, FastAPI, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
    from fastapi.staticfiles import StaticFiles
    from prometheus_client import CONTENT_TYPE_LATEST
    from starlette.exceptions import HTTPException
except ImportError as missing:
    raise missing_extra("Serving", "fastapi, uvicorn or prometheus-client", "serve") from missing

from pointer.decoding.generator import Generation
from pointer.decoding.grammar import parse
from pointer.serving.batching import Ticket
from pointer.serving.failures import answer_error, refusal_of, too_slow
from pointer.serving.guard import BATCH, BEARER, KEY, NUMBER, Cors, Guard, guarded_route
from pointer.serving.limits import Limits, Settings
from pointer.serving.schemas import (
    ERRORS,
    EVENT,
    AsJson,
    ExplainAnswer,
    ExplainRequest,
    GenerateAnswer,
    GenerateRequest,
    Health,
    ModelsAnswer,
    option_schemas,
)
from pointer.serving.service import Asked, Served, Service
from pointer.stage import Stage
from pointer.web import Hosts, Shield, gone

PAGE = Path(__file__).parent / "page"
KEEP_ALIVE = 10.0
"""Seconds without an event after which a stream sends a comment, so that no proxy takes it for dead."""
ABOUT = "Turns a few words into a fluent text that contains every one of them, in order."
EXAMPLES: dict[str, Any] = {
    "one list": {
        "value": {"constraints": ["delicious", "love", "mole"], "options": {"decoding": "sample", "n": 2, "seed": 7}}
    },
    "one string": {"value": {"constraints": "new york; tax cuts"}},
    "several": {"value": {"constraints": [["new york", "tax cuts"], ["river", "church"]]}},
}


def create_app(models: Mapping[str, Served], settings: Settings | None = None) -> FastAPI:
    """The application that serves some models by name, the first being the default."""
    settings = settings or Settings()
    service = Service(models, settings.limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.stop()
        await asyncio.to_thread(service.join)

    app = FastAPI(
        title="POINTER",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        # FastAPI's pages of documentation would load their scripts from another host.
        docs_url=None,
        redoc_url=None,
        # An address with a slash too many is none; to redirect it would lead wherever the `Host` header says.
        redirect_slashes=False,
    )
    app.state.service = service
    app.include_router(_api(service, settings))
    app.include_router(_operation(service, settings))
    app.mount("/static", StaticFiles(directory=PAGE))
    app.add_api_route("/", lambda: FileResponse(PAGE / "index.html"), methods=["GET", "HEAD"], include_in_schema=False)
    _describe_options(app, settings.limits)
    app.add_exception_handler(HTTPException, answer_error)
    app.add_exception_handler(RequestValidationError, answer_error)
    app.add_middleware(Hosts, hosts=settings.hosts)
    app.add_middleware(Guard, metrics=service.metrics)
    app.add_middleware(Shield, body_bytes=settings.limits.body_bytes, seconds=settings.limits.seconds)
    if settings.origins:
        app.add_middleware(
            Cors,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", NUMBER],
            expose_headers=["Retry-After", NUMBER],
        )
    return app


def _describe_options(app: FastAPI, limits: Limits) -> None:
    """Put into OpenAPI what FastAPI cannot know of the options: their ranges on this server."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        document = describe()
        document["components"]["schemas"]["Options"] |= {
            "description": "How a text is decoded; every option may be left out.",
            "properties": option_schemas(limits),
        }
        return document

    app.openapi = openapi  # type: ignore[method-assign]


# ---------------------------------------------------------------------------------------------------------------------
# The API


def _router(settings: Settings, **more: Any) -> APIRouter:
    """Routes that need a key, where the server has any; the dependency only tells OpenAPI so."""
    documented = [Depends(BEARER)] if settings.keys else []
    return APIRouter(route_class=guarded_route(settings), dependencies=documented, **more)


def _api(service: Service, settings: Settings) -> APIRouter:
    limits = settings.limits
    api = _router(settings, prefix="/v1", responses=ERRORS)

    @api.post("/generate", response_model=GenerateAnswer)
    async def generate(
        request: Request, body: Annotated[GenerateRequest, AsJson(), Body(openapi_examples=EXAMPLES)]
    ) -> Response:
        """Write texts around the words and phrases of one or several lists.

        Every constraint is in the text, in order and as often as asked. `results` has one entry for each list: its
        texts, best first.
        """
        asked = _asked(service, body, request)
        results = await _settled(request, service.generate(asked), limits)
        return await asyncio.to_thread(lambda: JSONResponse(_answer(asked, results)))

    @api.post(
        "/generate/stream",
        response_class=StreamingResponse,
        responses={
            200: {
                "description": "Server-sent events: `stage` for X^0, X^1, ..., then `done`, or `error`.",
                "content": {"text/event-stream": {"itemSchema": EVENT}},
            }
        },
    )
    async def stream(
        request: Request,
        body: Annotated[GenerateRequest, AsJson(), Body(openapi_examples={"one list": EXAMPLES["one list"]})],
    ) -> Response:
        """Write around one list of constraints, and send every stage as it comes.

        `stage` events carry `{"stage", "tokens", "text", "constraints"}`; `done` carries what `/v1/generate` answers;
        `error` has the shape of all errors. A stage that grows or changes is sent again. Where several texts are asked
        for, or a length, a template or the preset `released`, the stages of the best text are sent when it is finished.
        """
        asked = _asked(service, body, request)
        if len(asked.lists) != 1:
            raise UsageError(
                f"constraints: expected one list to stream, found {len(asked.lists)}.", "Use /v1/generate for several."
            )
        events = _Events(service, asked, request)
        return StreamingResponse(events.lines(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    @api.post("/explain", response_model=ExplainAnswer)
    async def explain(
        request: Request,
        body: Annotated[ExplainRequest, AsJson(), Body(examples=[{"text": "The food was great."}])],
    ) -> Response:
        """What each word of a text is worth, and at which stage it would be born."""
        limits.check_text(body.text)
        ticket = service.explain(service.choose(body.model), body.text, body.skeleton)
        [found] = await _settled(request, ticket, limits)
        return JSONResponse(found)

    @api.get("/models", response_model=ModelsAnswer)
    async def models() -> Response:
        """What can be asked for: models, limits, options."""
        found = {"default": service.names[0], "models": service.describe(), "limits": asdict(limits)}
        return JSONResponse(found | {"options": option_schemas(limits)})

    return api


def _operation(service: Service, settings: Settings) -> APIRouter:
    """What those want to know who keep the server running."""
    router = APIRouter()

    @router.head("/health", include_in_schema=False)
    @router.get("/health", response_model=Health, responses={503: {"model": Health}})
    async def health() -> Response:
        """200 once every model has written a text; 503 before, while one fails, and when the server is to stop."""
        return JSONResponse({"status": service.status}, 200 if service.status == "ok" else 503)

    guarded = _router(settings)

    @guarded.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, 401: ERRORS[401]},
    )
    async def metrics() -> Response:
        """Counts and times for Prometheus."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    router.include_router(guarded)
    return router


# ---------------------------------------------------------------------------------------------------------------------
# Requests


def _asked(service: Service, body: GenerateRequest, request: Request) -> Asked:
    """What a body asks for, within the limits."""
    model = service.choose(body.model)
    given = body.lists
    lists = []
    for number, constraints in enumerate(given, 1):
        try:
            lists.append(parse(constraints))
        except ConstraintError as error:
            where = f"list {number}: " if len(given) > 1 else ""
            raise ConstraintError(where + error.message, error.hint) from error
    service.limits.check_constraints(lists)
    service.limits.check_options(body.options)
    return Asked(model, lists, body.options, request.scope.get(KEY, ""))


async def _settled(request: Request, ticket: Ticket, limits: Limits) -> list[Any]:
    """The results of a request, unless its time is over or its client leaves: then it is given up."""
    answer = asyncio.wrap_future(ticket.future)
    leaving = asyncio.create_task(_disconnected(request))
    try:
        either: set[asyncio.Future[Any]] = {answer, leaving}
        await asyncio.wait(either, timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise gone() if leaving.done() else too_slow(limits.seconds)
    finally:
        leaving.cancel()
        answer.cancel()
        request.scope[BATCH] = ticket.batch


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


# ---------------------------------------------------------------------------------------------------------------------
# Answers


def _answer(asked: Asked, results: list[list[Generation]]) -> dict[str, Any]:
    return {"model": asked.model, "results": [[_plain(generation) for generation in found] for found in results]}


def _plain(generation: Generation) -> dict[str, Any]:
    """A generation as JSON can say it, which knows no NaN."""
    score = None if math.isnan(generation.score) else generation.score
    return generation.to_dict() | {"score": score}


def _event(name: str, data: dict[str, Any]) -> str:
    """A server-sent event.

    >>> _event("stage", {"stage": 0})
    'event: stage\\ndata: {"stage": 0}\\n\\n'
    """
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"


def _stage_event(generation: Generation, number: int, text: str) -> str:
    tokens = [{"token": token.text, "new": token.new} for token in generation.stages[number]]
    data = {"stage": number, "tokens": tokens, "text": text, "constraints": generation.constraints}
    return _event("stage", data)


_END = object()


class _Events:
    """The server-sent events of one request."""

    def __init__(self, service: Service, asked: Asked, request: Request) -> None:
        self.service, self.asked, self.request = service, asked, request
        self.pointer = service.pointer(asked.model)
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + service.limits.seconds
        self._growths: asyncio.Queue[Any] = asyncio.Queue()
        """The text after every stage as it comes from the thread of the model; `_END` at the end."""
        is_watched = self.pointer.can_stream(asked.lists[0], asked.options)
        self.ticket = service.generate(asked, self._send if is_watched else None)
        self.ticket.future.add_done_callback(lambda _: self._send(_END))

    def _send(self, growth: Any) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._growths.put_nowait, growth)

    async def lines(self) -> AsyncIterator[str]:
        """The events, one after the other. Who stops listening is dropped at the next stage."""
        sent: Stage = ()
        """X^0 as the client knows it; a model that chooses order and forms while it writes changes it."""
        try:
            async for growth in self._grown():
                if growth is None:
                    yield ": still at it\n\n"
                else:
                    generation = self.pointer.written(growth)
                    newest = len(generation.stages) - 1
                    if newest and generation.stages[0] != sent:
                        yield _stage_event(generation, 0, " ".join(generation.constraints))
                    yield _stage_event(generation, newest, generation.text)
                    sent = generation.stages[0]
            results: list[list[Generation]] = self.ticket.future.result()
            best = results[0][0]
            if not sent:
                for number, text in enumerate(self.pointer.drafts(best)):
                    yield _stage_event(best, number, text)
            yield _event("done", _answer(self.asked, results))
        except Exception as error:
            yield _event("error", refusal_of(error).body)
        finally:
            self.ticket.future.cancel()
            self.request.scope[BATCH] = self.ticket.batch

    async def _grown(self) -> AsyncIterator[Any]:
        """The text after every stage; None where nothing has happened for a while."""
        while (left := self._deadline - self._loop.time()) > 0:
            try:
                growth = await asyncio.wait_for(self._growths.get(), min(KEEP_ALIVE, left))
            except TimeoutError:
                growth = None
            if growth is _END:
                return
            yield growth
        raise too_slow(self.service.limits.seconds)
