"""What requests and answers look like; OpenAPI and `/v1/models` are made from the same definitions."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from pointer.decoding.options import CHOICES, RANGES, Options
from pointer.prepare.explain import ExplainedToken
from pointer.serving.limits import Limits


class AsJson:
    """Marks a body whose bytes Pydantic reads by itself.

    Of JSON it knows that an object can be a dataclass and a list a tuple, and is strict about all the rest; of the
    Python objects that FastAPI would give it, it could not tell.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        body = handler(source)
        return core_schema.json_or_python_schema(json_schema=body, python_schema=core_schema.json_schema(body))


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True, protected_namespaces=())


class GenerateRequest(_Request):
    """Constraints, and how to write around them."""

    constraints: str | list[str] | list[list[str]]
    """One list of words and phrases in the constraint language, or one string with `;` between; or several lists."""
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
    stopped: Literal["converged", "max_stages", "max_length", "length"]
    """`length`: the length that was asked for could not be reached; this is the nearest."""
    constraints: list[str]
    """The constraints in the order and the forms that the text has them in."""
    missing: list[str]
    """Constraints that are not in the text: always none, but for the preset `released`."""
    asked: list[str]
    """The constraints as they were asked for."""
    order: list[int]
    """For each of `constraints`, which of `asked` it is."""
    remark: str
    """One sentence where the answer is not all that was asked for: fewer texts, or another length; else empty."""


class GenerateAnswer(_Answer):
    """For every constraint list its texts, best first."""

    model: str
    results: list[list[Generation]]


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
    styles: list[str]
    """What its texts can be like, the first if no style is asked for; empty if it knows one way to write."""
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


EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": ["stage", "done", "error"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
"""A server-sent event, as OpenAPI 3.2 describes those; FastAPI could do it only for a stream that cannot be refused."""
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer} for status in (400, 401, 404, 408, 413, 415, 422, 429, 500, 503)
}
"""What each of them means is in docs/serving.md."""


def option_schemas(limits: Limits) -> dict[str, dict[str, Any]]:
    """Every decoding option as a JSON schema, with what this server allows."""
    properties: dict[str, dict[str, Any]] = GenerateRequest.model_json_schema()["$defs"]["Options"]["properties"]
    for name, schema in properties.items():
        schema.pop("title")
        if name in CHOICES:
            schema["enum"] = list(CHOICES[name])
        if name in RANGES:
            low, high = RANGES[name]
            schema |= {"minimum": low, "maximum": min(high, getattr(limits, name, high))}
    properties["forbid"] |= {"maxItems": limits.forbid}
    return properties
