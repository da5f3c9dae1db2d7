"""Everything that is done to logits before a gap is filled: presets, penalties, bans.

Log-probabilities of the open gaps come in, adjusted ones go out. `[NOI]` is never banned, so every gap has an answer.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from pointer.decoding.calibration import UNCALIBRATED, Calibration, costs
from pointer.decoding.lexicon import CONTRACTIONS, Lexicon, breaks_contraction, contracts, is_function, lacks_noun
from pointer.errors import CheckpointError
from pointer.vocabulary import Vocabulary
from pointer.writing import HALF_WORDS

if TYPE_CHECKING:
    from pointer.decoding.options import Options

LARGEST_LOGIT = 1e4
"""No trained model comes near it; it keeps an infinite logit from turning the others into NaN."""
LAST_RESORT = -1e9
"""The score of `[NOI]` where something else should go in, if there is anything."""
NOTHING = -1
"""In the place of what was taken out of a gap, if nothing was."""
SENTENCE_MARKS = ".,!?;:"
ARTICLES = frozenset(["a", "an", "the"])
RAREST = math.log(1000)
"""Words in fewer than one text of a thousand are all as rare as each other: the rarest are names and misspellings."""


@dataclass(frozen=True)
class Preset:
    """What is done at each stage; of a tuple by stage the last value holds for all later ones."""

    eta: tuple[float, float] | None = None
    """The paper's multiplier `min(1, start + step * s)` on the logits of `[NOI]`, specials, marks and stop words."""
    noi: tuple[float, ...] = (0.0,)
    """Added to the log-probability of `[NOI]`, by stage."""
    gap_first: bool = False
    """It is decided first whether anything goes into a gap, and then what: `[NOI]` has the probability of all words
    together against it, and not that of the best one.

    Right for a model that was trained on the schedule `eager`: there `[NOI]` is the answer to one question, whether
    anything is missing.
    """
    drawn: float = 0.0
    """Added to the log-probability of `[NOI]` where tokens are drawn: there it has all words of a gap together against
    it, and not the best one alone."""
    start: tuple[float, ...] | None = None
    """The same for the gap before the first word; left out, as for all others.

    A sentence can always begin with one more word, and if it has to, that is the same one every time.
    """
    stop: tuple[float, ...] = (0.0,)
    """Added to the log-probabilities of stop words and marks, by stage."""
    common: tuple[float, ...] = (0.0,)
    """How much the frequency of a content word counts against it, by stage: this times `log(frequency / 1 in 1,000)`
    is taken off its log-probability.

    The likeliest word of a gap is often one that would be likely anywhere. At 1 the choice is by mutual information:
    what makes a word likelier *here* than in any text.
    """
    plausible: float = 0.0
    """What is less likely than this share of the likeliest word of a gap does not go in, rare as it may be."""
    repetition_penalty: float = 0.0
    """Taken off the log-probability of a word, not a stop word, that is already in the text."""
    stop_penalty: float = 0.0
    """Taken off the log-probability of a stop word or mark for every time that it is in the text, or in another gap.

    Each gap by itself wants what is most frequent: all of them together write `the` and `and` far more often than
    people do.
    """
    distinct: bool = False
    """No word and no two words beside themselves, no article or sentence mark beside another, no such mark at the
    start, no content word twice in one stage.

    Gaps of a stage do not know of each other; without this rule they often want the same word.
    """
    repeat_ngram: int = 0
    """No insertion makes so many words in a row that the text has already; 0 for no such rule."""
    spelling: bool = False
    """A word comes about piece by piece only if the training texts have it, and is not left half spelt."""
    contractions: bool = False
    """An apostrophe belongs to a contraction or a possessive, and `ve` and `ll` belong to an apostrophe."""
    nouns: bool = False
    """`the` goes before what it can belong to: not before `is`, a mark or the end of the text."""
    hyphens: bool = False
    """A hyphen goes between inserted words only, and joins two: nothing is glued to a constraint, so beside one it
    would stand alone."""
    calibration: bool = False
    """What `pointer calibrate` measured for the model is applied, if it was: words that it uses too often cost more,
    and `[NOI]` gets what brings the usual length."""
    faithful: float = 0.0
    """Added to the log-probability of a word that was taken out of a finished text, if it is still plausible there: a
    revision replaces what is out of place, and not what could as well be another word."""
    marks: str | None = None
    """The only marks that are inserted; left out, all are.

    Brackets and quotation marks come in pairs, but gaps are filled each by itself: one of a pair is left alone.
    """


PRESETS = {
    "plain": Preset(),
    "paper": Preset(eta=(0.5, 0.5)),
    "default": Preset(
        # Chosen on validation texts, so that texts get as long as people's; docs/decoding.md has what was tried.
        gap_first=True,
        noi=(-2.0,),
        stop=(-6.0, -4.0, -2.0, 0.0),
        common=(1.5,),
        plausible=0.06,
        repetition_penalty=2.0,
        stop_penalty=1.0,
        distinct=True,
        repeat_ngram=3,
        spelling=True,
        contractions=True,
        nouns=True,
        hyphens=True,
        calibration=True,
        faithful=2.0,
        marks=".,!?;:'-&$%/",
    ),
}

LATE = replace(
    PRESETS["default"],
    gap_first=False,
    noi=(-20.0, -8.0, -8.0, -6.0, -4.0),
    drawn=2.5,
    start=(-20.0, -6.0, -1.0, 0.0),
    stop=(-4.0, -2.0, 0.0),
    plausible=0.05,
)
"""`default` for models of the paper's schedule: to those `[NOI]` may mean that a gap has to wait, so it is pushed aside
until the text is long enough."""
LATE_AT_ONCE = replace(LATE, noi=(-20.0, -6.0, -3.5, -2.0, -1.0), common=(0.5,))
"""The same for stages that are filled in one round: a gap whose neighbours are open asks for more, and knows less."""


def default_preset(schedule: str, blocks: int | None) -> Preset:
    """What `default` is for a model that was trained on this schedule, and fills a stage in so many rounds."""
    if schedule == "eager":
        return PRESETS["default"]
    return LATE_AT_ONCE if blocks == 1 else LATE


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
    unfinished: npt.NDArray[np.bool_]
    """Is the word left of the gap still to be spelt out?"""
    inserted: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]
    """Did the model insert what stands left of the gap, and what stands right of it?"""
    taken: npt.NDArray[np.int64]
    """What a revision took out of the gap, which gets something again; or `NOTHING`."""


class Schedule:
    """Adjusts the log-probabilities of gaps by a preset and the caller's options."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        options: "Options",
        device: torch.device,
        default: Preset | None = None,
        lexicon: Lexicon | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.device = device
        self.lexicon = lexicon
        preset = (default if options.preset == "default" else None) or PRESETS[options.preset]
        if options.repetition_penalty is not None:
            preset = replace(preset, repetition_penalty=options.repetition_penalty)
        self.preset = preset
        self.calibration = calibration if calibration is not None and preset.calibration else UNCALIBRATED
        self.noi_offset = options.noi_offset + self.calibration.noi
        self.draws = options.decoding == "sample"
        if self.draws:
            self.noi_offset += preset.drawn
        self.banned = options.banned

    def log_probabilities(self, logits: torch.Tensor, gaps: Gaps, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """The model's own log-probabilities of every gap, and the adjusted ones that decisions are made by.

        Most of what is done is the same for all gaps of a stage, and is one addition; what depends on a gap touches
        single entries. At 10,000 entries a gap, every pass over all of them is felt.
        """
        logits = logits.float().clamp(-LARGEST_LOGIT, LARGEST_LOGIT)  # G V
        own = torch.log_softmax(logits, -1)
        if torch.isnan(own[:, 0]).any():  # one NaN among the logits of a gap makes all of its probabilities NaN
            raise CheckpointError(
                f"Expected numbers from the model {name}, found NaN.",
                "Its weights are damaged; open another checkpoint.",
            )
        adjusted = own
        if self.preset.eta is not None:
            start, step = self.preset.eta
            eta = self._tensor(np.minimum(1.0, start + step * gaps.stage)).to(logits.dtype)
            adjusted = torch.log_softmax(torch.where(self._damped, logits * eta[:, None], logits), -1)
        kind = np.where(gaps.left == self.vocabulary.id("[CLS]"), 2, gaps.extends)
        rows = np.minimum(gaps.stage, len(self._offsets) // 3 - 1) * 3 + kind
        scores = self._banned(adjusted + self._offsets[self._tensor(rows)], gaps)
        return own, self._specific(scores, gaps)

    @cached_property
    def _offsets(self) -> torch.Tensor:
        """What is added to every entry, `3S V`: for each stage a row for gaps without `##` pieces, one for those with
        them, and one for the gap before the first word.
        """
        by_stage = (self.preset.noi, self.preset.start or self.preset.noi, self.preset.stop)
        stages = np.arange(max(map(len, by_stage)))
        noi, start, stop = (self._tensor(_at(values, stages)) for values in by_stage)
        offsets = stop[:, None] * self._function_words  # S V
        offsets[:, self.vocabulary.noi] += self.noi_offset + noi
        offsets[:, self._never] = -torch.inf
        whole_words = offsets.masked_fill(self._tensor(self.vocabulary.continues), -torch.inf)
        first = whole_words.clone()
        first[:, self.vocabulary.noi] += start - noi
        return torch.stack([whole_words, offsets, first], 1).flatten(0, 1)

    def _tensor(self, values: npt.ArrayLike) -> torch.Tensor:
        return torch.as_tensor(np.asarray(values), device=self.device)

    def _specific(self, scores: torch.Tensor, gaps: Gaps) -> torch.Tensor:
        """Of the words that are plausible in a gap, favour those that are not plausible everywhere."""
        if self.preset.plausible:
            nothing = scores[:, self.vocabulary.noi].clone()
            scores[:, self.vocabulary.noi] = -torch.inf  # its offsets are about the length of a text, not about words
            least = scores.amax(-1, keepdim=True) + math.log(self.preset.plausible)
            scores = scores.masked_fill(scores < least, -torch.inf)
            scores[:, self.vocabulary.noi] = nothing
        if self._too_common is not None:
            stages = np.minimum(gaps.stage, len(self._too_common) - 1)
            scores = scores - self._too_common[self._tensor(stages)]
        return scores

    @cached_property
    def _too_common(self) -> torch.Tensor | None:
        """What is taken off every entry for its frequency, in all texts and in those of this model, by stage, `S V`."""
        by_stage = self._tensor(np.array(self.preset.common, np.float32))[:, None]
        if self.lexicon is not None and any(self.preset.common):
            common = by_stage * self._commonness
        elif self.calibration.words:
            common = torch.zeros(1, len(self.vocabulary), device=self.device)
        else:
            return None
        return common + self._tensor(costs(self.calibration, self.vocabulary))

    def penalise(self, scores: torch.Tensor, gaps: Gaps, texts: list[npt.NDArray[np.int64]]) -> torch.Tensor:
        """Take the penalties off the words that each text already has."""
        if not (self.preset.repetition_penalty or self.preset.stop_penalty):
            return scores
        is_function = _function_words(self.vocabulary)
        free = _free_stops(self.vocabulary)
        present = [np.unique(ids, return_counts=True) for ids in texts]
        costs = [
            self.preset.repetition_penalty * (1 - is_function[ids]) + self.preset.stop_penalty * count * free[ids]
            for ids, count in present
        ]
        rows = np.repeat(np.arange(len(gaps.text)), [len(costs[text]) for text in gaps.text])
        columns = np.concatenate([present[text][0] for text in gaps.text])
        cost = np.concatenate([costs[text] for text in gaps.text]).astype(np.float32)
        scores[self._tensor(rows), self._tensor(columns)] -= self._tensor(cost)
        return scores

    def favour_taken(self, scores: torch.Tensor, gaps: Gaps) -> torch.Tensor:
        """Give a word that was taken out a better chance than others to come back, and `[NOI]` none.

        What was a content word stays one: function words are always likely, and a text would lose what it says.
        """
        revised = np.flatnonzero(gaps.taken != NOTHING)
        if len(revised):
            rows = self._tensor(revised)
            scores[rows, self._tensor(gaps.taken[revised])] += self.preset.faithful
            is_function = self._function_words.bool()
            content = rows[~is_function[self._tensor(gaps.taken[revised])]]
            scores[content[:, None], is_function.nonzero()[:, 0]] = -torch.inf
            scores[rows, self.vocabulary.noi] = LAST_RESORT
        return scores

    def weigh_nothing(self, scores: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Put `[NOI]` where it stands to the words of a gap as its probability stands to that of all of them."""
        if not self.preset.gap_first:
            return scores
        nothing = scores[:, self.vocabulary.noi].clone()
        scores[:, self.vocabulary.noi] = -torch.inf
        words = scores.logsumexp(-1) if self.draws else scores.amax(-1)  # what it competes with
        something = torch.log(-torch.expm1(own[:, self.vocabulary.noi].clamp(max=-1e-6)))
        is_open = torch.isfinite(words) & (nothing > LAST_RESORT / 2)
        scores[:, self.vocabulary.noi] = torch.where(is_open, nothing + words - something, nothing)
        return scores

    def _banned(self, scores: torch.Tensor, gaps: Gaps) -> torch.Tensor:
        scores[self._tensor(~gaps.last), self.vocabulary.id("[SEP]")] = -torch.inf
        if self.preset.distinct:
            rows = torch.arange(len(scores), device=self.device)
            for beside in (self._tensor(gaps.left), self._tensor(gaps.right)):
                scores[rows, beside] = -torch.inf
                scores[rows[self._bars_marks[beside]][:, None], self._marks] = -torch.inf
            # Two of the same in a row, which can only be constraints, get something between them.
            scores[self._tensor(gaps.left == gaps.right), self.vocabulary.noi] = LAST_RESORT
        if gaps.unfinished.any():
            rows = self._tensor(gaps.unfinished.nonzero()[0])
            scores[rows] = scores[rows].masked_fill(~self._tensor(self.vocabulary.continues), -torch.inf)
            scores[rows, self.vocabulary.noi] = LAST_RESORT
        if self.preset.hyphens:
            by_us = gaps.inserted[0] & gaps.inserted[1]
            scores[self._tensor(~by_us), self.vocabulary.id("-")] = -torch.inf
        if self.preset.contractions:
            for lacking, allowed in self._contractions(gaps):
                if len(lacking):
                    rows = self._tensor(lacking)
                    scores[rows] = scores[rows].masked_fill(~self._tensor(allowed), -torch.inf)
                    scores[rows, self.vocabulary.noi] = LAST_RESORT
        self._ban_spellings(scores, gaps)
        return scores

    def _contractions(self, gaps: Gaps) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]]:
        """The gaps that lack a part of a contraction, and what may go there: an ending, or the apostrophe."""
        tokens, is_ending = self.vocabulary.tokens, _contracted(self.vocabulary)
        is_apostrophe = _apostrophe(self.vocabulary)
        by_us_left, by_us_right = gaps.inserted
        lacks_ending = np.flatnonzero(is_apostrophe[gaps.left] & by_us_left & ~is_ending[gaps.right])
        yield lacks_ending, is_ending
        lacks_apostrophe = [
            i
            for i in np.flatnonzero(is_ending[gaps.right] & by_us_right)
            if contracts(tokens[gaps.left[i]].removeprefix("##"), tokens[gaps.right[i]])
        ]
        yield np.array(lacks_apostrophe, np.int64), is_apostrophe

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

    def again(self, token: int) -> float:
        """What a token costs for each other gap that is filled with it at the same time."""
        return float(self.preset.stop_penalty * _free_stops(self.vocabulary)[token])

    @property
    def has_rules(self) -> bool:
        """Does what a gap may get depend on other gaps?"""
        return (
            self.preset.distinct
            or self.preset.repeat_ngram > 0
            or self.preset.stop_penalty > 0
            or self.preset.contractions
            or self.preset.nouns
            or self.preset.hyphens
            or self.spelling is not None
        )

    def extends(self, left: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """May a `##` piece follow these tokens, if they were inserted? `I've` must not become `I'verizon`."""
        return self.vocabulary.is_word[left] & ~(_contracted(self.vocabulary)[left] & self.preset.spelling)

    @property
    def spelling(self) -> Lexicon | None:
        """What words have to be spelt by, if they have to."""
        return self.lexicon if self.preset.spelling else None

    def refuses(self, words: Sequence[str], place: int, asked: Sequence[bool]) -> bool:
        """Is the word at `place` no word, beside itself, in a contraction that is none, part of a repetition, or what
        leaves an article alone?

        `asked` are the words of constraints, which stay as they are.
        """
        word = words[place]
        id_of = self.vocabulary.tokenizer.token_to_id
        if self.spelling is not None and not self.spelling.is_spelt(word) and id_of(word) is None:
            return True
        if self.preset.distinct:
            same = ARTICLES if word in ARTICLES else {word}
            if not same.isdisjoint((words[place - 1], *words[place + 1 : place + 2])) or _doubles_pair(words, place):
                return True
        if self.preset.hyphens and word == "-" and "-" in (words[max(0, place - 2)], *words[place + 2 : place + 3]):
            return True
        if self.preset.contractions and breaks_contraction(words, place, asked):
            return True
        if self.preset.nouns and lacks_noun(words, place, asked):
            return True
        size = self.preset.repeat_ngram
        if not size:
            return False
        rows = list(zip(*(words[i:] for i in range(size)), strict=False))
        near = range(max(0, place - size + 1), min(place + 1, len(rows)))
        # A constraint like `didn` gets its ending as often as it was asked for.
        needed = [asked[i] and words[i] in HALF_WORDS and words[i + 1] == "'" for i in near]
        return any(rows.count(rows[i]) > 1 for i, is_needed in zip(near, needed, strict=True) if not is_needed)

    @cached_property
    def _never(self) -> torch.Tensor:
        """Ids that no gap ever gets: specials but `[SEP]`, which has its own rule, banned words, and other marks."""
        special = set(self.vocabulary.special.tolist()) - {self.vocabulary.id("[SEP]")}
        banned = {self.vocabulary.id(word) for word in self.banned} - {self.vocabulary.id("[UNK]")}
        return self._tensor(sorted(special | banned | _other_marks(self.vocabulary, self.preset.marks)))

    @cached_property
    def _function_words(self) -> torch.Tensor:
        """1 for stop words and marks, 0 for all other entries."""
        return self._tensor(_function_words(self.vocabulary))

    @cached_property
    def _commonness(self) -> torch.Tensor:
        """How much more frequent than one text in a thousand each content word is, as a logarithm; 0 for the rest."""
        assert self.lexicon is not None
        commonness = self._tensor(np.maximum(0, RAREST - self.lexicon.idf).astype(np.float32)) * (
            1 - self._function_words
        )
        commonness[self.vocabulary.noi] = 0
        return commonness

    @cached_property
    def _damped(self) -> torch.Tensor:
        """What the paper's multiplier applies to: `[NOI]`, specials, marks and stop words."""
        damped = self._function_words.bool().clone()
        damped[self._tensor(self.vocabulary.special)] = True
        damped[self.vocabulary.noi] = True
        return damped

    @cached_property
    def _bars_marks(self) -> torch.Tensor:
        """Is an entry one that no sentence mark goes beside: another, or the start of the text?"""
        bars = self._tensor(_sentence_marks(self.vocabulary)).clone()
        bars[self.vocabulary.id("[CLS]")] = True
        return bars

    @cached_property
    def _marks(self) -> torch.Tensor:
        return self._tensor(_sentence_marks(self.vocabulary).nonzero()[0])


def _at(values: tuple[float, ...], stage: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """The values for some stages."""
    return np.array(values, np.float32)[np.minimum(stage, len(values) - 1)]


def _doubles_pair(words: Sequence[str], place: int) -> bool:
    """Is the word at `place` one of two words that stand beside themselves, as in `to me to me`?"""
    starts = range(max(0, place - 3), place + 1)
    return any(len(words) >= i + 4 and words[i : i + 2] == words[i + 2 : i + 4] for i in starts)


@lru_cache(8)  # a schedule is made for every request, a vocabulary once
def _function_words(vocabulary: Vocabulary) -> npt.NDArray[np.float32]:
    return np.array([is_function(token) for token in vocabulary.tokens], np.float32)


@lru_cache(8)
def _free_stops(vocabulary: Vocabulary) -> npt.NDArray[np.float32]:
    """1 for the stop words and marks that a writer chooses: not those that spell `don't` and `re-do`."""
    is_free = np.array([token not in ("'", "-", "t") for token in vocabulary.tokens], np.float32)
    return _function_words(vocabulary) * is_free


@lru_cache(8)
def _sentence_marks(vocabulary: Vocabulary) -> npt.NDArray[np.bool_]:
    return np.array([token in tuple(SENTENCE_MARKS) for token in vocabulary.tokens])


@lru_cache(8)
def _other_marks(vocabulary: Vocabulary, marks: str | None) -> frozenset[int]:
    """The ids of all marks but those that a preset has."""
    if marks is None:
        return frozenset()
    is_mark = [bool(token) and not any(map(str.isalnum, token)) for token in vocabulary.tokens]
    return frozenset(i for i, token in enumerate(vocabulary.tokens) if is_mark[i] and token not in tuple(marks))


@lru_cache(8)
def _contracted(vocabulary: Vocabulary) -> npt.NDArray[np.bool_]:
    """What follows an apostrophe."""
    return np.array([token in CONTRACTIONS for token in vocabulary.tokens])


@lru_cache(8)
def _apostrophe(vocabulary: Vocabulary) -> npt.NDArray[np.bool_]:
    return np.array([token == "'" for token in vocabulary.tokens])
