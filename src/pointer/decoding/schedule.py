"""Everything that is done to logits before a gap is filled: presets, penalties, bans.

Log-probabilities of the open gaps come in, adjusted ones go out. `[NOI]` is never banned, so every gap has an answer.
"""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from pointer.errors import CheckpointError
from pointer.prepare.yake import stop_words
from pointer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pointer.decoding.options import Options

LARGEST_LOGIT = 1e4
"""No trained model comes near it; it keeps an infinite logit from turning the others into NaN."""
SENTENCE_MARKS = ".,!?;:"


@dataclass(frozen=True)
class Preset:
    """What is done at each stage; of a tuple by stage the last value holds for all later ones."""

    eta: tuple[float, float] | None = None
    """The paper's multiplier `min(1, start + step * s)` on the logits of `[NOI]`, specials, marks and stop words."""
    noi: tuple[float, ...] = (0.0,)
    """Added to the log-probability of `[NOI]`, by stage."""
    stop: tuple[float, ...] = (0.0,)
    """Added to the log-probabilities of stop words and marks, by stage."""
    repetition_penalty: float = 0.0
    """Taken off the log-probability of a word, not a stop word, that is already in the text."""
    distinct: bool = False
    """No word beside itself, no sentence mark beside another, and (greedy, beam) no content word twice in one stage.

    Gaps of a stage do not know of each other; without this rule they often want the same word.
    """


PRESETS = {
    "plain": Preset(),
    "paper": Preset(eta=(0.5, 0.5)),
    "default": Preset(
        # Chosen on validation texts, so that texts get as long as people's; docs/decoding.md has what was tried.
        noi=(-20.0, -5.0, -2.0, -1.0, 0.0),
        stop=(-4.0, -2.0, 0.0),
        repetition_penalty=2.0,
        distinct=True,
    ),
}


@dataclass(frozen=True)
class Gaps:
    """Open gaps of many texts, one entry each."""

    stage: npt.NDArray[np.int64]
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    extends: npt.NDArray[np.bool_]
    """May a `##` piece go here? Only right of a word that the model inserted itself."""
    last: npt.NDArray[np.bool_]
    """Is it the last gap of a text whose `[SEP]` is still to be inserted?"""
    text: npt.NDArray[np.int64]
    """Which of the texts the gap belongs to."""
    word: list[str]
    """The inserted word left of the gap as spelt so far, where `extends`."""


class Schedule:
    """Adjusts the log-probabilities of gaps by a preset and the caller's options."""

    def __init__(
        self, vocabulary: Vocabulary, options: "Options", device: torch.device, calibrated: Preset | None = None
    ) -> None:
        self.vocabulary = vocabulary
        self.device = device
        preset = (calibrated if options.preset == "default" else None) or PRESETS[options.preset]
        if options.repetition_penalty is not None:
            preset = replace(preset, repetition_penalty=options.repetition_penalty)
        self.preset = preset
        self.noi_offset = options.noi_offset
        self.banned = options.banned

    def log_probabilities(self, logits: torch.Tensor, gaps: Gaps, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """The model's own log-probabilities of every gap, and the adjusted ones that decisions are made by."""
        if torch.isnan(logits).any():
            raise CheckpointError(
                f"Expected numbers from the model {name}, found NaN.",
                "Its weights are damaged; open another checkpoint.",
            )
        logits = logits.float().clamp(-LARGEST_LOGIT, LARGEST_LOGIT)  # G V
        own = torch.log_softmax(logits, -1)
        adjusted = own
        if self.preset.eta is not None:
            start, step = self.preset.eta
            eta = self._tensor(np.minimum(1.0, start + step * gaps.stage)).to(logits.dtype)
            adjusted = torch.log_softmax(torch.where(self._damped, logits * eta[:, None], logits), -1)
        return own, self._banned(self._offset(adjusted.clone(), gaps), gaps)

    def _offset(self, scores: torch.Tensor, gaps: Gaps) -> torch.Tensor:
        scores[:, self.vocabulary.noi] += self.noi_offset + self._by_stage(self.preset.noi, gaps)
        if any(self.preset.stop):
            scores += self._by_stage(self.preset.stop, gaps)[:, None] * self._function_words
        return scores

    def _by_stage(self, values: tuple[float, ...], gaps: Gaps) -> torch.Tensor:
        return self._tensor(np.array(values, np.float32)[np.minimum(gaps.stage, len(values) - 1)])

    def _tensor(self, values: npt.ArrayLike) -> torch.Tensor:
        return torch.as_tensor(np.asarray(values), device=self.device)

    def penalise(self, scores: torch.Tensor, gaps: Gaps, texts: list[npt.NDArray[np.int64]]) -> torch.Tensor:
        """Take the repetition penalty off the words that each text already has."""
        if self.preset.repetition_penalty:
            present = torch.zeros(len(texts), scores.shape[1], device=self.device)
            for row, ids in enumerate(texts):
                present[row, self._tensor(ids)] = self.preset.repetition_penalty
            scores -= (present * (1 - self._function_words))[self._tensor(gaps.text)]
        return scores

    def _banned(self, scores: torch.Tensor, gaps: Gaps) -> torch.Tensor:
        never = torch.full((), -torch.inf)
        scores[:, self._never] = never
        scores.masked_fill_(self._tensor(~gaps.extends)[:, None] & self._tensor(self.vocabulary.continues), never)
        scores[self._tensor(~gaps.last), self.vocabulary.id("[SEP]")] = never
        if self.preset.distinct:
            rows = torch.arange(len(scores), device=self.device)
            for beside in (self._tensor(gaps.left), self._tensor(gaps.right)):
                scores[rows, beside] = never
                scores.masked_fill_(self._is_mark[beside][:, None] & self._is_mark, never)
        self._ban_spellings(scores, gaps)
        return scores

    def _ban_spellings(self, scores: torch.Tensor, gaps: Gaps) -> None:
        """A banned word must not come about piece by piece either."""
        for word in self.banned:
            for row, begun in enumerate(gaps.word):
                if begun and word != begun and word.startswith(begun):
                    piece = self.vocabulary.tokenizer.token_to_id("##" + word[len(begun) :])
                    if piece is not None:
                        scores[row, piece] = -torch.inf

    def once(self, token: int) -> bool:
        """Is this a token that one stage inserts once at the most?"""
        return self.preset.distinct and not _function_words(self.vocabulary)[token] and token != self.vocabulary.noi

    @cached_property
    def _never(self) -> torch.Tensor:
        """Ids that no gap ever gets: specials but `[SEP]`, which has its own rule, and banned words."""
        special = set(self.vocabulary.special.tolist()) - {self.vocabulary.id("[SEP]")}
        banned = {self.vocabulary.id(word) for word in self.banned} - {self.vocabulary.id("[UNK]")}
        return self._tensor(sorted(special | banned))

    @cached_property
    def _function_words(self) -> torch.Tensor:
        """1 for stop words and marks, 0 for all other entries."""
        return self._tensor(_function_words(self.vocabulary))

    @cached_property
    def _damped(self) -> torch.Tensor:
        """What the paper's multiplier applies to: `[NOI]`, specials, marks and stop words."""
        damped = self._function_words.bool().clone()
        damped[self._tensor(self.vocabulary.special)] = True
        damped[self.vocabulary.noi] = True
        return damped

    @cached_property
    def _is_mark(self) -> torch.Tensor:
        return self._tensor(_sentence_marks(self.vocabulary))


@lru_cache(8)  # a schedule is made for every request, a vocabulary once
def _function_words(vocabulary: Vocabulary) -> npt.NDArray[np.float32]:
    stop = stop_words("en")
    return np.array([t in stop or not any(map(str.isalnum, t)) for t in vocabulary.tokens], np.float32)


@lru_cache(8)
def _sentence_marks(vocabulary: Vocabulary) -> npt.NDArray[np.bool_]:
    return np.array([token in tuple(SENTENCE_MARKS) for token in vocabulary.tokens])
