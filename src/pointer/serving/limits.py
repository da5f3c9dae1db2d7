"""How a server is set up: what one request may ask for, who may ask, and from where."""

from dataclasses import dataclass, field, fields

from pointer.decoding.options import Options
from pointer.errors import UsageError


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
    banned: int = 100
    """Words that are never inserted."""
    queue: int = 256
    """Constraint lists, of all callers of a model together, that wait or are being decoded; more are refused."""
    batch: int = 64
    """Texts that grow together."""
    wait: float = 0.005
    """Seconds that an idle model waits for company before it starts on a text."""
    seconds: float = 60.0
    """Seconds that a body may take to arrive, and from there on a text to be finished; then a request is given up."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if value < 0 or (value == 0 and entry.name != "wait"):
                raise UsageError(f"{entry.name}: expected a number above 0, found {value}.", f"Raise {entry.name}.")
        if self.queue < self.lists:
            raise UsageError(
                f"queue: expected room for the {self.lists} lists of one request, found {self.queue}.",
                "Raise queue, or lower lists.",
            )

    def check_constraints(self, lists: list[tuple[str, ...]]) -> None:
        """Refuse more, or longer, constraints than one request may have."""
        characters = sum(len(constraint) for constraints in lists for constraint in constraints)
        _check(len(lists), self.lists, "at most {:,} constraint lists in one request")
        _check(characters, self.characters, "at most {:,} characters in all constraints")
        for constraints in lists:
            _check(len(constraints), self.constraints, "at most {:,} constraints in one list")
            longest = max(map(len, constraints))
            _check(longest, self.constraint_characters, "at most {:,} characters in one constraint")

    def check_options(self, options: Options) -> None:
        """Refuse options that cost more than one request may cost."""
        for name in ("n", "width", "max_stages", "max_length"):
            _check(getattr(options, name), getattr(self, name), name + " of at most {:,}")
        _check(len(options.banned), self.banned, "at most {:,} banned words")

    def check_text(self, text: str) -> None:
        """Refuse a text that is too long to be explained."""
        _check(len(text), self.characters, "at most {:,} characters in the text")


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
