"""The judges' page in a real browser."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from studies import GOOD, POOR, serving, small_study

from pointer.judging.answers import read_answers
from pointer.judging.report import make_report
from pointer.judging.study import Study

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page


@pytest.fixture(scope="module")
def study_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def study(study_folder: Path) -> Study:
    return small_study(study_folder, judges=4)  # 8 pairs and 2 checks; a judge for each test


@pytest.fixture(scope="module")
def links(study_folder: Path, study: Study) -> Iterator[list[str]]:
    with serving(study_folder) as (_, found):
        yield found


def begin(page: "Page", link: str) -> None:
    page.goto(link)
    page.get_by_role("button", name="Go on").click()
    at_pair(page, 1)


def at_pair(page: "Page", number: int) -> None:
    page.get_by_role("heading", name=f"Pair {number} of 10", exact=True).wait_for()


def saved(page: "Page") -> None:
    page.get_by_role("status").filter(has_text=re.compile("^Saved$")).wait_for()


def radio(page: "Page", question: str, label: str) -> "Locator":
    return page.get_by_role("group", name=question).get_by_role("radio", name=label)


def better_side(page: "Page") -> str:
    """What an attentive judge sees: the poor system's texts begin with `Well,`, debris has half the words."""
    texts = [page.locator(f"#text-{side}").inner_text() for side in "ab"]
    if any(text.startswith("Well,") for text in texts):
        return "b" if texts[0].startswith("Well,") else "a"
    return "a" if len(texts[0]) > len(texts[1]) else "b"


def test_ten_pairs_with_a_reload_in_the_middle_and_a_report(
    browser_page: "Page",
    links: list[str],
    study_folder: Path,
    study: Study,
) -> None:
    page = browser_page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    begin(page, links[0])
    for number in range(1, 5):  # by keyboard alone
        at_pair(page, number)
        for _ in study.questions:
            page.keyboard.press("1" if better_side(page) == "a" else "5")
        page.keyboard.press("Enter")
    at_pair(page, 5)
    radio(page, "semantics", "Neither").click()
    saved(page)

    page.reload()
    at_pair(page, 5)
    assert page.get_by_role("group", name="semantics").get_by_role("radio", checked=True).input_value() == "3"
    assert not page.locator("dialog").is_visible()
    page.get_by_role("button", name="Next").click()  # two questions are open: the browser says so, nothing moves
    assert page.locator("input:invalid").count() == 10
    page.keyboard.press("b")  # back, to change an answer
    at_pair(page, 4)
    chosen = page.get_by_role("group", name="fluency").get_by_role("radio", checked=True).input_value()
    radio(page, "fluency", "Neither").click()
    saved(page)
    assert chosen in "15"
    page.get_by_role("button", name="Next").click()

    for number in range(5, 11):  # by mouse
        at_pair(page, number)
        label = f"{better_side(page).upper()} slightly"
        for question in study.questions:
            radio(page, question, label).click()
        page.get_by_role("button", name="Finish" if number == 10 else "Next").click()
    page.get_by_role("heading", name="Thank you").wait_for()
    page.reload()
    page.get_by_role("heading", name="Thank you").wait_for()

    base = links[0].partition("#")[0]
    assert all(url.startswith(base) for url in asked)
    assert not any("token=" in url.partition("#")[0] for url in asked)
    answers = [answer for answer in read_answers(study_folder, study.fingerprint) if answer.judge == 0]
    assert len(answers) == 30 and all(0 <= answer.seconds < 600 for answer in answers)
    assert next(answer.choice for answer in answers if (answer.place, answer.question) == (3, "fluency")) == 3
    report = make_report(study_folder)
    quality = report.judges[0]
    assert quality.items_answered == 10 and quality.checks_answered == 2
    against_poor = [one for one in report.results if one.b == POOR.name and one.question == "semantics"]
    assert against_poor[0].percent_a == 100


def test_an_answer_that_cannot_be_sent_is_kept_until_it_can(browser_page: "Page", links: list[str]) -> None:
    page = browser_page
    begin(page, links[1])
    page.route("**/answers/*", lambda route: route.abort())
    radio(page, "semantics", "A clearly").click()
    page.get_by_text("Not saved. The server cannot be reached.").wait_for()
    for question in ("fluency", "informativeness"):
        radio(page, question, "B clearly").click()
    page.get_by_role("button", name="Next").click()
    page.get_by_text("Not saved.").wait_for()
    at_pair(page, 1)
    page.unroute("**/answers/*")
    page.get_by_role("button", name="Try again").click()
    saved(page)
    page.get_by_role("button", name="Next").click()
    at_pair(page, 2)
    page.get_by_role("button", name="Back").click()
    at_pair(page, 1)
    assert [one.input_value() for one in page.get_by_role("radio", checked=True).all()] == ["1", "5", "5"]


def test_a_page_without_a_good_token_says_what_to_do(browser_page: "Page", links: list[str]) -> None:
    base = links[0].partition("#")[0]
    browser_page.goto(base)
    browser_page.get_by_role("alert").filter(has_text="No token came with the request.").wait_for()
    browser_page.goto(f"{base}#token=guess")
    browser_page.get_by_role("alert").filter(has_text="This token belongs to no judge of this study.").wait_for()
    assert "Open the link that you were given." in browser_page.get_by_role("alert").inner_text()
    assert not browser_page.get_by_role("radio").count()


def test_the_page_names_no_system_and_its_parts_have_names(browser_page: "Page", links: list[str]) -> None:
    page = browser_page
    begin(page, links[2])
    assert not re.search(f"{GOOD.name}|{POOR.name}|human", page.content(), re.IGNORECASE)
    assert page.evaluate("document.activeElement.id") == "place"
    groups = page.get_by_role("group").all()
    assert len(groups) == 3
    for group in groups:
        assert [one.input_value() for one in group.get_by_role("radio").all()] == list("12345")
        assert group.get_by_role("radio", name="A slightly").count() == 1
    assert page.get_by_role("progressbar", name="Judged so far").count() == 1
    assert page.locator("mark").count() >= 3
    page.keyboard.press("?")
    page.get_by_role("dialog", name="How to judge").wait_for()
    page.keyboard.press("3")  # no answer while help is open
    page.get_by_label("Use these keys").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("3")  # nor once the keys are switched off
    assert not page.get_by_role("radio", checked=True).count()
    page.get_by_role("group", name="fluency").get_by_role("radio").first.focus()
    page.keyboard.press("ArrowRight")  # the radio's own keys
    saved(page)
    assert page.get_by_role("group", name="fluency").get_by_role("radio", checked=True).input_value() == "2"


def test_texts_are_rated_one_by_one_with_three_keys(browser: "Browser", tmp_path: Path) -> None:
    study = small_study(tmp_path, form="ratings", samples=2, judges=1)
    size = {"width": 390, "height": 844}
    with (
        serving(tmp_path) as (_, [link]),
        browser.new_context(viewport=size, is_mobile=True, has_touch=True) as phone,  # type: ignore[arg-type]
    ):
        page = phone.new_page()
        page.goto(link)
        page.get_by_role("dialog", name="How to judge").get_by_text("a text that was written around them").wait_for()
        page.get_by_role("button", name="Go on").click()
        for number in range(1, 9):
            page.get_by_role("heading", name=f"Text {number} of 8", exact=True).wait_for()
            assert page.get_by_role("article").count() == 1 and page.get_by_role("radio").count() == 3
            page.keyboard.press("4")  # no such answer
            assert not page.get_by_role("radio", checked=True).count()
            text = page.locator("#text-a").inner_text()
            page.keyboard.press("1" if text.startswith("Yes:") else "2" if text.startswith("Well,") else "3")
            saved(page)
            assert page.evaluate("document.documentElement.scrollWidth") == 390
            page.keyboard.press("Enter")
        page.get_by_role("heading", name="Thank you").wait_for()
    report = make_report(tmp_path)
    assert [one.bar()[1] for one in report.results] == [[100, 0, 0], [0, 100, 0], [0, 0, 100]]
    assert report.judges[0].checks_passed == 2 and len(study.items) == 8


CONTRASTS = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const ground = (e) => { for (; e; e = e.parentElement) {
    const c = numbers(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > 0) return c; } };
  const worst = {};
  for (const e of document.querySelectorAll("h1, h2, p, li, mark, legend, .scale span, kbd, button:enabled, #status")) {
    if (!e.checkVisibility() || !e.textContent.trim()) continue;
    const [a, b] = [light(numbers(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05), name = e.tagName + "." + e.className;
    worst[name] = Math.min(worst[name] ?? 99, ratio);
  }
  return worst;
}"""


def test_on_a_phone_everything_fits_can_be_hit_and_can_be_read(browser: "Browser", links: list[str]) -> None:
    with browser.new_context(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True) as phone:
        page = phone.new_page()
        begin(page, links[3])
        radio(page, "semantics", "B slightly").tap()
        saved(page)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        for control in [*page.locator(".scale label").all(), *page.locator("nav button:visible").all()]:
            box = control.bounding_box()
            assert box is not None and box["width"] >= 44 and box["height"] >= 44
        grounds = set()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            contrasts = page.evaluate(CONTRASTS)
            assert len(contrasts) >= 8 and min(contrasts.values()) >= 4.5, contrasts
        assert len(grounds) == 2
