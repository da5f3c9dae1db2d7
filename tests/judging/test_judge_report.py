"""The numbers of the report: against published values, against enumeration, and on votes counted by hand."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from studies import GOOD, PEOPLE, POOR, TEXTS, small_study, store, vote_all

from pointer.errors import UsageError
from pointer.judging.answers import Answer
from pointer.judging.report import Rating, Report, bootstrap_p, count, make_report, ordinal_alpha, plot, wilson
from pointer.judging.study import Item, Study, StudySettings, draw_study

# Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability": four observers, twelve units, 0 for no value.
OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
    [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
]
ORDINAL_ALPHA = 0.815


def one_comparison(**settings: object) -> Study:
    asked = StudySettings(**{"questions": ("fluency",), "checks": 0} | settings)  # type: ignore[arg-type]
    return draw_study([GOOD, POOR], None, asked)


def test_alpha_of_published_data_through_the_whole_report(tmp_path: Path) -> None:
    study = one_comparison(samples=12, judges=4)
    (tmp_path / "study.json").write_bytes(study.to_json())
    units = {item: unit for unit, item in enumerate(study.items)}

    def vote(judge: int, item: Item, question: str) -> int | None:
        value = OBSERVERS[judge][units[item]]
        return 3 - value if value else None

    store(tmp_path, study, vote_all(study, vote))
    report = make_report(tmp_path)
    assert report.alpha["fluency"] == report.alpha["overall"] == pytest.approx(ORDINAL_ALPHA, abs=5e-4)
    assert (report.questions_answered, report.questions_asked) == (41, 48)
    assert report.notes()[0] == "41 of 48 answers are given; 14.6% are missing, from judges 1, 2, 3, 4."


def test_alpha_is_one_when_all_agree_and_not_defined_when_nothing_can_be_compared() -> None:
    nan = np.nan
    assert ordinal_alpha(np.array([[2.0, -1, 0], [2, -1, 0]])) == 1
    assert ordinal_alpha(np.array([[2.0, nan], [nan, -1]])) is None
    assert ordinal_alpha(np.array([[1.0, 1], [1, 1]])) is None
    assert ordinal_alpha(np.full((2, 3), nan)) is None


@pytest.mark.parametrize(
    ("difference", "votes"),
    [
        ([3, 1, -1], [5, 5, 5]),
        ([2, 2, 1, -3], [5, 5, 5, 5]),
        ([1, -2, 3, 3], [1, 4, 5, 3]),
        ([0, 0, 1], [2, 2, 1]),
    ],
)
def test_the_bootstrap_is_what_all_resamples_together_say(difference: list[int], votes: list[int]) -> None:
    items = range(len(votes))
    mean = sum(difference) / sum(votes)
    means = [
        sum(difference[i] for i in drawn) / sum(votes[i] for i in drawn) for drawn in product(items, repeat=len(votes))
    ]
    exact = np.mean([abs(resampled - mean) >= abs(mean) - 1e-12 for resampled in means])
    replications = 20_000
    p = bootstrap_p(np.array(difference, float), np.array(votes), replications, seed=0)
    assert p == pytest.approx(exact, abs=4 * float(np.sqrt(exact * (1 - exact) / replications)) + 1e-3)


def test_the_smallest_p_is_one_of_all_replications_and_no_preference_is_never_significant() -> None:
    votes = np.full(40, 5)
    assert bootstrap_p(np.full(40, 3.0), votes, 10_000, 0) == 1 / 10_001
    assert bootstrap_p(np.zeros(40), votes, 10_000, 0) == 1
    assert bootstrap_p(np.tile([2.0, -2.0], 20), votes, 10_000, 0) == 1
    assert bootstrap_p(np.array([3.0]), np.array([5]), 10_000, 0) is None


def test_the_same_seed_gives_the_same_p() -> None:
    rng = np.random.default_rng(0)
    difference, votes = rng.integers(-2, 4, 60).astype(float), np.full(60, 5)
    assert bootstrap_p(difference, votes, 1000, 1) == bootstrap_p(difference, votes, 1000, 1)
    assert bootstrap_p(difference, votes, 1000, 1) != bootstrap_p(difference, votes, 1000, 2)


@pytest.mark.parametrize(
    ("events", "number", "low", "high"),
    [(81, 263, 25.53, 36.62), (15, 148, 6.24, 16.05), (0, 20, 0, 16.11), (1, 29, 0.61, 17.18), (29, 29, 88.30, 100)],
)
def test_the_interval_is_wilsons_as_published(events: int, number: int, low: float, high: float) -> None:
    """Newcombe (1998), "Two-sided confidence intervals for the single proportion", table I, method 3."""
    assert wilson(100 * events / number, number) == pytest.approx((low, high), abs=0.01)


def attentive(judge: int, item: Item, question: str) -> int:
    """Sees through checks, finds the good system better than the poor one, and people slightly better still."""
    return 2 if item.check else 1 if POOR.name in item.systems else -1


@pytest.fixture(scope="module")
def study() -> Study:
    return small_study(samples=10, judges=3, checks=4)


def test_percentages_count_votes_wherever_the_texts_stood(study: Study) -> None:
    def vote(judge: int, item: Item, question: str) -> int:
        if question == "fluency" and judge == 0 and not item.check:
            return 0
        return attentive(judge, item, question)

    report = count(study, vote_all(study, vote))
    found = {(one.question, one.b): one for one in report.results}
    assert len(report.results) == 6
    one = found["fluency", POOR.name]
    assert (one.a, one.votes, one.items) == (GOOD.name, 30, 10)
    assert (one.percent_a, one.percent_neutral, one.percent_b) == pytest.approx((200 / 3, 100 / 3, 0))
    people = found["semantics", "human"]
    assert (people.percent_a, people.percent_neutral, people.percent_b, people.p) == (0, 0, 100, 1 / 10_001)
    assert report.notes()[0] == "216 of 216 answers are given."


def test_ratings_are_counted_by_system_with_intervals_for_texts_not_votes(tmp_path: Path) -> None:
    study = small_study(tmp_path, form="ratings", samples=10, judges=3, checks=4)

    def rate(judge: int, item: Item, question: str) -> int:
        if item.check:
            return 2 if judge == 1 else 0  # judge 2 finds that debris makes sense
        if judge == 1:
            return 2
        return {GOOD.name: 1 if item.line % 2 else 2, POOR.name: judge // 2, "human": 2}[item.systems[0]]

    store(tmp_path, study, vote_all(study, rate))
    report = make_report(tmp_path)
    assert [one.left_out for one in report.judges] == [False, True, False]
    good, poor, people = (one for one in report.results if isinstance(one, Rating))
    odd = sum(item.line % 2 for item in study.items if item.systems == (GOOD.name,))
    assert (good.votes, good.items) == (20, 10)
    assert (good.percent_sensible, good.percent_one_slip_at_most) == (100 - 10 * odd, 100)
    assert (poor.percent_sensible, poor.percent_one_slip_at_most) == (0, 50)
    assert poor.interval_one_slip_at_most == wilson(50, 10)
    assert (people.system, people.percent_sensible) == ("human", 100)
    assert report.alpha["overall"] is not None and report.to_dict()["bootstrap"] is None
    low, _ = wilson(100, 10) or (0, 0)
    row = f"| human | 100.0 % | {low:.1f} to 100.0 | 100.0 % | {low:.1f} to 100.0 | 10 |"
    assert row in report.markdown() and "Sense: Does this text make sense?" in report.markdown()
    assert "Wilson's" in report.latex() and r"\begin{tabular}{lrrrrr}" in report.latex()
    plot(report, tmp_path / "bars.png")
    empty = count(study, [])
    assert "| human | - | - | - | - | 0 |" in empty.markdown()
    plot(empty, tmp_path / "bars.png")


def always_first(study: Study, answers: list[Answer], judge: int) -> list[Answer]:
    return [answer._replace(choice=1) if answer.judge == judge else answer for answer in answers]


def test_a_judge_who_always_takes_the_first_text_is_left_out_by_the_stated_rule(study: Study) -> None:
    answers = always_first(study, vote_all(study, attentive), 1)
    report = count(study, answers)
    assert [one.left_out for one in report.judges] == [False, True, False]
    assert (report.judges[1].checks_passed, report.judges[1].checks_answered) == (2, 4)
    assert {one.votes for one in report.results} == {20}
    assert all(one.percent_a == (100 if one.b == POOR.name else 0) for one in report.results)
    assert "fewer than 70% of the attention checks they have answered. By this rule: judge 2." in report.notes()[1]
    assert report.to_dict()["screening"]["left_out"] == [2]

    everyone = count(study, answers, screened=False)
    assert not any(one.left_out for one in everyone.judges)
    assert {one.votes for one in everyone.results} == {30}


def test_one_slip_in_four_checks_is_forgiven(study: Study) -> None:
    first = next(item for item in study.items if item.check)

    def vote(judge: int, item: Item, question: str) -> int:
        return -1 if item == first and judge == 0 else attentive(judge, item, question)

    report = count(study, vote_all(study, vote))
    assert report.judges[0].checks_passed == 3 and not report.judges[0].left_out


def test_agreement_is_with_the_majority_of_the_others() -> None:
    study = one_comparison(samples=4, judges=3)
    lines = [item.line for item in study.items]
    votes = {0: [2, 1, -1, 1], 1: [1, 2, 1, 0], 2: [1, -2, 1, -1]}

    def vote(judge: int, item: Item, question: str) -> int:
        return votes[judge][lines.index(item.line)]

    judges = count(study, vote_all(study, vote)).judges
    # Judge 1 meets (1 1), (1 -1: no majority), (1 1), (0 -1: none); it agrees on the first and not on the third.
    assert [one.agreement for one in judges] == [1 / 2, 1.0, 1 / 2]
    assert [one.median_seconds for one in judges] == [10, 11, 12]


def test_a_study_without_answers_has_a_report_that_says_so(tmp_path: Path) -> None:
    study = small_study(tmp_path)
    report = make_report(tmp_path)
    assert report.notes()[0] == "0 of 60 answers are given; 100.0% are missing, from judges 1, 2."
    assert "Not checked yet: judges 1, 2." in report.notes()[1]
    assert all(one.p is None and one.percent_a is None and one.votes == 0 for one in report.results)
    assert set(report.alpha.values()) == {None}
    assert "| Zebrafish-XL | - | - | - | Quokka-7 | - |" in report.markdown()
    plot(report, tmp_path / "empty.png")
    assert list(study.questions) == list(report.study.questions)


@pytest.fixture(scope="module")
def report(study: Study) -> Report:
    def vote(judge: int, item: Item, question: str) -> int | None:
        return None if judge == 2 and item.line % 2 else attentive(judge, item, question)

    return count(study, vote_all(study, vote))


def test_tables_are_laid_out_as_in_the_paper(report: Report) -> None:
    [semantics, *_] = tables = report.tables()
    assert [table.title for table in tables] == [
        "Semantics: A and B, which is more semantically meaningful and consistent?",
        "Fluency: A and B, which is more grammatical and fluent?",
        "Informativeness: A and B, which is more informative?",
    ]
    assert list(semantics.columns) == ["System A", "A", "Neutral", "B", "System B", "p"]
    assert [cell.text for cell in semantics.rows[0]] == [GOOD.name, "100.0 %", "0.0 %", "0.0 %", POOR.name, "0.0001"]
    assert [[cell.bold for cell in row] for row in semantics.rows] == [
        [False, True, False, False, False, False],
        [False, False, False, True, False, False],
    ]


def test_markdown_and_latex_hold_tables_and_notes(report: Report) -> None:
    markdown, latex = report.markdown(), report.latex()
    assert f"| {GOOD.name} | **100.0 %** | 0.0 % | 0.0 % | {POOR.name} | 0.0001 |" in markdown
    assert "Krippendorff's alpha (ordinal, 5 points): semantics 1.00" in markdown and "| Judge | Pairs |" in markdown
    assert rf"{GOOD.name} & \textbf{{100.0 \%}} & 0.0 \% & 0.0 \% & {POOR.name} & 0.0001 \\" in latex
    assert latex.count(r"\begin{tabular}") == 4 and "10,000 replications" in latex
    assert r"1 & 24 of 24 & 4 of 4 & 100\% & 10.0 &  \\" in latex and latex.startswith(r"% \usepackage{booktabs")


def test_the_plot_is_drawn_whole_in_the_form_of_its_name(report: Report, tmp_path: Path) -> None:
    for name, magic in (("bars.png", b"\x89PNG"), ("bars.svg", b"<?xml")):
        plot(report, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(magic)
    with pytest.raises(UsageError, match=r"expected a \.png, \.svg or \.pdf file"):
        plot(report, tmp_path / "bars.gif")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bars.png", "bars.svg"]


def test_a_study_of_realistic_size_is_counted(report: Report) -> None:
    many = 400
    texts = tuple(TEXTS[i % len(TEXTS)] for i in range(many))
    constraints = tuple(("word",) for _ in range(many))
    systems = [type(GOOD)(name, texts, constraints) for name in ("one", "two")]
    study = draw_study(systems, type(PEOPLE)("human", texts), StudySettings(judges=5, panel=20))
    rng = np.random.default_rng(0)
    answers = vote_all(study, lambda judge, item, question: 2 if item.check else int(rng.integers(-2, 3)))
    found = count(study, answers)
    assert all(one.votes == 2000 and one.p is not None and one.p > 0.001 for one in found.results)
    assert found.alpha["overall"] == pytest.approx(0, abs=0.03)
