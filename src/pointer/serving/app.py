"""The endpoints of `pointer serve`."""

import asyncio
import hmac
import json
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pointer import __version__
from pointer.errors import ConstraintError, UsageError, missing_extra

try:
    from fastapi import APIRouter, Depends, FastAPI, Request
    from fastapi.openapi.utils import get_openapi
    from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
    from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
    from prometheus_client import CONTENT_TYPE_LATEST
    from pydantic import BaseModel
    from starlette.exceptions import HTTPException
except ImportError as missing:
    raise missing_extra("Serving", "fastapi, uvicorn or prometheus-client", "serve") from missing

from pointer.decoding.constraints import parse
from pointer.decoding.generator import Generation
from pointer.serving import schemas
from pointer.serving.batching import Ticket
from pointer.serving.documentation import render
from pointer.serving.failures import Refusal, answer_error, gone, not_found, refusal_of, too_slow, unauthorised
from pointer.serving.guard import BATCH, Cors, Guard
from pointer.serving.limits import Limits, Settings
from pointer.serving.schemas import event
from pointer.serving.service import Asked, Served, Service

KEEP_ALIVE = 10.0
"""Seconds without an event after which a stream sends a comment, so that no proxy takes it for dead."""
KINDS = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
"""The files of the page that are served, by suffix."""
HERE = Path(__file__).parent
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorAnswer, "description": why}
    for status, why in {
        400: "The body is no JSON.",
        401: "The server has keys, and this request has none of them.",
        404: "There is no such model.",
        408: "The body took too long to arrive.",
        413: "The body is too long.",
        415: "The body is not declared as application/json.",
        422: "A constraint, an option or a limit; the message says which.",
        429: "The queue is full; see Retry-After.",
        500: "Something went wrong that should not.",
        503: "The server is starting, failing or stopping, or the request took too long.",
    }.items()
}
ABOUT = "Turns a few words into a fluent text that contains every one of them, in order."
EXAMPLE = {"constraints": ["delicious", "love", "mole"], "options": {"decoding": "sample", "n": 2, "seed": 7}}

Schema = TypeVar("Schema", bound=BaseModel)


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

    app = FastAPI(title="POINTER", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    app.include_router(_api(service, settings))
    app.include_router(_operation(service, settings))
    _add_pages(app)
    app.add_exception_handler(HTTPException, answer_error)
    app.add_middleware(Guard, metrics=service.metrics)
    if settings.origins:
        app.add_middleware(
            Cors,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Retry-After"],
        )
    _describe_requests(app, settings.limits)
    return app


# ---------------------------------------------------------------------------------------------------------------------
# The API


def _api(service: Service, settings: Settings) -> APIRouter:
    limits = settings.limits
    api = APIRouter(prefix="/v1", dependencies=_keys(settings), responses=ERRORS)
    several = {"constraints": [["new york", "tax cuts"], ["river", "church"]]}
    body = schemas.body_of(
        schemas.GenerateRequest, one_list=EXAMPLE, one_string={"constraints": "new york; tax cuts"}, several=several
    )

    @api.post("/generate", response_model=schemas.GenerateAnswer, openapi_extra=body)
    async def generate(request: Request) -> Response:
        """Write texts around the words and phrases of one or several lists.

        Every constraint is in the text, in order and as often as asked. `results` has one entry for each list: its
        texts, best first.
        """
        deadline = _deadline(limits)
        asked = _asked(service, await _read(request, schemas.GenerateRequest, limits, deadline))
        results = await _settled(request, service.generate(asked), limits, deadline)
        content = await asyncio.to_thread(lambda: _json(_answer(asked, results)))
        return Response(content, media_type="application/json")

    @api.post(
        "/generate/stream",
        response_class=StreamingResponse,
        openapi_extra=schemas.body_of(schemas.GenerateRequest, one_list=EXAMPLE),
        responses={
            200: {
                "description": "Server-sent events: `stage` for X^0, X^1, ..., then `done`, or `error`.",
                "content": schemas.stream_content(),
            }
        },
    )
    async def stream(request: Request) -> Response:
        """Write around one list of constraints, and send every stage as it comes.

        `stage` events carry `{"stage", "tokens", "text"}`; `done` carries what `/v1/generate` answers; `error` has the
        shape of all errors. Where several texts are asked for, or a length, or the preset `released`, the stages of the
        best text are sent when it is finished. A model that revises a text once it has grown may have replaced words in
        the stages of `done`.
        """
        deadline = _deadline(limits)
        asked = _asked(service, await _read(request, schemas.GenerateRequest, limits, deadline))
        if len(asked.lists) != 1:
            raise UsageError(
                f"constraints: expected one list to stream, found {len(asked.lists)}.", "Use /v1/generate for several."
            )
        events = _Events(service, asked, request, deadline)
        return StreamingResponse(events.lines(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    @api.post(
        "/explain",
        response_model=schemas.ExplainAnswer,
        openapi_extra=schemas.body_of(schemas.ExplainRequest, a_text={"text": "The food was great."}),
    )
    async def explain(request: Request) -> Response:
        """What each word of a text is worth, and at which stage it would be born."""
        deadline = _deadline(limits)
        asked = await _read(request, schemas.ExplainRequest, limits, deadline)
        limits.check_text(asked.text)
        ticket = service.explain(service.choose(asked.model), asked.text, asked.skeleton)
        [found] = await _settled(request, ticket, limits, deadline)
        return Response(_json(found), media_type="application/json")

    @api.get("/models", response_model=schemas.ModelsAnswer)
    async def models() -> Response:
        """What can be asked for: models, limits, options."""
        found = {"default": service.names[0], "models": service.describe(), "limits": asdict(limits)}
        return JSONResponse(found | {"options": schemas.option_schemas(limits)})

    return api


def _operation(service: Service, settings: Settings) -> APIRouter:
    """What those want to know who keep the server running."""
    router = APIRouter()

    @router.head("/health", include_in_schema=False)
    @router.get("/health", response_model=schemas.Health, responses={503: {"model": schemas.Health}})
    async def health() -> Response:
        """200 once every model has written a text; 503 before, while one fails, and when the server is to stop."""
        return JSONResponse({"status": service.status}, 200 if service.status == "ok" else 503)

    @router.get(
        "/metrics",
        dependencies=_keys(settings),
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, 401: ERRORS[401]},
    )
    async def metrics() -> Response:
        """Counts and times for Prometheus."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return router


def _keys(settings: Settings) -> list[Any]:
    """What a route asks for when the server has API keys."""
    known = [key.encode() for key in settings.keys]

    async def check(
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
    ) -> None:
        key = given.credentials.encode() if given else b""
        # Compared with every key, whichever it is, so that the time tells nothing about them.
        if sum(hmac.compare_digest(key, one) for one in known) == 0:
            raise unauthorised()

    return [Depends(check)] if known else []


# ---------------------------------------------------------------------------------------------------------------------
# Requests


def _deadline(limits: Limits) -> float:
    return asyncio.get_running_loop().time() + limits.seconds


def _left(deadline: float) -> float:
    return max(0.0, deadline - asyncio.get_running_loop().time())


async def _read(request: Request, schema: type[Schema], limits: Limits, deadline: float) -> Schema:
    """The body of a request, read no further than it may be long."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(
            415,
            "UnsupportedMediaType",
            f'Expected "Content-Type: application/json", found "{kind[:100]}".',
            "Send JSON.",
        )

    async def read() -> bytes:
        body = bytearray()
        announced = int(request.headers.get("content-length", 0))
        if announced <= limits.body_bytes:
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.body_bytes:
                    break
        if max(announced, len(body)) > limits.body_bytes:
            message = f"Expected a body of at most {limits.body_bytes:,} bytes, found a longer one."
            raise Refusal(413, "ContentTooLarge", message, "Send several requests.", {"Connection": "close"})
        return bytes(body)

    try:
        body = await asyncio.wait_for(read(), _left(deadline))
    except asyncio.TimeoutError as error:
        message = f"The body did not arrive within {limits.seconds:g} seconds."
        raise Refusal(408, "RequestTimeout", message, "Send it again.", {"Connection": "close"}) from error
    return schema.model_validate_json(body)


def _asked(service: Service, body: schemas.GenerateRequest) -> Asked:
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
    banned = tuple(word.lower() for word in body.options.banned)
    return Asked(model, lists, replace(body.options, banned=banned))


async def _settled(request: Request, ticket: Ticket, limits: Limits, deadline: float) -> list[Any]:
    """The results of a request, unless its time is over or its client leaves: then it is given up."""
    answer = asyncio.wrap_future(ticket.future)
    leaving = asyncio.create_task(_disconnected(request))
    try:
        either: set[asyncio.Future[Any]] = {answer, leaving}
        await asyncio.wait(either, timeout=_left(deadline), return_when=asyncio.FIRST_COMPLETED)
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


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _stage_event(generation: Generation, number: int, text: str) -> str:
    tokens = [{"token": token.text, "new": token.new} for token in generation.stages[number]]
    return event("stage", {"stage": number, "tokens": tokens, "text": text})


class _Events:
    """The server-sent events of one request."""

    def __init__(self, service: Service, asked: Asked, request: Request, deadline: float) -> None:
        self.service, self.asked, self.request, self.deadline = service, asked, request, deadline
        self.pointer = service.pointer(asked.model)
        self._loop = asyncio.get_running_loop()
        self._growths: asyncio.Queue[Any] = asyncio.Queue()
        """The text after every stage as it comes from the thread of the model; None at the end."""
        self.ticket = service.generate(asked, self._send if asked.grows_alone else None)
        self.ticket.future.add_done_callback(lambda _: self._send(None))

    def _send(self, growth: Any) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._growths.put_nowait, growth)

    async def lines(self) -> AsyncIterator[str]:
        """The events, one after the other. Who stops listening is dropped at the next stage."""
        sent = 0
        try:
            while True:
                try:
                    growth = await asyncio.wait_for(self._growths.get(), min(KEEP_ALIVE, _left(self.deadline)))
                except asyncio.TimeoutError:
                    if _left(self.deadline) == 0:
                        raise too_slow(self.service.limits.seconds) from None
                    yield ": still at it\n\n"
                    continue
                if growth is None:
                    break
                if growth.is_revised:  # words are replaced in all stages, so only the whole can tell it
                    continue
                generation = self.pointer.written(growth)
                yield _stage_event(generation, len(generation.stages) - 1, generation.text)
                sent += 1
            results: list[list[Generation]] = self.ticket.future.result()
            best = results[0][0]
            if not sent:
                for number, text in enumerate(self.pointer.drafts(best)):
                    yield _stage_event(best, number, text)
            yield event("done", _answer(self.asked, results))
        except Exception as error:
            yield event("error", refusal_of(error).body)
        finally:
            self.ticket.future.cancel()
            self.request.scope[BATCH] = self.ticket.batch


# ---------------------------------------------------------------------------------------------------------------------
# Pages


def _add_pages(app: FastAPI) -> None:
    """The page for people, its files, and the page that lists the endpoints.

    Everything is read once, now: no path that a client sends ever reaches the file system.
    """
    paths = [path for path in (HERE / "page").glob("*") if path.suffix in KINDS]
    files = {path.name: path for path in (*paths, HERE / "documentation.css")}
    contents = {name: (path.read_bytes(), KINDS[path.suffix]) for name, path in files.items()}

    def file(name: str) -> Response:
        if name not in contents:
            raise not_found("There is nothing at this address.", "See /docs for all addresses.")
        content, kind = contents[name]
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    pages = APIRouter(include_in_schema=False)

    @pages.api_route("/", methods=["GET", "HEAD"])
    async def home() -> Response:
        return file("index.html")

    @pages.api_route("/static/{name}", methods=["GET", "HEAD"])
    async def static(name: str) -> Response:
        return file(name)

    @pages.api_route("/docs", methods=["GET", "HEAD"])
    async def docs() -> Response:
        return HTMLResponse(render(app.openapi()), headers={"Cache-Control": "no-cache"})

    app.include_router(pages)


def _describe_requests(app: FastAPI, limits: Limits) -> None:
    """Let OpenAPI know the bodies, which we read ourselves: no byte more than allowed, and strictly."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, routes=app.routes, description=ABOUT)
            document["components"]["schemas"] |= schemas.more_schemas(limits)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
