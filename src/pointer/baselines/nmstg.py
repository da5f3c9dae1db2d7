"""NMSTG: non-monotonic sequential text generation (Welleck et al. 2019), the variant with the annealed oracle.

A text is written as a binary tree of tokens. At every node the policy, an LSTM, says a token or `[NOI]`, the end of
that branch; what stands left of the token in the text is its left subtree, what stands right of it its right subtree,
and the in-order traversal of the tree is the text. As in the paper, nodes are visited in level-order, and all that the
policy reads is what was said at the nodes before:

    how are you ?    ->    are | how you | [NOI] [NOI] [NOI] ? | [NOI] [NOI]

Training imitates an oracle that knows which part of the text a node has to produce, its span. The oracle begins
uniform over the span and is annealed to the coached one, the policy itself renormalised over the span; the trees are
drawn from it. Constraints are the top of the tree, so every one is in the text, in order. The paper has one node a
word; here it is one a piece, and a piece that continues a word comes after, and directly right of, what it continues.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from pointer.baselines.autoregressive import ATTEMPTS
from pointer.baselines.checkpoint import open_checkpoint
from pointer.baselines.results import accepted, generation, parsed_in_batches
from pointer.baselines.training import TextBatch, Trainee, padded
from pointer.decoding.constraints import FRAME, INSERTED, Locks, Tokens, first_stage, open_gaps
from pointer.decoding.generator import Generation
from pointer.decoding.grammar import Given
from pointer.decoding.options import Options
from pointer.decoding.search import sampled
from pointer.errors import CheckpointError, ConstraintError, UsageError
from pointer.runtime import LARGEST_LOGIT, NextToken, Prefix
from pointer.training.data import TrainingData
from pointer.training.settings import BaselineSettings
from pointer.vocabulary import Vocabulary

SYSTEM = "nmstg"
NONE = -1
"""No position, no node."""


@dataclass(frozen=True)
class Sizes:
    """The shape of the policy."""

    hidden: int = 1024
    """Of the LSTM."""
    layers: int = 1
    """Of the LSTM."""
    width: int = 300
    """Of the embeddings, which are those of the output layer too."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise UsageError(f"{name}: expected at least 1, found {value}.", f"Raise {name}.")


State = tuple[torch.Tensor, torch.Tensor]
"""Of the LSTM: hidden and cell, each `L B H`."""


class Policy(nn.Module):
    """Reads what was said at the nodes so far and says something at the next one."""

    def __init__(self, sizes: Sizes, vocabulary_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, sizes.width)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.lstm = nn.LSTM(sizes.width, sizes.hidden, sizes.layers, batch_first=True)
        self.projection = nn.Linear(sizes.hidden, sizes.width)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def forward(self, actions: torch.Tensor, state: State | None = None) -> tuple[torch.Tensor, State]:
        """Actions, `B T`, to what `logits` makes the next action from, `B T E`, and the state after the last."""
        hidden, state = self.lstm(self.embedding(actions), state)  # B T H
        return self.projection(hidden), state

    def logits(self, features: torch.Tensor) -> torch.Tensor:
        """The logits of every token, `... E` -> `... V`."""
        return nn.functional.linear(features, self.embedding.weight, self.bias)


# ---------------------------------------------------------------------------------------------------------------------
# The oracle and its trees


@dataclass(frozen=True)
class Texts:
    """Texts of a batch, as the oracle sees them."""

    ids: torch.Tensor
    """`B N`, padded."""
    lengths: torch.Tensor
    """`B`"""
    continues: torch.Tensor
    """`B N`: which tokens continue the word on their left."""


@dataclass(frozen=True)
class Trees:
    """The nodes of a tree a text, in level-order; a text of n tokens has 2n + 1."""

    spans: torch.Tensor
    """`B S 2`: the first position of the text that a node has to produce, and the one after the last."""
    chosen: torch.Tensor
    """`B S`: the position whose token stands at the node; `NONE` at the end of a branch."""
    is_node: torch.Tensor
    """`B S`: false for padding."""


def oracle(spans: torch.Tensor, continues: torch.Tensor, scores: torch.Tensor, annealing: float) -> torch.Tensor:
    """How likely the oracle says the token at each position of a text, `M N`; all zero where a span is empty.

    `spans` is `M 2`; `scores`, `M N`, are the policy's logits or log-probabilities of the text's tokens. Annealing 0 is
    uniform, 1 the policy renormalised. A piece that continues a word may come once all on its left is in place.

    >>> scores = torch.tensor([[5.0, 0.0, 0.0, 1.0]])
    >>> oracle(torch.tensor([[1, 4]]), torch.zeros(1, 4, dtype=torch.bool), scores, 0.0)
    tensor([[0.0000, 0.3333, 0.3333, 0.3333]])
    """
    place = torch.arange(scores.shape[1], device=scores.device)
    low, high = spans[:, :1], spans[:, 1:]
    valid = (place >= low) & (place < high) & (~continues | (place == low))  # M N
    uniform = valid / valid.sum(-1, keepdim=True).clamp(min=1)
    lowest = torch.finfo(scores.dtype).min
    coached = scores.masked_fill(~valid, lowest).softmax(-1) * valid
    return (1 - annealing) * uniform + annealing * coached


@torch.no_grad()
def roll_in(model: Policy, texts: Texts, start: int, end: int, annealing: float, random: np.random.Generator) -> Trees:
    """A tree for every text, drawn from the oracle node by node."""
    batch, longest = texts.ids.shape
    device = texts.ids.device
    size = 2 * longest + 1
    draws = torch.from_numpy(random.random((size, batch))).to(device)  # S B
    rows = torch.arange(batch, device=device)
    spans = torch.zeros(batch, size + 2, 2, dtype=torch.long, device=device)  # finished texts write behind the end
    spans[:, 0, 1] = texts.lengths
    waiting = torch.ones(batch, dtype=torch.long, device=device)  # where the next child is put
    chosen = torch.full((batch, size), NONE, device=device)
    said = torch.full((batch, 1), start, device=device)
    state: State | None = None
    scores = torch.zeros(batch, longest, device=device)
    # The policy is renormalised over the text, so of the output layer only the text's own tokens are needed.
    own, bias = model.embedding(texts.ids), model.bias[texts.ids]  # B N E, B N
    for node in range(size):
        if annealing > 0:
            features, state = model(said, state)  # B 1 E
            scores = (own @ features.transpose(1, 2)).squeeze(2) + bias  # B N
        span = spans[:, node]  # B 2
        total = oracle(span, texts.continues, scores, annealing).double().cumsum(-1)  # B N
        place = (total <= draws[node, :, None] * total[:, -1:]).sum(-1)
        place = torch.minimum(torch.maximum(place, span[:, 0]), span[:, 1] - 1)
        is_word = span[:, 0] < span[:, 1]
        chosen[:, node] = place.where(is_word, NONE)
        at = waiting.where(is_word, size)
        spans[rows, at] = torch.stack([span[:, 0], place], -1)
        spans[rows, at + 1] = torch.stack([place + 1, span[:, 1]], -1)
        waiting += 2 * is_word
        said = texts.ids.gather(1, place.clamp(min=0)[:, None]).where(is_word[:, None], end)
    is_node = torch.arange(size, device=device) < 2 * texts.lengths[:, None] + 1
    return Trees(spans[:, :size], chosen, is_node)


def objective(model: Policy, batch: TextBatch) -> torch.Tensor:
    """The divergence of the policy from the oracle at every node.

    Added up over a tree it bounds `-log P(text)` from above, whatever the annealing is. The bound loosens as the oracle
    makes up its mind: by its loss the least annealed policy would pass for the best, so the newest is kept.
    """
    annealing = batch.used
    start, end = batch.vocabulary.id("[CLS]"), batch.vocabulary.noi
    texts = oracle_texts(batch)
    trees = roll_in(model, texts, start, end, annealing, batch.random)
    said = texts.ids.gather(1, trees.chosen.clamp(min=0)).where(trees.chosen != NONE, end)  # B S
    read = nn.functional.pad(said[:, :-1], (1, 0), value=start)
    features, _ = model(read)  # B S E
    rows = trees.is_node.nonzero()[:, 0]
    logits = model.logits(features[trees.is_node])  # M V
    everything = logits.logsumexp(-1)
    words = logits.gather(1, texts.ids[rows]) - everything[:, None]  # M N
    wanted = oracle(trees.spans[trees.is_node], texts.continues[rows], words.detach(), annealing)
    ends = (everything - logits[:, end])[trees.chosen[trees.is_node] == NONE]
    divergence: torch.Tensor = ends.sum() - (wanted * words).sum() - torch.special.entr(wanted).sum()
    return divergence


def predictions(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many nodes the trees of texts of these lengths have."""
    return 2 * lengths + 1


def oracle_texts(batch: TextBatch) -> Texts:
    """The texts of a batch as tensors."""
    sequences = batch.sequences()
    ids = padded(sequences, batch.vocabulary.id("[PAD]"), batch.device)
    lengths = torch.tensor([len(sequence) for sequence in sequences], device=batch.device)
    continues = torch.from_numpy(batch.vocabulary.continues).to(batch.device)[ids]
    return Texts(ids, lengths, continues)


def trainee(texts: TrainingData, settings: BaselineSettings, chosen: Sizes) -> Trainee[Policy]:
    """What is trained on some texts."""
    described = (
        "An LSTM that writes a text as a binary tree in level-order, trained with the annealed oracle; the paper's "
        "has 1024 hidden units. The validation loss is a bound of the likelihood, with the oracle of that moment."
    )
    return Trainee(
        SYSTEM,
        asdict(chosen),
        lambda: Policy(chosen, len(texts.vocabulary)),
        objective,
        predictions,
        described,
        is_annealed=True,
    )


# ---------------------------------------------------------------------------------------------------------------------
# The policy as a function of what was said


class RememberingPolicy:
    """`NextToken` of a policy that remembers the states of its last answer and reads only what is new."""

    def __init__(self, model: Policy) -> None:
        self.model = model
        self.known: dict[Prefix, tuple[torch.Tensor, torch.Tensor]] = {}
        """The state, `L H` and `L H`, after each prefix of the last call."""

    @torch.inference_mode()
    def __call__(self, prefixes: Sequence[Prefix]) -> npt.NDArray[np.float32]:
        """The log-probabilities of what is said next, `B V`."""
        read = [self._known_part(prefix) for prefix in prefixes]
        shape = self.model.lstm.num_layers, self.model.lstm.hidden_size
        device = self.model.bias.device
        new = torch.zeros(shape, device=device), torch.zeros(shape, device=device)
        states = [self.known.get(prefix[:size], new) for prefix, size in zip(prefixes, read, strict=True)]
        hidden = torch.stack([state[0] for state in states], 1)  # L B H
        cell = torch.stack([state[1] for state in states], 1)
        features = torch.zeros(len(prefixes), self.model.embedding.embedding_dim, device=device)  # B E
        for step in range(max(len(prefix) - size for prefix, size in zip(prefixes, read, strict=True))):
            rows = [i for i, size in enumerate(read) if size + step < len(prefixes[i])]
            tokens = torch.tensor([[prefixes[i][read[i] + step]] for i in rows], device=device)
            found, (h, c) = self.model(tokens, (hidden[:, rows].contiguous(), cell[:, rows].contiguous()))
            hidden[:, rows], cell[:, rows], features[rows] = h, c, found[:, 0]
        self.known = {prefix: (hidden[:, i], cell[:, i]) for i, prefix in enumerate(prefixes)}
        logits = self.model.logits(features).float().clamp(-LARGEST_LOGIT, LARGEST_LOGIT)  # B V
        log_probabilities: npt.NDArray[np.float32] = logits.log_softmax(-1).cpu().numpy()
        return log_probabilities

    def _known_part(self, prefix: Prefix) -> int:
        """How much of a prefix has been read; of one that was answered just now, nothing, for features are not kept."""
        return next((size for size in range(len(prefix) - 1, 0, -1) if prefix[:size] in self.known), 0)


# ---------------------------------------------------------------------------------------------------------------------
# Generating


def complete_tree(size: int) -> list[int]:
    """The in-order place of every node, in level-order, of the tree whose last level alone has gaps, at its right.

    In level-order its nodes come before all of its open leaves: a policy has read the constraints before it chooses.

    >>> complete_tree(6)  # 3 over 1 and 5 over 0, 2 and 4
    [3, 1, 5, 0, 2, 4]
    """
    places = [0] * size
    path: list[int] = []
    node, place = 0, 0
    while path or node < size:
        while node < size:
            path.append(node)
            node = 2 * node + 1
        node = path.pop()
        places[node] = place
        place, node = place + 1, 2 * node + 2
    return places


@dataclass(frozen=True)
class _Slot:
    """A node to be visited."""

    before: int
    """The node that stands left of it in the text; `NONE` at the beginning."""
    given: int = NONE
    """The number, in level-order, of the constraints' token that belongs here."""
    closed: bool = False
    """Nothing may come here."""


class Tree:
    """A text on its way: constraints at the top, and branches that grow below them in level-order."""

    def __init__(self, constraints: tuple[str, ...], vocabulary: Vocabulary, number: int = 0) -> None:
        framed = first_stage(constraints, vocabulary, "fixed")
        inside = framed.owner != FRAME
        self.constraints, self.vocabulary, self.number = constraints, vocabulary, number
        self.given = Tokens(framed.ids[inside], framed.owner[inside])
        self.open = {*open_gaps(framed, vocabulary, Locks()).tolist()}
        """The gaps of the constraints' tokens that may be filled; gap i is left of token i."""
        self.places = complete_tree(len(self.given))
        self.tokens: list[int] = []
        self.owner: list[int] = []
        self.children: list[tuple[int, int]] = []
        """The number, in the order of visits, of the left and the right child of every node."""
        self.node_of: dict[int, int] = {}
        """By the order of visits, the nodes that have a token."""
        self.slots = deque([_Slot(NONE, 0)])
        self.said: Prefix = (vocabulary.id("[CLS]"),)
        """What the policy has to read."""
        self.likelihood, self.decisions = 0.0, 0
        self.stopped = ""

    def say(self, token: int) -> None:
        """Visit the next slot and put a token there, or end its branch with `[NOI]`."""
        slot = self.slots.popleft()
        visit = len(self.said) - 1
        self.said = (*self.said, token)
        if token == self.vocabulary.noi:
            return
        node, first = len(self.tokens), visit + len(self.slots) + 1
        self.node_of[visit] = node
        self.tokens.append(token)
        self.children.append((first, first + 1))
        if slot.given == NONE:
            self.owner.append(INSERTED)
            # Nothing comes between a word and the piece that continues it.
            self.slots += [_Slot(slot.before, closed=bool(self.vocabulary.continues[token])), _Slot(node)]
        else:
            place = self.places[slot.given]
            self.owner.append(int(self.given.owner[place]))
            self.slots += [self._below(2 * slot.given + 1, place, slot.before)]
            self.slots += [self._below(2 * slot.given + 2, place + 1, node)]

    def _below(self, given: int, gap: int, before: int) -> _Slot:
        """The child of a constraint's token: another one, or a gap."""
        if given < len(self.given):
            return _Slot(before, given)
        return _Slot(before, closed=gap not in self.open)

    def advance(self, room: int) -> None:
        """Say all that is not the policy's to decide; afterwards it is asked for the next slot, or the text is done."""
        while self.slots:
            slot = self.slots[0]
            if slot.given != NONE:
                self.say(int(self.given.ids[self.places[slot.given]]))
            elif slot.closed:
                self.say(self.vocabulary.noi)
            elif len(self.tokens) >= room:
                self.stopped = "max_length"
                return
            else:
                return
        self.stopped = "end"

    def may_continue(self) -> bool:
        """Whether the next slot is right of a word that the policy has chosen, which a piece may continue."""
        before = self.slots[0].before
        return before != NONE and self.owner[before] == INSERTED and bool(self.vocabulary.is_word[self.tokens[before]])

    def draw(self, seed: int) -> float:
        """A number in [0, 1) that depends on the seed, the constraints and the place in the tree alone."""
        key = json.dumps([seed, self.number, self.constraints, len(self.said)]).encode()
        return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") / 2**64

    def in_order(self) -> Tokens:
        """The text."""
        order: list[int] = []
        path: list[int] = []
        node = self.node_of.get(0)
        while path or node is not None:
            while node is not None:
                path.append(node)
                node = self.node_of.get(self.children[node][0])
            top = path.pop()
            order.append(top)
            node = self.node_of.get(self.children[top][1])
        return Tokens(np.array(self.tokens)[order], np.array(self.owner)[order])


@dataclass
class NonMonotonic:
    """Grows texts as trees below their constraints."""

    begin: Callable[[], NextToken]
    """Gives the policy's function for one batch: from `[CLS]` and all that was said, in level-order, what is next."""
    vocabulary: Vocabulary
    casing: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    name: str = SYSTEM

    def generate_many(self, lists: Sequence[Given], batch_size: int = 64, **options: Any) -> list[list[Generation]]:
        """For every list of constraints its `n` different texts, best first; the order of the lists is kept.

        Decoding is greedy or sampled (`seed`, `temperature`, `top_k`, `top_p`), of at most `max_length` tokens.
        """
        names = ["n", "seed", "temperature", "top_k", "top_p", "max_length"]
        chosen = accepted(SYSTEM, options, names, ("greedy", "sample"))
        batches = list(parsed_in_batches(lists, batch_size))
        for constraints in (one for batch in batches for one in batch):
            self._need_room(constraints, chosen)
        return [texts for batch in batches for texts in self._different(batch, chosen)]

    def _need_room(self, constraints: tuple[str, ...], options: Options) -> None:
        needed, room = len(first_stage(constraints, self.vocabulary, "fixed")) - 2, options.max_length - 2
        if needed > room:
            raise ConstraintError(
                f"Expected constraints of at most {room} tokens, found {needed}.",
                "Give fewer constraints, or raise max_length.",
            )

    def _different(self, lists: list[tuple[str, ...]], options: Options) -> list[list[Generation]]:
        """The texts of every list; where the policy has no more to say after some attempts, fewer than asked."""
        found: list[dict[str, Generation]] = [{} for _ in lists]
        for attempt in range(ATTEMPTS):
            wanted = [
                (i, Tree(constraints, self.vocabulary, attempt * options.n + k))
                for i, constraints in enumerate(lists)
                for k in range(options.n - len(found[i]))
            ]
            if not wanted:
                break
            self._grow([tree for _, tree in wanted], options)
            for i, tree in wanted:
                one = self._generation(tree)
                found[i].setdefault(one.text, one)
        return [sorted(texts.values(), key=lambda one: -one.score) for texts in found]

    def _grow(self, trees: list[Tree], options: Options) -> None:
        """Visit every tree node by node until nothing is open or there is no more room; `[CLS]`, `[SEP]` count."""
        policy, live = self.begin(), trees
        while live:
            for tree in live:
                tree.advance(options.max_length - 2)
            live = [tree for tree in live if not tree.stopped]
            if not live:
                break
            scores = self._ruled(policy([tree.said for tree in live]), live)  # B V
            for row, (tree, token) in enumerate(zip(live, self._chosen(scores, live, options), strict=True)):
                tree.likelihood += float(scores[row, token])
                tree.decisions += 1
                tree.say(token)

    def _ruled(self, found: npt.NDArray[np.float32], trees: list[Tree]) -> npt.NDArray[np.float32]:
        """Log-probabilities with -inf for what may not come: specials, and pieces that would continue no word."""
        if np.isnan(found).any():
            raise CheckpointError(
                f"Expected numbers from the model {self.name}, found NaN.",
                "Its weights are damaged; open another checkpoint.",
            )
        allowed = np.clip(found, -10 * LARGEST_LOGIT, 0.0)
        allowed[:, self.vocabulary.special] = -np.inf
        no_word = np.array([not tree.may_continue() for tree in trees])
        allowed[np.ix_(no_word, self.vocabulary.continues)] = -np.inf
        return allowed

    def _chosen(self, scores: npt.NDArray[np.float32], trees: list[Tree], options: Options) -> list[int]:
        if options.decoding == "greedy":
            best: list[int] = scores.argmax(-1).tolist()
            return best
        draws = np.array([tree.draw(options.seed) for tree in trees])
        drawn: list[int] = sampled(scores, draws, options)[:, 0].tolist()
        return drawn

    def _generation(self, tree: Tree) -> Generation:
        score = tree.likelihood / max(1, tree.decisions)
        return generation(tree.in_order(), tree.constraints, self.vocabulary, self.casing, score, tree.stopped)


def load(folder: str | Path, device: str | None = None) -> NonMonotonic:
    """Open what `train` wrote."""
    checkpoint = open_checkpoint(SYSTEM, folder, Sizes)
    model = Policy(checkpoint.sizes, len(checkpoint.vocabulary))
    checkpoint.load_into(model)
    model.to(torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))).eval()
    return NonMonotonic(
        lambda: RememberingPolicy(model), checkpoint.vocabulary, checkpoint.casing, f"{SYSTEM}:{folder}"
    )
