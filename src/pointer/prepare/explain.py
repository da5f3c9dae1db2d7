"""Why a text is taken apart the way it is: the scores of every word, and the stages that follow from them."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pointer.checkpoint import EMBEDDED, embedded_folder
from pointer.errors import UsageError
from pointer.prepare.importance import Frequencies
from pointer.prepare.rows import RowMaker, RowSettings
from pointer.prepare.shards import FREQUENCIES, LONGEST_TEXT
from pointer.stage import Token
from pointer.text import normalise
from pointer.vocabulary import Vocabulary


@dataclass(frozen=True)
class ExplainedToken:
    """A token with the scores of its word, and the stage at which it is born."""

    token: str
    scores: dict[str, float]
    factor: float
    importance: float
    stage: int


@dataclass(frozen=True)
class Explanation:
    """A text with the scores of its tokens; `stages` are X^0 to X^K."""

    text: str
    tokens: list[ExplainedToken]

    @property
    def stages(self) -> list[list[Token]]:
        """Every stage, each a list of tokens that know whether they are new."""
        last = max(token.stage for token in self.tokens)
        return [
            [Token(token.token, token.stage == k) for token in self.tokens if token.stage <= k] for k in range(last + 1)
        ]

    def to_dict(self) -> dict[str, Any]:
        """The explanation for programs."""
        stages = [[{"token": text, "new": new} for text, new in stage] for stage in self.stages]
        return asdict(self) | {"stages": stages}


def explain(text: str, source: str | Path = EMBEDDED, settings: RowSettings | None = None) -> Explanation:
    """Score the words of a text and schedule its stages, with the vocabulary and frequencies of `source`.

    `source` is an embedded name, a data folder that `pointer prepare` wrote, or a checkpoint.

    >>> stages = explain("My sources have suggested the company sees no reason to change its tax structure.").stages
    >>> [token.text for token in stages[0]]
    ['sees', 'structure']
    """
    folder = embedded_folder(str(source)) or Path(source)
    vocabulary = Vocabulary.open(folder)
    normal = normalise(text)
    tokens_of_it = len(vocabulary.encode([normal])[0].ids)
    if not 0 < tokens_of_it <= LONGEST_TEXT - 2:  # before anything that takes time is done with it
        raise UsageError(
            f"text: expected 1 to {LONGEST_TEXT - 2} tokens, found {tokens_of_it}.", "Explain a sentence or a passage."
        )
    make_rows = RowMaker(vocabulary, Frequencies.open(folder / FREQUENCIES), settings or RowSettings())
    [row], [encoding], [scores] = make_rows.scored_rows([normal])

    def tokens() -> Iterator[ExplainedToken]:
        for i, (piece, word) in enumerate(zip(row.ids.tolist(), encoding.word_of.tolist(), strict=True)):
            parts = {name: float(values[word]) for name, values in scores.parts.items()}
            factor, alpha = float(scores.factor[word]), float(scores.alpha[word])
            yield ExplainedToken(vocabulary.tokens[piece], parts, factor, alpha, int(row.stage[i]))

    return Explanation(normal, list(tokens()))
