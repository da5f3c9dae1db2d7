"""CGMH: Metropolis-Hastings over texts that hold the constraints (Miao et al., 2019).

Two LSTM language models, one that reads forwards and one that reads backwards, are trained on plain texts (`train`).
A chain begins with the keywords; at every step it inserts, deletes or replaces one token (`moves`), and it never
touches a token that a constraint owns. In the long run a text comes up as often as the forward model says, its end
included, among the texts that hold the constraints and are not too long. A state is a text together with which of its
tokens are the constraints', so a text in which a keyword stands twice counts once for each.

How a step goes, and why it leaves that distribution pi alone. Insertion, deletion and replacement are chosen with 1/3
each; then one of the places of that operation, all alike: the `o` gaps that are not inside a constraint for an
insertion, the `m` tokens that no constraint owns for the others. All three look at a slot, with what is left and
right of it. Its candidates are the `k` best tokens that may stand there, by p_forward(w | left) p_backward(w | right);
they depend on the slot alone, and so are the same for a move and for its reverse. A candidate is proposed with
q(w) = pi(left w right) / Z, where Z is the sum of pi(left v right) over the candidates v.

- Insertion of w into x gives x', and a deletion at that place is the reverse:
  A = min(1, pi(x') (1/m') / (pi(x) (1/o) q(w))) = min(1, Z o / (pi(x) m')), the same for every w.
- Deletion of w from x gives x', and an insertion is the reverse:
  A = min(1, pi(x') (1/o') q(w) / (pi(x) (1/m))) = min(1, pi(x') m / (Z o')); 0 if w is no candidate.
- Replacement of w by v: A = min(1, pi(x') q(w) / (pi(x) q(v))) = 1; 0 if w is no candidate.

What would break a rule is not a state: a `##` piece follows a token of letters or digits that no constraint owns.

The text of a list is the one with the highest likelihood per token that its chain saw in the second half of its
iterations; the highest likelihood as such favours short texts, down to the keywords alone. The paper's models have a
vocabulary of 50,000 words; ours have that of the prepared data.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from pointer.baselines.checkpoint import open_checkpoint
from pointer.baselines.results import accepted, generation, parsed_in_batches
from pointer.baselines.training import TextBatch, Trainee, padded
from pointer.decoding.constraints import FRAME, INSERTED, Tokens, first_stage
from pointer.decoding.generator import Generation
from pointer.decoding.grammar import Given
from pointer.errors import CheckpointError, ConstraintError, UsageError
from pointer.training.data import TrainingData
from pointer.training.settings import BaselineSettings
from pointer.vocabulary import Vocabulary

SYSTEM = "cgmh"
OPERATIONS = ("insert", "delete", "replace")
EMPTY = -1
"""The filling of a slot in which nothing stands."""
ROWS, POSITIONS = 512, 2048
"""Texts that go through an LSTM together, and positions through the output layer: what bounds the memory."""

Ids = tuple[int, ...]

# ---------------------------------------------------------------------------------------------------------------------
# The language models and their training


@dataclass(frozen=True)
class Sizes:
    """The shape of each of the two language models."""

    hidden: int = 300
    """Width of the LSTM and of the embeddings, which are the output layer too; 300 is the paper's."""
    layers: int = 1
    """LSTM layers on top of each other."""

    def __post_init__(self) -> None:
        for name in ("hidden", "layers"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}: expected at least 1, found {getattr(self, name)}.", f"Raise {name}.")


class LanguageModel(nn.Module):
    """An LSTM that says what comes next."""

    def __init__(self, vocabulary_size: int, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, sizes.hidden)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.lstm = nn.LSTM(sizes.hidden, sizes.hidden, sizes.layers, batch_first=True)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """What comes next after hidden states: `... H -> ... V`."""
        return nn.functional.linear(hidden, self.embedding.weight, self.bias)

    def loss(self, ids: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """The loss of all tokens but the first of every sequence, added up; `real` is False for padding (`B T`)."""
        hidden, _ = self.lstm(self.embedding(ids[:, :-1]))  # B T-1 H
        wanted = real[:, 1:]
        return nn.functional.cross_entropy(self.logits(hidden[wanted]), ids[:, 1:][wanted], reduction="sum")


class BothWays(nn.Module):
    """A language model that reads from `[CLS]` to `[SEP]`, and one that reads from `[SEP]` to `[CLS]`."""

    def __init__(self, vocabulary_size: int, sizes: Sizes) -> None:
        super().__init__()
        self.forwards = LanguageModel(vocabulary_size, sizes)
        self.backwards = LanguageModel(vocabulary_size, sizes)


def objective(model: BothWays, batch: TextBatch) -> torch.Tensor:
    """The losses of both models added up."""
    begin, end = (np.array([batch.vocabulary.id(token)]) for token in ("[CLS]", "[SEP]"))
    framed = [np.concatenate([begin, ids, end]) for ids in batch.sequences()]
    sizes = torch.tensor([len(ids) for ids in framed], device=batch.device)
    real = torch.arange(int(sizes.max()), device=batch.device) < sizes[:, None]  # B T
    total = model.forwards.loss(padded(framed, 0, batch.device), real)
    return total + model.backwards.loss(padded([ids[::-1] for ids in framed], 0, batch.device), real)


def predictions(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many tokens both models predict for texts of these lengths: the mean loss is one of losses per token."""
    return 2 * (lengths + 1)


def trainee(texts: TrainingData, settings: BaselineSettings, chosen: Sizes) -> Trainee[BothWays]:
    """What is trained on some texts."""
    size = len(texts.vocabulary)
    described = (
        "Two LSTM language models, forwards and backwards, for Metropolis-Hastings sampling with locked keywords; "
        "the paper's have 300 hidden units and 50,000 words."
    )
    return Trainee(SYSTEM, asdict(chosen), lambda: BothWays(size, chosen), objective, predictions, described)


# ---------------------------------------------------------------------------------------------------------------------
# Texts and the slots in them


class Text(NamedTuple):
    """A state of the chain."""

    ids: Ids
    owner: Ids
    """For every token the constraint that it belongs to, or `INSERTED`."""
    likelihood: float
    """The logarithm of p(ids, end) by the forward model."""

    @property
    def score(self) -> float:
        """The log-likelihood per token, the end included."""
        return self.likelihood / (len(self.ids) + 1)

    @property
    def gaps(self) -> list[int]:
        """The places where a token may be inserted: all but those inside a constraint."""
        inside = [a == b != INSERTED for a, b in zip(self.owner[:-1], self.owner[1:], strict=True)]
        return [i for i in range(len(self.ids) + 1) if not (0 < i < len(self.ids) and inside[i - 1])]

    @property
    def free(self) -> list[int]:
        """The places of the tokens that no constraint owns."""
        return [i for i, whose in enumerate(self.owner) if whose == INSERTED]


class Slot(NamedTuple):
    """A place in a text where a token stands or could stand, and all the rest."""

    left: Ids
    right: Ids
    left_owner: Ids
    right_owner: Ids

    def filled(self, token: int, likelihood: float) -> Text:
        """The text with a token in the slot, or with nothing if it is `EMPTY`."""
        middle, whose = ((), ()) if token == EMPTY else ((token,), (INSERTED,))
        return Text(
            (*self.left, *middle, *self.right), (*self.left_owner, *whose, *self.right_owner), float(likelihood)
        )


@dataclass(frozen=True)
class Rules:
    """Which texts there are, and how many candidates a slot has."""

    allowed: npt.NDArray[np.bool_]
    """For every token: may it be inserted?"""
    continues: npt.NDArray[np.bool_]
    """For every token: is it a `##` piece?"""
    is_word: npt.NDArray[np.bool_]
    """For every token: may a `##` piece follow?"""
    most: int
    """Tokens of the longest text."""
    candidates: int = 50

    def _may_be_continued(self, slot: Slot) -> bool:
        """May a `##` piece follow what is left of the slot?"""
        return bool(slot.left and slot.left_owner[-1] == INSERTED and self.is_word[slot.left[-1]])

    def fillings(self, slot: Slot) -> npt.NDArray[np.bool_]:
        """Which tokens may stand in a slot, `V`."""
        may = self.allowed if self._may_be_continued(slot) else self.allowed & ~self.continues
        return may & self.is_word if slot.right and self.continues[slot.right[0]] else may

    def may_be_empty(self, slot: Slot) -> bool:
        """May nothing stand in a slot?"""
        return not (slot.right and self.continues[slot.right[0]]) or self._may_be_continued(slot)


class Slots(Protocol):
    """What the language models say of some slots."""

    scores: npt.NDArray[Any]
    """log p_forward(w | left) + log p_backward(w | right), `B V`."""

    def likelihoods(self, fillings: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float64]]:
        """For every slot the log-likelihoods of the text with each of these tokens in it, or with `EMPTY`."""


Models = Callable[[Sequence[Slot]], Slots]


class TrainedSlots:
    """`Slots` of two LSTMs. What is left of a slot is read once for all its fillings."""

    @torch.inference_mode()
    def __init__(self, model: BothWays, begin: int, end: int, slots: Sequence[Slot]) -> None:
        self.forwards, self.end, self.slots = model.forwards, end, slots
        self.device = model.forwards.bias.device
        lefts = [np.array([begin, *slot.left]) for slot in slots]
        hidden, self.state = _read(model.forwards, lefts, self.device)
        last = torch.tensor([len(left) - 1 for left in lefts], device=self.device)
        rows = torch.arange(len(slots), device=self.device)
        self.next = model.forwards.logits(hidden[rows, last]).log_softmax(-1)  # B V
        self.left = self._followed(hidden[:, :-1], [left[1:] for left in lefts])  # B
        hidden, _ = _read(model.backwards, [np.array([end, *slot.right[::-1]]) for slot in slots], self.device)
        last = torch.tensor([len(slot.right) for slot in slots], device=self.device)
        before = model.backwards.logits(hidden[rows, last]).log_softmax(-1)  # B V
        self.scores: npt.NDArray[Any] = (self.next + before).cpu().numpy()

    @torch.inference_mode()
    def likelihoods(self, fillings: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float64]]:
        """For every slot the log-likelihoods of its fillings; texts of about one length are read together."""
        slot_of = np.repeat(np.arange(len(self.slots)), [len(tokens) for tokens in fillings])
        flat = [token for tokens in fillings for token in tokens]
        if not flat:
            return [np.zeros(0) for _ in fillings]
        rests = [
            np.array([*([token] if token != EMPTY else []), *self.slots[i].right, self.end])
            for i, token in zip(slot_of.tolist(), flat, strict=True)
        ]
        first = torch.tensor([rest[0] for rest in rests], device=self.device)
        which = torch.from_numpy(slot_of).to(self.device)
        found = self.left[which] + self.next[which, first].double()  # N
        order = np.argsort([len(rest) for rest in rests], kind="stable")
        for chunk in np.array_split(order, -(-len(order) // ROWS)):
            inputs = padded([rests[i][:-1] for i in chunk], 0, self.device)  # n T
            if inputs.shape[1]:
                hidden_0, cell_0 = (part[:, which[chunk]].contiguous() for part in self.state)
                hidden, _ = self.forwards.lstm(self.forwards.embedding(inputs), (hidden_0, cell_0))  # n T H
                found[chunk] += self._followed(hidden, [rests[i][1:] for i in chunk])
        return np.split(found.cpu().numpy(), np.cumsum([len(tokens) for tokens in fillings])[:-1])

    def _followed(self, hidden: torch.Tensor, labels: Sequence[npt.NDArray[np.int64]]) -> torch.Tensor:
        """The log-probability that these labels follow the first of the hidden states of every row: `B T H -> B`."""
        row = torch.from_numpy(np.repeat(np.arange(len(labels)), [len(one) for one in labels])).to(self.device)
        place = torch.from_numpy(np.concatenate([np.arange(len(one)) for one in labels])).to(self.device)
        label = torch.from_numpy(np.concatenate(labels).astype(np.int64)).to(self.device)
        total = torch.zeros(len(labels), dtype=torch.double, device=self.device)
        for start in range(0, len(row), POSITIONS):
            part = slice(start, start + POSITIONS)
            logits = self.forwards.logits(hidden[row[part], place[part]])  # n V
            total.index_add_(0, row[part], -nn.functional.cross_entropy(logits, label[part], reduction="none").double())
        return total


def _read(
    model: LanguageModel, sequences: Sequence[npt.NDArray[np.int64]], device: torch.device
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """The hidden states of sequences (`B T H`), and the state of the LSTM at the end of each."""
    embedded = model.embedding(padded(sequences, 0, device))
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    packed = nn.utils.rnn.pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
    outputs, state = model.lstm(packed)
    hidden, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)
    return hidden, state


# ---------------------------------------------------------------------------------------------------------------------
# The chain


class Step(NamedTuple):
    """What a chain is about to do."""

    text: Text
    operation: str
    place: int

    @property
    def slot(self) -> Slot:
        """The slot that is filled, emptied or filled anew."""
        ids, owner, _ = self.text
        after = self.place + (self.operation != "insert")
        return Slot(ids[: self.place], ids[after:], owner[: self.place], owner[after:])


class Moves(NamedTuple):
    """Where a step may lead; with the probability that is left over, the text stays as it is."""

    texts: list[Text]
    probabilities: npt.NDArray[np.float64]

    def drawn(self, number: float) -> Text | None:
        """The text that a number from [0, 1) stands for, or none if the proposal is rejected."""
        chosen = int(np.searchsorted(np.cumsum(self.probabilities), number, side="right"))
        return self.texts[chosen] if chosen < len(self.texts) else None


def places(text: Text, operation: str, rules: Rules) -> list[int]:
    """Where an operation may be tried."""
    if operation != "insert":
        return text.free
    return text.gaps if len(text.ids) < rules.most else []


def moves(models: Models, steps: Sequence[Step], rules: Rules) -> list[Moves]:
    """For every step where it may lead, and how probably: proposal times acceptance, as the module says."""
    slots = [step.slot for step in steps]
    view = models(slots)
    candidates = _candidates(view.scores, slots, rules)
    empty = [[EMPTY] if step.operation == "delete" else [] for step in steps]
    asked = [[*tokens, *nothing] for tokens, nothing in zip(candidates, empty, strict=True)]
    found = view.likelihoods(asked)
    if np.isnan(view.scores).any() or any(np.isnan(one).any() for one in found):
        raise CheckpointError(
            "Expected probabilities from the language models, found NaN.",
            "Their weights are damaged; open another checkpoint.",
        )
    return [_moves(*one, rules) for one in zip(steps, slots, candidates, found, strict=True)]


def _candidates(scores: npt.NDArray[Any], slots: Sequence[Slot], rules: Rules) -> list[list[int]]:
    """The best tokens that may stand in every slot, by number."""
    may = np.stack([rules.fillings(slot) for slot in slots])  # B V
    masked = torch.from_numpy(np.where(may, scores, -np.inf))
    best = masked.topk(min(rules.candidates, masked.shape[1]), dim=-1)
    rows = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    return [sorted(i for value, i in zip(*row, strict=True) if value > -np.inf) for row in rows]


def _moves(step: Step, slot: Slot, candidates: list[int], likelihoods: npt.NDArray[np.float64], rules: Rules) -> Moves:
    """Where one step may lead, given the likelihoods of its candidates and, for a deletion, of the empty slot."""
    text, operation, place = step
    nowhere = Moves([], np.zeros(0))
    if not candidates or (operation != "insert" and text.ids[place] not in candidates):
        return nowhere
    filled = likelihoods[: len(candidates)]
    total = float(np.logaddexp.reduce(filled))  # log Z
    if operation == "delete":
        if not rules.may_be_empty(slot):
            return nowhere
        shorter = slot.filled(EMPTY, likelihoods[-1])
        ratio = shorter.likelihood - total + np.log(len(text.free)) - np.log(len(shorter.gaps))
        return Moves([shorter], np.exp([min(0.0, ratio)]))
    texts = [slot.filled(token, value) for token, value in zip(candidates, filled.tolist(), strict=True)]
    acceptance = 0.0
    if operation == "insert":
        acceptance = min(0.0, total - text.likelihood + np.log(len(text.gaps)) - np.log(len(text.free) + 1))
    return Moves(texts, np.exp(filled - total + acceptance))


@dataclass
class Acceptance:
    """How an operation fared."""

    tried: int = 0
    """Steps in which it was chosen and had a place."""
    accepted: int = 0
    """Proposals that were accepted; a replacement by the same token is one."""
    changed: int = 0
    """Those that changed the text."""


def walk(
    models: Models,
    texts: Sequence[Text],
    randoms: Sequence[np.random.Generator],
    rules: Rules,
    acceptance: Mapping[str, Acceptance],
) -> Iterator[list[Text]]:
    """The texts of all chains after each step, for ever; every step takes three numbers from the chain's generator."""
    now = list(texts)
    while True:
        steps: dict[int, tuple[Step, float]] = {}
        for i, (text, random) in enumerate(zip(now, randoms, strict=True)):
            which, where, draw = random.random(3).tolist()
            operation = OPERATIONS[int(which * len(OPERATIONS))]
            if open_places := places(text, operation, rules):
                steps[i] = Step(text, operation, open_places[int(where * len(open_places))]), draw
        found = moves(models, [step for step, _ in steps.values()], rules) if steps else []
        for (i, (step, draw)), one in zip(steps.items(), found, strict=True):
            new, count = one.drawn(draw), acceptance[step.operation]
            count.tried += 1
            if new is not None:
                count.accepted += 1
                count.changed += new.ids != step.text.ids
                now[i] = new
        yield list(now)


# ---------------------------------------------------------------------------------------------------------------------
# The system


@dataclass
class CGMH:
    """Samples texts around locked keywords."""

    models: Models
    vocabulary: Vocabulary
    casing: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    iterations: int = 500
    """Steps of a chain; the second half counts."""
    candidates: int = 50
    """Tokens that are weighed for a slot."""
    name: str = "model"
    acceptance: dict[str, Acceptance] = field(default_factory=lambda: {one: Acceptance() for one in OPERATIONS})
    """How every operation has fared so far."""

    def __post_init__(self) -> None:
        for name in ("iterations", "candidates"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}: expected at least 1, found {getattr(self, name)}.", f"Raise {name}.")

    def generate_many(self, lists: Sequence[Given], batch_size: int = 64, **options: Any) -> list[list[Generation]]:
        """For every list of constraints one text; the order of the lists is kept.

        A chain draws by `seed` and constraints alone, so a text depends on the others of its batch only as far as the
        rounding of the models does. `max_length` counts `[CLS]` and `[SEP]`, which other systems have.
        """
        chosen = accepted(SYSTEM, options, ["seed", "max_length"], ("greedy", "sample"))
        batches = list(parsed_in_batches(lists, batch_size))
        rules = self._rules(chosen.max_length - 2)
        starts = [[self._start(constraints, rules) for constraints in batch] for batch in batches]
        results: list[list[Generation]] = []
        for batch, slots in zip(batches, starts, strict=True):
            found = self._sampled(batch, slots, rules, chosen.seed)
            results += [[self._generation(*one)] for one in zip(found, batch, strict=True)]
        return results

    @property
    def remark(self) -> str:
        """How the chains have fared so far, for people."""
        parts = [
            f"{name} {one.accepted / max(1, one.tried):.1%} of {one.tried:,} (changed the text: {one.changed:,})"
            for name, one in self.acceptance.items()
        ]
        return f"accepted: {', '.join(parts)}"

    @cached_property
    def _allowed(self) -> npt.NDArray[np.bool_]:
        allowed = np.ones(len(self.vocabulary), bool)
        allowed[[*self.vocabulary.special.tolist(), self.vocabulary.noi]] = False
        return allowed

    def _rules(self, most: int) -> Rules:
        return Rules(self._allowed, self.vocabulary.continues, self.vocabulary.is_word, most, self.candidates)

    def _start(self, constraints: tuple[str, ...], rules: Rules) -> Slot:
        """The keywords, as all that is right of an empty slot."""
        framed = first_stage(constraints, self.vocabulary, "fixed")
        inside = framed.owner != FRAME
        ids, owner = tuple(framed.ids[inside].tolist()), tuple(framed.owner[inside].tolist())
        if len(ids) > rules.most:
            raise ConstraintError(
                f"Expected constraints of at most {rules.most} tokens, found {len(ids)}.",
                "Give fewer constraints, or raise max_length.",
            )
        return Slot((), ids, (), owner)

    def _sampled(self, batch: list[tuple[str, ...]], slots: list[Slot], rules: Rules, seed: int) -> list[Text]:
        """The best text of the second half of every chain, the first of equals."""
        likelihoods = self.models(slots).likelihoods([[EMPTY]] * len(slots))
        starts = [slot.filled(EMPTY, found[0]) for slot, found in zip(slots, likelihoods, strict=True)]
        chains = walk(self.models, starts, [_random(seed, one) for one in batch], rules, self.acceptance)
        best: list[Text] = []
        for iteration, texts in zip(range(self.iterations), chains, strict=False):
            if iteration >= self.iterations // 2:
                best = [max(pair, key=lambda text: text.score) for pair in zip(best or texts, texts, strict=True)]
        return best

    def _generation(self, text: Text, constraints: tuple[str, ...]) -> Generation:
        tokens = Tokens(np.array(text.ids), np.array(text.owner))
        return generation(tokens, constraints, self.vocabulary, self.casing, text.score, "end")


def _random(seed: int, constraints: tuple[str, ...]) -> np.random.Generator:
    """Draws that depend on the seed and the constraints alone."""
    key = json.dumps([seed, constraints]).encode()
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(key, digest_size=16).digest(), "big"))


def load(folder: str | Path, device: str | None = None, iterations: int = 500, candidates: int = 50) -> CGMH:
    """Open what `train` wrote."""
    checkpoint = open_checkpoint(SYSTEM, folder, Sizes)
    vocabulary = checkpoint.vocabulary
    model = BothWays(len(vocabulary), checkpoint.sizes)
    checkpoint.load_into(model)
    model.to(torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))).eval()
    begin, end = vocabulary.id("[CLS]"), vocabulary.id("[SEP]")
    return CGMH(
        lambda slots: TrainedSlots(model, begin, end, slots),
        vocabulary,
        checkpoint.casing,
        iterations,
        candidates,
        f"{SYSTEM}:{folder}",
    )
