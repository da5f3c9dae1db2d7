"""Revision: words of a finished text are taken out, some at a time, and asked for again.

A word goes in while most of its text is still missing. Once all of it is there, the model may find the word out of
place; then a better one takes its place. Nothing is asked about constraints, and no gap is left empty.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pointer.decoding.constraints import FRAME, INSERTED
from pointer.decoding.search import Text
from pointer.picture import Token
from pointer.vocabulary import Vocabulary

GROUPS = 4
"""Turns in which every word is asked for once: with three words between any two that are missing, each is known by
its neighbours."""
FINISHED = 1000
"""The stage of a finished text: beyond all that it grew in, so that what holds for the latest ones applies, and draws
are new ones."""

Stage = tuple[Token, ...]
"""The tokens of a stage; each knows whether this stage inserted it."""


def take_out(text: Text, turn: int, vocabulary: Vocabulary) -> Text:
    """The text without every fourth of its words, beginning with another one at every turn.

    Words of several pieces stay, and so does what an apostrophe or a hyphen joins: no single token could replace it.
    """
    tokens = text.tokens
    beyond = np.append(vocabulary.continues[tokens.ids[1:]], False)
    joint = np.isin(tokens.ids, [vocabulary.id(mark) for mark in "'-"])
    joined = joint | np.append(joint[1:], False) | np.insert(joint[:-1], 0, False)
    is_whole = ~vocabulary.continues[tokens.ids] & ~beyond & ~joined
    places = np.flatnonzero((tokens.owner == INSERTED) & is_whole)[turn % GROUPS :: GROUPS]
    taken = {int(place) - 1 - before: int(tokens.ids[place]) for before, place in enumerate(places)}
    return replace(text, tokens=tokens.without(places), stage=FINISHED + turn, taken=taken)


def put_back(text: Text, taken_from: Text, fills: dict[int, int]) -> Text:
    """The text with other words where some were taken out; as it was if one of the gaps would stay empty."""
    assert taken_from.taken is not None
    if fills.keys() != taken_from.taken.keys():
        return text
    return replace(text, tokens=taken_from.tokens.filled(fills)[0])


def births(stages: Sequence[Stage]) -> npt.NDArray[np.int64]:
    """For every token of the last stage the stage that inserted it."""
    born = np.zeros(len(stages[-1]), np.int64)
    alive = np.arange(len(born))
    for number in range(len(stages) - 1, 0, -1):
        new = np.array([token.new for token in stages[number]], bool)
        born[alive[new]] = number
        alive = alive[~new]
    return born


def retold(stages: Sequence[Stage], text: Text, vocabulary: Vocabulary) -> tuple[Stage, ...]:
    """The stages by which a revised text grows: each of its words comes when the one did whose place it took."""
    tokens = [vocabulary.tokens[i] for i in text.tokens.ids[text.tokens.owner != FRAME]]
    born = births(stages).tolist()
    return tuple(
        tuple(Token(token, 0 < stage == number) for token, stage in zip(tokens, born, strict=True) if stage <= number)
        for number in range(len(stages))
    )
