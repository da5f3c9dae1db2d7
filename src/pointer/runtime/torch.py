"""Models that PyTorch runs: an insertion transformer as a function of gaps, a causal model as one of prefixes."""

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

from pointer.runtime import LARGEST_LOGIT, Floats, Ints, Predict, Prefix
from pointer.runtime.prefixes import STEP, PrefixModel, Rows


def predictor(model: Any) -> Predict:
    """An `InsertionTransformer` as a function of gaps: the output layer runs only where an answer is wanted."""

    @torch.inference_mode()
    def predict(ids: Ints, attention: Ints | None, rows: Ints, positions: Ints) -> Floats:
        mask = None if attention is None else torch.from_numpy(attention).to(model.device)
        hidden = model.bert(input_ids=torch.from_numpy(ids).to(model.device), attention_mask=mask).last_hidden_state
        logits: Floats = model.cls(hidden[torch.from_numpy(rows), torch.from_numpy(positions)]).float().cpu().numpy()
        return logits  # G V

    return predict


if hasattr(os, "register_at_fork"):
    # The threads of PyTorch stay behind, and whoever waits for them waits for ever.
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


class _Layer(DynamicLayer):  # type: ignore[no-untyped-call]
    """The keys and values of one layer. Every row has a length of its own and is written at its own place."""

    def __init__(self, rows: "_Rows") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rows = rows

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write what is new (`B H W D`) at the end of every row; all that is there is returned (`B H L D`)."""
        _, heads, _, size = key_states.shape
        places = self.rows.places[:, None, :, None].expand(-1, heads, -1, size)  # B H W D
        for name, new in (("keys", key_states), ("values", value_states)):
            held = _with_room(getattr(self, name), new, self.rows.width)
            setattr(self, name, held.scatter_(2, places, new))
        self.is_initialized = True
        assert self.keys is not None and self.values is not None
        return self.keys[:, :, : self.rows.width], self.values[:, :, : self.rows.width]

    def get_seq_length(self) -> int:
        """The columns in use."""
        return self.rows.width


def _with_room(held: torch.Tensor | None, new: torch.Tensor, width: int) -> torch.Tensor:
    """A buffer of at least `width` columns that holds what `held` did."""
    if held is not None and held.shape[2] >= width:
        return held
    rows, heads, _, size = new.shape
    larger = new.new_zeros(rows, heads, -(-width // STEP) * STEP, size)
    if held is not None:
        larger[:, :, : held.shape[2]] = held
    return larger


@dataclass
class _Rows(Rows):
    """Keys and values of some prefixes, and how long each of them is."""

    prefixes: list[Prefix]
    layers: list[_Layer] = field(default_factory=list)
    places: torch.Tensor = field(default_factory=lambda: torch.empty(0, 0, dtype=torch.long))
    """Where the tokens of the present call go: `B W`."""
    width: int = 0

    def select(self, rows: list[int]) -> "_Rows":
        """Some of the rows, in another order, perhaps some of them twice."""
        chosen = _Rows([self.prefixes[row] for row in rows], width=self.width)
        index = torch.tensor(rows)
        for layer in self.layers:
            mine = _Layer(chosen)
            assert layer.keys is not None and layer.values is not None
            is_same = rows == list(range(len(self.prefixes)))
            mine.keys = layer.keys if is_same else layer.keys.index_select(0, index.to(layer.keys.device))
            mine.values = layer.values if is_same else layer.values.index_select(0, index.to(layer.values.device))
            mine.is_initialized = True
            chosen.layers.append(mine)
        return chosen


def _joined(groups: list[_Rows]) -> _Rows:
    """Rows of several groups as one."""
    if len(groups) == 1:
        return groups[0]
    together = _Rows([prefix for group in groups for prefix in group.prefixes])
    together.width = max(group.width for group in groups)
    for layers in zip(*(group.layers for group in groups), strict=True):
        mine = _Layer(together)
        widest = max(layer.keys.shape[2] for layer in layers)
        mine.keys = torch.cat([_with_room(layer.keys, layer.keys, widest) for layer in layers])
        mine.values = torch.cat([_with_room(layer.values, layer.values, widest) for layer in layers])
        mine.is_initialized = True
        together.layers.append(mine)
    return together


class CachedModel(PrefixModel[_Rows]):
    """`NextToken` of a Transformers causal model.

    `switch` makes the context in which the model runs, for example one without its adapter.
    """

    def __init__(self, model: Any, switch: Callable[[], Any] = nullcontext, starts: Sequence[Prefix] = ()) -> None:
        super().__init__(starts)
        self.model = model
        self.switch = switch

    @torch.inference_mode()
    def __call__(self, prefixes: Sequence[Prefix]) -> Floats:
        """The log-probabilities of what comes next, `B V`."""
        with self.switch():
            return super().__call__(prefixes)

    def fresh(self, count: int) -> _Rows:
        return _Rows([()] * count)

    def joined(self, groups: list[_Rows]) -> _Rows:
        return _joined(groups)

    def log_probabilities(self, found: list[torch.Tensor]) -> Floats:
        last = torch.cat(found)  # B H
        logits = self.model.get_output_embeddings()(last).float().clamp(-LARGEST_LOGIT, LARGEST_LOGIT)  # B V
        own: Floats = torch.log_softmax(logits, -1).cpu().numpy()
        return own

    def run(self, rows: _Rows, prefixes: list[Prefix]) -> torch.Tensor:
        """Feed what is new of every prefix; the hidden states of their last tokens, `B H`."""
        device = self.model.device
        old = torch.tensor([len(prefix) for prefix in rows.prefixes])
        lengths = torch.tensor([len(prefix) for prefix in prefixes]) - old
        most = int(lengths.max())
        ids = torch.zeros(len(prefixes), most, dtype=torch.long)  # B W
        for row, (prefix, start) in enumerate(zip(prefixes, old.tolist(), strict=True)):
            ids[row, : len(prefix) - start] = torch.tensor(prefix[start:])
        rows.places = (old[:, None] + torch.arange(most)).to(device)  # B W
        rows.width = max(rows.width, int(rows.places.max()) + 1)
        if not rows.layers:
            rows.layers = [_Layer(rows) for _ in range(self.model.config.num_hidden_layers)]
        # A token sees all that stands before it in its own row; padding at the end writes where the next token will.
        seen = torch.arange(rows.width, device=device) <= rows.places[:, :, None]  # B W L
        blocked = torch.zeros_like(seen, dtype=self.model.dtype).masked_fill(~seen, torch.finfo(self.model.dtype).min)
        output = self.model.base_model(
            input_ids=ids.to(device),
            attention_mask=blocked[:, None],
            position_ids=torch.minimum(rows.places, (old + lengths - 1).to(device)[:, None]),
            past_key_values=Cache(layers=list(rows.layers)),
            use_cache=True,
        )
        rows.prefixes = prefixes
        states: torch.Tensor = output.last_hidden_state[torch.arange(len(prefixes)), lengths.to(device) - 1]
        return states
