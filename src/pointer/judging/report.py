"""The report on a study: who is preferred, how sure that is, how far judges agree, and which judges to trust.

It can be written at any time; what has not been answered yet is left out and counted.
"""

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointer import __version__
from pointer.errors import missing_extra
from pointer.evaluation.drawing import check_picture, new_figure, save_picture
from pointer.evaluation.table import LATEX_NEEDS, Cell, Table, latex_text
from pointer.judging.answers import Answer, read_answers
from pointer.judging.study import Study, open_study

FORMAT = 1
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


@dataclass(frozen=True)
class JudgeQuality:
    """What can be said about one judge."""

    judge: int
    """From 1, in the order of the links."""
    pairs: int
    pairs_answered: int
    """Pairs with all questions answered, attention checks among them."""
    checks_answered: int
    checks_passed: int
    agreement: float | None
    """How often the judge voted as most of the others did, where they had a majority."""
    median_seconds: float | None
    """From showing a pair to the answer of its last question."""
    left_out: bool


@dataclass(frozen=True)
class Report:
    """All that a study says so far."""

    study: Study
    screened: bool
    """Are judges left out who fail the attention checks?"""
    replications: int
    preferences: tuple[Preference, ...]
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
            "bootstrap": {"replications": self.replications, "seed": self.study.settings.seed},
            "preferences": [asdict(one) for one in self.preferences],
            "alpha": self.alpha,
            "judges": [asdict(one) for one in self.judges],
        }

    def tables(self) -> list[Table]:
        """The paper's table of preferences, a part for each question; the preferred system is bold."""
        columns = ["System A", "A", "Neutral", "B", "System B", "p"]
        return [
            Table(
                f"{name.capitalize()}: {wording}",
                columns,
                [_preference_row(one) for one in self.preferences if one.question == name],
            )
            for name, wording in self.study.questions.items()
        ]

    def judge_table(self) -> Table:
        """A row a judge."""
        columns = ["Judge", "Pairs", "Checks passed", "Agreement", "Median seconds", "Left out"]
        return Table("Judges", columns, [_judge_row(one) for one in self.judges])

    def notes(self) -> list[str]:
        """What a reader of the tables has to know."""
        missing = self.questions_asked - self.questions_answered
        waiting = [str(one.judge) for one in self.judges if one.pairs_answered < one.pairs]
        left_out = [str(one.judge) for one in self.judges if one.left_out]
        unscreened = [str(one.judge) for one in self.judges if not one.checks_answered]
        alpha = ", ".join(f"{name} {_number(value)}" for name, value in self.alpha.items())
        return [
            f"{self.questions_answered:,} of {self.questions_asked:,} answers are given"
            + (f"; {missing / self.questions_asked:.1%} are missing, from {_judges(waiting)}." if missing else "."),
            f"{self.rule} By this rule: {_judges(left_out) if left_out else 'none'}."
            + (f" Not checked yet: {_judges(unscreened)}." if unscreened else ""),
            f"p: two-sided bootstrap over pairs of texts, {self.replications:,} replications, seed "
            f"{self.study.settings.seed}, of the difference between A and B.",
            f"Krippendorff's alpha (ordinal, five points): {alpha}.",
        ]

    def markdown(self) -> str:
        """Tables and notes for a page."""
        tables = [table.markdown() for table in [*self.tables(), self.judge_table()]]
        return "\n\n".join([*tables[:-1], "\n".join(f"- {note}" for note in self.notes()), tables[-1]])

    def latex(self) -> str:
        """The preferences for a paper, the notes below them, and the judges."""
        notes = "\n\n".join(latex_text(note) for note in self.notes())
        tables = [table.latex() for table in [*self.tables(), self.judge_table()]]
        return "\n\n".join([LATEX_NEEDS, *tables[:-1], notes, tables[-1]])


def make_report(folder: Path, screened: bool = True, replications: int = REPLICATIONS) -> Report:
    """Count the answers that a study has so far; `screened` leaves out judges who fail the attention checks."""
    study = open_study(folder)
    return count(study, read_answers(folder, study.fingerprint), screened, replications)


def count(study: Study, answers: Sequence[Answer], screened: bool = True, replications: int = REPLICATIONS) -> Report:
    """The report on these answers.

    Everything is read off one array of votes from 2 (A is clearly better) to -2 (B is), nan where there is none yet.
    """
    votes, seconds = _votes(study, answers)  # Q J N
    is_check = np.array([item.check for item in study.items])  # N
    done: NDArray[np.bool_] = np.asarray(~np.isnan(votes).any(axis=0))  # J N
    checked = (done & is_check).sum(axis=1)  # J
    passed = (done & is_check & (votes > 0).all(axis=0)).sum(axis=1)  # J
    left_out = (checked > 0) & (passed < PASSING * checked - 1e-9) & screened  # J
    counted = np.where(left_out[:, None], np.nan, votes)  # Q J N
    agreement = _agreement(np.sign(votes), np.sign(counted), is_check)
    took = [np.nanmax(seconds[:, judge, done[judge]], axis=0) for judge in range(len(study.sheets))]
    return Report(
        study,
        screened,
        replications,
        tuple(_preferences(study, np.sign(counted), replications)),
        _alphas(study, counted[:, ~left_out][:, :, ~is_check]),
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
        int((~np.isnan(votes)).sum()),
    )


def _votes(study: Study, answers: Sequence[Answer]) -> tuple[Array, Array]:
    """Votes for A, and after how many seconds they came; the side on which A was shown no longer matters."""
    votes = np.full((len(study.questions), len(study.sheets), len(study.items)), np.nan)
    seconds = votes.copy()
    numbers = {name: number for number, name in enumerate(study.questions)}
    for answer in answers:
        item, swapped = study.sheets[answer.judge][answer.place]
        at = numbers[answer.question], answer.judge, item
        votes[at] = answer.choice - 3 if swapped else 3 - answer.choice
        seconds[at] = answer.seconds
    return votes, seconds


def _preferences(study: Study, signs: Array, replications: int) -> list[Preference]:
    found = []
    for question, of_question in zip(study.questions, signs, strict=True):
        for a, b in study.pairs:
            items = [i for i, item in enumerate(study.items) if (item.a, item.b, item.check) == (a, b, False)]
            of_pair = of_question[:, items]  # J N
            given = (~np.isnan(of_pair)).sum(axis=0)  # N
            difference = np.nansum(of_pair, axis=0)  # N
            total, voted = int(given.sum()), given > 0
            for_a, neutral, for_b = (
                float(100 * (of_pair == sign).sum() / total) if total else None for sign in (1, 0, -1)
            )
            p = bootstrap_p(difference[voted], given[voted], replications, study.settings.seed)
            found.append(Preference(question, a, b, total, int(voted.sum()), for_a, neutral, for_b, p))
    return found


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


def _agreement(signs: Array, counted: Array, is_check: NDArray[np.bool_]) -> list[float | None]:
    """For each judge how often their vote is that of most others whose votes count."""
    kinds = np.array([1.0, 0.0, -1.0])
    tally = (counted[..., None] == kinds).sum(axis=1)  # Q N 3
    found: list[float | None] = []
    for judge in range(signs.shape[1]):
        others = tally - (counted[:, judge, :, None] == kinds)  # Q N 3
        most = others.max(axis=-1)
        has_majority = ((others == most[..., None]).sum(axis=-1) == 1) & ~np.isnan(signs[:, judge]) & ~is_check
        same = kinds[others.argmax(axis=-1)] == signs[:, judge]
        found.append(float(same[has_majority].mean()) if has_majority.any() else None)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# For people


def _number(value: float | None, pattern: str = "{:.2f}") -> str:
    return "-" if value is None else pattern.format(value)


def _judges(numbers: Sequence[str]) -> str:
    return ("judge " if len(numbers) == 1 else "judges ") + ", ".join(numbers)


def _preference_row(one: Preference) -> list[Cell]:
    a, b = one.percent_a or 0.0, one.percent_b or 0.0
    share = "{:.1f} %"
    return [
        Cell(one.a),
        Cell(_number(one.percent_a, share), a > b),
        Cell(_number(one.percent_neutral, share)),
        Cell(_number(one.percent_b, share), b > a),
        Cell(one.b),
        Cell(_number(one.p, "{:.4f}")),
    ]


def _judge_row(one: JudgeQuality) -> list[Cell]:
    return [
        Cell(str(one.judge)),
        Cell(f"{one.pairs_answered:,} of {one.pairs:,}"),
        Cell(f"{one.checks_passed} of {one.checks_answered}"),
        Cell(_number(one.agreement, "{:.0%}")),
        Cell(_number(one.median_seconds, "{:.1f}")),
        Cell("yes" if one.left_out else "", one.left_out),
    ]


def plot(report: Report, path: Path) -> None:
    """Preferences as stacked bars, a panel for each question, into a .png, .svg or .pdf file."""
    check_picture(path)
    pairs, questions = report.study.pairs, report.study.questions
    figure = new_figure(8, len(questions) * (0.55 + 0.42 * len(pairs)) + 0.7)
    axes = figure.subplots(len(questions), 1, squeeze=False, sharex=True).flat
    for axis, question in zip(axes, questions, strict=True):
        _panel(axis, [one for one in report.preferences if one.question == question])
        axis.set_title(question.capitalize(), loc="left", fontsize=10, fontweight="bold")
    figure.supxlabel(
        "% of votes for the system on the left (blue), for neither (grey), for the one on the right (ochre)\n"
        f"{report.questions_answered:,} of {report.questions_asked:,} answers given",
        fontsize=9,
    )
    save_picture(figure, path)


def _panel(axis: Any, preferences: Sequence[Preference]) -> None:
    for row, one in enumerate(preferences):
        left = 0.0
        for share, colour, ink in (
            (one.percent_a, "#1c5aa6", "white"),
            (one.percent_neutral, "#d9d7cf", "black"),
            (one.percent_b, "#c98a1b", "black"),
        ):
            axis.barh(row, share or 0, left=left, color=colour, height=0.72)
            if share and share >= 5:
                axis.text(left + share / 2, row, f"{share:.0f}", ha="center", va="center", color=ink, fontsize=9)
            left += share or 0
    rows = range(len(preferences))
    axis.set(xlim=(0, 100), ylim=(len(preferences) - 0.5, -0.5))
    axis.set_yticks(rows, [one.a for one in preferences], fontsize=9)
    right = axis.secondary_yaxis("right")
    right.set_yticks(rows, [one.b if one.p is None else f"{one.b}\np = {one.p:.4f}" for one in preferences], fontsize=9)
    for each in (axis, right):
        each.tick_params(length=0)
    axis.spines[:].set_visible(False)
    right.spines[:].set_visible(False)
