"""What comes next with keys and values kept from call to call is what the whole prefix, read anew, would give."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_causal import gpt2_folder, llama_folder
from transformers import AutoModelForCausalLM

from pointer.runtime import Floats, Prefix
from pointer.runtime.prefixes import KEPT_CALLS, STEP
from pointer.runtime.torch import CachedModel

MOVES = ("grow", "fork", "leave", "join", "shuffle", "again", "elsewhere", "twins", "begin")
START = (11, 12, 13, 14)


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp(request.param)
    made = llama_folder(folder) if request.param == "llama" else gpt2_folder(folder)
    return AutoModelForCausalLM.from_pretrained(made, dtype=torch.float32).eval()


@torch.inference_mode()
def read_anew(model: Any, prefixes: list[Prefix]) -> Floats:
    logits = [model(torch.tensor([prefix]), use_cache=False).logits[0, -1] for prefix in prefixes]
    found: Floats = torch.log_softmax(torch.stack(logits).float(), -1).numpy()
    return found


def holds(cached: CachedModel, prefixes: list[Prefix]) -> None:
    found = cached(prefixes)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, read_anew(cached.model, prefixes), atol=1e-4, rtol=0)
    assert len(cached.kept) <= KEPT_CALLS


def tokens(random: np.random.Generator, count: int) -> Prefix:
    return tuple(random.integers(0, 600, count).tolist())


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(moves=st.lists(st.sampled_from(MOVES), min_size=4, max_size=10), seed=st.integers(0, 999))
def test_any_sequence_of_calls_gives_what_the_whole_prefixes_give(model: Any, moves: list[str], seed: int) -> None:
    random = np.random.default_rng(seed)
    cached = CachedModel(model, starts=[START])
    batch = [tokens(random, int(random.integers(1, 9))) for _ in range(3)]
    other = [tokens(random, 5), tokens(random, 2)]
    holds(cached, batch)
    for move in moves:
        if move == "fork":
            batch = [batch[0], *batch]
        if move == "leave":
            batch = batch[1:] or batch
        if move == "join":
            batch = [*batch, tokens(random, int(random.integers(1, 12)))]
        if move == "begin":
            batch = [*batch, START, START + tokens(random, 3)]
        if move == "shuffle":
            batch = [batch[i] for i in random.permutation(len(batch))]
        if move == "elsewhere":
            other = [prefix + tokens(random, 1) for prefix in other]
            holds(cached, other)
        if move == "twins":
            holds(cached, [batch[0] + (7,), batch[0] + (7,)])
        if move != "again":
            batch = [prefix + tokens(random, int(random.integers(1, 5))) for prefix in batch]
        holds(cached, batch)


def test_a_text_may_grow_past_every_step_of_its_cache(model: Any) -> None:
    random = np.random.default_rng(0)
    cached = CachedModel(model)
    long, short = tokens(random, STEP - 2), tokens(random, 1)
    for _ in range(STEP // 2 + 4):
        long, short = long + tokens(random, 2), short + tokens(random, 1)
        holds(cached, [short, long])
    assert len(long) > 2 * STEP


def test_two_children_of_one_parent_do_not_write_over_each_other(model: Any) -> None:
    cached = CachedModel(model)
    parent = (5, 6, 7)
    holds(cached, [parent])
    holds(cached, [(*parent, 8), (*parent, 9, 10, 11)])
    holds(cached, [(*parent, 9, 10, 11, 12), (*parent, 8, 13)])
    holds(cached, [(*parent, 8, 13, 1, 2), (*parent, 8, 13, 3)])


def test_only_what_is_new_is_read(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cached, widths = CachedModel(model), []
    forward = model.base_model.forward

    def counted(*args: Any, **kwargs: Any) -> Any:
        widths.append(tuple(kwargs["input_ids"].shape))
        return forward(*args, **kwargs)

    monkeypatch.setattr(model.base_model, "forward", counted)
    cached([(1, 2, 3, 4), (5, 6)])
    cached([(1, 2, 3, 4, 9), (5, 6, 9)])
    cached([(30, 31)])  # an unrelated request in between
    cached([(5, 6, 9, 9), (1, 2, 3, 4, 9, 9), (1, 2, 3, 4, 9, 8)])
    assert widths == [(2, 4), (2, 1), (1, 2), (3, 1)]


def test_a_start_is_read_once_and_so_is_what_is_asked_twice(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cached, read = CachedModel(model, starts=[START]), []
    forward = model.base_model.forward

    def counted(*args: Any, **kwargs: Any) -> Any:
        read.append(kwargs["input_ids"].tolist())
        return forward(*args, **kwargs)

    monkeypatch.setattr(model.base_model, "forward", counted)
    first, second = cached([(*START, 7), (*START, 7)])
    np.testing.assert_array_equal(first, second)
    cached([(*START, 8, 9), (*START, 7)])
    assert read == [[list(START)] * 2, [[7]], [[8, 9], [7, 0]]]


def test_the_answer_is_that_of_the_model_inside_its_switch(model: Any) -> None:
    from contextlib import contextmanager

    inside: list[bool] = []

    @contextmanager
    def switch() -> Any:
        inside.append(True)
        yield

    np.testing.assert_allclose(CachedModel(model, switch)([(1, 2)]), read_anew(model, [(1, 2)]), atol=1e-4, rtol=0)
    assert inside == [True]


@pytest.mark.parametrize("logit", [1e30, torch.inf, -torch.inf])
def test_huge_logits_still_are_log_probabilities(model: Any, monkeypatch: pytest.MonkeyPatch, logit: float) -> None:
    logits = torch.zeros(1, 640).index_fill(1, torch.tensor([3, 5]), logit)
    monkeypatch.setattr(model, "get_output_embeddings", lambda: lambda hidden: logits)
    found = CachedModel(model)([(1, 2, 3)])
    assert np.isfinite(found).all() and float(np.exp(found).sum()) == pytest.approx(1, abs=1e-4)


def test_a_logit_that_is_no_number_is_not_hidden(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "get_output_embeddings", lambda: lambda hidden: torch.full((1, 640), torch.nan))
    assert np.isnan(CachedModel(model)([(1, 2, 3)])).all()
