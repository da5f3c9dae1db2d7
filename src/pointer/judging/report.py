"""The report on a study: who is preferred or makes sense, how sure that is, how far judges agree, whom to trust.

It can be written at any time; what has not been answered yet is left out and counted.
"""

import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pointer import __version__
from pointer.errors import missing_extra
from pointer.evaluation.drawing import check_picture, new_figure, save_picture
from pointer.evaluation.table import LATEX_NEEDS, Cell, Table, latex_text
from pointer.judging.answers import Answer, read_answers
from pointer.judging.study import Study, open_study

FORMAT = 2
REPLICATIONS = 10_000
PASSING = 0.7
"""The share of attention checks that a judge has to pass; who always chooses the same side passes half of them."""
_CHUNK = 500

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Preference:
    """How judges answered one question about one pair of systems."""

    question: str
    a: str
    b: str
    votes: int
    items: int
    """Pairs of texts with at least one vote."""
    percent_a: float | None
    percent_neutral: float | None
    percent_b: float | None
    p: float | None
    """Of the difference between the percentages of A and B; None with fewer than two pairs of texts."""

    columns: ClassVar = ("System A", "A", "Neutral", "B", "System B", "p")
    legend: ClassVar = "for the system on the left (blue), for neither (grey), for the one on the right (ochre)"

    @staticmethod
    def of(question: str, systems: Sequence[str], kinds: Array, replications: int, seed: int) -> "Preference":
        """Read off the votes of judges (rows) on pairs (columns): 0 for A, 1 for neither, 2 for B."""
        a, b = systems
        given = (~np.isnan(kinds)).sum(axis=0)  # N
        p = bootstrap_p(np.nansum(1 - kinds, axis=0)[given > 0], given[given > 0], replications, seed)
        return Preference(question, a, b, int(given.sum()), int((given > 0).sum()), *_percentages(kinds), p)

    @staticmethod
    def note(replications: int, seed: int) -> str:
        """How sure the figures are."""
        return (
            f"p: two-sided bootstrap over pairs of texts, {replications:,} replications, seed {seed}, of the "
            "difference between A and B."
        )

    def row(self) -> list[Cell]:
        """As the table has it; the preferred system is bold."""
        a, b = self.percent_a or 0.0, self.percent_b or 0.0
        return [
            Cell(self.a),
            Cell(_percent(self.percent_a), a > b),
            Cell(_percent(self.percent_neutral)),
            Cell(_percent(self.percent_b), b > a),
            Cell(self.b),
            Cell(_number(self.p, "{:.4f}")),
        ]

    def bar(self) -> tuple[str, list[float], str]:
        """What stands left of a bar, the percentages that it is made of, and what stands right of it."""
        shares = [self.percent_a or 0, self.percent_neutral or 0, self.percent_b or 0]
        return self.a, shares, self.b if self.p is None else f"{self.b}\np = {self.p:.4f}"


@dataclass(frozen=True)
class Rating:
    """How judges rated the texts of one system."""

    question: str
    system: str
    votes: int
    items: int
    """Texts with at least one vote."""
    percent_sensible: float | None
    interval_sensible: tuple[float, float] | None
    percent_one_slip_at_most: float | None
    interval_one_slip_at_most: tuple[float, float] | None

    columns: ClassVar = ("System", "Makes sense", "95 % interval", "At most one slip", "95 % interval", "Texts")
    legend: ClassVar = (
        "that a text makes sense (blue; right: the 95 % interval), would but for one slip (grey), does not (ochre)"
    )

    @staticmethod
    def of(question: str, systems: Sequence[str], kinds: Array, replications: int, seed: int) -> "Rating":
        """Read off the votes of judges (rows) on texts (columns): 0 for sensible, 1 for one slip, 2 for neither."""
        [system] = systems
        votes, items = int((~np.isnan(kinds)).sum()), int((~np.isnan(kinds)).any(axis=0).sum())
        sensible, _, senseless = _percentages(kinds)
        at_most = None if senseless is None else 100 - senseless
        return Rating(
            question, system, votes, items, sensible, wilson(sensible, items), at_most, wilson(at_most, items)
        )

    @staticmethod
    def note(replications: int, seed: int) -> str:
        """How sure the figures are."""
        return (
            "Intervals: Wilson's, 95 %, for as many votes as there are texts, since votes on the same text depend on "
            "each other."
        )

    def row(self) -> list[Cell]:
        """As the table has it."""
        sensible, at_most = map(_interval, (self.interval_sensible, self.interval_one_slip_at_most))
        shares = map(_percent, (self.percent_sensible, self.percent_one_slip_at_most))
        texts = [self.system, next(shares), sensible, next(shares), at_most, f"{self.items:,}"]
        return [Cell(text) for text in texts]

    def bar(self) -> tuple[str, list[float], str]:
        """What stands left of a bar, the percentages that it is made of, and what stands right of it."""
        sensible, at_most = self.percent_sensible or 0, self.percent_one_slip_at_most or 0
        left = 100 - at_most if self.votes else 0
        return self.system, [sensible, at_most - sensible, left], _interval(self.interval_sensible)


@dataclass(frozen=True)
class JudgeQuality:
    """What can be said about one judge."""

    judge: int
    """From 1, in the order of the links."""
    items: int
    items_answered: int
    """Items with all questions answered, attention checks among them."""
    checks_answered: int
    checks_passed: int
    agreement: float | None
    """How often the judge voted as most of the others did, where they had a majority."""
    median_seconds: float | None
    """From showing an item to the answer of its last question."""
    left_out: bool


@dataclass(frozen=True)
class Report:
    """All that a study says so far."""

    study: Study
    screened: bool
    """Are judges left out who fail the attention checks?"""
    replications: int
    results: tuple[Preference, ...] | tuple[Rating, ...]
    """For each question, and each line-up of systems."""
    alpha: dict[str, float | None]
    """Krippendorff's alpha of every question, and `overall`."""
    judges: tuple[JudgeQuality, ...]
    questions_asked: int
    questions_answered: int

    @property
    def rule(self) -> str:
        """By which rule judges are left out."""
        if not self.screened:
            return "No judge is left out."
        return f"Left out: judges who pass fewer than {PASSING:.0%} of the attention checks they have answered."

    def to_dict(self) -> dict[str, Any]:
        """The report for programs; `docs/judging.md` describes it."""
        return {
            "format": FORMAT,
            "versions": {"pointer": __version__, "python": platform.python_version()}
            | {name: version(name) for name in ("numpy", "krippendorff")},
            "study": {
                "fingerprint": self.study.fingerprint,
                "settings": asdict(self.study.settings),
                "questions": self.study.questions,
                "sources": list(self.study.sources),
                "versions": self.study.versions,
            },
            "answers": {"asked": self.questions_asked, "given": self.questions_answered},
            "screening": {
                "rule": self.rule,
                "passing": PASSING if self.screened else None,
                "left_out": [one.judge for one in self.judges if one.left_out],
            },
            "bootstrap": {"replications": self.replications, "seed": self.study.settings.seed}
            if self.study.settings.form == "pairs"
            else None,
            "results": [asdict(one) for one in self.results],
            "alpha": self.alpha,
            "judges": [asdict(one) for one in self.judges],
        }

    def tables(self) -> list[Table]:
        """A table for each question; of pairs, as in the paper."""
        return tables_of(self.to_dict())

    def judge_table(self) -> Table:
        """A row a judge."""
        columns = [
            "Judge",
            f"{self.study.form.noun.capitalize()}s",
            "Checks passed",
            "Agreement",
            "Median seconds",
            "Left out",
        ]
        return Table("Judges", columns, [_judge_row(one) for one in self.judges])

    def notes(self) -> list[str]:
        """What a reader of the tables has to know."""
        missing = self.questions_asked - self.questions_answered
        waiting = [str(one.judge) for one in self.judges if one.items_answered < one.items]
        left_out = [str(one.judge) for one in self.judges if one.left_out]
        unscreened = [str(one.judge) for one in self.judges if not one.checks_answered]
        alpha = ", ".join(f"{name} {_number(value)}" for name, value in self.alpha.items())
        return [
            f"{self.questions_answered:,} of {self.questions_asked:,} answers are given"
            + (f"; {missing / self.questions_asked:.1%} are missing, from {_judges(waiting)}." if missing else "."),
            f"{self.rule} By this rule: {_judges(left_out) if left_out else 'none'}."
            + (f" Not checked yet: {_judges(unscreened)}." if unscreened else ""),
            RESULTS[self.study.settings.form].note(self.replications, self.study.settings.seed),
            f"Krippendorff's alpha (ordinal, {len(self.study.choices)} points): {alpha}.",
        ]

    def markdown(self) -> str:
        """Tables and notes for a page."""
        tables = [table.markdown() for table in [*self.tables(), self.judge_table()]]
        return "\n\n".join([*tables[:-1], "\n".join(f"- {note}" for note in self.notes()), tables[-1]])

    def latex(self) -> str:
        """The tables for a paper, the notes below them, and the judges."""
        notes = "\n\n".join(latex_text(note) for note in self.notes())
        tables = [table.latex() for table in [*self.tables(), self.judge_table()]]
        return "\n\n".join([LATEX_NEEDS, *tables[:-1], notes, tables[-1]])


def make_report(folder: Path, screened: bool = True, replications: int = REPLICATIONS) -> Report:
    """Count the answers that a study has so far; `screened` leaves out judges who fail the attention checks."""
    study = open_study(folder)
    return count(study, read_answers(folder, study.fingerprint), screened, replications)


def count(study: Study, answers: Sequence[Answer], screened: bool = True, replications: int = REPLICATIONS) -> Report:
    """The report on these answers.

    Everything is read off one array of choices, those of pairs as if A had always stood first; nan where there is
    none yet.
    """
    choices, seconds = _choices(study, answers)  # Q J N
    kinds = np.array([np.nan, *study.form.kinds])[np.nan_to_num(choices).astype(int)]  # Q J N
    is_check = np.array([item.check for item in study.items])  # N
    done: NDArray[np.bool_] = np.asarray(~np.isnan(choices).any(axis=0))  # J N
    checked = (done & is_check).sum(axis=1)  # J
    passed = (done & is_check & (kinds == study.form.attentive).all(axis=0)).sum(axis=1)  # J
    left_out = (checked > 0) & (passed < PASSING * checked - 1e-9) & screened  # J
    counted = np.where(left_out[:, None], np.nan, kinds)  # Q J N
    agreement = _agreement(kinds, counted, is_check)
    took = [np.nanmax(seconds[:, judge, done[judge]], axis=0) for judge in range(len(study.sheets))]
    return Report(
        study,
        screened,
        replications,
        tuple(_results(study, counted, replications)),
        _alphas(study, choices[:, ~left_out][:, :, ~is_check]),
        tuple(
            JudgeQuality(
                judge + 1,
                len(sheet),
                int(done[judge].sum()),
                int(checked[judge]),
                int(passed[judge]),
                agreement[judge],
                float(np.median(took[judge])) if len(took[judge]) else None,
                bool(left_out[judge]),
            )
            for judge, sheet in enumerate(study.sheets)
        ),
        sum(map(len, study.sheets)) * len(study.questions),
        int((~np.isnan(choices)).sum()),
    )


def _choices(study: Study, answers: Sequence[Answer]) -> tuple[Array, Array]:
    """Choices, and after how many seconds they came; the side on which A was shown no longer matters."""
    choices = np.full((len(study.questions), len(study.sheets), len(study.items)), np.nan)
    seconds = choices.copy()
    numbers = {name: number for number, name in enumerate(study.questions)}
    for answer in answers:
        item, swapped = study.sheets[answer.judge][answer.place]
        at = numbers[answer.question], answer.judge, item
        choices[at] = len(study.choices) + 1 - answer.choice if swapped else answer.choice
        seconds[at] = answer.seconds
    return choices, seconds


RESULTS: dict[str, type[Preference] | type[Rating]] = {"pairs": Preference, "ratings": Rating}
"""What is reported of each form of study."""


def tables_of(report: Mapping[str, Any]) -> list[Table]:
    """The tables of a report as `to_dict` gives it and `--json` writes it."""
    kind = RESULTS[report["study"]["settings"]["form"]]
    found = [kind(**one) for one in report["results"]]
    return [
        Table(f"{name.capitalize()}: {wording}", kind.columns, [one.row() for one in found if one.question == name])
        for name, wording in report["study"]["questions"].items()
    ]


def _results(study: Study, kinds: Array, replications: int) -> Iterator[Any]:
    kind_of_result = RESULTS[study.settings.form]
    for question, of_question in zip(study.questions, kinds, strict=True):
        for systems in study.lineups:
            items = [i for i, item in enumerate(study.items) if item.systems == systems and not item.check]
            yield kind_of_result.of(question, systems, of_question[:, items], replications, study.settings.seed)


def _percentages(kinds: Array) -> tuple[float | None, float | None, float | None]:
    """Of all votes, how many are of each of the three kinds."""
    total = (~np.isnan(kinds)).sum()
    first, second, third = (float(100 * (kinds == kind).sum() / total) if total else None for kind in range(3))
    return first, second, third


def wilson(percent: float | None, number: int) -> tuple[float, float] | None:
    """Wilson's 95 % interval of a percentage of so many observations.

    >>> [round(bound, 1) for bound in wilson(80, 50)]
    [67.0, 88.8]
    """
    if percent is None:
        return None
    z, share = NormalDist().inv_cdf(0.975), percent / 100
    centre = share + z * z / (2 * number)
    half = z * math.sqrt(share * (1 - share) / number + z * z / (4 * number * number))
    low, high = ((centre + side * half) / (1 + z * z / number) for side in (-1, 1))
    return max(0.0, 100 * low), min(100.0, 100 * high)


def bootstrap_p(difference: Array, votes: NDArray[Any], replications: int, seed: int) -> float | None:
    """How likely chance alone makes the mean preference as far from 0 as it is, two-sided.

    For every pair of texts: votes for A minus votes for B, and how many votes there were. Their sums make the mean
    preference m. Each replication draws as many pairs of texts with replacement and has a mean m*; the share of
    replications in which m* is as far from m as m is from 0, or farther, is p. What was found counts as one of them, so
    the smallest p is 1 / (replications + 1). The votes on one pair are drawn together, as they depend on each other.
    """
    items = len(difference)
    if items < 2:
        return None
    mean = difference.sum() / votes.sum()
    rng, extreme = np.random.default_rng(seed), 0
    for start in range(0, replications, _CHUNK):
        drawn = rng.integers(items, size=(min(_CHUNK, replications - start), items))  # R N
        means = difference[drawn].sum(axis=1) / votes[drawn].sum(axis=1)  # R
        extreme += int((np.abs(means - mean) >= abs(mean) - 1e-12).sum())
    return (extreme + 1) / (replications + 1)


def _alphas(study: Study, votes: Array) -> dict[str, float | None]:
    overall = votes.transpose(1, 0, 2).reshape(votes.shape[1], -1)  # J Q*N
    of_questions = dict(zip(study.questions, map(ordinal_alpha, votes), strict=True))
    return of_questions | {"overall": ordinal_alpha(overall)}


def ordinal_alpha(votes: Array) -> float | None:
    """Krippendorff's alpha of judges (rows) on items (columns), nan for no vote; None where it is not defined.

    1: all agree; 0: as much as by chance. It is not defined if no item has two votes, or all votes are the same.
    """
    try:
        import krippendorff
    except ImportError as error:
        raise missing_extra("Agreement between judges", "krippendorff", "eval") from error
    compared = votes[:, (~np.isnan(votes)).sum(axis=0) > 1]
    if len(np.unique(compared[~np.isnan(compared)])) < 2:
        return None
    return float(krippendorff.alpha(compared, level_of_measurement="ordinal"))


def _agreement(kinds: Array, counted: Array, is_check: NDArray[np.bool_]) -> list[float | None]:
    """For each judge how often their vote is of the same kind as those of most others whose votes count."""
    tally = (counted[..., None] == np.arange(3)).sum(axis=1)  # Q N 3
    found: list[float | None] = []
    for judge in range(kinds.shape[1]):
        others = tally - (counted[:, judge, :, None] == np.arange(3))  # Q N 3
        most = others.max(axis=-1)
        has_majority = ((others == most[..., None]).sum(axis=-1) == 1) & ~np.isnan(kinds[:, judge]) & ~is_check
        same = others.argmax(axis=-1) == kinds[:, judge]
        found.append(float(same[has_majority].mean()) if has_majority.any() else None)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# For people


def _number(value: float | None, pattern: str = "{:.2f}") -> str:
    return "-" if value is None else pattern.format(value)


def _percent(value: float | None) -> str:
    return _number(value, "{:.1f} %")


def _interval(bounds: tuple[float, float] | None) -> str:
    return "-" if bounds is None else "{:.1f} to {:.1f}".format(*bounds)


def _judges(numbers: Sequence[str]) -> str:
    return ("judge " if len(numbers) == 1 else "judges ") + ", ".join(numbers)


def _judge_row(one: JudgeQuality) -> list[Cell]:
    return [
        Cell(str(one.judge)),
        Cell(f"{one.items_answered:,} of {one.items:,}"),
        Cell(f"{one.checks_passed} of {one.checks_answered}"),
        Cell(_number(one.agreement, "{:.0%}")),
        Cell(_number(one.median_seconds, "{:.1f}")),
        Cell("yes" if one.left_out else "", one.left_out),
    ]


def plot(report: Report, path: Path) -> None:
    """Shares of the votes as stacked bars, a panel for each question, into a .png, .svg or .pdf file."""
    check_picture(path)
    rows, questions = len(report.study.lineups), report.study.questions
    figure = new_figure(8, len(questions) * (0.55 + 0.42 * rows) + 0.7)
    axes = figure.subplots(len(questions), 1, squeeze=False, sharex=True).flat
    for axis, question in zip(axes, questions, strict=True):
        _panel(axis, [one.bar() for one in report.results if one.question == question])
        axis.set_title(question.capitalize(), loc="left", fontsize=10, fontweight="bold")
    figure.supxlabel(
        f"% of votes {RESULTS[report.study.settings.form].legend}\n"
        f"{report.questions_answered:,} of {report.questions_asked:,} answers given",
        fontsize=9,
    )
    save_picture(figure, path)


def _panel(axis: Any, bars: Sequence[tuple[str, list[float], str]]) -> None:
    for row, (_, shares, _) in enumerate(bars):
        left = 0.0
        for share, colour, ink in zip(
            shares, ("#1c5aa6", "#d9d7cf", "#c98a1b"), ("white", "black", "black"), strict=True
        ):
            axis.barh(row, share, left=left, color=colour, height=0.72)
            if share >= 5:
                axis.text(left + share / 2, row, f"{share:.0f}", ha="center", va="center", color=ink, fontsize=9)
            left += share
    rows = range(len(bars))
    axis.set(xlim=(0, 100), ylim=(len(bars) - 0.5, -0.5))
    axis.set_yticks(rows, [name for name, _, _ in bars], fontsize=9)
    right = axis.secondary_yaxis("right")
    right.set_yticks(rows, [remark for _, _, remark in bars], fontsize=9)
    for each in (axis, right):
        each.tick_params(length=0)
    axis.spines[:].set_visible(False)
    right.spines[:].set_visible(False)
