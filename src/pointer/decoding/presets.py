"""Presets: what is done to a model's probabilities, and which rules an insertion has to keep. Data only.

For parallel models `scores` applies the numbers of a `Preset`, and `rules` holds its rules by name; for causal ones
`causal` follows a `Guidance`. docs/decoding.md and docs/writer.md show what each is worth.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """What is done at each stage; of a tuple by stage the last value holds for all later ones."""

    eta: tuple[float, float] | None = None
    """The paper's multiplier `min(1, start + step * s)` on the logits of `[NOI]`, specials, marks and stop words."""
    noi: float = 0.0
    """Added to the log-probability of `[NOI]`: below 0 texts get longer."""
    gap_first: bool = False
    """It is decided first whether anything goes into a gap, and then what: `[NOI]` has the probability of all words
    together against it, not that of the best one alone."""
    delay: tuple[float, ...] = (0.0,)
    """Added to the log-probabilities of stop words and marks, by stage: content words come first, as in training."""
    marks: str | None = None
    """The only marks that are inserted; left out, all are. Brackets and quotation marks come in pairs, but gaps are
    filled each by itself, so one of a pair would often be left alone."""
    whole_words: bool = False
    """Only tokens that are words of the training texts are inserted, no pieces of words."""
    full_stop: bool = False
    """A text that would end without a mark gets a full stop, if there is room."""
    rules: frozenset[str] = frozenset()
    """The names of the rules of `pointer.decoding.rules` that every insertion has to keep."""


@dataclass(frozen=True)
class Guidance:
    """How a causal model is kept on its way from constraint to constraint; `pointer.decoding.causal` follows it.

    The model knows which words it should use, but the likeliest next token does not know that none may be left out.
    """

    as_written: bool = True
    """Constraints are told as people write them: names with their capitals, half words (`didn`) whole."""
    forms: float | None = -1.5
    """Another form of the next constraint (`stands` for `stood`) counts for it: this is added to the log-probability of
    those forms. None: forms are words like any other."""
    turns: bool = True
    """A constraint is not said before its turn, nor right behind a mark, in any form: it would be said twice, or out of
    order."""
    urgency: float = 0.3
    """What the next constraint gains with every token of a gap that has more than ten."""
    take_back: bool = True
    """Where constraints are still to come after the end of a sentence, and the model takes the text for finished, the
    mark that ended it is taken back: there is nothing that the model would say behind it."""
    no_repeat: bool = True
    """No word beside itself, no three tokens twice but for the rest of a word."""
    full_stop: bool = True
    """A text that would end without a mark gets a full stop, if there is room."""


PRESETS = {
    "plain": Preset(),
    "paper": Preset(eta=(0.5, 0.5)),
    "default": Preset(
        noi=-4.0,
        gap_first=True,
        delay=(-2.0, -1.0, 0.0),
        marks=".,!?;:'-",
        whole_words=True,
        full_stop=True,
        rules=frozenset(["no_repeat", "no_repeat_ngram", "marks_apart", "hyphens", "numbers_apart"]),
    ),
}
