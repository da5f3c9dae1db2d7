"""POINTER as a model of the command line tool `llm`: `llm -m pointer "river; church"`.

`llm` finds this module by its entry point in pyproject.toml and imports it at every start, so it is light.
"""

from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_type_hints

import llm
from pydantic import Field, create_model

from pointer.decoding.options import Options
from pointer.errors import PointerError
from pointer.fields import sentences

if TYPE_CHECKING:
    from pointer.decoding.generator import Pointer


@llm.hookimpl
def register_models(register: Any) -> None:
    """Called by `llm` when it collects its models."""
    register(PointerModel())


def _options() -> type[llm.Options]:
    """The options of `llm -o`: those of decoding, and which model writes."""
    types, texts = get_type_hints(Options), sentences(Options)
    found: dict[str, Any] = {
        one.name: (types[one.name] | None, Field(None, description=texts[one.name])) for one in fields(Options)
    }
    found["model"] = (str | None, Field(None, description="An embedded model, a folder or a Hub id."))
    return create_model("PointerOptions", __base__=llm.Options, **found)


class PointerModel(llm.Model):
    """Words and phrases with `;` between them in, a text with all of them out."""

    model_id = "pointer"
    can_stream = False  # a text grows in the middle, and what `llm` has printed stays
    Options = _options()  # type: ignore[assignment]

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: llm.Conversation | None
    ) -> Iterator[str]:
        """Write the texts, one a line; the logs of `llm` keep how they came about."""
        chosen = prompt.options.model_dump(exclude_none=True)
        try:
            [found] = _opened(chosen.pop("model", None)).generate_many([prompt.prompt or ""], **chosen)
        except PointerError as error:
            raise llm.ModelError(str(error)) from error
        response.response_json = {"texts": [text.to_dict() for text in found]}
        yield "\n".join(text.text for text in found)


@lru_cache(maxsize=2)
def _opened(name: str | None) -> "Pointer":
    """A model that stays open for the next prompt, as in `llm chat`."""
    from pointer.decoding.generator import Pointer

    return Pointer.from_pretrained(name)
