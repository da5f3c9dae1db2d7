"""The server of a study: one static page, and the three requests that it makes.

    GET /api/study                         how many pairs, how many are done, where to go on, what is asked
    GET /api/pairs/NUMBER                  keywords, two texts, what this judge has answered so far
    PUT /api/pairs/NUMBER/answers/NAME     {"choice": 1 ... 5, "seconds": 12.5}

Every request carries the judge's token as `Authorization: Bearer TOKEN`. Pairs are numbered in the judge's own random
order, from 1; nothing that is sent says which system wrote a text, or which pairs are attention checks. Errors have
the shape `{"error": {"type", "message", "hint"}}`.
"""

import hmac
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pointer.errors import PointerError, StorageError, missing_extra
from pointer.judging.answers import SCALE, Answer, Answers
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
    choice: int = Field(ge=SCALE[0], le=SCALE[-1])
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
        given, total = answers.of(judge), len(study.sheets[judge])
        undone = [place for place in range(total) if len(given.get(place, ())) < len(study.questions)]
        return {"pairs": total, "done": total - len(undone), "next": undone[0] + 1 if undone else None}

    def place_of(judge: int, number: int) -> int:
        if not 1 <= number <= len(study.sheets[judge]):
            raise Refusal(404, "NotFound", f"Expected a pair from 1 to {len(study.sheets[judge])}, found {number}.")
        return number - 1

    @app.get("/api/study")
    def overview(judge: Judge) -> dict[str, Any]:
        questions = [{"name": name, "wording": wording} for name, wording in study.questions.items()]
        return progress(judge) | {"questions": questions}

    @app.get("/api/pairs/{number}")
    def pair(judge: Judge, number: int) -> dict[str, Any]:
        place = place_of(judge, number)
        showing = study.sheets[judge][place]
        item = study.items[showing.item]
        texts = [highlighted(text, item.constraints) for text in (item.text_a, item.text_b)]
        return {
            "number": number,
            "keywords": item.constraints,
            "texts": texts[::-1] if showing.swapped else texts,
            "answers": answers.of(judge).get(place, {}),
        }

    @app.put("/api/pairs/{number}/answers/{question}")
    def give(judge: Judge, number: int, question: str, body: Choice) -> dict[str, Any]:
        place = place_of(judge, number)
        if question not in study.questions:
            raise Refusal(404, "NotFound", f"Expected {' or '.join(study.questions)}, found another question.")
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
