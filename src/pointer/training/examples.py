"""Examples for a causal language model: a text, some of its words as constraints, and what the model should say.

A text becomes an example anew every epoch: some of its words are drawn as constraints, and the model learns to say all
that stands between them, and where each of them comes (`pointer.language`). What the decoder copies is not learnt.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pointer.errors import CorpusError, UsageError
from pointer.language import STYLES, Language
from pointer.prepare.corpus import Corpus, Text
from pointer.prepare.yake import stop_words
from pointer.text import normalise
from pointer.training.batches import IGNORED

WORD = re.compile(r"(?<!\S)[^\W_]+(?:['-][^\W_]+)*(?=[.,!?;:)\"]*(?:\s|$))")
"""A word that stands by itself: a space before it, and a space after it, perhaps with marks before that."""
NEIGHBOUR = 0.1
"""How often a drawn word takes the word after it along, so that phrases are learnt too."""


class Styled(NamedTuple):
    """A text and what it is like."""

    style: str
    text: str


def read_texts(data: str | Path, style: str | None = None) -> list[Styled]:
    """The texts to train on: a file of one style, or a folder with a file for each style, named after it.

    Files are what `Corpus` reads: text, jsonl or parquet, also compressed.
    """
    folder = Path(data)
    if not folder.is_dir():
        return _of_style(folder, style or next(iter(STYLES)))
    files = sorted(path for path in folder.iterdir() if path.name.split(".")[0] in STYLES and path.is_file())
    if not files or style is not None:
        raise CorpusError(
            f"Expected files named {', '.join(f'{name}.txt' for name in STYLES)} in {folder}, found "
            f"{'a --style beside them' if files else 'none'}.",
            "Name a file and its --style, or put files of several styles into a folder.",
        )
    return [one for path in files for one in _of_style(path, path.name.split(".")[0])]


def _of_style(path: Path, style: str) -> list[Styled]:
    if style not in STYLES:
        raise UsageError(f'style: expected {", ".join(STYLES)}, found "{style}".', "Choose one of these.")
    texts = (normalise(line.text) for line in Corpus((str(path),)) if isinstance(line, Text))
    return [Styled(style, text) for text in texts if len(content_words(text)) > 0]


def content_words(text: str) -> list[tuple[int, int]]:
    """Where the words stand that could be constraints.

    >>> ["The tired dog barks."[a:b] for a, b in content_words("The tired dog barks.")]
    ['tired', 'dog', 'barks']
    """
    spans = [found.span() for found in WORD.finditer(text)]
    return [(start, end) for start, end in spans if text[start:end].lower() not in stop_words()]


def draw(text: str, fewest: int, most: int, random: np.random.Generator) -> list[tuple[int, int]]:
    """Some words of a text as its constraints, in order; now and then two that stand together as one."""
    words = content_words(text)
    wanted = min(len(words), int(random.integers(fewest, most, endpoint=True)))
    chosen = np.sort(random.choice(len(words), wanted, replace=False)).tolist()
    spans: list[tuple[int, int]] = []
    for number in chosen:
        start, end = words[number]
        if spans and start < spans[-1][1]:
            continue
        if number + 1 < len(words) and words[number + 1][0] == end + 1 and random.random() < NEIGHBOUR:
            end = words[number + 1][1]
        spans.append((start, end))
    return spans


def given(text: str, start: int, end: int) -> str:
    """A constraint as somebody would type it: without the capital that only the start of a sentence gave it."""
    word = text[start:end]
    return word[0].lower() + word[1:] if start == 0 and word[1:] == word[1:].lower() else word


class Example(NamedTuple):
    """What the model reads, and at every position what it should say next."""

    ids: list[int]
    labels: list[int]
    style: str


def example(language: Language, styled: Styled, spans: Sequence[tuple[int, int]]) -> Example:
    """A text with these constraints as the decoder will put it to the model."""
    text = styled.text
    ids = language.prompt([given(text, start, end) for start, end in spans], styled.style)
    labels = [IGNORED] * len(ids)
    at, lead = 0, language.lead
    for start, end in spans:
        gap = language.encode((lead + text[at:start]).rstrip(" "))
        copied = language.encode((lead if start == 0 else " ") + text[start:end])
        ids += gap + copied
        labels += gap + copied[:1] + [IGNORED] * (len(copied) - 1)
        at, lead = end, ""
    rest = [*language.encode(text[at:]), language.end]
    return Example(ids + rest, labels + rest, styled.style)
