"""What the systems share when they generate: the options they take, and tokens turned into a `Generation`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from pointer.decoding.constraints import FRAME, Tokens, units_of
from pointer.decoding.generator import Generation
from pointer.decoding.grammar import Given, parse
from pointer.decoding.options import Options
from pointer.errors import UsageError
from pointer.stage import Token
from pointer.vocabulary import Vocabulary
from pointer.writing import constraint_spans, write


def accepted(
    system: str, given: Mapping[str, Any], names: Sequence[str], decodings: Sequence[str] = ("greedy",)
) -> Options:
    """The options that a system was given; one that it knows nothing of must have its default.

    >>> accepted("cgmh", {"seed": 3}, ["seed"]).seed
    3
    >>> accepted("cgmh", {"noi_offset": 1.0}, ["seed"])
    Traceback (most recent call last):
    pointer.errors.UsageError: noi_offset: expected 0.0, all that cgmh can do, found 1.0. Leave it out; cgmh knows seed.
    """
    options, defaults = Options.of(dict(given)), Options()
    for field in fields(Options):
        value, default = getattr(options, field.name), getattr(defaults, field.name)
        if field.name == "decoding" and value not in decodings:
            raise UsageError(
                f'decoding: expected {", ".join(decodings)}, all that {system} can do, found "{value}".',
                "Choose one of these.",
            )
        if field.name not in ("decoding", *names) and value != default:
            raise UsageError(
                f"{field.name}: expected {default!r}, all that {system} can do, found {value!r}.",
                f"Leave it out; {system} knows {', '.join(names)}.",
            )
    return options


def parsed_in_batches(lists: Sequence[Given], batch_size: int) -> Iterator[list[tuple[str, ...]]]:
    """The constraints of every list, `batch_size` lists at a time; a bad list is refused before any work is done."""
    if batch_size < 1:
        raise UsageError(f"batch_size: expected at least 1, found {batch_size}.", "Change batch_size.")
    parsed = [_phrases(constraints) for constraints in lists]
    return (parsed[start : start + batch_size] for start in range(0, len(parsed), batch_size))


def _phrases(constraints: Given) -> tuple[str, ...]:
    found = parse(constraints)
    if found.phrases is None:
        raise UsageError(
            f"constraints: expected words and phrases in order, all that other systems can do, found {found}.",
            'Quote what is meant as text, or use the system "pointer".',
        )
    return found.phrases


def generation(
    tokens: Tokens,
    constraints: tuple[str, ...],
    vocabulary: Vocabulary,
    casing: Mapping[str, Mapping[str, str]],
    score: float,
    stopped: str,
) -> Generation:
    """A finished text. Tokens that a constraint owns come back as it was given; the others may hold it by chance.

    A constraint that owns no token is looked for in the text; `missing` has those that are not there in order.
    """
    owner = tokens.owner.tolist()
    shown = [(vocabulary.tokens[i], whose) for i, whose in zip(tokens.ids.tolist(), owner, strict=True)]
    stage = tuple(Token(token, whose < 0) for token, whose in shown if whose != FRAME)
    units = units_of(tokens, constraints, vocabulary)
    text, places = write(units, casing)
    if {whose for whose in owner if whose >= 0} == set(range(len(constraints))):
        written = [unit.constraint for unit in units if unit.constraint is not None]
        by_number = dict(zip(written, places, strict=True))
        spans: list[tuple[int, int] | None] = [by_number[number] for number in range(len(constraints))]
    else:
        spans = constraint_spans(text, constraints)
    missing = tuple(constraint for constraint, span in zip(constraints, spans, strict=True) if span is None)
    found = tuple(span for span in spans if span is not None)
    texts = tuple(token.text for token in stage)
    return Generation(text, texts, found, (stage,), score, stopped, constraints, missing)
