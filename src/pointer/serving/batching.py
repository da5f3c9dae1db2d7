"""Many callers, one model: their texts grow together, stage by stage, in one thread.

A request brings one plan (`Pointer.plan`) for each of its constraint lists. Requests whose options differ in nothing
but the seed, and which cost about the same, share a *lane*. Before a stage a lane drops what nobody waits for any more
and takes in newcomers while there is room, so a text can join others at any stage boundary and leave them at any other.
What a caller gets is what the library would have given: the engine promises that a text does not depend on its company.

The lanes share the model by weighted fair queueing. A stage pauses before every forward pass, and whoever has had the
least of the model goes on. Time counts more for what costs more (`share`), so the cheap hardly notice the expensive,
and yet nobody waits for ever.
"""

import gc
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pointer.decoding.demand import demand_of
from pointer.decoding.engine import Loop, has_stopped
from pointer.decoding.generator import Pointer, Wanted, drafts_of
from pointer.decoding.grammar import Constraints
from pointer.decoding.options import Options
from pointer.decoding.search import Steps
from pointer.errors import PointerError
from pointer.serving.limits import Limits

AnyPlan = Generator[Wanted, list[list[Any]], Any]
Watch = Callable[[Any], None]
"""Called after every stage with the best candidate so far, X^0 first; in the thread of the model."""
ALIKE = 4
"""Costs count as about the same within this factor."""
BETWEEN_TRIALS = 1.0
"""Seconds after which a model that fails is tried again."""
_OPENING = threading.Lock()
"""Transformers sets global switches while it opens a model: one after the other."""

log = logging.getLogger("pointer.serving")


class Busy(Exception):
    """The queue is full."""


class Closed(Exception):
    """No new work is taken."""


@dataclass(frozen=True)
class Observer:
    """Who is told what goes on."""

    queue: Callable[[int], None]
    """So many lists wait or are being decoded."""
    batch: Callable[[int], None]
    """So many texts have just grown by a stage together."""
    dropped: Callable[[], None]
    """A list was given up because nobody waits for it any more."""


class Ticket:
    """What a caller holds while it waits. Cancelling `future` gives the request up."""

    def __init__(self, lists: int) -> None:
        self.future: Future[list[Any]] = Future()
        """What the plans returned, in order."""
        self.batch = 0
        """The most texts that have grown together with one of these, these included."""
        self._results: dict[int, Any] = {}
        self._lists = lists

    def answer(self, place: int, result: Any) -> None:
        """Store what a plan returned; the last one settles the request."""
        self._results[place] = result
        if len(self._results) == self._lists:
            with suppress(InvalidStateError):  # the caller went away this very moment
                self.future.set_result([self._results[i] for i in range(self._lists)])

    def fail(self, error: BaseException) -> None:
        """Settle the request with an error."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


class _Work:
    """A plan that is being followed, and the texts it wants now."""

    def __init__(
        self, lane: tuple[Hashable, int], plan: AnyPlan, ticket: Ticket, place: int, weight: int, watch: Watch | None
    ) -> None:
        self.lane, self.plan, self.ticket, self.place, self.weight = lane, plan, ticket, place, weight
        self.watch = watch
        self.engine: Any = None
        """None before the plan is begun and after it has ended."""
        self.pools: list[list[Any]] = []

    def follow(self, pools: list[list[Any]] | None = None) -> None:
        """Take in the next stage; once all texts are done, ask the plan what it wants next. None begins the plan."""
        try:
            while pools is None or self._have_stopped(pools):
                wanted = self.plan.send(pools)  # type: ignore[arg-type]  # the first thing a generator is sent is None
                self.engine, pools = wanted.engine, [[growth] for growth in wanted.growths]
                if not pools:  # a pause: it goes on at its next turn
                    self.pools = pools
                    break
        except StopIteration as end:
            self.engine = None
            self.ticket.answer(self.place, end.value)
        except Exception as error:
            self.ticket.fail(error)

    def _have_stopped(self, pools: list[list[Any]]) -> bool:
        self.pools = pools
        if self.watch and pools:
            self.watch(pools[0][0])
        return all(map(has_stopped, pools))


class _Stage:
    """Texts that grow by one stage together, a step at a time."""

    def __init__(self, engine: Loop[Any], batch: list[_Work], observer: Observer) -> None:
        self.engine, self.batch, self.observer = engine, batch, observer
        self._steps = self._grow()

    def _grow(self) -> Steps[None]:
        grown = yield from self.engine.steps([pool for work in self.batch for pool in work.pools])
        if grown:
            self.observer.batch(len(grown))
        pools = iter(grown)
        for work in self.batch:
            yield
            work.ticket.batch = max(work.ticket.batch, len(grown))
            work.follow([next(pools) for _ in work.pools])

    def step(self) -> bool:
        """Go on to the next pause. Is there one?"""
        try:
            next(self._steps)
        except StopIteration:
            return False
        return True


class _Lane:
    """Work that can be done together."""

    def __init__(self, share: float, used: float) -> None:
        self.waiting: deque[_Work] = deque()
        self.running: list[_Work] = []
        self.stages: deque[_Stage] = deque()
        """What grows now. There is more than one only after an error, which is looked for by growing one by one."""
        self.share = share
        self.used = used
        """The time that it has had the model, as it counts."""

    def drop(self, observer: Observer) -> None:
        """Forget what has been answered, has failed, or is not waited for any more."""
        for work in (*self.running, *self.waiting):
            if work.ticket.future.cancelled():
                observer.dropped()
        self.running = [work for work in self.running if work.engine and not work.ticket.future.done()]
        self.waiting = deque(work for work in self.waiting if not work.ticket.future.done())

    def admit(self, most: int) -> None:
        """Begin what fits beside the work that is under way; the oldest first, and always one."""
        room = most - sum(work.weight for work in self.running)
        while self.waiting and (self.waiting[0].weight <= room or room == most):
            work = self.waiting.popleft()
            room -= work.weight
            work.follow()
            self.running.append(work)

    def next_stage(self, observer: Observer) -> list[_Stage]:
        """Work for engines of one kind, the longest untouched first. Only plans for a length want different kinds."""
        wanting = [(work.engine, work) for work in self.running if work.engine and not work.ticket.future.done()]
        if not wanting:
            return []
        engine = wanting[0][0]
        batch = [work for mine, work in wanting if mine.kind == engine.kind]
        self.running = [work for _, work in wanting if work not in batch] + batch
        return [_Stage(engine, batch, observer)]


class Batcher:
    """One model in a thread of its own, and the queue in front of it."""

    def __init__(
        self,
        open_model: Callable[[], Pointer],
        limits: Limits,
        observer: Observer,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.open_model = open_model
        self.limits = limits
        self.observer = observer
        self.clock = clock
        """By which lanes share the model."""
        self.pointer: Pointer | None = None
        """The model, once it has written its first text."""
        self.failure: BaseException | None = None
        """Why the model could not be opened, or its thread ended."""
        self.is_failing = False
        """Did the model fail, and has not written a text since?"""
        self._is_doubtful = False
        """Did a stage fail that nobody expected to?"""
        self._changed = threading.Condition()
        self._arrived: list[_Work] = []
        self._outstanding = 0
        self._closing = False
        self._lanes: dict[Hashable, _Lane] = {}
        self._now = 0.0
        """How much of the model the lane had had that went on last: where newcomers begin."""
        self._thread = threading.Thread(target=self._run, name="pointer-model", daemon=True)

    def start(self) -> None:
        """Open the model and begin to work, in the background."""
        self._thread.start()

    def submit(
        self,
        kind: Hashable,
        plans: Sequence[AnyPlan],
        weight: int = 1,
        cost: float = 1,
        watch: Watch | None = None,
    ) -> Ticket:
        """Take in a request, or refuse it at once: `Busy`, `Closed`.

        `weight` says how many texts one plan has under way, `cost` what all plans together may cost. What is of one
        `kind` and costs about the same grows together.
        """
        lane = kind, int(math.log(max(cost, 1), ALIKE))
        ticket = Ticket(len(plans))
        with self._changed:
            if self._closing:
                raise Closed
            if self._outstanding + len(plans) > self.limits.queue:
                raise Busy
            self._count(len(plans))
            weight = min(weight, self.limits.batch)
            for place, plan in enumerate(plans):
                self._arrived.append(_Work(lane, plan, ticket, place, weight, watch))
            self._changed.notify()
        ticket.future.add_done_callback(lambda _: self._release(len(plans)))
        return ticket

    def close(self) -> None:
        """Take nothing more; finish what was taken."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def join(self, seconds: float) -> None:
        """Wait until all is finished."""
        self._thread.join(seconds)

    @property
    def outstanding(self) -> int:
        """Lists that wait or are being decoded."""
        return self._outstanding

    def _count(self, change: int) -> None:
        self._outstanding += change
        self.observer.queue(self._outstanding)

    def _release(self, lists: int) -> None:
        with self._changed:
            self._count(-lists)

    # From here on: in the thread of the model.

    def _run(self) -> None:
        try:
            with _OPENING:
                pointer = self.open_model()
            _try_out(pointer)
            # Models and libraries are there to stay; the collector need not look at their objects again and again.
            gc.collect()
            gc.freeze()
            self.pointer = pointer
            while self._gather():
                self._turn()
        except BaseException as error:
            if self.pointer:  # not for want of a good model
                log.error("the thread of the model ended", exc_info=error)
            self.failure = error
            self.close()
            for work in (*self._arrived, *(w for lane in self._lanes.values() for w in (*lane.running, *lane.waiting))):
                work.ticket.fail(error)

    def _gather(self) -> bool:
        """Put what has arrived into its lanes; wait if there is nothing to do. False: all done, and closed."""
        with self._changed:
            if not self._lanes:
                pause = BETWEEN_TRIALS if self.is_failing else None
                self._changed.wait_for(lambda: self._arrived or self._closing, pause)
            arrived, self._arrived = self._arrived, []
        for work in arrived:
            lane = self._lanes.setdefault(work.lane, _Lane(share(work.lane[1]), self._now))
            lane.waiting.append(work)
        return bool(self._lanes) or not self._closing

    def _turn(self) -> None:
        """A step of the lane that has had the least. A model that fails has to show that it can write."""
        if self._lanes:
            key, lane = min(self._lanes.items(), key=lambda item: item[1].used)
            self._now, start = lane.used, self.clock()
            self._go_on(lane)
            lane.used += (self.clock() - start) / lane.share
            if not lane.stages and not lane.running and not lane.waiting:
                del self._lanes[key]
        if self._is_doubtful or (self.is_failing and not self._lanes):
            self._examine()

    def _examine(self) -> None:
        self._is_doubtful = False
        try:
            assert self.pointer is not None
            _try_out(self.pointer)
            self.is_failing = False
        except Exception as error:
            if not self.is_failing:
                log.error("the model cannot write any more", exc_info=error)
            self.is_failing = True

    def _go_on(self, lane: _Lane) -> None:
        """Take the next step of the stage that is under way, or begin one."""
        if not lane.stages:
            lane.drop(self.observer)
            lane.admit(self.limits.batch)
            lane.stages.extend(lane.next_stage(self.observer))
        if lane.stages:
            stage = lane.stages.popleft()
            lane.stages.extendleft(self._after_a_step(stage))
        if not lane.stages:
            lane.drop(self.observer)

    def _after_a_step(self, stage: _Stage) -> list[_Stage]:
        """What is still to be done. An error is looked for among the texts, and costs only its own request."""
        if all(work.ticket.future.done() for work in stage.batch):  # nobody waits for it any more
            return []
        try:
            return [stage] if stage.step() else []
        except Exception as error:
            if len(stage.batch) > 1:
                return [_Stage(stage.engine, [work], self.observer) for work in stage.batch]
            stage.batch[0].ticket.fail(error)
            self._is_doubtful |= not isinstance(error, PointerError)
            return []


def _try_out(pointer: Pointer) -> None:
    """A small text, which a model has to write before it counts as ready, and after it has failed."""
    pointer.generate(["ready"], preset="plain", max_length=8)


def share(size: int) -> float:
    """The share of the model that a lane gets, by the size of its requests: their cost as a power of `ALIKE`.

    It falls with the fourth root of the cost, so that what costs ten thousand times as much has a tenth of the share.
    """
    return float(ALIKE ** (-size / 4))


def weight_of(constraints: Constraints, options: Options, most: int) -> int:
    """How many texts one list has under way; what takes a whole turn for itself weighs all there is room for."""
    if options.preset == "released" or options.rounds == 0:
        return most
    drafts = drafts_of(demand_of(constraints, options), options)
    return max(drafts, options.width if options.decoding == "beam" else options.n)
