"""Filling the gaps of one stage: greedy, sampling, and inner-layer beam search (paper 3.3), one algorithm.

The open gaps of a text are cut into blocks. Block after block, the model is asked about every partial filling kept so
far, and the best `width` ways to fill the block's gaps go on. All gaps in one block with width 1 is the paper's greedy
decoding; a block for every gap, left to right, is its beam search; with two blocks the surest half of the insertions is
made first, and the other gaps are decided given those. Gaps of one block do not know of each other, so a model that was
trained on stages begun decodes greedily in two blocks too.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch

from pointer.decoding.constraints import INSERTED, Locks, Tokens, open_gaps
from pointer.decoding.options import Options
from pointer.decoding.schedule import LAST_RESORT, NOTHING, Gaps, Schedule
from pointer.vocabulary import Vocabulary

Predict = Callable[[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor], torch.Tensor]
"""`(ids B T, attention B T or None, rows G, positions G) -> logits G V` of the gaps right of those positions."""

BATCH_TOKENS = 2048
"""Positions of one forward pass; more gain nothing on a CPU."""
SPARE = 8
"""Candidates of a gap beyond the width of the beam, for when another gap has taken the best."""
MOST_PADDING = 0.1
"""Texts go through the model together while at most this share of the positions is padding."""


@dataclass(frozen=True)
class Text:
    """A text at some stage, on its way."""

    tokens: Tokens
    stage: int
    key: bytes
    """What its random draws depend on: seed and constraints."""
    taken: dict[int, int] | None = None
    """Of a finished text that is revised: the words that were taken out of it, by the gaps that they left. Only these
    are open."""

    def open_gaps(self, vocabulary: Vocabulary, locks: Locks) -> list[int]:
        """The gaps that are to be decided, left to right."""
        return open_gaps(self.tokens, vocabulary, locks).tolist() if self.taken is None else list(self.taken)


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


def fill(
    predict: Predict, texts: Sequence[Text], schedule: Schedule, options: Options, name: str
) -> list[list[Filling]]:
    """The best fillings of the open gaps of every text, best first: one for greedy and sampling, `width` for a beam."""
    locks = Locks(options.lock_start, options.lock_end)
    left = [text.open_gaps(schedule.vocabulary, locks) for text in texts]
    beams: list[list[Filling]] = [[Filling()] for _ in texts]
    one_by_one = options.blocks == 0
    rounds = max(map(len, left), default=0) if one_by_one else options.blocks or 1
    for turn in range(rounds):
        asked = [i for i, gaps in enumerate(left) if gaps]
        partial = [_Partial(texts[i], beam, left[i][: 1 if one_by_one else None]) for i in asked for beam in beams[i]]
        answers = _ask(predict, partial, schedule, options, name)
        for i in asked:
            mine = [next(answers) for _ in beams[i]]
            # What is taken out of a finished text stands too far apart to be decided in rounds.
            now = mine[0].due(rounds - turn if texts[i].taken is None else 1, schedule.vocabulary.noi)
            gaps, chosen = [left[i][k] for k in now], [candidates.at(now) for candidates in mine]
            beams[i] = _extended(texts[i].tokens, beams[i], gaps, chosen, schedule, _width(options))
            room = options.max_length - len(texts[i].tokens) - max(len(beam.tokens) for beam in beams[i])
            left[i] = [gap for gap in left[i] if gap not in gaps] if room > 0 else []  # nothing more would fit
    return beams


def _width(options: Options) -> int:
    return options.width if options.decoding == "beam" else 1


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


_Choice = tuple[int, float, float]
"""A token, its adjusted and its own log-probability."""


@dataclass(frozen=True)
class _Candidates:
    """For each gap the best candidates: ids, adjusted and own log-probabilities."""

    ids: list[list[int]]
    scores: list[list[float]]
    own: list[list[float]]

    def of(self, gap: int) -> list[_Choice]:
        """Those of one gap."""
        return list(zip(self.ids[gap], self.scores[gap], self.own[gap], strict=True))

    def due(self, rounds: int, noi: int) -> list[int]:
        """The gaps to decide in the first of so many rounds, left to right: the surest, up to its share of insertions.

        Gaps alone are not counted: the surest ones of a text that is nearly done want nothing, and rounds would pass
        without an insertion. In the last round all gaps are decided, and also where none wants a token: asked again,
        the model would say the same. A gap is surer than another if the model itself finds its best candidate
        likelier: offsets that make texts grow say nothing about that.
        """
        best = [max(zip(*gap, strict=True)) for gap in zip(self.scores, self.own, self.ids, strict=True)]
        order = sorted(range(len(best)), key=lambda gap: -best[gap][1])
        wanting = [place for place, gap in enumerate(order) if best[gap][2] != noi]
        if rounds == 1 or not wanting:
            return list(range(len(best)))
        return sorted(order[: wanting[math.ceil(len(wanting) / rounds) - 1] + 1])

    def at(self, gaps: list[int]) -> "_Candidates":
        """Those of some gaps."""
        ids, scores, own = self.ids, self.scores, self.own
        return _Candidates([ids[gap] for gap in gaps], [scores[gap] for gap in gaps], [own[gap] for gap in gaps])


def _ask(
    predict: Predict, partial: list[_Partial], schedule: Schedule, options: Options, name: str
) -> Iterator[_Candidates]:
    """The candidates of every partial filling, in order; texts of about one length share a forward pass."""
    found: dict[int, _Candidates] = {}
    placed = [one.sequence() for one in partial]
    for group in grouped([len(tokens) for tokens, _ in placed]):
        sequences = [placed[i][0] for i in group]
        rows = np.repeat(np.arange(len(group)), [len(placed[i][1]) for i in group])
        positions = np.concatenate([placed[i][1] for i in group])
        ids, attention = _padded(sequences, schedule.vocabulary.id("[PAD]"))
        tensors = [None if t is None else torch.from_numpy(t).to(schedule.device) for t in (ids, attention)]
        at = [torch.from_numpy(t).to(schedule.device) for t in (rows, positions)]
        with torch.inference_mode():
            logits = predict(tensors[0], tensors[1], at[0], at[1])  # type: ignore[arg-type]  # G V
            gaps = _describe(sequences, [partial[i] for i in group], rows, positions, schedule)
            own, scores = schedule.log_probabilities(logits, gaps, name)
            scores = schedule.penalise(scores, gaps, [sequence.ids for sequence in sequences])
            scores = schedule.favour_taken(scores, gaps)
            scores = schedule.weigh_nothing(scores, own)
            chosen, by = _choose(scores, [partial[i] for i in group], schedule, options)  # G W
            lists = [x.tolist() for x in (chosen, by, own.gather(1, chosen))]
        start = 0
        for i in group:
            end = start + len(placed[i][1])
            found[i] = _Candidates(*(values[start:end] for values in lists))
            start = end
    return (found[i] for i in range(len(partial)))


def grouped(lengths: Sequence[int]) -> list[list[int]]:
    """Numbers of texts that go through the model together: near in length, within the budget of positions."""
    groups: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        longest = lengths[groups[-1][0]] if groups else 0
        if groups and (len(groups[-1]) + 1) * longest <= BATCH_TOKENS:
            real = sum(lengths[j] for j in groups[-1]) + lengths[i]
            if real >= (1 - MOST_PADDING) * (len(groups[-1]) + 1) * longest:
                groups[-1].append(i)
                continue
        groups.append([i])
    return groups


def _padded(sequences: list[Tokens], pad: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64] | None]:
    lengths = np.array([len(sequence) for sequence in sequences])
    ids = np.full((len(sequences), lengths.max()), pad)  # B T
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence.ids
    attention = (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int64)
    return ids, None if attention.all() else attention


def _describe(
    sequences: list[Tokens],
    partial: list[_Partial],
    rows: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    schedule: Schedule,
) -> Gaps:
    """What the schedule wants to know about each gap."""
    vocabulary = schedule.vocabulary
    ids, owner = (np.concatenate(parts) for parts in zip(*((s.ids, s.owner) for s in sequences), strict=True))
    ends = np.cumsum([len(sequence) for sequence in sequences])
    at = positions + np.concatenate([[0], ends])[rows]  # where the gaps are in all sequences laid end to end
    is_end = at + 1 == ends[rows]
    left = ids[at]
    beyond = np.minimum(at + 1, len(ids) - 1)
    right = np.where(is_end, vocabulary.id("[SEP]"), ids[beyond])
    inserted = owner[at] == INSERTED, ~is_end & (owner[beyond] == INSERTED)
    taken = np.array(
        [NOTHING if one.text.taken is None else one.text.taken[gap] for one in partial for gap in one.gaps]
    )
    # A word that was taken out is replaced by a word: a piece would be older than the head that it belongs to.
    extends = inserted[0] & schedule.extends(left) & (taken == NOTHING)
    lexicon = schedule.spelling
    is_asked = extends & (bool(schedule.banned) | (lexicon is not None and lexicon.may_be_unfinished[left]))
    words = [
        _word_before(sequences[r], p, vocabulary) if x else ""
        for r, p, x in zip(rows, positions, is_asked, strict=True)
    ]
    is_half = np.array([lexicon is not None and lexicon.is_unfinished(word) for word in words], bool)
    stage = np.array([one.text.stage for one in partial])[rows]
    is_half &= ~vocabulary.continues[right]
    return Gaps(stage, left, right, extends, is_end, rows, words, is_half, inserted, taken)


def _word_before(sequence: Tokens, position: int, vocabulary: Vocabulary) -> str:
    start = position
    while vocabulary.continues[sequence.ids[start]]:
        start -= 1
    return "".join(vocabulary.tokens[i].removeprefix("##") for i in sequence.ids[start : position + 1])


def _choose(
    scores: torch.Tensor, partial: list[_Partial], schedule: Schedule, options: Options
) -> tuple[torch.Tensor, torch.Tensor]:
    """The candidates of each gap and their scores: a drawn one, the best one, or several.

    Where a rule may refuse candidates, there are spare ones, and `[NOI]` to fall back on.
    """
    if options.decoding == "sample":
        draws = np.array([_draw(one.text, gap) for one in partial for gap in one.gaps])
        best = sampled(scores, torch.from_numpy(draws).to(scores.device), options)
    else:
        best = _best(scores, _width(options) + (SPARE if schedule.has_rules else 0))
    found = scores.gather(1, best)
    if not schedule.has_rules:
        return best, found
    nothing = torch.full_like(best[:, :1], schedule.vocabulary.noi)
    if options.decoding == "sample":  # what was not drawn must not win over what was, likely as it may be
        last = torch.full_like(found[:, :1], LAST_RESORT)
    else:
        last = scores.gather(1, nothing)
        found = found.masked_fill(best == nothing, -torch.inf)  # or [NOI] would come twice
    return torch.cat([best, nothing], 1), torch.cat([found, last], 1)


def _best(scores: torch.Tensor, count: int) -> torch.Tensor:
    """The ids of the best candidates, best first, the lower id before the higher where they tie."""
    ids = scores.topk(min(count, scores.shape[1])).indices.sort().values
    return ids.gather(1, scores.gather(1, ids).sort(dim=-1, descending=True, stable=True).indices)


def _draw(text: Text, gap: int) -> float:
    """A number in [0, 1) that depends on seed, constraints, stage and gap alone."""
    digest = hashlib.blake2b(f"{text.stage} {gap}".encode(), key=text.key, digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def sampled(scores: torch.Tensor, draws: torch.Tensor, options: Options) -> torch.Tensor:
    """One candidate a gap by inverse transform over the candidates, best first."""
    order = (scores / options.temperature).sort(dim=-1, descending=True, stable=True)
    values, ids = order.values, order.indices
    if options.top_k:
        values, ids = values[:, : options.top_k], ids[:, : options.top_k]
    probabilities = values.double().softmax(-1)
    total = probabilities.cumsum(-1)
    kept = total - probabilities < options.top_p  # the candidate that crosses top_p still counts
    probabilities = probabilities * kept
    total = probabilities.cumsum(-1)
    place = (total <= draws[:, None] * total[:, -1:]).sum(-1, keepdim=True)
    last = kept.sum(-1, keepdim=True) - 1
    return ids.gather(1, torch.minimum(place, last))


def _extended(
    tokens: Tokens,
    beams: list[Filling],
    gaps: list[int],
    answers: list[_Candidates],
    schedule: Schedule,
    width: int,
) -> list[Filling]:
    """The best `width` ways to go on with any of the beams, as far as the rules of the preset allow them."""
    pool: list[Filling] = []
    for beam, candidates in zip(beams, answers, strict=True):
        ways = [beam]
        # The surest gap chooses first. Each choice keeps to the rules given those before it, so that all of them
        # together do, and a gap that has nothing left to choose stays as it is.
        for number in sorted(range(len(gaps)), key=lambda number: -max(candidates.scores[number])):
            gap = gaps[number]
            longer = [(way, choice) for way in ways for choice in _costed(candidates.of(number), way, gaps, schedule)]
            longer.sort(key=lambda one: -(one[0].total + one[1][1]))
            allowed = (one for one in longer if _is_allowed(tokens, one[0], gap, one[1][0], schedule))
            ways = [_with(way, gap, choice, schedule.vocabulary.noi) for way, choice in islice(allowed, width)]
        pool += ways
    return sorted(pool, key=lambda way: -way.total)[:width]


def _costed(choices: list[_Choice], way: Filling, gaps: list[int], schedule: Schedule) -> Iterator[_Choice]:
    """The candidates of a gap, less what those cost that other gaps of the block have chosen already.

    What earlier blocks chose is part of the text that the schedule has seen.
    """
    chosen = Counter(way.tokens[gap] for gap in gaps if gap in way.tokens)
    for token, score, own in choices:
        if score > -np.inf:
            yield token, score - chosen[token] * schedule.again(token), own


def _is_allowed(tokens: Tokens, way: Filling, gap: int, token: int, schedule: Schedule) -> bool:
    """May this token go into the gap, beside what the filling has put into others?"""
    if token == schedule.vocabulary.noi or not schedule.has_rules:
        return True
    if schedule.once(token) and token in way.tokens.values():
        return False
    return not schedule.refuses(*_words_with(tokens, way.tokens | {gap: token}, gap, schedule.vocabulary))


def _words_with(
    tokens: Tokens, fills: dict[int, int], gap: int, vocabulary: Vocabulary
) -> tuple[list[str], int, list[bool]]:
    """The words of a text with a filling put in, which of them the filling of this gap made or changed, and which of
    them were there from the start."""
    words: list[str] = []
    asked: list[bool] = []
    place = 0
    for position, (old, owner) in enumerate(zip(tokens.ids.tolist(), tokens.owner.tolist(), strict=True)):
        new = [(fills[position], False)] if position in fills else []
        for piece, was_asked in [(old, owner != INSERTED), *new]:
            if vocabulary.continues[piece]:
                words[-1] += vocabulary.tokens[piece].removeprefix("##")
            else:
                words.append(vocabulary.tokens[piece])
                asked.append(was_asked)
        if position == gap:
            place = len(words) - 1
    return words, place, asked


def _with(way: Filling, gap: int, choice: _Choice, noi: int) -> Filling:
    token, score, own = choice
    total, likelihood = way.total + score, way.likelihood + own
    if token == noi:
        return Filling(way.tokens, way.own, total, likelihood)
    return Filling(way.tokens | {gap: token}, way.own | {gap: own}, total, likelihood)
