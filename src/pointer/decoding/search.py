"""Filling the gaps of one stage: greedy, sampling, and inner-layer beam search (paper 3.3), one algorithm.

The open gaps of a text are filled in rounds. In each, the model is asked about every partial filling kept so far, and
the best `width` ways to fill the gaps of this round go on. All gaps in one round with width 1 is the paper's greedy
decoding; a round for every gap, left to right, is its beam search; with two rounds the surest half of the insertions is
made first, and the other gaps are decided given those. Gaps of one round do not know of each other, so a model that was
trained on stages begun decodes greedily in two rounds too.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch

from pointer.decoding.constraints import INSERTED, Locks, Tokens, open_gaps
from pointer.decoding.options import Options
from pointer.decoding.rules import Insertion, Rules
from pointer.decoding.scores import Gaps, Scores
from pointer.vocabulary import Vocabulary

Predict = Callable[[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor], torch.Tensor]
"""`(ids B T, attention B T or None, rows G, positions G) -> logits G V` of the gaps right of those positions."""

BATCH_TOKENS = 2048
"""Positions of one forward pass; more gain nothing on a CPU."""
SPARE = 32
"""Candidates of a gap beyond the width of the beam, for when rules refuse the best."""
LAST_RESORT = -1e9
"""The score of `[NOI]` where a drawn token should go in, if no rule refuses it."""
MOST_PADDING = 0.1
"""Texts go through the model together while at most this share of the positions is padding."""


@dataclass(frozen=True)
class Text:
    """A text at some stage, on its way."""

    tokens: Tokens
    stage: int
    key: bytes
    """What its random draws depend on: seed and constraints."""


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
    predict: Predict, texts: Sequence[Text], scores: Scores, rules: Rules, options: Options, name: str
) -> list[list[Filling]]:
    """The best fillings of the open gaps of every text, best first: one for greedy and sampling, `width` for a beam."""
    search = _Search(predict, scores, rules, options, name)
    locks = Locks(options.lock_start, options.lock_end)
    left: list[list[int]] = [open_gaps(text.tokens, scores.vocabulary, locks).tolist() for text in texts]
    beams: list[list[Filling]] = [[Filling()] for _ in texts]
    one_by_one = options.rounds == 0
    rounds = max(map(len, left), default=0) if one_by_one else options.rounds or 1
    for turn in range(rounds):
        asked = [i for i, gaps in enumerate(left) if gaps]
        partial = [_Partial(texts[i], beam, left[i][: 1 if one_by_one else None]) for i in asked for beam in beams[i]]
        answers = search.ask(partial)
        for i in asked:
            mine = [next(answers) for _ in beams[i]]
            now = mine[0].due(rounds - turn, scores.vocabulary.noi)
            gaps, chosen = [left[i][k] for k in now], [candidates.at(now) for candidates in mine]
            beams[i] = search.extended(texts[i].tokens, beams[i], gaps, chosen)
            room = options.max_length - len(texts[i].tokens) - max(len(beam.tokens) for beam in beams[i])
            left[i] = [gap for gap in left[i] if gap not in gaps] if room > 0 else []  # nothing more would fit
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


@dataclass(frozen=True)
class _Search:
    """What all rounds of a stage need."""

    predict: Predict
    scores: Scores
    rules: Rules
    options: Options
    name: str

    @property
    def width(self) -> int:
        """How many fillings of a text are kept."""
        return self.options.width if self.options.decoding == "beam" else 1

    def ask(self, partial: list[_Partial]) -> Iterator[_Candidates]:
        """The candidates of every partial filling, in order; texts of about one length share a forward pass."""
        found: dict[int, _Candidates] = {}
        placed = [one.sequence() for one in partial]
        device, vocabulary = self.scores.device, self.scores.vocabulary
        for group in grouped([len(tokens) for tokens, _ in placed]):
            sequences = [placed[i][0] for i in group]
            rows = np.repeat(np.arange(len(group)), [len(placed[i][1]) for i in group])
            positions = np.concatenate([placed[i][1] for i in group])
            ids, attention = _padded(sequences, vocabulary.id("[PAD]"))
            mask = None if attention is None else torch.from_numpy(attention).to(device)
            at = [torch.from_numpy(t).to(device) for t in (rows, positions)]
            with torch.inference_mode():
                logits = self.predict(torch.from_numpy(ids).to(device), mask, at[0], at[1])  # G V
                gaps = _describe(sequences, [partial[i] for i in group], rows, positions, vocabulary)
                own, scores = self.scores(logits, gaps, [sequence.ids for sequence in sequences], self.name)
                chosen, by = self.choose(scores, [partial[i] for i in group])  # G W
                lists = [x.tolist() for x in (chosen, by, own.gather(1, chosen))]
            start = 0
            for i in group:
                end = start + len(placed[i][1])
                found[i] = _Candidates(*(values[start:end] for values in lists))
                start = end
        return (found[i] for i in range(len(partial)))

    def choose(self, scores: torch.Tensor, partial: list[_Partial]) -> tuple[torch.Tensor, torch.Tensor]:
        """The candidates of each gap and their scores: a drawn one, the best one, or several.

        Where a rule may refuse candidates, there are spare ones, and `[NOI]` to fall back on.
        """
        if self.options.decoding == "sample":
            draws = np.array([_draw(one.text, gap) for one in partial for gap in one.gaps])
            best = sampled(scores, torch.from_numpy(draws).to(scores.device), self.options)
        else:
            best = _best(scores, self.width + (SPARE if self.rules else 0))
        found = scores.gather(1, best)
        if not self.rules:
            return best, found
        nothing = torch.full_like(best[:, :1], self.scores.vocabulary.noi)
        if self.options.decoding == "sample":  # what was not drawn must not win over what was, likely as it may be
            last = torch.full_like(found[:, :1], LAST_RESORT)
        else:
            last = scores.gather(1, nothing)
            found = found.masked_fill(best == nothing, -torch.inf)  # or [NOI] would come twice
        return torch.cat([best, nothing], 1), torch.cat([found, last], 1)

    def extended(
        self, tokens: Tokens, beams: list[Filling], gaps: list[int], answers: list[_Candidates]
    ) -> list[Filling]:
        """The best `width` ways to go on with any of the beams, as far as the rules allow them."""
        noi = self.scores.vocabulary.noi
        pool: list[Filling] = []
        for beam, candidates in zip(beams, answers, strict=True):
            ways = [beam]
            # The surest gap chooses first. Each choice keeps to the rules given those before it, so that all of them
            # together do, and a gap that has nothing left to choose stays as it is.
            for number in sorted(range(len(gaps)), key=lambda number: -max(candidates.scores[number])):
                gap = gaps[number]
                longer = [(way, choice) for way in ways for choice in candidates.of(number) if choice[1] > -np.inf]
                longer.sort(key=lambda one: -(one[0].total + one[1][1]))
                allowed = (one for one in longer if self.allows(tokens, one[0], gap, one[1][0]))
                ways = [_with(way, gap, choice, noi) for way, choice in islice(allowed, self.width)]
            pool += ways
        return sorted(pool, key=lambda way: -way.total)[: self.width]

    def allows(self, tokens: Tokens, way: Filling, gap: int, token: int) -> bool:
        """May this token go into the gap, beside what the filling has put into others?"""
        if token == self.scores.vocabulary.noi or not self.rules:
            return True
        return not self.rules.refuse(_insertion(tokens, way.tokens, gap, token, self.scores.vocabulary))


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
    vocabulary: Vocabulary,
) -> Gaps:
    """What the scores want to know about each gap."""
    ids, owner = (np.concatenate(parts) for parts in zip(*((s.ids, s.owner) for s in sequences), strict=True))
    ends = np.cumsum([len(sequence) for sequence in sequences])
    at = positions + np.concatenate([[0], ends])[rows]  # where the gaps are in all sequences laid end to end
    extends = (owner[at] == INSERTED) & vocabulary.is_word[ids[at]]
    stage = np.array([one.text.stage for one in partial])[rows]
    return Gaps(stage, extends, at + 1 == ends[rows], rows)


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
    kept &= probabilities >= options.min_p * probabilities[:, :1]
    probabilities = probabilities * kept
    total = probabilities.cumsum(-1)
    place = (total <= draws[:, None] * total[:, -1:]).sum(-1, keepdim=True)
    last = kept.sum(-1, keepdim=True) - 1
    return ids.gather(1, torch.minimum(place, last))


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
