"""Scores: what is added to the log-probabilities of gaps before they are filled. One small function for each term.

Log-probabilities of the open gaps come in (`G V`: gaps, vocabulary), scores that decisions are made by go out. `[NOI]`
is never ruled out, so every gap has an answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from pointer.decoding.presets import Preset
from pointer.errors import CheckpointError
from pointer.prepare.yake import stop_words
from pointer.runtime import LARGEST_LOGIT, Floats, Ints, log_softmax, logsumexp
from pointer.vocabulary import Vocabulary


@dataclass(frozen=True)
class Gaps:
    """Open gaps of many texts, one entry each."""

    stage: npt.NDArray[np.int64]
    extends: npt.NDArray[np.bool_]
    """May a `##` piece go here? Only right of a word that the model inserted itself."""
    last: npt.NDArray[np.bool_]
    """Is it the last gap of a text whose `[SEP]` is still to be inserted?"""
    text: npt.NDArray[np.int64]
    """Which of the texts the gap belongs to."""

    def some(self, rows: slice) -> "Gaps":
        """Some of the gaps."""
        return Gaps(self.stage[rows], self.extends[rows], self.last[rows], self.text[rows])


class Scores:
    """Turns logits into scores, by a preset and the caller's options."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        preset: Preset,
        *,
        noi: float,
        decoding: str = "greedy",
        presence_penalty: float = 0.0,
        words: frozenset[str] | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.preset = preset
        self.noi = noi
        """What is added to the log-probability of `[NOI]`: of the preset, the model and the caller together."""
        self.decoding = decoding
        self.presence_penalty = presence_penalty
        self.words = words
        """The words of the training texts, where they are known."""

    def __call__(self, logits: Floats, gaps: Gaps, texts: Sequence[Ints], name: str) -> tuple[Floats, Floats]:
        """The model's own log-probabilities of every gap, and the scores; `texts` are the ids of each text."""
        logits = np.clip(logits, -LARGEST_LOGIT, LARGEST_LOGIT)  # G V
        own = log_softmax(logits)
        if np.isnan(own[:, 0]).any():  # one NaN among the logits of a gap makes all of its probabilities NaN
            raise CheckpointError(
                f"Expected numbers from the model {name}, found NaN.",
                "Its weights are damaged; open another checkpoint.",
            )
        rows = 2 * np.minimum(gaps.stage, len(self.preset.delay) - 1) + gaps.extends
        scores: Floats = self.offsets[rows]
        scores += own if self.preset.eta is None else self.damped(logits, gaps)
        scores[~gaps.last, self.vocabulary.id("[SEP]")] = -np.inf
        if self.presence_penalty:
            self.penalise_presence(scores, gaps, texts)
        if self.preset.gap_first:
            self.decide_gap_first(scores, own)
        if self.decoding == "beam":
            # A beam adds up the scores of gaps. Normalised, a gap that stays empty costs what the choice costs, and not
            # the offset that makes texts longer; or the best filling would be the one that leaves the most to insert.
            scores = log_softmax(scores)
        return own, scores

    def damped(self, logits: Floats, gaps: Gaps) -> Floats:
        """The paper's `eta`: the logits of `[NOI]`, specials, marks and stop words are multiplied by it."""
        assert self.preset.eta is not None
        start, step = self.preset.eta
        eta = np.minimum(1.0, start + step * gaps.stage).astype(np.float32)
        frame = np.isin(np.arange(len(self.vocabulary)), [*self.vocabulary.special, self.vocabulary.noi])
        is_damped = function_words(self.vocabulary) | frame
        return log_softmax(np.where(is_damped, logits * eta[:, None], logits))

    @cached_property
    def offsets(self) -> Floats:
        """What is the same for all gaps of a stage, `2S V`: the delay of function words, `[NOI]`, and what never goes
        in. For each stage a row for gaps without `##` pieces, and one for those with them.
        """
        offsets = np.array(self.preset.delay, np.float32)[:, None] * function_words(self.vocabulary)  # S V
        offsets[:, self.vocabulary.noi] = self.noi
        offsets[:, self.never] = -np.inf
        whole = np.where(self.vocabulary.continues, np.float32(-np.inf), offsets)
        return np.stack([whole, offsets], 1).reshape(-1, len(self.vocabulary))

    @property
    def never(self) -> npt.NDArray[np.bool_]:
        """What no gap ever gets: specials (but `[SEP]`, which has its own rule), other marks, what is no word."""
        is_special = np.isin(np.arange(len(self.vocabulary)), self.vocabulary.special)
        found: npt.NDArray[np.bool_] = is_special | other_marks(self.vocabulary, self.preset.marks)
        if self.preset.whole_words:
            found |= no_words(self.vocabulary, self.words)
        found[[self.vocabulary.noi, self.vocabulary.id("[SEP]")]] = False
        return found

    def penalise_presence(self, scores: Floats, gaps: Gaps, texts: Sequence[Ints]) -> None:
        """Take the presence penalty off content words that a text already has."""
        content = [np.unique(ids[~function_words(self.vocabulary)[ids]]) for ids in texts]
        rows = np.repeat(np.arange(len(gaps.text)), [len(content[text]) for text in gaps.text])
        columns = np.concatenate([content[text] for text in gaps.text])
        scores[rows, columns] -= self.presence_penalty

    def decide_gap_first(self, scores: Floats, own: Floats) -> None:
        """Put `[NOI]` where it stands to the words of a gap as its probability stands to that of all of them."""
        noi = self.vocabulary.noi
        nothing = scores[:, noi].copy()
        scores[:, noi] = -np.inf
        words = logsumexp(scores) if self.decoding == "sample" else scores.max(-1)  # what it competes with
        something = np.log(-np.expm1(np.minimum(own[:, noi], -1e-6)))
        scores[:, noi] = np.where(np.isfinite(words), nothing + words - something, nothing)


# Engines are made for every request; what is the same for all of them is computed once for a vocabulary.


def is_function(token: str) -> bool:
    """Is a token a stop word or a mark?"""
    return token in stop_words("en") or not any(map(str.isalnum, token))


@lru_cache(8)
def function_words(vocabulary: Vocabulary) -> npt.NDArray[np.bool_]:
    """Which entries are stop words or marks."""
    return np.array([is_function(token) for token in vocabulary.tokens])


@lru_cache(8)
def other_marks(vocabulary: Vocabulary, marks: str | None) -> npt.NDArray[np.bool_]:
    """Which entries are marks, but none of those that a preset has."""
    is_mark = np.array([not any(map(str.isalnum, token)) for token in vocabulary.tokens])
    return is_mark & (marks is not None) & ~np.isin(vocabulary.tokens, list(marks or ""))


@lru_cache(8)
def no_words(vocabulary: Vocabulary, words: frozenset[str] | None) -> npt.NDArray[np.bool_]:
    """Which entries are pieces of words, or letters that no training text has as a word."""
    is_known = [words is None or not token.isalpha() or token in words for token in vocabulary.tokens]
    found: npt.NDArray[np.bool_] = vocabulary.continues | ~np.array(is_known)
    return found
