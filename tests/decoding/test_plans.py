"""Plans, stages one by one, and drafts: what those build on who decode for many callers at once."""

import pytest
from scripted import hostile, scripted, small_vocabulary

from pointer.decoding.demand import Demand, demand_of
from pointer.decoding.engine import has_stopped
from pointer.decoding.generator import DRAFTS, Pointer
from pointer.decoding.grammar import parse
from pointer.decoding.options import Options
from pointer.vocabulary import Vocabulary

LISTS = ["great; food; very clean", "New York; friendly staff", "café; 600; love; rice; back", "🎉"]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return small_vocabulary(tmp_path_factory.mktemp("vocabulary"))


def asked(constraints: str) -> Demand:
    return demand_of(parse(constraints), Options())


@pytest.fixture(params=["random", "pieces", "insert", "never"])
def pointer(request: pytest.FixtureRequest, vocabulary: Vocabulary) -> Pointer:
    return scripted(vocabulary, hostile(vocabulary, request.param, seed=5), end="fixed")


def test_texts_may_join_and_leave_between_two_stages(pointer: Pointer) -> None:
    options = Options(max_length=30)
    [[first]], [[second]] = (pointer.generate_many([one], max_length=30) for one in LISTS[:2])
    engine = pointer.engine(options)
    alone = engine.advance([[engine.start(asked(LISTS[0]))]])
    pools = [*alone, [engine.start(asked(LISTS[1]))], [engine.start(asked(LISTS[2]))]]
    pools = engine.advance(pools)[:2]
    while not all(map(has_stopped, pools)):
        pools = engine.advance(pools)
    assert [pointer.written(pool[0]) for pool in pools] == [first, second]


@pytest.mark.parametrize("options", [{}, {"decoding": "sample", "seed": 2}, {"decoding": "beam", "width": 2}])
def test_drafts_are_the_texts_that_streaming_shows(pointer: Pointer, options: dict[str, object]) -> None:
    for constraints in LISTS:
        stream = list(pointer.stream(constraints, max_length=30, **options))
        assert pointer.drafts(stream[-1]) == [stage.text for stage in stream]


def test_a_plan_for_a_length_asks_as_always_and_then_steers_several_drafts(pointer: Pointer) -> None:
    plan = pointer.plan(("great", "food"), Options(length=29, max_length=30))
    asked, answer = [], None
    while True:
        try:
            wanted = plan.send(answer)  # type: ignore[arg-type]
        except StopIteration as end:
            assert end.value == pointer.generate_many(["great; food"], length=29, max_length=30)[0]
            break
        asked += [growth.text.demand.words is not None for growth in wanted.growths]
        answer = wanted.engine.finish(wanted.growths)
    assert asked == [False] + DRAFTS * [True]


def test_engines_that_differ_in_their_seed_alone_are_of_one_kind(pointer: Pointer) -> None:
    kinds = {pointer.engine(Options(decoding="sample", seed=seed)).kind for seed in range(3)}
    assert len(kinds) == 1
