"""A causal model as a function of prefixes: which of its keys and values each prefix can go on from.

A function of prefixes knows nothing of batches, so whoever decodes may put any texts together, at different places.
Keys and values are kept from call to call: a prefix that goes on where an earlier one ended costs its new tokens only,
and prefixes that are the same cost as much as one.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from pointer.runtime import Floats, Prefix

KEPT_CALLS = 3
"""Calls whose keys and values are kept: as many kinds of requests can take turns without computing a text twice."""
STEP = 8
"""Columns by which a cache grows, so that not every token makes a copy."""


class Rows(ABC):
    """Keys and values of some prefixes, left-aligned."""

    prefixes: list[Prefix]

    @cached_property
    def places_of(self) -> dict[Prefix, int]:
        """The row of every prefix."""
        return {prefix: row for row, prefix in enumerate(self.prefixes)}

    @abstractmethod
    def select(self, rows: list[int]) -> Any:
        """Some of the rows, in another order, perhaps some of them twice."""


Held = TypeVar("Held", bound=Rows)


class PrefixModel(ABC, Generic[Held]):
    """`NextToken` of a causal model that remembers the keys and values of its last answers."""

    side_by_side = 1
    """How many passes can run at once."""

    def __init__(self, starts: Sequence[Prefix] = ()) -> None:
        self.starts = starts
        """How many prefixes begin: each is read once and kept for good."""
        self.kept: list[Held] = []
        self._begun: dict[Prefix, Held] = {}
        self._lock = threading.Lock()

    def __call__(self, prefixes: Sequence[Prefix]) -> Floats:
        """The log-probabilities of what comes next, `B V`. Several threads may ask at once."""
        places = {prefix: place for place, prefix in enumerate(dict.fromkeys(prefixes))}
        own = self._each(list(places))
        return own if len(places) == len(prefixes) else own[[places[prefix] for prefix in prefixes]]

    def _each(self, prefixes: list[Prefix]) -> Floats:
        with self._lock:
            parts = self._parents(prefixes)  # what they go on from is nobody else's now
        found = [self.run(rows, [prefixes[i] for i in members]) for rows, members in parts]
        joined = self.joined([rows for rows, _ in parts])
        with self._lock:
            self.kept = [joined, *self.kept][: KEPT_CALLS + self.side_by_side - 1]
        own, order = self.log_probabilities(found), [i for _, members in parts for i in members]
        return own if len(parts) == 1 else own[np.argsort(order)]

    @abstractmethod
    def fresh(self, count: int) -> Held:
        """Rows of nothing."""

    @abstractmethod
    def joined(self, groups: list[Held]) -> Held:
        """Rows of several groups as one."""

    @abstractmethod
    def run(self, rows: Held, prefixes: list[Prefix]) -> Any:
        """Feed what is new of every prefix; what tells of the token after each."""

    @abstractmethod
    def log_probabilities(self, found: list[Any]) -> Floats:
        """Of the token after each prefix, from what `run` gave for some of them after another."""

    def _parents(self, prefixes: Sequence[Prefix]) -> list[tuple[Held, list[int]]]:
        """What each prefix goes on from, taken out of what is kept, and the prefixes that do; some from nothing."""
        found: dict[int, list[tuple[int, int]]] = {}
        begun: dict[Prefix, list[int]] = {}
        for i, prefix in enumerate(prefixes):
            group, row = self._parent(prefix)
            if group >= 0:
                found.setdefault(group, []).append((i, row))
            else:
                begun.setdefault(self._start_of(prefix), []).append(i)
        parts = [(self.after(start, len(members)), members) for start, members in begun.items()]
        for group, chosen in found.items():
            parts.append((self.kept[group].select([row for _, row in chosen]), [i for i, _ in chosen]))
        self.kept = [group for number, group in enumerate(self.kept) if number not in found]
        return parts

    def _start_of(self, prefix: Prefix) -> Prefix:
        return next((start for start in self.starts if prefix[: len(start)] == start != prefix), ())

    def after(self, start: Prefix, count: int) -> Held:
        """So many rows of a start, which is read once; they may be written to."""
        if not start:
            return self.fresh(count)
        if start not in self._begun:
            begun = self.fresh(2)  # twice, so that never all of it is selected: what is selected is a copy
            self.run(begun, [start, start])
            self._begun[start] = begun
        rows: Held = self._begun[start].select([0] * count)
        return rows

    def _parent(self, prefix: Prefix) -> tuple[int, int]:
        """The group and the row of the longest prefix of this one that is kept; (-1, 0) if there is none."""
        for end in range(len(prefix) - 1, 0, -1):
            for number, group in enumerate(self.kept):
                if (row := group.places_of.get(prefix[:end])) is not None:
                    return number, row
        return -1, 0
