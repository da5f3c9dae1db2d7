"""The models that are served, from opening to closing."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pointer.checkpoint import CARD, checkpoint_folder
from pointer.decoding.generator import Generation, Pointer
from pointer.decoding.grammar import Constraints
from pointer.decoding.options import Options
from pointer.prepare.explain import explain
from pointer.prepare.rows import RowSettings
from pointer.prepare.shards import FREQUENCIES
from pointer.serving.batching import AnyPlan, Batcher, Busy, Closed, Ticket, Watch, weight_of
from pointer.serving.failures import stopping, unavailable
from pointer.serving.limits import Limits
from pointer.serving.metrics import Metrics
from pointer.serving.quota import Quotas
from pointer.vocabulary import EMBEDDED
from pointer.web import Refusal


@dataclass(frozen=True)
class Served:
    """A model to serve: how to open it, and whose document frequencies explain texts."""

    open: Callable[[], Pointer]
    source: str | Path = EMBEDDED

    @classmethod
    def of(cls, model: str, threads: int | None = None) -> "Served":
        """By embedded name, folder or Hub id, which is fetched now."""
        folder = checkpoint_folder(model)

        def opened() -> Pointer:
            pointer = Pointer.from_pretrained(folder, threads=threads)
            pointer.name = Path(model).name  # what errors call it: clients need not know where it lies
            return pointer

        return cls(opened, folder if (folder / FREQUENCIES).is_file() else EMBEDDED)


@dataclass(frozen=True)
class Asked:
    """A request that was understood: to which model, for which lists, and how."""

    model: str
    lists: list[Constraints]
    options: Options
    key: str = ""
    """The API key that it came with."""


class Service:
    """All models of a server, each with its thread and its queue."""

    def __init__(self, models: Mapping[str, Served], limits: Limits) -> None:
        self.models = models
        """By served name; the first one is the default."""
        self.limits = limits
        self.metrics = Metrics()
        self.quotas = Quotas(limits.quota)
        self._batchers = {
            name: Batcher(model.open, limits, self.metrics.observer(name)) for name, model in models.items()
        }
        self._is_stopping = False

    @property
    def names(self) -> list[str]:
        """The models by served name, the default first."""
        return list(self._batchers)

    @property
    def status(self) -> str:
        """`starting` until every model has written a text, then `ok`; `failing` while one of them cannot write any
        more; `stopping` once the end has begun.
        """
        if self._is_stopping or self.failure:
            return "stopping"
        if any(batcher.is_failing for batcher in self._batchers.values()):
            return "failing"
        return "ok" if all(batcher.pointer for batcher in self._batchers.values()) else "starting"

    @property
    def failure(self) -> BaseException | None:
        """Why a model could not be opened."""
        return next((batcher.failure for batcher in self._batchers.values() if batcher.failure), None)

    @property
    def is_idle(self) -> bool:
        """Is everything that was taken finished?"""
        return all(batcher.outstanding == 0 for batcher in self._batchers.values())

    def start(self) -> None:
        """Open all models in the background."""
        for batcher in self._batchers.values():
            batcher.start()

    def stop(self) -> None:
        """Take no new work; what was taken is finished."""
        self._is_stopping = True
        for batcher in self._batchers.values():
            batcher.close()

    def join(self) -> None:
        """Wait until what was taken is finished, as long as a request may take."""
        for batcher in self._batchers.values():
            batcher.join(self.limits.seconds)

    def choose(self, name: str | None) -> str:
        """The served name of the model that a request means."""
        if name is not None and name not in self._batchers:
            message = f'model: expected {" or ".join(self.names)}, found "{name[:100]}".'
            raise Refusal(404, "NotFound", message, "Name one of these.")
        return name or self.names[0]

    def pointer(self, name: str) -> Pointer:
        """A model that is ready."""
        if self.status == "stopping":
            raise stopping()
        batcher = self._batchers[name]
        if batcher.pointer is None:
            raise unavailable("Starting", f"The model {name} is being opened.")
        if batcher.is_failing:
            raise unavailable("Failing", f"The model {name} cannot write at the moment; it is tried again and again.")
        return batcher.pointer

    def generate(self, asked: Asked, watch: Watch | None = None) -> Ticket:
        """Put a request into the queue of its model."""
        pointer = self.pointer(asked.model)
        cost = sum(pointer.cost(constraints, asked.options) for constraints in asked.lists)
        self.limits.check_cost(cost)
        plans = [self._counted(asked.model, pointer.plan(constraints, asked.options)) for constraints in asked.lists]
        kind = replace(asked.options, seed=0)
        weight = max(weight_of(constraints, asked.options, self.limits.batch) for constraints in asked.lists)
        self.quotas.spend(asked.key, cost)
        try:
            return self._batchers[asked.model].submit(kind, plans, weight, cost, watch)
        except (Busy, Closed):
            self.quotas.give_back(asked.key, cost)
            raise

    def _counted(self, name: str, plan: AnyPlan) -> AnyPlan:
        found: list[Generation] = yield from plan
        self.metrics.tokens.labels(name).inc(sum(len(generation.tokens) for generation in found))
        return found

    def explain(self, name: str, text: str, skeleton: str) -> Ticket:
        """Explaining takes a turn of its own in the queue of the model."""
        self.pointer(name)
        settings = RowSettings(skeleton=skeleton)

        def plan() -> AnyPlan:
            return explain(text, self.models[name].source, settings).to_dict()
            yield  # a plan is a generator, even one that wants nothing

        return self._batchers[name].submit("explain", [plan()], self.limits.batch)

    def describe(self) -> list[dict[str, Any]]:
        """What is known of every model."""
        return [_described(name, self.pointer(name)) for name in self.names]


def _described(name: str, pointer: Pointer) -> dict[str, Any]:
    card = pointer.files.get(CARD, b"").decode("utf-8", "replace")
    return {
        "name": name,
        "parameters": pointer.parameters,
        "vocabulary": pointer.tokens,
        "max_length": pointer.longest,
        "styles": list(pointer.styles),
        "description": _description(card),
    }


def _description(card: str) -> str:
    """What a model card says about the data; without that, its first paragraph.

    >>> _description("# mine\\n\\nA model.\\n\\n## Data and licence\\n\\nReviews.\\n")
    'Reviews.'
    """
    found = re.search(r"^## Data and licence\n+(.+)$", card, re.MULTILINE) or re.search(
        r"^# .+\n+(.+)$", card, re.MULTILINE
    )
    return found.group(1) if found else ""
