"""What requests and answers look like; OpenAPI and `/v1/models` are made from the same definitions."""

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from pointer.decoding.options import CHOICES, RANGES, Options
from pointer.serving.limits import Limits

REFERENCE = "#/components/schemas/{model}"


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True, protected_namespaces=())


class GenerateRequest(_Request):
    """Constraints, and how to write around them."""

    constraints: str | list[str] | list[list[str]]
    """One list of words and phrases, or one string with `;` between them; or several lists."""
    model: str | None = None
    """A name out of `GET /v1/models`; left out, the default."""
    options: Options = Options()
    """Decoding options; each may be left out."""

    @property
    def lists(self) -> list[str | list[str]]:
        """The constraint lists that were asked for."""
        given = self.constraints
        several = isinstance(given, list) and given and isinstance(given[0], list)
        return list(given) if several else [given]  # type: ignore[list-item]


class ExplainRequest(_Request):
    """A text to take apart."""

    text: str
    """A sentence or a short passage."""
    model: str | None = None
    """Whose document frequencies count; left out, those of the default model."""
    skeleton: Literal["importance", "keywords", "mixed"] = "importance"
    """What is left of the text as X^0."""


class _Answer(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, protected_namespaces=())


class Token(_Answer):
    """A token of a stage."""

    token: str
    new: bool
    """Has this stage inserted it?"""


class Generation(_Answer):
    """A text and how it came about."""

    text: str
    tokens: list[str]
    """The tokens of the last stage."""
    spans: list[list[int]]
    """Where each constraint stands in `text`, in order: start and end, in Unicode characters."""
    stages: list[list[Token]]
    """X^0, X^1, ...; ends with the repeated X^K if it converged."""
    score: float | None
    """Log-likelihood of all decisions per gap; null for the preset `released`."""
    stopped: Literal["converged", "max_stages", "max_length"]
    constraints: list[str]
    missing: list[str]
    """Constraints that are not in the text: always none, but for the preset `released`."""


class GenerateAnswer(_Answer):
    """For every constraint list its texts, best first."""

    model: str
    results: list[list[Generation]]


class StageEvent(_Answer):
    """The data of an event `stage`."""

    stage: int
    """0 for X^0, which is what was asked for."""
    tokens: list[Token]
    text: str
    """As people would write it."""


class ExplainedToken(_Answer):
    """A token with the scores of its word, and the stage at which it is born."""

    token: str
    scores: dict[str, float]
    factor: float
    importance: float
    stage: int


class ExplainAnswer(_Answer):
    """A text with the scores of its tokens, and its stages X^0 to X^K."""

    text: str
    tokens: list[ExplainedToken]
    stages: list[list[Token]]


class Model(_Answer):
    """A model that is served."""

    name: str
    parameters: int
    vocabulary: int
    """Entries of its vocabulary."""
    max_length: int
    """Tokens of the longest text it can write."""
    description: str
    """From its model card."""


class ModelsAnswer(_Answer):
    """What can be asked for."""

    default: str
    models: list[Model]
    limits: dict[str, float]
    """What one request may ask for; see docs/serving.md for each."""
    options: dict[str, dict[str, Any]]
    """The decoding options as JSON schemas: default, description, minimum and maximum, or the choices as enum."""


class Health(_Answer):
    """Can the server be asked?"""

    status: Literal["ok", "starting", "failing", "stopping"]


class ErrorDetail(_Answer):
    """What went wrong."""

    type: str
    message: str
    """What was expected and what was found."""
    hint: str
    """What to do about it."""


class ErrorAnswer(_Answer):
    """Every error of the server has this shape."""

    error: ErrorDetail = Field(
        examples=[
            {"type": "ConstraintError", "message": "constraint 2 ('') is empty. ...", "hint": "Remove it, or ..."}
        ]
    )


def option_schemas(limits: Limits) -> dict[str, dict[str, Any]]:
    """Every decoding option as a JSON schema, with what this server allows."""
    _, found = models_json_schema([(GenerateRequest, "validation")], ref_template=REFERENCE)
    properties: dict[str, dict[str, Any]] = found["$defs"]["Options"]["properties"]
    for name, schema in properties.items():
        schema.pop("title")
        if name in CHOICES:
            schema["enum"] = list(CHOICES[name])
        if name in RANGES:
            low, high = RANGES[name]
            schema |= {"minimum": low, "maximum": min(high, getattr(limits, name, high))}
    properties["banned"] |= {"maxItems": limits.banned}
    return properties


def more_schemas(limits: Limits) -> dict[str, Any]:
    """For OpenAPI: the schemas of what FastAPI neither reads nor writes for us, bodies and events."""
    _, found = models_json_schema(
        [(GenerateRequest, "validation"), (ExplainRequest, "validation"), (StageEvent, "serialization")],
        ref_template=REFERENCE,
    )
    schemas: dict[str, Any] = found["$defs"]
    schemas["Options"]["properties"] = option_schemas(limits)
    schemas["Options"]["description"] = "How a text is decoded; every option may be left out."
    return schemas


def body_of(request: type[BaseModel], **examples: Any) -> dict[str, Any]:
    """The part of an OpenAPI operation that describes its body."""
    named = {name.replace("_", " "): {"value": value} for name, value in examples.items()}
    schema = {"$ref": REFERENCE.format(model=request.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": named}}}}


def stream_content() -> dict[str, Any]:
    """The part of an OpenAPI response that describes server-sent events."""
    kinds = [{"$ref": REFERENCE.format(model=kind.__name__)} for kind in (StageEvent, GenerateAnswer, ErrorAnswer)]
    item = {
        "type": "object",
        "required": ["event", "data"],
        "properties": {
            "event": {"enum": ["stage", "done", "error"]},
            "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": {"anyOf": kinds}},
        },
    }
    tokens = [{"token": "food", "new": False}]
    example = event("stage", {"stage": 0, "tokens": tokens, "text": "Food"})
    return {
        "text/event-stream": {"itemSchema": item, "example": example + event("done", {"model": "wiki", "results": []})}
    }


def event(name: str, data: dict[str, Any]) -> str:
    """A server-sent event.

    >>> event("stage", {"stage": 0})
    'event: stage\\ndata: {"stage": 0}\\n\\n'
    """
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
