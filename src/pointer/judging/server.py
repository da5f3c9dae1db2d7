"""The server of a study: one static page, and the three requests that it makes.

    GET /api/study                         how many items, how many are done, where to go on, what is asked
    GET /api/items/NUMBER                  keywords, two texts or one, what this judge has answered so far
    PUT /api/items/NUMBER/answers/NAME     {"choice": 1 ... 5, "seconds": 12.5}

Every request carries the judge's token as `Authorization: Bearer TOKEN`. Items are numbered in the judge's own random
order, from 1; nothing that is sent says which system wrote a text, or which items are attention checks. Errors have
the shape `{"error": {"type", "message", "hint"}}`.
"""

import hmac
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pointer.errors import PointerError, StorageError, missing_extra
from pointer.judging.answers import Answer, Answers
from pointer.judging.study import Study, open_study, read_tokens
from pointer.writing import constraint_spans

try:
    import uvicorn
    from fastapi import Depends, FastAPI, Header, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from fastapi.staticfiles import StaticFiles
    from pydantic import BaseModel, ConfigDict, Field
    from starlette.exceptions import HTTPException

    from pointer.web import Connection, Refusal, Shield, address_of, listen, refusal_of
except ImportError as missing:
    raise missing_extra("Serving a study", "fastapi or uvicorn", "eval") from missing

PAGE = Path(__file__).parent / "page"
LONGEST_BODY = 1_000
"""Bytes; an answer has about 40."""
SLOWEST_BODY = 60.0
"""Seconds."""
OPEN_THE_LINK = "Open the link that you were given."


class Choice(BaseModel):
    """The body of an answer."""

    model_config = ConfigDict(extra="forbid", strict=True)
    choice: int = Field(ge=1)
    seconds: float = Field(ge=0, le=1e6, allow_inf_nan=False)


def create_app(study: Study, tokens: Sequence[str], answers: Answers) -> FastAPI:
    """The application for the judges who hold the tokens."""
    app = FastAPI(openapi_url=None)
    app.add_middleware(Shield, body_bytes=LONGEST_BODY, seconds=SLOWEST_BODY)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _refused)
    app.add_exception_handler(PointerError, _failed)

    def judge_of(authorization: Annotated[str, Header()] = "") -> int:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            message = "No token came with the request."
            raise Refusal(401, "Unauthorized", message, OPEN_THE_LINK, {"WWW-Authenticate": "Bearer"})
        # Compared with every token in the same time, so that the time tells nothing about them.
        matches = [hmac.compare_digest(token.strip().encode(), known.encode()) for known in tokens]
        if not any(matches):
            raise Refusal(403, "Forbidden", "This token belongs to no judge of this study.", OPEN_THE_LINK)
        return matches.index(True)

    Judge = Annotated[int, Depends(judge_of)]

    def progress(judge: int) -> dict[str, Any]:
        undone, total = answers.open_places(study, judge), len(study.sheets[judge])
        return {"items": total, "done": total - len(undone), "next": undone[0] + 1 if undone else None}

    def place_of(judge: int, number: int) -> int:
        if not 1 <= number <= len(study.sheets[judge]):
            raise Refusal(
                404, "NotFound", f"Expected a {study.form.noun} from 1 to {len(study.sheets[judge])}, found {number}."
            )
        return number - 1

    @app.get("/api/study")
    def overview(judge: Judge) -> dict[str, Any]:
        questions = [{"name": name, "wording": wording} for name, wording in study.questions.items()]
        asked = {"form": study.settings.form, "questions": questions, "choices": study.choices}
        return progress(judge) | asked

    @app.get("/api/items/{number}")
    def item(judge: Judge, number: int) -> dict[str, Any]:
        place = place_of(judge, number)
        shown, texts = study.shown(study.sheets[judge][place])
        return {
            "number": number,
            "keywords": shown.constraints,
            "texts": [highlighted(text, shown.constraints) for text in texts],
            "answers": answers.of(judge).get(place, {}),
        }

    @app.put("/api/items/{number}/answers/{question}")
    def give(judge: Judge, number: int, question: str, body: Choice) -> dict[str, Any]:
        place = place_of(judge, number)
        if question not in study.questions:
            raise Refusal(404, "NotFound", f"Expected {' or '.join(study.questions)}, found another question.")
        if body.choice > len(study.choices):
            most = len(study.choices)
            raise Refusal(422, "UsageError", f"choice: expected a number from 1 to {most}, found {body.choice}.")
        answers.give(Answer(judge, place, question, body.choice, body.seconds))
        return progress(judge)

    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return app


def highlighted(text: str, constraints: Sequence[str]) -> list[dict[str, Any]]:
    """A text in pieces, each a keyword or not: offsets would mean other things to Python and to JavaScript.

    >>> highlighted("Good food.", ["food"])
    [{'text': 'Good ', 'keyword': False}, {'text': 'food', 'keyword': True}, {'text': '.', 'keyword': False}]
    """
    pieces, end = [], 0
    for span in filter(None, constraint_spans(text, constraints)):
        pieces += [(text[end : span[0]], False), (text[span[0] : span[1]], True)]
        end = span[1]
    pieces.append((text[end:], False))
    return [{"text": piece, "keyword": keyword} for piece, keyword in pieces if piece]


async def _refused(_: Request, error: Any) -> JSONResponse:
    return refusal_of(error, "Reload the page.").response


async def _failed(_: Request, error: Any) -> JSONResponse:
    status = 507 if isinstance(error, StorageError) else 500
    message = "The answer could not be stored."
    return Refusal(status, type(error).__name__, message, "Tell those who sent you the link.").response


def serve(folder: Path, host: str, port: int, url: str | None, announce: Callable[[list[str]], None]) -> None:
    """Serve a study until interrupted; `announce` gets the judges' links once the server can be reached.

    `url` is what links begin with where it is not `http://host:port`, as behind a proxy. A token stands behind `#`:
    browsers keep that part to themselves, so it is in no log on the way.
    """
    study = open_study(folder)
    tokens = read_tokens(folder, study)
    answers = Answers(folder, study.fingerprint)
    try:
        with listen(host, port) as listening:
            base = (url or address_of(host, listening)).rstrip("/")
            announce([f"{base}/#token={token}" for token in tokens])
            config = uvicorn.Config(
                create_app(study, tokens, answers),
                http=Connection,
                ws="none",
                log_level="warning",
                access_log=False,
                server_header=False,
            )
            uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:  # how one stops it
        pass
    finally:
        answers.close()
