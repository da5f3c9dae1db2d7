"""POINTER where a program expects a `text-generation` pipeline of Transformers: the same calls, the same answers.

Transformers itself is not needed.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from pointer.decoding.generator import Generation, Pointer

Answer: TypeAlias = list[dict[str, str]]
"""The texts for one input, best first."""


class Pipeline:
    """Called with constraints, answers as `transformers.pipeline("text-generation")` does.

    A string gives a list of texts, a list of strings such a list for each, and an iterator an iterator, so that inputs
    of any number can pass. Options are those of `Pointer.generate`; `num_return_sequences` is its `n`.

    >>> write = Pipeline("wiki")
    >>> [text] = write("river; church")
    >>> "river" in text["generated_text"]
    True
    """

    task = "text-generation"

    def __init__(self, model: str | Path | Pointer | None = None, **options: Any) -> None:
        self.model = model if isinstance(model, Pointer) else Pointer.from_pretrained(model)
        self.options = options

    def __call__(
        self, text_inputs: str | Iterable[str], batch_size: int = 64, num_return_sequences: int = 1, **options: Any
    ) -> Answer | list[Answer] | Iterator[Answer]:
        """Write for one string, a list of them, or an iterator over them."""
        chosen = self.options | {"n": num_return_sequences} | options
        if isinstance(text_inputs, str):
            return _answer(self.model.generate_many([text_inputs], **chosen)[0])
        if isinstance(text_inputs, list | tuple):
            return list(self._answers(text_inputs, batch_size, chosen))
        return self._answers(text_inputs, batch_size, chosen)

    def _answers(self, inputs: Iterable[str], batch_size: int, options: dict[str, Any]) -> Iterator[Answer]:
        waiting = iter(inputs)
        while batch := list(islice(waiting, batch_size)):
            yield from map(_answer, self.model.generate_many(batch, batch_size, **options))


def _answer(texts: list[Generation]) -> Answer:
    return [{"generated_text": text.text} for text in texts]
