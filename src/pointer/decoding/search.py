"""Filling the gaps of one stage: greedy, sampling, and inner-layer beam search (paper 3.3), one algorithm.

The open gaps of a text are filled in rounds. In each, the model is asked about every partial filling kept so far, and
the best `width` ways to fill the gaps of this round go on. All gaps in one round with width 1 is the paper's greedy
decoding; a round for every gap, left to right, is its beam search; with two rounds the surest half of the insertions is
made first, and the other gaps are decided given those. Gaps of one round do not know of each other, so a model that was
trained on stages begun decodes greedily in two rounds too.
"""

import hashlib
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import islice
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from pointer.decoding.constraints import FRAME, INSERTED, Locks, Tokens, open_gaps, units_of
from pointer.decoding.demand import Demand, count_sentences, count_words
from pointer.decoding.options import Options
from pointer.decoding.rules import Insertion, Rules
from pointer.decoding.scores import Gaps, Scores
from pointer.english import SENTENCE_ENDS
from pointer.runtime import Floats, Ints, Predict, best, logsumexp, side_by_side
from pointer.vocabulary import Vocabulary
from pointer.writing import write

Result = TypeVar("Result")
Steps = Generator[None, None, Result]
"""Work that pauses now and then, before every forward pass and between gaps, so that others can have the model."""

BATCH_TOKENS = 256
"""Positions of one forward pass. More gain nothing on a CPU, and the logits of more would not stay in its caches."""
SCORED_TOGETHER = 16
"""Gaps whose probabilities are looked at together: those of more would not stay in the nearest caches."""
WHOLE_STAGES = 2
"""Stages of greedy texts and samples that take all their rounds. A later one ends with its first round: by then most
gaps want nothing, and what is left is asked about in the next stage, together with the new gaps."""
SPARE = 32
"""Candidates of a gap beyond the width of the beam, for when rules refuse the best."""
LAST_RESORT = -1e9
"""The score of `[NOI]` where a drawn token should go in, if no rule refuses it."""
ARTICLES = frozenset(["a", "an"])
KEPT_TEXTS = 256
"""Written texts that are kept while candidates are tried."""
MOST_PADDING = 0.1
"""Texts go through the model together while at most this share of the positions is padding."""


@dataclass(frozen=True)
class Text:
    """A text at some stage, on its way."""

    tokens: Tokens
    stage: int
    key: bytes
    """What its random draws depend on: seed and constraints."""
    demand: Demand
    wants: str = ""
    """`words` or `sentence` where the text has to grow to reach its length, whether the model wants to or not."""
    tried: frozenset[str] = frozenset()
    """What it has wanted in vain since it grew last."""


@dataclass(frozen=True)
class Filling:
    """Tokens for some gaps of a text, by position, in the order of the decisions; what is not named gets nothing."""

    tokens: dict[int, int] = field(default_factory=dict)
    own: dict[int, float] = field(default_factory=dict)
    """The model's own log-probability of every token."""
    total: float = 0.0
    """Of all decisions so far, `[NOI]` included, adjusted: what the search maximises."""
    likelihood: float = 0.0
    """The same by the model's own probabilities."""


def at_once(steps: Steps[Result]) -> Result:
    """The result of work that may pause, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def fill(
    predict: Predict, texts: Sequence[Text], scores: Scores, rules: Rules, options: Options, name: str
) -> Steps[list[list[Filling]]]:
    """The best fillings of the open gaps of every text, best first: one for greedy and sampling, `width` for a beam."""
    search = _Search(predict, scores, rules, options, name)
    left = [_open_gaps(text, scores.vocabulary) for text in texts]
    beams: list[list[Filling]] = [[Filling()] for _ in texts]
    one_by_one = options.rounds == 0
    rounds = max(map(len, left), default=0) if one_by_one else options.rounds or 1
    has_one_round_later = search.width == 1 and not one_by_one
    for turn in range(rounds):
        groups = grouped([(len(text.tokens), len(beam)) for text, beam in zip(texts, beams, strict=True)], left)
        gaps = [some[: 1 if one_by_one else None] for some in left]
        asked = ([_Partial(texts[i], beam, gaps[i]) for i in group for beam in beams[i]] for group in groups)
        all_answers = side_by_side(search.ask, asked, predict)
        for group in groups:
            yield
            answers = next(all_answers)
            for i in group:
                mine = [next(answers) for _ in beams[i]]
                now = mine[0].due(rounds - turn, scores.vocabulary.noi)
                chosen = {gap: gaps[i][gap] for gap in now}
                beams[i] = yield from search.extended(texts[i], beams[i], chosen, mine)
                decided = {gaps[i][gap] for gap in now}
                room = options.max_length - len(texts[i].tokens) - max(len(beam.tokens) for beam in beams[i])
                is_over = room <= 0 or (has_one_round_later and texts[i].stage >= WHOLE_STAGES)
                left[i] = [] if is_over else [gap for gap in left[i] if gap not in decided]
    return beams


@dataclass(frozen=True)
class _Partial:
    """A partial filling, and the gaps to decide next."""

    text: Text
    filling: Filling
    gaps: list[int]

    def sequence(self) -> tuple[Tokens, npt.NDArray[np.int64]]:
        """The text with the filling put in, and where the gaps are now."""
        filled = np.array(sorted(self.filling.tokens), np.int64)
        return self.text.tokens.filled(self.filling.tokens)[0], np.array(self.gaps) + np.searchsorted(filled, self.gaps)

    def wants(self) -> list[str]:
        """What has to go into each of the gaps, if anything has to."""
        return ["words" if is_required(self.text, gap) else self.text.wants for gap in self.gaps]


_Choice = tuple[int, float, float]
"""A token, its adjusted and its own log-probability."""


@dataclass(frozen=True)
class _Candidates:
    """What may go into the gaps of a partial filling: of each gap the best, and more where rules refuse that."""

    best: list[_Choice]
    several: Callable[[int], list[_Choice]]
    """All candidates of a gap, the best included. Few gaps need them, and to sort a vocabulary takes time."""

    def due(self, rounds: int, noi: int) -> list[int]:
        """The gaps to decide in the first of so many rounds, left to right: the surest, up to its share of insertions.

        Gaps alone are not counted: the surest ones of a text that is nearly done want nothing, and rounds would pass
        without an insertion. In the last round all gaps are decided, and also where none wants a token: asked again,
        the model would say the same. A gap is surer than another if the model itself finds its best candidate
        likelier: offsets that make texts grow say nothing about that.
        """
        order = sorted(range(len(self.best)), key=lambda gap: -self.best[gap][2])
        wanting = [place for place, gap in enumerate(order) if self.best[gap][0] != noi]
        if rounds == 1 or not wanting:
            return list(range(len(self.best)))
        return sorted(order[: wanting[math.ceil(len(wanting) / rounds) - 1] + 1])


@dataclass(frozen=True)
class _Search:
    """What all rounds of a stage need."""

    predict: Predict
    scores: Scores
    rules: Rules
    options: Options
    name: str
    kept: dict[tuple[bytes, tuple[tuple[int, int], ...]], str] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """How many fillings of a text are kept."""
        return self.options.width if self.options.decoding == "beam" else 1

    @property
    def draws(self) -> bool:
        """Are tokens drawn by chance?"""
        return self.options.decoding == "sample"

    def ask(self, fillings: list[_Partial]) -> Iterator[_Candidates]:
        """The candidates of every partial filling, in order; all of them go through the model together."""
        sequences, places = zip(*(one.sequence() for one in fillings), strict=True)
        sizes = [len(gaps) for gaps in places]
        rows, positions = np.repeat(np.arange(len(fillings)), sizes), np.concatenate(places)
        vocabulary = self.scores.vocabulary
        logits = self.predict(*padded(sequences, vocabulary.id("[PAD]")), rows, positions)  # G V
        gaps = _describe(sequences, fillings, rows, positions, vocabulary)
        texts = [sequence.ids for sequence in sequences]

        def scored(some: slice) -> tuple[Floats, Floats]:
            own, scores = self.scores(logits[some], gaps.some(some), texts, self.name)
            self.demand(scores, wants[some])
            return own, scores

        wants = [want for one in fillings for want in one.wants()]
        draws = np.array([_draw(one.text, gap) for one in fillings for gap in one.gaps]) if self.draws else None
        chosen: list[_Choice] = []
        for start in range(0, len(logits), SCORED_TOGETHER):
            some = slice(start, start + SCORED_TOGETHER)
            chosen += self.best(*scored(some), None if draws is None else draws[some])
        ends = np.cumsum(sizes).tolist()
        return (
            _Candidates(chosen[end - size : end], partial(self.several, scored, chosen, end - size, one))
            for size, end, one in zip(sizes, ends, fillings, strict=True)
        )

    def best(self, own: Floats, scores: Floats, draws: npt.NDArray[np.float64] | None) -> list[_Choice]:
        """What each gap gets if no rule refuses it: the best candidate, or a drawn one."""
        ids = scores.argmax(-1, keepdims=True) if draws is None else sampled(scores, draws, self.options)  # G 1
        found = (ids, np.take_along_axis(scores, ids, 1), np.take_along_axis(own, ids, 1))
        return list(zip(*(values[:, 0].tolist() for values in found), strict=True))

    def several(
        self,
        scored: Callable[[slice], tuple[Floats, Floats]],
        chosen: list[_Choice],
        start: int,
        one: _Partial,
        gap: int,
    ) -> list[_Choice]:
        """The candidates of one gap, best first, and `[NOI]` to fall back on; `start` is the first gap of its text."""
        row, noi = start + gap, self.scores.vocabulary.noi
        demand = one.text.demand
        [own], [scores] = scored(slice(row, row + 1))
        spare = SPARE + len(demand.forbidden) + len(demand.avoided) if self.rules or demand.watches else 0
        ids = best(scores, self.width + spare).tolist()
        if self.draws:  # what was not drawn must not win over what was, likely as it may be
            is_needed = is_required(one.text, one.gaps[gap]) or bool(one.text.wants)
            others = [i for i in ids if i not in (noi, chosen[row][0]) and scores[i] > -np.inf] if is_needed else []
            second = [(i, LAST_RESORT / 2, float(own[i])) for i in others]
            return [chosen[row], *second, (noi, LAST_RESORT, float(own[noi]))]
        ids += [] if noi in ids else [noi]
        return list(zip(ids, scores[ids].tolist(), own[ids].tolist(), strict=True))

    def extended(
        self, text: Text, beams: list[Filling], gaps: dict[int, int], answers: list[_Candidates]
    ) -> Steps[list[Filling]]:
        """The best `width` ways to go on with any of the beams, as far as the rules allow them.

        `gaps` are the positions of those to decide, by their numbers.
        """
        pool: list[Filling] = []
        for beam, candidates in zip(beams, answers, strict=True):
            ways = [beam]
            # The surest gap chooses first. Each choice keeps to the rules given those before it, so that all of them
            # together do, and a gap that has nothing left to choose stays as it is.
            for number in sorted(gaps, key=lambda number: -candidates.best[number][1]):
                yield
                ways = self.filled(text, ways, gaps[number], number, candidates)
            pool += ways
        return sorted(pool, key=lambda way: -way.total)[: self.width]

    def filled(self, text: Text, ways: list[Filling], gap: int, number: int, candidates: _Candidates) -> list[Filling]:
        """The best `width` ways to go on at one gap."""
        noi, first = self.scores.vocabulary.noi, candidates.best[number]
        if self.width == 1 and self.allows(text, ways[0], gap, first[0]):
            return [_with(ways[0], gap, first, noi)]
        longer = [(way, choice) for way in ways for choice in candidates.several(number) if choice[1] > -np.inf]
        longer.sort(key=lambda one: -(one[0].total + one[1][1]))
        allowed = (one for one in longer if self.allows(text, one[0], gap, one[1][0]))
        return [_with(way, gap, choice, noi) for way, choice in islice(allowed, self.width)]

    def demand(self, scores: Floats, wants: list[str]) -> None:
        """Where something has to go in, `[NOI]` is the last resort, and what would not do is ruled out."""
        vocabulary = self.scores.vocabulary
        for kind, may_go in (("words", vocabulary.is_word), ("sentence", _sentence_ends(vocabulary))):
            rows = [row for row, want in enumerate(wants) if want == kind]
            if rows:
                scores[rows] = np.where(may_go, scores[rows], -np.inf)
                scores[rows, vocabulary.noi] = LAST_RESORT

    def allows(self, text: Text, way: Filling, gap: int, token: int) -> bool:
        """May this token go into the gap, beside what the filling has put into others?"""
        if token == self.scores.vocabulary.noi:
            return True
        if self.rules and self.rules.refuse(_insertion(text.tokens, way.tokens, gap, token, self.scores.vocabulary)):
            return False
        return not text.demand.watches or self.keeps(text, way, gap, token)

    def keeps(self, text: Text, way: Filling, gap: int, token: int) -> bool:
        """Is the text what it should be with this token: nothing forbidden, and no longer than it may be, or must?"""
        demand, vocabulary = text.demand, self.scores.vocabulary
        before = self.written(text, way.tokens)
        is_word = bool(vocabulary.is_word[token] and not vocabulary.continues[token])
        if demand.words is not None and is_word:
            size = count_words(before)
            is_enough = text.wants == "words" and size >= demand.words.low and not is_required(text, gap)
            if size >= demand.words.high or is_enough:
                return False
        # Most words can complete nothing that is forbidden or avoided: those need not be looked at.
        is_suspect = vocabulary.tokens[token] in demand.suspects | ARTICLES
        if demand.sentences is None and is_word and not is_suspect:
            return True
        # An article is written by what follows it in the end, so none of the two is safe where one is forbidden.
        if vocabulary.tokens[token] in ARTICLES and ARTICLES & {*demand.forbidden}:
            return False
        after = self.written(text, way.tokens | {gap: token})
        if demand.forbids(after) or (demand.words is not None and count_words(after) > demand.words.high):
            return False
        if demand.avoided & _inserted_words(text.tokens.filled(way.tokens | {gap: token})[0], vocabulary):
            return False
        return demand.sentences is None or self.keeps_sentences(text, before, after)

    @staticmethod
    def keeps_sentences(text: Text, before: str, after: str) -> bool:
        """Has the text no more sentences than it may have, and one more where it has to?"""
        assert text.demand.sentences is not None
        has, would_have = count_sentences(before), count_sentences(after)
        if would_have > text.demand.sentences.high:
            return False
        return text.wants != "sentence" or text.demand.sentences.low > has < would_have

    def written(self, text: Text, fills: dict[int, int]) -> str:
        """The text with some gaps filled; the last ones are kept, as many candidates are tried beside the same."""
        key = text.tokens.ids.tobytes(), tuple(sorted(fills.items()))
        if key not in self.kept:
            if len(self.kept) > KEPT_TEXTS:
                self.kept.clear()
            self.kept[key] = written(text.tokens.filled(fills)[0], text.demand, self.scores.vocabulary)
        return self.kept[key]


@lru_cache(8)
def _sentence_ends(vocabulary: Vocabulary) -> npt.NDArray[np.bool_]:
    """Which entries end a sentence."""
    found: npt.NDArray[np.bool_] = np.isin(vocabulary.tokens, list(SENTENCE_ENDS))
    return found


def _open_gaps(text: Text, vocabulary: Vocabulary) -> list[int]:
    """The positions whose right gap may be filled."""
    locks = Locks(text.demand.lock_start, text.demand.lock_end)
    found: list[int] = open_gaps(text.tokens, vocabulary, locks).tolist()
    return found


def is_required(text: Text, gap: int) -> bool:
    """Is it a gap of a template that has nothing yet?"""
    demand, owner = text.demand, text.tokens.owner
    if not demand.verbatim or owner[gap] == INSERTED:
        return False
    after = int(owner[gap + 1]) if gap + 1 < len(owner) else FRAME
    if after == INSERTED or after == owner[gap]:
        return False
    return demand.items[after].after_gap if after >= 0 else demand.ends_with_gap and int(owner[gap]) >= 0


def written(tokens: Tokens, demand: Demand, vocabulary: Vocabulary) -> str:
    """The text of some tokens, but for the capitals of names."""
    return write(units_of(tokens, demand.constraints, vocabulary, demand.glue), {})[0]


def _inserted_words(tokens: Tokens, vocabulary: Vocabulary) -> frozenset[str]:
    units = units_of(tokens, [""] * (int(tokens.owner.max()) + 1), vocabulary)
    return frozenset(unit.text.lower() for unit in units if unit.constraint is None)


def grouped(sizes: Sequence[tuple[int, int]], left: Sequence[list[int]]) -> list[list[int]]:
    """Numbers of texts that go through the model together: near in length, within the budget of positions.

    `sizes` are the length of each text and its number of beams; those without gaps `left` stay behind.
    """
    groups: list[list[int]] = []
    longest = real = padded = 0
    for i in sorted((i for i, gaps in enumerate(left) if gaps), key=lambda i: -sizes[i][0]):
        length, beams = sizes[i]
        real, padded = real + length * beams, padded + longest * beams
        if groups and padded <= BATCH_TOKENS and real >= (1 - MOST_PADDING) * padded:
            groups[-1].append(i)
        else:
            groups.append([i])
            longest, real, padded = length, length * beams, length * beams
    return groups


def padded(sequences: Sequence[Tokens], pad: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64] | None]:
    lengths = np.array([len(sequence) for sequence in sequences])
    ids = np.full((len(sequences), lengths.max()), pad)  # B T
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence.ids
    attention = (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int64)
    return ids, None if attention.all() else attention


def _describe(
    sequences: Sequence[Tokens],
    fillings: list[_Partial],
    rows: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    vocabulary: Vocabulary,
) -> Gaps:
    """What the scores want to know about each gap."""
    ids, owner = (np.concatenate(parts) for parts in zip(*((s.ids, s.owner) for s in sequences), strict=True))
    ends = np.cumsum([len(sequence) for sequence in sequences])
    at = positions + np.concatenate([[0], ends])[rows]  # where the gaps are in all sequences laid end to end
    extends = (owner[at] == INSERTED) & vocabulary.is_word[ids[at]]
    stage = np.array([one.text.stage for one in fillings])[rows]
    return Gaps(stage, extends, at + 1 == ends[rows], rows)


def _draw(text: Text, gap: int) -> float:
    """A number in [0, 1) that depends on seed, constraints, stage and gap alone."""
    digest = hashlib.blake2b(f"{text.stage} {gap}".encode(), key=text.key, digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def sampled(scores: Floats, draws: npt.NDArray[np.float64], options: Options) -> Ints:
    """One candidate a gap, `G 1`, by inverse transform over the candidates, best first."""
    warmed = scores / np.float32(options.temperature)
    ids = best(warmed, options.top_k or _most_kept(warmed, options.min_p))
    values = np.take_along_axis(warmed, ids, 1).astype(np.float64)
    total = np.log(np.exp(values - values[:, :1]).sum(-1)) + values[:, 0] if options.top_k else logsumexp(warmed)
    probabilities = np.exp(values - total[:, None])
    before = probabilities.cumsum(-1) - probabilities
    kept = before < options.top_p  # the candidate that crosses top_p still counts
    kept &= probabilities >= options.min_p * probabilities[:, :1]
    share = (probabilities * kept).cumsum(-1)
    place = (share <= draws[:, None] * share[:, -1:]).sum(-1, keepdims=True)
    last = kept.sum(-1, keepdims=True) - 1
    return np.take_along_axis(ids, np.minimum(place, last), 1)


def _most_kept(scores: Floats, min_p: float) -> int:
    """The most candidates of a gap that are likely enough; to sort all would take longer than the model does."""
    if not min_p:
        return int(scores.shape[1])
    near = np.float32(1.001 * math.log(min_p))  # rounding must not lose the last one
    return int((scores >= scores.max(-1, keepdims=True) + near).sum(-1).max())


def _insertion(tokens: Tokens, fills: dict[int, int], gap: int, token: int, vocabulary: Vocabulary) -> Insertion:
    """A token in the gap of a text, beside what other gaps have got, as the rules see it: in words."""
    words: list[str] = []
    asked: list[bool] = []
    place = 0
    for position, (old, owner) in enumerate(zip(tokens.ids.tolist(), tokens.owner.tolist(), strict=True)):
        new = token if position == gap else fills.get(position)
        for piece, was_asked in [(old, owner != INSERTED), *([] if new is None else [(new, False)])]:
            if vocabulary.continues[piece]:
                words[-1] += vocabulary.tokens[piece].removeprefix("##")
            else:
                words.append(vocabulary.tokens[piece])
                asked.append(was_asked)
        if position == gap:
            place = len(words) - 1
    return Insertion(words, place, asked)


def _with(way: Filling, gap: int, choice: _Choice, noi: int) -> Filling:
    token, score, own = choice
    total, likelihood = way.total + score, way.likelihood + own
    if token == noi:
        return Filling(way.tokens, way.own, total, likelihood)
    return Filling(way.tokens | {gap: token}, way.own | {gap: own}, total, likelihood)
