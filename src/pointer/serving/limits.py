"""How a server is set up: what one request may ask for, who may ask, and from where."""

import math
from dataclasses import dataclass, field, fields

from pointer.decoding.grammar import Constraints
from pointer.decoding.options import Options
from pointer.errors import UsageError
from pointer.fields import check_fields

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""The names of this machine for itself."""


@dataclass(frozen=True)
class Limits:
    """What keeps one caller from taking everything; a sentence under each."""

    body_bytes: int = 65_536
    """Bytes of a request's body."""
    lists: int = 64
    """Constraint lists of one request."""
    constraints: int = 64
    """Constraints of one list."""
    constraint_characters: int = 200
    """Characters of one constraint."""
    characters: int = 20_000
    """Characters of all constraints of a request together, or of a text to explain."""
    n: int = 16
    """Texts for each list."""
    width: int = 16
    """Of beam search: fillings of a stage that are kept."""
    max_stages: int = 16
    """Stages after which decoding stops."""
    max_length: int = 256
    """Tokens at which a text stops growing."""
    forbid: int = 100
    """Words and phrases that are forbidden."""
    cost: int = 10_000_000
    """What one request may cost: lists x texts x positions x forward passes x millions of weights, each at its most."""
    quota: int = 100_000_000
    """What all requests with one API key may cost in a minute, in each process."""
    queue: int = 256
    """Constraint lists, of all callers of a model together, that wait or are being decoded; more are refused."""
    batch: int = 64
    """Texts that grow together."""
    seconds: float = 60.0
    """Seconds that a body may take to arrive, and from there on a text to be finished; then a request is given up."""
    header_seconds: float = 10.0
    """Seconds that the head of a request may take to arrive; then its connection is closed."""
    connections: int = 512
    """Connections that are open at once, in each process; more are refused."""

    def __post_init__(self) -> None:
        check_fields(self, RANGES, {})
        if self.queue < self.lists:
            raise UsageError(
                f"queue: expected room for the {self.lists} lists of one request, found {self.queue}.",
                "Raise queue, or lower lists.",
            )
        if self.quota < self.cost:
            raise UsageError(
                f"quota: expected at least the {self.cost:,} that one request may cost, found {self.quota:,}.",
                "Raise quota, or lower cost.",
            )

    def check_constraints(self, requests: list[Constraints]) -> None:
        """Refuse more, or longer, constraints than one request may have."""
        lists = [request.asked for request in requests]
        characters = sum(len(constraint) for constraints in lists for constraint in constraints)
        _check(len(lists), self.lists, "at most {:,} constraint lists in one request")
        _check(characters, self.characters, "at most {:,} characters in all constraints")
        for constraints in lists:
            _check(len(constraints), self.constraints, "at most {:,} constraints in one list")
        longest = max((len(one) for request in requests if not request.is_template for one in request.asked), default=0)
        _check(longest, self.constraint_characters, "at most {:,} characters in one constraint")

    def check_options(self, options: Options) -> None:
        """Refuse options that cost more than one request may cost."""
        for name in ("n", "width", "max_stages", "max_length"):
            _check(getattr(options, name), getattr(self, name), name + " of at most {:,}")
        _check(len(options.forbid), self.forbid, "at most {:,} forbidden words")
        _check(sum(map(len, options.forbid)), self.characters, "at most {:,} characters in all forbidden words")

    def check_cost(self, cost: int) -> None:
        """Refuse a request that is too expensive as a whole."""
        if cost > self.cost:
            raise UsageError(
                f"Expected a request that costs at most {self.cost:,} on this server, found one of {cost:,}.",
                "Ask for fewer lists or texts, a smaller max_length or width, fewer stages or rounds.",
            )

    def check_text(self, text: str) -> None:
        """Refuse a text that is too long to be explained."""
        _check(len(text), self.characters, "at most {:,} characters in the text")


_LOWEST = {"seconds": 0.01, "header_seconds": 0.01}
RANGES = {entry.name: (_LOWEST.get(entry.name, 1), math.inf) for entry in fields(Limits)}
"""What each limit may be."""


def _check(found: int, most: int, expected: str) -> None:
    if found > most:
        raise UsageError(
            f"Expected {expected.format(most)} on this server, found {found:,}.", "GET /v1/models has all limits."
        )


@dataclass(frozen=True)
class Settings:
    """How a server is set up."""

    limits: Limits = Limits()
    keys: tuple[str, ...] = field(default=(), repr=False)
    """A request to the API needs one of these; with none, it is open."""
    origins: tuple[str, ...] = ()
    """Other sites whose pages may call the API from a browser."""
    hosts: tuple[str, ...] = LOOPBACK
    """Names by which the server may be called, `*` for any: or a page of any site could reach it by a name of its own
    that means this machine (DNS rebinding)."""
