"""Many callers, one model: what a caller gets, who grows with whom, who is dropped, who is refused."""

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from scripted import WORDS, hostile, scripted, small_vocabulary
from servers import LOCKED, PATIENCE, Turnstile, until

from pointer.decoding.generator import DRAFTS, Pointer
from pointer.decoding.grammar import parse
from pointer.decoding.options import Options
from pointer.errors import CheckpointError, ConstraintError, UsageError
from pointer.runtime import Floats, Ints
from pointer.serving.batching import Batcher, Busy, Closed, Ticket, weight_of
from pointer.serving.limits import Limits
from pointer.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return small_vocabulary(tmp_path_factory.mktemp("vocabulary"))


class Noted:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.drops = 0
        self.longest_queue = 0

    def queue(self, lists: int) -> None:
        self.longest_queue = max(self.longest_queue, lists)

    def batch(self, texts: int) -> None:
        self.batches.append(texts)

    def dropped(self) -> None:
        self.drops += 1


Start = Callable[..., Batcher]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts batchers, and sees to it that they end."""
    started = []

    def begin(open_model: Callable[[], Pointer], **limits: Any) -> Batcher:
        # By this clock every step takes as long as any other.
        batcher = Batcher(open_model, Limits(**({"lists": 1} | limits)), Noted(), itertools.count().__next__)
        started.append(batcher)
        batcher.start()
        until(lambda: batcher.pointer is not None or batcher.failure is not None)
        return batcher

    yield begin
    for batcher in started:
        batcher.close()
        batcher.join(PATIENCE)
        assert not batcher._thread.is_alive()


def ask(batcher: Batcher, lists: list[str], **options: Any) -> Ticket:
    """Submit lists as a server does."""
    assert batcher.pointer is not None
    chosen = Options(**options)
    parsed = list(map(parse, lists))
    plans = [batcher.pointer.plan(constraints, chosen) for constraints in parsed]
    cost = sum(batcher.pointer.cost(constraints, chosen) for constraints in parsed)
    weight = max(weight_of(constraints, chosen, batcher.limits.batch) for constraints in parsed)
    return batcher.submit(replace(chosen, seed=0), plans, weight, cost)


KINDS: list[dict[str, Any]] = [
    {},
    {"preset": "plain", "max_length": 40},
    {"decoding": "sample", "temperature": 2.0, "max_length": 40},
    {"decoding": "sample", "n": 3, "max_length": 30},
    {"decoding": "beam", "width": 3, "n": 2, "max_length": 30},
    {"decoding": "beam", "width": 2, "rounds": 0, "max_length": 20},
    {"length": 12, "max_length": 30},
    {"length": 9, "decoding": "sample", "n": 2, "max_length": 30},
    {"max_stages": 0},
]


@pytest.mark.parametrize("mood", ["random", "insert"])
def test_whatever_the_company_everybody_gets_what_the_library_gives(
    vocabulary: Vocabulary, start: Start, mood: str
) -> None:
    def model() -> Pointer:
        return scripted(vocabulary, hostile(vocabulary, mood, seed=1))

    library, draw = model(), random.Random(0)
    requests = []
    for number in range(3 * len(KINDS)):
        kind = KINDS[number % len(KINDS)]
        seed = {"seed": draw.randrange(3)} if kind.get("decoding") == "sample" else {}
        lists = ["; ".join(draw.sample(WORDS, draw.randint(1, 4))) for _ in range(draw.randint(1, 2))]
        requests.append((lists, kind | seed))
    draw.shuffle(requests)
    batcher = start(model, queue=1000, batch=16)
    with ThreadPoolExecutor(12) as callers:
        found = list(callers.map(lambda r: ask(batcher, r[0], **r[1]).future.result(PATIENCE), requests))
    for (lists, options), texts in zip(requests, found, strict=True):
        assert texts == library.generate_many(lists, **options)
    assert batcher.outstanding == 0
    assert 1 < max(batcher.observer.batches) <= 16


def test_a_newcomer_joins_at_the_next_stage(vocabulary: Vocabulary, start: Start) -> None:
    model = Turnstile(vocabulary)
    batcher = start(lambda: model.pointer)
    model.close()
    first = ask(batcher, ["great; food"], **LOCKED, max_stages=3)
    until(lambda: model.waiting == 1)
    second = ask(batcher, ["great; music"], **LOCKED, max_stages=3)
    model.permit()
    until(lambda: model.waiting == 2)
    assert model.passes == [["food"]]
    model.open()
    assert first.future.result(PATIENCE) and second.future.result(PATIENCE)
    assert batcher.observer.batches == [1, 2, 2, 1]


def test_requests_that_differ_in_their_seed_alone_share_a_batch(vocabulary: Vocabulary, start: Start) -> None:
    model = Turnstile(vocabulary)
    batcher = start(lambda: model.pointer)
    model.close()
    blocker = ask(batcher, ["love"], max_stages=1)
    until(lambda: model.waiting == 1)
    tickets = [ask(batcher, ["great"], decoding="sample", seed=seed, **LOCKED, max_stages=2) for seed in range(5)]
    model.open()
    for ticket in [blocker, *tickets]:
        ticket.future.result(PATIENCE)
    assert sorted(batcher.observer.batches) == [1, 5, 5]
    assert [ticket.batch for ticket in tickets] == [5] * 5


def test_kinds_of_requests_take_turns(vocabulary: Vocabulary, start: Start) -> None:
    model = Turnstile(vocabulary)
    batcher = start(lambda: model.pointer)
    model.close()
    many = [ask(batcher, ["great; food"], **LOCKED, max_stages=3) for _ in range(10)]
    until(lambda: model.waiting == 1)
    other = ask(batcher, ["great; music"], **LOCKED, max_stages=2)
    model.open()
    for ticket in [*many, other]:
        ticket.future.result(PATIENCE)
    order = [passes[0] for passes in model.passes]
    assert order[:2] == ["food", "music"] and order[-1] == "food", order


EXPENSIVE = {"decoding": "beam", "width": 4, "rounds": 0, "max_stages": 8} | LOCKED
"""Every stage of such a text has as many forward passes as the text has gaps."""


def test_a_small_request_does_not_wait_for_a_stage_of_an_expensive_one(vocabulary: Vocabulary, start: Start) -> None:
    model = Turnstile(vocabulary)
    batcher = start(lambda: model.pointer)
    model.close()
    expensive = ask(batcher, ["; ".join(["great"] * 10 + ["food"])], **EXPENSIVE)
    until(lambda: model.waiting == 1)
    small = ask(batcher, ["great; music"], **LOCKED, max_stages=4)
    model.permit(200)
    assert small.future.result(PATIENCE) and not expensive.future.done()
    expensive.future.cancel()
    model.open()
    passes = [words[0] for words in model.passes]
    last = max(place for place, word in enumerate(passes) if word == "music")
    assert passes[:last].count("food") < 4  # its share, where whole stages in turn would be hundreds


def test_an_expensive_request_gets_done_beside_small_ones_that_never_end(vocabulary: Vocabulary, start: Start) -> None:
    model = Turnstile(vocabulary)
    batcher = start(lambda: model.pointer)
    expensive = ask(batcher, ["great; love; food"], **(EXPENSIVE | {"max_stages": 2}))
    for _ in range(200):
        small = [ask(batcher, ["great; music"], **LOCKED, max_stages=1) for _ in range(2)]
        for ticket in small:
            ticket.future.result(PATIENCE)
        if expensive.future.done():
            break
    assert expensive.future.done()


def test_what_costs_far_more_is_not_joined_however_alike_the_options_are(vocabulary: Vocabulary, start: Start) -> None:
    model = Turnstile(vocabulary)
    batcher = start(lambda: model.pointer, lists=64, batch=64)
    model.close()
    blocker = ask(batcher, ["love"], max_stages=1)
    until(lambda: model.waiting == 1)
    many = ask(batcher, ["great; food"] * 64, **LOCKED, max_stages=2)
    small = ask(batcher, ["great; music"], **LOCKED, max_stages=2)
    model.open()
    for ticket in (blocker, many, small):
        ticket.future.result(PATIENCE)
    assert small.batch == 1 and many.batch == 64


def test_a_plan_that_scores_drafts_pauses_between_them(vocabulary: Vocabulary, start: Start) -> None:
    model = Turnstile(vocabulary)
    batcher = start(lambda: model.pointer)
    scored: list[int] = []

    def readings(texts: list[str], style: str | None) -> list[float]:
        scored.append(len(texts))
        if len(scored) == 1:  # while the first are scored, somebody comes
            tickets.append(ask(batcher, ["great; music"], **LOCKED, max_stages=1))
        else:
            assert tickets[0].future.done()
        return [0.0] * len(texts)

    tickets: list[Ticket] = []
    model.pointer.readings = readings  # type: ignore[method-assign]
    model.pointer.predict = scripted(vocabulary, hostile(vocabulary, "random", seed=3)).predict
    drafts = ask(batcher, ["great; food"], best_of=20, max_length=30)
    assert drafts.future.result(PATIENCE) and len(scored) > 1


def test_no_more_texts_grow_together_than_allowed_and_the_oldest_go_first(vocabulary: Vocabulary, start: Start) -> None:
    model = Turnstile(vocabulary)
    batcher = start(lambda: model.pointer, batch=4, queue=50)
    model.close()
    tickets = [ask(batcher, [f"great; {word}"], **LOCKED, max_stages=1) for word in WORDS[:10]]
    model.open()
    for ticket in tickets:
        ticket.future.result(PATIENCE)
    assert max(batcher.observer.batches) == 4
    assert [word for passes in model.passes for word in passes] == WORDS[:10]


def test_what_nobody_waits_for_is_dropped_at_the_next_stage(vocabulary: Vocabulary, start: Start) -> None:
    model = Turnstile(vocabulary)
    batcher = start(lambda: model.pointer)
    model.close()
    leaving = ask(batcher, ["great; food"], **LOCKED, max_stages=4)
    until(lambda: model.waiting == 1)
    staying = ask(batcher, ["great; music"], **LOCKED, max_stages=4)
    never_begun = ask(batcher, ["great; rice", "great; love"], **LOCKED, max_stages=4)
    assert leaving.future.cancel() and never_begun.future.cancel()
    model.open()
    assert staying.future.result(PATIENCE)
    assert [word for passes in model.passes for word in passes].count("food") == 1
    assert not {"rice", "love"} & {word for passes in model.passes for word in passes}
    assert batcher.observer.drops == 3 and batcher.outstanding == 0
    with pytest.raises(CancelledError):
        leaving.future.result()


def test_a_long_stage_is_given_up_between_two_forward_passes(vocabulary: Vocabulary, start: Start) -> None:
    model = Turnstile(vocabulary)
    batcher = start(lambda: model.pointer)
    model.close()
    # One gap at a time: a stage of this text takes as many forward passes as it has gaps.
    ticket = ask(batcher, ["great; food; great; music; great; love"], decoding="beam", rounds=0, max_stages=3)
    until(lambda: model.waiting == 1)
    ticket.future.cancel()
    model.permit()
    until(lambda: batcher.observer.drops == 1)
    assert len(model.passes) == 1
    model.open()
    assert ask(batcher, ["great"], max_stages=1).future.result(PATIENCE)


def test_a_full_queue_refuses_at_once_and_takes_again_what_it_has_room_for(
    vocabulary: Vocabulary, start: Start
) -> None:
    model = Turnstile(vocabulary)
    batcher = start(lambda: model.pointer, queue=3)
    model.close()
    taken = [ask(batcher, ["great"], max_stages=1), ask(batcher, ["great", "food"], max_stages=1)]
    with pytest.raises(Busy):
        ask(batcher, ["music"], max_stages=1)
    model.open()
    for ticket in taken:
        ticket.future.result(PATIENCE)
    until(lambda: batcher.outstanding == 0)
    assert ask(batcher, ["music", "rice", "love"], max_stages=1).future.result(PATIENCE)
    assert batcher.observer.longest_queue == 3


def test_an_error_costs_nobody_but_its_own_request(vocabulary: Vocabulary, start: Start) -> None:
    model = Turnstile(vocabulary)
    healthy = model.pointer.predict

    def predict(ids: Ints, *others: Any) -> Floats:
        if (ids == vocabulary.id("rice")).any():
            raise RuntimeError("allergic")
        return healthy(ids, *others)

    model.pointer.predict = predict
    batcher = start(lambda: model.pointer)
    model.close()
    blocker = ask(batcher, ["love"], max_stages=1)
    until(lambda: model.waiting == 1)
    tickets = [ask(batcher, [word], **LOCKED, max_stages=2) for word in ("food", "rice", "music")]
    too_long = ask(batcher, ["great", "; ".join(["food"] * 300)], **LOCKED, max_stages=2)
    model.open()
    assert blocker.future.result(PATIENCE) and tickets[0].future.result(PATIENCE) and tickets[2].future.result(PATIENCE)
    with pytest.raises(RuntimeError, match="allergic"):
        tickets[1].future.result(PATIENCE)
    with pytest.raises(ConstraintError, match="at most 256 tokens, found 302"):
        too_long.future.result(PATIENCE)
    assert ask(batcher, ["food"], **LOCKED, max_stages=2).future.result(PATIENCE)
    assert batcher.outstanding == 0


def test_closing_finishes_what_was_taken_and_takes_nothing_more(vocabulary: Vocabulary, start: Start) -> None:
    model = Turnstile(vocabulary)
    batcher = start(lambda: model.pointer)
    model.close()
    tickets = [ask(batcher, ["great"], **LOCKED, max_stages=3), ask(batcher, ["food"], **LOCKED, max_stages=2)]
    until(lambda: model.waiting == 1)
    batcher.close()
    with pytest.raises(Closed):
        ask(batcher, ["music"])
    model.open()
    assert all(ticket.future.result(PATIENCE) for ticket in tickets)
    batcher.join(PATIENCE)


def test_a_model_that_cannot_be_opened_says_why(start: Start) -> None:
    def broken() -> Pointer:
        raise CheckpointError("Expected weights, found none.")

    batcher = start(broken)
    assert isinstance(batcher.failure, CheckpointError) and batcher.pointer is None


def test_a_model_is_not_ready_before_it_has_written_a_text(vocabulary: Vocabulary) -> None:
    model = Turnstile(vocabulary)
    model.close()
    batcher = Batcher(lambda: model.pointer, Limits(), Noted())
    batcher.start()
    until(lambda: model.waiting == 1)
    assert batcher.pointer is None
    model.open()
    until(lambda: batcher.pointer is not None)
    batcher.close()
    batcher.join(PATIENCE)


def test_many_threads_can_submit_and_cancel_at_once(vocabulary: Vocabulary, start: Start) -> None:
    def model() -> Pointer:
        return scripted(vocabulary, hostile(vocabulary, "random", seed=2))

    library = model()
    batcher = start(model, queue=10_000)
    expected = {word: library.generate_many([word], max_length=16) for word in WORDS}
    wrong: list[str] = []

    def caller(number: int) -> None:
        draw = random.Random(number)
        for _ in range(10):
            word = draw.choice(WORDS)
            ticket = ask(batcher, [word], max_length=16)
            if draw.random() < 0.3 and ticket.future.cancel():
                continue
            if ticket.future.result(PATIENCE) != expected[word]:
                wrong.append(word)

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not wrong
    until(lambda: batcher.outstanding == 0)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"batch": 0}, "batch: expected a number of at least 1, found 0"),
        ({"queue": 10}, "queue: expected room for the 64"),
        ({"quota": 10}, "quota: expected at least the 10,000,000 that one request may cost, found 10"),
    ],
)
def test_limits_that_make_no_sense_are_one_sentence(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Limits(**changed)


def test_a_list_weighs_as_much_as_it_has_texts_under_way() -> None:
    def weight(constraints: str = "rice; back", **options: Any) -> int:
        return weight_of(parse(constraints), Options(**options), 64)

    assert weight() == 1 and weight(decoding="sample", n=5) == 5 and weight(decoding="beam", width=8) == 8
    assert weight("rice; =9") == weight(length=9) == weight("Rice ___.") == DRAFTS
    assert weight(decoding="beam", rounds=0) == weight(preset="released") == 64
