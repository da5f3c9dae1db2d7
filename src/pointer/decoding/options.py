"""How a text is decoded: one validated object that the library, the command line and the server share."""

from dataclasses import dataclass, fields
from typing import Any

from pointer.decoding.presets import PRESETS
from pointer.errors import ConstraintError, UsageError
from pointer.fields import check_fields

BACKENDS = ("onnx", "torch")
"""What can run a model."""
DTYPES = ("float32", "bfloat16", "float16")
"""What the weights of a model may be held in."""
CHOICES = {
    "decoding": ("greedy", "sample", "beam"),
    "preset": (*PRESETS, "released"),
    "pick_by": ("auto", "model", "mbr", "language-model"),
}
RANGES: dict[str, tuple[float, float]] = {
    "n": (1, 64), "seed": (-(2**63), 2**63 - 1), "temperature": (0.01, 100), "top_k": (0, 1_000_000),
    "top_p": (0.0001, 1), "min_p": (0, 1), "width": (1, 64), "rounds": (0, 8), "max_stages": (0, 64),
    "max_length": (3, 512), "best_of": (1, 64), "noi_offset": (-100, 100),
    "presence_penalty": (0, 100),
}  # fmt: skip
"""What a number may be; a seed has to fit into that of PyTorch."""


@dataclass(frozen=True)
class Options:
    """All decoding options; a sentence under each.

    >>> Options(decoding="sample", n=3).temperature
    1.0
    """

    decoding: str = "greedy"
    """`greedy`, `sample`, or `beam` (inner-layer beam search)."""
    preset: str = "default"
    """How probabilities are adjusted: `default`, `plain`, `paper`; `released` is the authors' decoder, bug for bug."""
    n: int = 1
    """How many different texts to give, best first: no two share more than half of the content words inserted."""
    seed: int = 0
    """Of sampling: the same seed and constraints give the same text, whatever else is in the batch."""
    temperature: float = 1.0
    """Of sampling: below 1 safer, above 1 wilder."""
    top_k: int = 0
    """Of sampling: only the best so many candidates of a gap; 0 for all."""
    top_p: float = 1.0
    """Of sampling: only the best candidates that make up this probability."""
    min_p: float = 0.05
    """Of sampling: only candidates at least so likely as this share of the likeliest (Nguyen et al. 2024)."""
    width: int = 4
    """Of beam search: how many fillings of a stage are kept."""
    rounds: int | None = None
    """Rounds in which the gaps of a stage are filled (1: all at once; 2: the surest half of the insertions, then the
    others given those; 0: one by one); left out, 2 for beam search, otherwise what the model was trained for."""
    max_stages: int = 12
    """Stages after which decoding stops."""
    max_length: int = 128
    """Tokens, `[CLS]` and `[SEP]` included, at which the text stops growing."""
    unordered: bool = False
    """The constraints may come in any order: the model chooses."""
    forbid: tuple[str, ...] = ()
    """A word or phrase that is nowhere in the text, whatever its case; `~word` for all its forms."""
    forbid_forms: bool = False
    """What is forbidden is forbidden in all its forms."""
    length: str | int | None = None
    """How many words the text has: `12`, or `10-15`."""
    sentences: str | int | None = None
    """How many sentences the text has: `2`, or `1-3`."""
    noi_offset: float = 0.0
    """Added to the log-probability of `[NOI]`: above 0 gives shorter texts, below 0 longer ones."""
    presence_penalty: float = 0.0
    """Taken off the log-probability of a content word that is already there."""
    lock_start: bool = False
    """Insert nothing before the first constraint."""
    lock_end: bool = False
    """Insert nothing after the last constraint."""
    best_of: int = 1
    """Drafts that are written for each list: the greedy text, samples, and for a writer a beam; the `n` that read best
    are given."""
    pick_by: str = "auto"
    """Which drafts read best: by the `model` that wrote them, by what they have in common (`mbr`, minimum Bayes risk),
    or by a `language-model`; `auto` is the last where it is installed, else the first."""
    style: str | None = None
    """What a text is like, for models that know several styles: `everyday`, `reviews`, `news`, `wiki`."""

    def __post_init__(self) -> None:
        check_fields(self, RANGES, CHOICES)
        for name in ("length", "sentences"):
            value = getattr(self, name)
            if value is not None:
                from pointer.decoding.grammar import Length

                try:
                    Length.of(value)
                except ConstraintError as error:
                    raise UsageError(f"{name}: {error.message.partition(': ')[2]}", error.hint) from None
                object.__setattr__(self, name, str(value))
        self._check_drafts()

    def _check_drafts(self) -> None:
        """Refuse numbers of texts that the way of decoding cannot give."""
        if self.best_of > 1 and (self.decoding == "beam" or self.n > self.best_of):
            raise UsageError(
                "best_of: expected greedy or sample and at least n drafts, found another option.",
                "Leave out beam, or raise best_of.",
            )
        others = (self.n > 1, self.best_of > 1, self.unordered, self.forbid, self.length, self.sentences)
        if self.preset == "released" and (self.decoding == "beam" or any(others)):
            raise UsageError(
                "preset: released expects greedy or sample, n and best_of 1 and nothing of length, order or forbidden "
                "words, found another option.",
                "The authors' decoder has nothing else; choose another preset.",
            )

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Options":
        """Options from keyword arguments; an unknown name is one sentence."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise UsageError(f'Expected options out of {", ".join(known)}, found "{name}".', "Check the spelling.")
        return cls(**given)
