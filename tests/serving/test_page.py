"""The page of `pointer serve` in a real browser, against the real command."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from scripted import small_vocabulary
from servers import Command, Turnstile, running, until

from pointer.decoding.grammar import parse

try:
    from playwright.sync_api import expect

    expect.set_options(timeout=20_000)
except ImportError:  # the fixture `browser` says so, and skips or fails
    pass

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Locator, Page, Request, Route

pytest_plugins = ("shared",)
PACE, HURRY = 1250, 500
"""Milliseconds a stage stays before the next one comes, and within which a finished text is there, as in viewer.js."""


@dataclass
class Site:
    """The page as a visitor has it."""

    page: "Page"
    url: str
    asked: list["Request"] = field(default_factory=list)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What was asked for so far."""
        return [json.loads(request.post_data or "") for request in self.asked if request.method == "POST"]

    @property
    def chips(self) -> "Locator":
        return self.page.locator(".chip .face")

    @property
    def entry(self) -> "Locator":
        return self.page.get_by_role("textbox", name="Your words")

    @property
    def editor(self) -> "Locator":
        return self.page.get_by_role("textbox", name="Word or phrase")

    @property
    def slider(self) -> "Locator":
        return self.page.get_by_role("slider", name="Stage")

    @property
    def line(self) -> "Locator":
        return self.page.locator("[data-part=line]")

    @property
    def alert(self) -> "Locator":
        return self.page.get_by_role("alert")

    def open(self, link: str = "") -> None:
        self.page.goto(self.url + link)
        expect(self.page.get_by_role("combobox", name="Kind of text")).to_be_enabled()

    def type(self, *words: str) -> None:
        for word in words:
            self.entry.fill(word)
            self.entry.press("Enter")

    def button(self, name: str) -> "Locator":
        return self.page.get_by_role("button", name=name, exact=True)

    def write(self) -> None:
        before = len(self.bodies)
        self.button("Write").click()
        until(lambda: len(self.bodies) > before)
        expect(self.button("Write")).to_be_visible()
        self.finished()

    def finished(self) -> None:
        expect(self.page.locator("[data-part=caption]")).to_contain_text(re.compile("finished|stopped|as it gets"))

    def says(self, text: str | re.Pattern[str]) -> None:
        expect(self.page.get_by_role("status")).to_contain_text(text)

    def values(self) -> list[str]:
        return self.chips.all_inner_texts()


@pytest.fixture
def new_site(browser_page: "Page") -> Iterator[Callable[[str], Site]]:
    """Visitors of a server. Afterwards: nothing was asked of anybody else, and the console is clean."""
    sites: list[Site] = []
    errors: list[str] = []

    def heard(message: "ConsoleMessage") -> None:
        # The browser reports every answer of 400 and more, which is what some tests are about.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            errors.append(message.text)

    def start(url: str) -> Site:
        site = Site(browser_page, url + "/")
        browser_page.emulate_media(reduced_motion="reduce")  # whole texts at once; one test asks for motion
        browser_page.on("console", heard)
        browser_page.on("request", lambda request: site.asked.append(request))
        sites.append(site)
        return site

    yield start
    assert not errors
    for site in sites:
        assert site.asked and all(request.url.startswith(site.url) for request in site.asked)


@pytest.fixture
def site(new_site: Callable[[str], Site], server: Command) -> Site:
    found = new_site(server.url)
    found.open()
    assert "default-src 'self'" in (found.asked[0].response() or pytest.fail()).headers["content-security-policy"]
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Words


def test_words_are_typed_pasted_edited_and_removed(site: Site) -> None:
    site.type("river", "New York")
    site.entry.press_sequentially("tax cuts;")
    site.entry.evaluate(
        """(entry, text) => {
            const clipboardData = new DataTransfer();
            clipboardData.setData("text", text);
            entry.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
        }""",
        "1,000 people, church\nrice",
    )
    assert site.values() == ["river", "New York", "tax cuts", "1,000 people", "church", "rice"]

    site.entry.press("Backspace")
    expect(site.entry).to_have_value("rice")
    site.entry.press("End")
    site.entry.press_sequentially(" fields, ")
    assert site.values()[-1] == "rice fields"

    site.chips.nth(1).click()
    site.editor.fill("New York, New York")  # what is edited is not split
    site.editor.press("Enter")
    expect(site.chips.nth(1)).to_be_focused()
    site.chips.nth(0).click()
    site.editor.fill("forgotten")
    site.editor.press("Escape")
    site.button("Remove tax cuts").click()
    site.chips.nth(0).press("Delete")
    assert site.values() == ["New York, New York", "1,000 people", "church", "rice fields"]

    site.entry.fill("left behind")
    site.page.reload()
    expect(site.chips).to_have_text(["New York, New York", "1,000 people", "church", "rice fields"])
    assert not site.bodies  # a draft comes back, but does not run


def test_chips_are_reordered_by_keyboard_and_announced(site: Site) -> None:
    site.type("one", "two", "three")
    site.entry.press("ArrowLeft")
    expect(site.chips.nth(2)).to_be_focused()
    site.page.keyboard.press("Alt+ArrowLeft")
    assert site.values() == ["one", "three", "two"]
    expect(site.chips.nth(1)).to_be_focused()
    site.says("three is now 2 of 3.")
    site.page.keyboard.press("Alt+ArrowLeft")
    site.page.keyboard.press("Alt+ArrowLeft")  # there is nothing further left
    assert site.values() == ["three", "one", "two"]
    site.page.keyboard.press("ArrowRight")
    site.page.keyboard.press("Delete")
    site.says("one removed.")
    assert site.values() == ["three", "two"]


def test_chips_are_dragged_by_mouse(site: Site) -> None:
    site.type("one", "two", "three")
    start, end = (site.chips.nth(i).bounding_box() for i in (2, 0))
    assert start and end
    site.page.mouse.move(start["x"] + 20, start["y"] + 20)
    site.page.mouse.down()
    site.page.mouse.move(start["x"] - 20, start["y"] + 22, steps=4)
    site.page.mouse.move(end["x"] + 5, end["y"] + 20, steps=8)
    expect(site.page.locator(".chip.held")).to_have_count(1)
    site.page.mouse.up()
    assert site.values() == ["three", "one", "two"]
    expect(site.page.locator(".chip.held, dialog[open]")).to_have_count(0)  # letting go is no click
    site.says("three is now 1 of 3.")


def test_chips_are_dragged_by_finger(site: Site) -> None:
    site.page.set_viewport_size({"width": 390, "height": 844})
    site.type("one", "two", "three")
    start, end = (site.chips.nth(i).bounding_box() for i in (0, 2))
    assert start and end
    finger = site.page.context.new_cdp_session(site.page)

    def touch(kind: str, x: float = 0, y: float = 0) -> None:
        points = [] if kind == "touchEnd" else [{"x": x, "y": y}]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    x, y = start["x"] + 20, start["y"] + 20
    to_x, to_y = end["x"] + end["width"] - 4, end["y"] + 20
    touch("touchStart", x, y)
    for step in range(1, 11):
        touch("touchMove", x + (to_x - x) * step / 10, y + (to_y - y) * step / 10)
    touch("touchEnd")
    site.says("one is now 3 of 3.")
    assert site.values() == ["two", "three", "one"]


# ---------------------------------------------------------------------------------------------------------------------
# The constraint language


def test_the_menu_of_a_chip_says_how_its_word_is_used(site: Site) -> None:
    site.type("love", "rice", "very", "tea")
    menu = site.page.get_by_role("dialog", name="How this word is used")
    site.chips.nth(0).press("Enter")
    expect(menu).to_be_visible()
    expect(site.editor).to_be_focused()
    expect(menu.get_by_role("radio", name="Always")).to_be_checked()
    menu.get_by_role("checkbox", name="In any form").check()
    menu.get_by_role("button", name="Done").click()
    expect(site.chips.nth(0)).to_have_accessible_name("love, any form, 1 of 4")
    site.chips.nth(1).click()
    menu.get_by_role("radio", name="If it fits").check()
    site.page.mouse.click(5, 5)  # beside it: kept, as with Done
    expect(site.chips.nth(1)).to_have_accessible_name("rice, if it fits, 2 of 4")
    site.chips.nth(2).click()
    menu.get_by_role("radio", name="Never").check()
    menu.get_by_role("button", name="Done").click()
    expect(site.chips.nth(2)).to_have_accessible_name("very, never, 3 of 4")
    site.chips.nth(3).click()
    site.editor.fill("tea | coffee")
    site.editor.press("Enter")
    expect(site.chips.nth(3)).to_have_accessible_name("tea or coffee, 4 of 4")
    site.write()
    assert site.bodies[-1]["constraints"] == ["~love", "?rice", "!very", "tea|coffee"]
    assert "very" not in site.line.inner_text().lower().split()

    site.chips.nth(2).press("Enter")
    expect(menu.get_by_role("radio", name="Never")).to_be_checked()
    menu.get_by_role("button", name="Remove").click()
    expect(site.chips).to_have_count(3)
    site.chips.nth(0).press("F2")
    expect(menu.get_by_role("checkbox", name="In any form")).to_be_checked()
    menu.get_by_role("radio", name="If it fits").check()
    site.editor.press("Escape")
    expect(site.chips.nth(0)).to_have_accessible_name("love, any form, 1 of 3")


def test_a_lock_between_chips_keeps_them_in_order(site: Site) -> None:
    site.type("rice", "back", "love", "!very")
    locks = site.page.locator(".lock:visible")
    expect(locks).to_have_count(2)  # what is never used has no place
    expect(site.page.get_by_role("button", name="Keep rice before back")).to_have_attribute("aria-pressed", "true")
    site.button("Keep rice before back").press("Space")
    site.says("rice and back: in any order.")
    site.write()
    assert site.bodies[-1]["constraints"] == ["[rice; back > love]", "!very"]
    site.button("Fix the order").click()
    site.write()
    assert site.bodies[-1]["constraints"] == ["rice", "back", "love", "!very"]
    site.button("Free the order").click()
    site.type("a;b")  # two words, free as the others
    site.write()
    assert site.bodies[-1]["constraints"] == ["[rice; back; love; a; b]", "!very"]
    link = site.page.url
    site.page.goto("about:blank")
    site.page.goto(link)
    site.finished()
    expect(site.page.locator(".lock[aria-pressed=false]:visible")).to_have_count(4)
    assert site.bodies[-1] == site.bodies[-2]


def test_the_answer_tells_which_forms_and_which_order_were_chosen(site: Site, server: Command) -> None:
    asked = "[~love; rice|beans; back; ?very]"
    best = server.client.post("/v1/generate", json={"constraints": asked}).json()["results"][0][0]
    site.entry.fill(asked)
    site.entry.press("Enter")
    site.write()
    assert site.bodies[-1]["constraints"] == [asked]
    chosen = site.page.locator("[data-part=chosen]")
    expect(chosen).to_contain_text(re.compile(r"^Chosen: .*\.$"))
    said = chosen.inner_text()
    assert f"{best['constraints'][best['order'].index(1)]} for rice or beans" in said
    assert ("in the order" in said) == (best["order"] != sorted(best["order"]))
    assert ("without very" in said) == (3 not in best["order"])
    site.says(said)
    for word in site.line.locator("strong").all_inner_texts():
        assert word.lower() in " ".join(best["constraints"]).lower()


def test_a_length_is_off_until_the_slider_is_moved_or_one_is_typed(site: Site) -> None:
    length = site.page.get_by_role("slider", name="Length")
    expect(length).to_have_attribute("aria-valuetext", "any")
    site.type("rice", "back")
    site.write()
    assert site.bodies[-1]["options"] == {}
    length.fill("9")
    expect(length).to_have_attribute("aria-valuetext", "8 to 10 words")
    site.write()
    assert site.bodies[-1]["options"] == {"length": "8-10"}
    assert 8 <= len(site.line.inner_text().split()) <= 10
    site.type("=12-16")
    expect(site.chips).to_have_count(2)
    expect(length).to_have_value("14")
    length.fill("1")
    site.type("love")
    site.write()
    expect(site.page.locator("[data-part=remark]")).to_contain_text("The length could not be reached")


ENTRIES = [
    "~buy; new york|nyc; ?very; !the", "[~catch; dog; frisbee > park]; !the", 'river; [a; b]; "a;b"; 1,000 people',
    '["a; b"; ?"c > d"; {new york|nyc} city]', "[[a; b] > c; d]", "=2 sentences; rice",
]  # fmt: skip


def test_entries_survive_chips_and_mean_what_the_parser_says(site: Site) -> None:
    folded = """async (text) => {
        const language = await import('/static/language.js');
        return language.folded(language.unfolded(language.entriesOf(text)));
    }"""
    rewritten = """async (text) => {
        const { entriesOf, isCompound, read, write } = await import('/static/language.js');
        return entriesOf(text).map((entry) => (isCompound(entry) ? entry : write(read(entry))));
    }"""
    for text in ENTRIES:
        for script in (folded, rewritten):
            assert parse(site.page.evaluate(script, text)) == parse(text.replace("1,000", '"1,000"'))


# ---------------------------------------------------------------------------------------------------------------------
# Texts


def test_a_text_grows_stage_by_stage_and_can_be_scrubbed_and_replayed(site: Site, server: Command) -> None:
    words = ["river", "new york", "church"]
    best = server.client.post("/v1/generate", json={"constraints": words}).json()["results"][0][0]
    last = len(best["stages"]) - 1 - (best["stopped"] == "converged")  # a last one that adds nothing is not shown
    assert last > 1
    site.page.emulate_media(reduced_motion="no-preference")
    site.page.clock.install()
    site.open()
    site.type(*words)
    site.button("Write").click()
    expect(site.line).to_have_text(re.compile("^river new york church$", re.IGNORECASE))
    site.says(re.compile(rf"after {last} stages"))
    site.page.clock.run_for(HURRY)
    expect(site.slider).to_have_value(str(last))  # whoever has waited for the server does not wait again
    site.page.clock.pause_at(site.page.evaluate("Date.now()") + 1000)  # from here on only the test moves time
    site.button("Play again").click()
    for stage in range(1, last + 1):
        site.page.clock.run_for(PACE)
        expect(site.slider).to_have_value(str(stage))
        new = [token for token in best["stages"][stage] if token["new"]]
        assert (site.line.locator(".word.new:not(.ghost)").count() > 0) == bool(new)
        assert " ".join(site.line.locator("strong:not(.ghost)").all_inner_texts()).lower() == "river new york church"
    site.finished()
    expect(site.line.locator(".ghost")).to_have_count(0)
    assert site.line.inner_text() == best["text"]
    assert len(site.page.locator(".ticks li").all()) == last + 1

    site.slider.press("Home")
    expect(site.page.locator("[data-part=caption]")).to_have_text("Your words · 4 words")
    assert site.slider.get_attribute("aria-valuetext") == "Your words, 4 words"
    expect(site.line.locator(".ghost")).to_have_count(0)
    expect(site.line.locator(".word")).to_have_count(4)
    site.slider.press("ArrowRight")
    expect(site.slider).to_have_value("1")
    expect(site.page.locator("[data-part=caption]")).to_contain_text(f"Stage 1 of {last}")
    assert site.line.evaluate("(line) => line.getAnimations({ subtree: true }).length") == 0  # a hand does not wait
    site.slider.press("End")
    site.button("Play again").click()
    expect(site.slider).to_have_value("0")
    site.page.clock.run_for(PACE)
    expect(site.slider).to_have_value("1")
    site.slider.press(" ")
    site.page.clock.run_for(5 * PACE)
    expect(site.slider).to_have_value("1")
    site.page.get_by_text("All stages").click()
    site.button(f"Go to stage {last} of {last}").click()
    expect(site.slider).to_have_value(str(last))
    assert len(site.bodies) == 1


def test_an_example_runs_and_start_over_brings_the_examples_back(site: Site) -> None:
    site.page.get_by_role("button", name="library · quiet · rainy afternoon").click()
    site.finished()
    assert site.bodies[-1] == {"constraints": ["library", "quiet", "rainy afternoon"], "model": "tiny", "options": {}}
    expect(site.page.locator("#empty")).to_be_hidden()
    site.button("Start over").click()
    expect(site.page.locator("#empty")).to_be_visible()
    expect(site.page.locator("#result")).to_be_hidden()
    assert site.values() == [] and "#" not in site.page.url


def test_a_last_stage_that_adds_nothing_is_not_shown(site: Site) -> None:
    first, grown = [{"token": "rice", "new": False}], [{"token": "rice", "new": False}, {"token": "!", "new": True}]
    again = [token | {"new": False} for token in grown]
    stages = [first, grown, again]
    best = {"text": "Rice!", "spans": [[0, 4]], "stages": stages, "tokens": ["rice", "!"], "score": -1.0}
    best |= {
        "stopped": "converged",
        "constraints": ["rice"],
        "missing": [],
        "asked": ["rice"],
        "order": [0],
        "remark": "",
    }
    events = [("stage", {"stage": k, "tokens": stages[k], "text": "Rice!", "constraints": ["rice"]}) for k in range(3)]
    body = "".join(
        f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in [*events, ("done", {"results": [[best]]})]
    )
    site.page.route(STREAM, lambda route: route.fulfill(body=body, headers={"Content-Type": "text/event-stream"}))
    site.type("rice")
    site.write()
    expect(site.page.locator("[data-part=caption]")).to_have_text("Stage 1 of 1 · 1 word · finished")
    expect(site.page.locator(".ticks li")).to_have_count(2)


def test_a_text_can_be_taken_away_as_text_json_or_picture(site: Site) -> None:
    site.type("new york", "<b>&")
    site.write()
    text = site.line.inner_text()

    def taken(name: str) -> str:
        with site.page.expect_download() as download:
            site.button(name).click()
        return download.value.path().read_text("utf-8")

    assert taken("text") == text + "\n"
    found = json.loads(taken("JSON"))
    assert found["text"] == text and found["stages"] and "words" not in found
    drawn = ElementTree.fromstring(taken("picture of the stages"))
    words = [one.text or "" for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert words[0] == "Your words" and {"<b>&", "Stage 1"} <= set(words)
    assert [word for word in words[words.index("Stage 1") + 1 :] if word][-1] in text


def test_the_styles_of_a_model_are_kinds_of_text(site: Site) -> None:
    def answer(route: "Route") -> None:
        found = route.fetch().json()
        found["models"] = [
            found["models"][0] | {"name": "tiny", "styles": ["everyday", "wiki"]},
            found["models"][0] | {"name": "wiki"},
        ]
        route.fulfill(json=found)

    site.page.route("**/v1/models", answer)
    site.open()
    kind = site.page.get_by_role("combobox", name="Kind of text")
    assert kind.locator("option").all_inner_texts() == [
        "Short everyday sentences", "Encyclopedia sentences", "Encyclopedia sentences (small model)",
    ]  # fmt: skip
    kind.select_option("Encyclopedia sentences")
    site.page.route(STREAM, refuse(422, "style: expected none."))
    site.type("river")
    site.button("Write").click()
    until(lambda: len(site.bodies) == 1)
    assert site.bodies[-1] == {"constraints": ["river"], "model": "tiny", "options": {"style": "wiki"}}


def test_another_model_writes_another_text(site: Site) -> None:
    site.type("river", "church")
    site.write()
    before = site.line.inner_text()
    site.page.get_by_role("combobox", name="Kind of text").select_option("converted")
    site.write()
    assert site.bodies[-1]["model"] == "converted"
    expect(site.line).not_to_have_text(before)
    assert [word.lower() for word in site.line.locator("strong").all_inner_texts()] == ["river", "church"]


def test_sampling_gives_several_texts_to_choose_and_copy_from(site: Site) -> None:
    site.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    site.type("river", "church")
    site.page.get_by_role("radio", name="Varied").check(force=True)  # its label covers it
    expect(site.page.get_by_role("group", name="How to write")).to_have_accessible_description(
        re.compile("^Varied leaves")
    )
    site.page.get_by_role("spinbutton", name="Texts").fill("2")
    site.write()
    assert site.bodies[-1]["options"] == {"decoding": "sample", "n": 2, "temperature": 0.7}
    cards = site.page.get_by_role("list", name="Candidates").get_by_role("button")
    expect(cards).to_have_count(2)
    cards.nth(1).click()
    expect(cards.nth(1)).to_have_attribute("aria-pressed", "true")
    chosen = cards.nth(1).locator(".row").inner_text()
    assert site.line.inner_text() == chosen
    site.button("Copy text").click()
    expect(site.button("Copied")).to_be_visible()
    assert site.page.evaluate("navigator.clipboard.readText()") == chosen

    site.page.get_by_role("slider", name="Boldness").fill("1")
    site.button("Another").click()
    until(lambda: len(site.bodies) == 2)
    assert site.bodies[-1]["options"] == {"decoding": "sample", "n": 2, "temperature": 1, "seed": 1}


def test_advanced_options_reach_the_server_and_beams_are_as_wide_as_they_must(site: Site) -> None:
    site.type("river", "church")
    site.page.get_by_role("radio", name="Thorough").check(force=True)
    site.page.get_by_role("spinbutton", name="Texts").fill("5")
    site.page.get_by_text("More options").click()
    site.page.get_by_role("spinbutton", name="Most stages").fill("2")
    site.page.get_by_role("checkbox", name="Begin with my first word").check()
    expect(site.page.locator("#changed")).to_have_text("2 changed")
    site.write()
    options = {"max_stages": 2, "lock_start": True}
    assert site.bodies[-1]["options"] == {"decoding": "beam", "n": 5, "width": 5, **options}
    assert site.line.inner_text().lower().startswith("river")
    site.button("Back to the defaults").click()
    site.button("Write").click()
    until(lambda: len(site.bodies) == 2)
    assert site.bodies[-1]["options"] == {"decoding": "beam", "n": 5, "width": 5}


def test_a_link_restores_everything_and_runs_once(site: Site, new_site: Callable[[str], Site]) -> None:
    site.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    site.type("New York", "a; b & c=d #1", "ice cream")
    site.chips.nth(1).click()
    site.editor.fill("a; b & c=d #1")
    site.editor.press("Enter")
    site.page.get_by_role("combobox", name="Kind of text").select_option("converted")
    site.page.get_by_role("radio", name="Varied").check(force=True)
    site.page.get_by_role("spinbutton", name="Texts").fill("2")
    site.page.get_by_text("More options").click()
    site.page.get_by_role("spinbutton", name="Seed").fill("7")
    site.page.get_by_role("checkbox", name="End with my last word").check()
    site.write()
    asked, text, values = site.bodies[-1], site.line.inner_text(), site.values()
    site.button("Copy link").click()
    expect(site.button("Link copied")).to_be_visible()
    link = site.page.evaluate("navigator.clipboard.readText()")
    assert link == site.page.url

    site.page.evaluate("sessionStorage.clear()")
    site.page.goto("about:blank")
    site.asked.clear()
    site.page.goto(link)
    site.finished()
    assert site.values() == values and site.bodies == [asked]
    expect(site.line).to_have_text(text)
    expect(site.page.get_by_role("spinbutton", name="Seed")).to_have_value("7")
    expect(site.page.locator("#more")).to_have_attribute("open", "")


def test_a_link_to_a_model_that_is_not_there_says_so_and_uses_another(site: Site) -> None:
    site.page.goto("about:blank")
    site.open("#c=river&c=church&model=novels")
    site.finished()
    expect(site.page.locator("#notice")).to_contain_text('the model "novels", which this server does not have')
    assert site.bodies[-1]["model"] == "tiny"


def test_what_looks_like_markup_stays_text(site: Site) -> None:
    site.type("<img src=x onerror=alert(1)>", "<b>rice</b>")
    site.write()
    assert "<img src=x onerror=alert(1)>" in site.line.inner_text()
    expect(site.page.locator("img, main b:not(.cards b, .example b)")).to_have_count(0)


# ---------------------------------------------------------------------------------------------------------------------
# When it does not work


def test_too_many_words_are_refused_in_place_and_kept(site: Site) -> None:
    words = [f"word{number}" for number in range(65)]
    site.entry.fill(";".join(words))
    site.entry.press("Enter")
    site.button("Write").click()
    expect(site.alert).to_contain_text("Expected at most 64 constraints in one list on this server, found 65.")
    assert site.values() == words
    expect(site.button("Try again")).to_have_count(0)  # it would fail again
    site.chips.last.press("Delete")
    site.chips.last.press("Delete")
    site.button("Write").click()  # 63 words fit into the limit, but not into 64 positions
    expect(site.alert).to_contain_text("Expected constraints of at most 64 tokens")
    assert len(site.values()) == 63


def test_a_wrong_option_is_pointed_at(site: Site) -> None:
    site.type("river")
    site.page.get_by_text("More options").click()
    most = site.page.get_by_role("spinbutton", name="Most tokens")
    most.fill("2")
    site.page.get_by_text("More options").click()
    site.button("Write").click()
    expect(site.alert).to_contain_text("\u201cMost tokens\u201d: expected a number from 3 to 512, found 2.")
    expect(most).to_be_visible()
    expect(most).to_have_attribute("aria-invalid", "true")
    most.fill("20")
    site.write()
    expect(site.alert).to_be_hidden()
    expect(most).not_to_have_attribute("aria-invalid", "true")


def test_without_words_nothing_is_sent(site: Site) -> None:
    site.button("Write").click()
    expect(site.alert).to_contain_text("There are no words yet.")
    assert not site.bodies


STREAM = "**/v1/generate/stream"


def refuse(status: int, message: str, kind: str = "Refused", **headers: str) -> "Callable[[Route], None]":
    body = json.dumps({"error": {"type": kind, "message": message, "hint": "Patience."}})
    return lambda route: route.fulfill(status=status, body=body, headers=headers | {"Content-Type": "application/json"})


def test_a_busy_server_is_asked_again_after_the_seconds_it_names(site: Site) -> None:
    site.page.clock.install()
    site.open()
    site.page.route(STREAM, refuse(429, "The server is busy.", **{"Retry-After": "7"}), times=1)
    site.type("river", "church")
    site.button("Write").click()
    expect(site.alert).to_contain_text("The server is busy. Patience.", use_inner_text=True)
    expect(site.button("Try again in 7 s")).to_be_disabled()
    site.page.clock.run_for(3000)
    expect(site.button("Try again in 4 s")).to_be_disabled()
    site.page.clock.run_for(4000)
    site.button("Try again").click()
    site.finished()
    expect(site.alert).to_be_hidden()


def test_a_starting_server_is_waited_for(new_site: Callable[[str], Site], server: Command) -> None:
    site = new_site(server.url)
    opening = refuse(503, "The model is being opened.", "Starting", **{"Retry-After": "1"})
    site.page.route("**/v1/models", opening, times=1)
    site.page.goto(site.url)
    expect(site.page.locator("#notice")).to_have_text("The server is starting. This page goes on by itself.")
    expect(site.page.get_by_role("combobox", name="Kind of text")).to_be_enabled()
    expect(site.page.locator("#notice")).to_be_hidden()


def test_a_key_is_asked_for_and_kept_for_the_tab(new_site: Callable[[str], Site], server: Command) -> None:
    site = new_site(server.url)

    def guard(route: "Route") -> None:
        known = route.request.headers.get("authorization") == "Bearer sesame"
        route.fallback() if known else refuse(401, "Expected a key.")(route)

    site.page.route("**/v1/**", guard)
    site.page.goto(site.url)
    expect(site.alert).to_contain_text("This server asks for a key.")
    key = site.page.get_by_role("textbox", name="Key")
    expect(key).to_be_focused()
    key.fill("guess")
    key.press("Enter")
    expect(site.alert).to_contain_text("The server does not know this key.")
    key.fill("sesame")
    key.press("Enter")
    expect(site.page.get_by_role("combobox", name="Kind of text")).to_be_enabled()
    expect(site.alert).to_be_hidden()
    site.type("river", "church")
    site.write()
    site.page.reload()
    expect(site.page.get_by_role("combobox", name="Kind of text")).to_be_enabled()


def test_a_lost_connection_keeps_the_words_and_can_be_tried_again(site: Site) -> None:
    site.page.route(STREAM, lambda route: route.abort("connectionrefused"), times=1)
    site.type("river", "church")
    site.button("Write").click()
    expect(site.alert).to_contain_text("The server cannot be reached.")
    tokens = [{"token": "river", "new": False}, {"token": "church", "new": False}]
    stage = {"stage": 0, "tokens": tokens, "text": "River church", "constraints": ["river", "church"]}
    broken = f"event: stage\ndata: {json.dumps(stage)}\n\nevent: sta"
    site.page.route(
        STREAM, lambda route: route.fulfill(body=broken, headers={"Content-Type": "text/event-stream"}), times=1
    )
    site.button("Try again").click()
    expect(site.alert).to_contain_text("The connection broke off before the text was finished.")
    expect(site.line).to_have_text("River church")
    site.button("Try again").click()
    site.finished()
    assert site.values() == ["river", "church"]
    expect(site.alert).to_be_hidden()


def test_a_request_can_be_stopped_and_never_runs_twice_at_once(new_site: Callable[[str], Site], tmp_path: Path) -> None:
    turnstile = Turnstile(small_vocabulary(tmp_path))
    with running(lambda: turnstile.pointer) as found:
        turnstile.close()
        site = new_site(found.url)
        site.open()
        site.type("rice", "back")
        site.entry.press("Enter")  # an empty entry: write
        expect(site.button("Stop")).to_be_visible()
        site.entry.press("Enter")
        site.entry.press("Enter")
        turnstile.permit()
        expect(site.slider).to_have_value("1")  # the first stage is there while the second is being made
        with site.page.expect_event("requestfailed"):  # the page gives the request up, whenever the browser says so
            site.button("Stop").click()
        expect(site.button("Write")).to_be_visible()
        expect(site.page.locator("#notice")).to_have_text("Stopped. Your words are kept.")
        assert len(site.bodies) == 1
        assert site.values() == ["rice", "back"]
        expect(site.line.locator("strong")).to_have_count(2)
        turnstile.open()
        site.write()
        assert len(site.bodies) == 2


# ---------------------------------------------------------------------------------------------------------------------
# Looks


def test_on_a_phone_the_text_is_in_view_and_the_box_has_no_empty_row(site: Site) -> None:
    site.page.set_viewport_size({"width": 390, "height": 844})
    site.page.goto("about:blank")
    site.page.goto(f"{site.url}#c=river&c=church&c=century&length=8-10")
    site.finished()
    expect(site.line).to_be_in_viewport(ratio=1)
    assert site.page.evaluate("scrollY") == 0
    rows = "(box) => [...new Set([...box.querySelectorAll('.chip')].map((chip) => chip.offsetTop))].length"
    box = site.page.locator("#box")
    assert box.evaluate("(box) => box.clientHeight") < 44 * box.evaluate(rows) + 40
    site.page.get_by_text("Your words", exact=True).first.click()
    expect(site.entry).to_be_focused()
    site.entry.press_sequentially("music")
    site.entry.press("Enter")
    expect(site.chips).to_have_count(4)


def test_a_phone_scrolls_in_one_direction_and_has_room_for_fingers(site: Site) -> None:
    site.page.set_viewport_size({"width": 390, "height": 844})
    site.page.goto("about:blank")
    site.page.goto(
        site.url
        + "#c=New+York&c=prime+minister&c=an+unusuallylongwordthatdoesnotfitanywhere&decoding=sample&n=2&max_stages=11"
    )
    site.finished()
    site.page.get_by_text("All stages").click()
    site.chips.first.click()
    assert site.page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(site.page.get_by_role("dialog")).to_be_in_viewport(ratio=1)
    small = site.page.evaluate(
        """() => [...document.querySelectorAll("button, summary, select, input:not([type=checkbox]), .checks label")]
            .filter((one) => one.checkVisibility({ opacityProperty: true }) && !one.matches("[type=radio]"))
            .filter((one) => one.getBoundingClientRect().height < 44)
            .map((one) => one.outerHTML)"""
    )
    assert small == []
    site.page.keyboard.press("Escape")
    site.page.set_viewport_size({"width": 320, "height": 600})
    assert site.page.evaluate("document.documentElement.scrollWidth") <= 320
    site.page.get_by_role("link", name="the API").click()
    expect(site.page.get_by_text('"/v1/generate"')).to_be_visible()


def test_dark_mode_is_the_systems_until_it_is_chosen_and_then_kept(site: Site) -> None:
    def ground() -> str:
        return str(site.page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = ground()
    toggle = site.button("Dark mode")
    expect(toggle).to_have_attribute("aria-pressed", "false")
    site.page.emulate_media(color_scheme="dark")
    expect(toggle).to_have_attribute("aria-pressed", "true")
    dark = ground()
    toggle.click()
    assert ground() == light != dark
    site.page.emulate_media(color_scheme="light")
    toggle.click()
    site.page.reload()
    expect(toggle).to_have_attribute("aria-pressed", "true")
    assert ground() == dark


CONTRASTS = """() => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const light = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
            .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (one) => {
        const colour = getComputedStyle(one).backgroundColor;
        return colour === "rgba(0, 0, 0, 0)" && one.parentElement ? ground(one.parentElement) : colour;
    };
    const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const isText = (one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    return [...document.querySelectorAll("body *")]
        .filter((one) => one.checkVisibility({ visibilityProperty: true }) && isText(one))
        .map((one) => [ratio(light(getComputedStyle(one).color), light(ground(one))), one.outerHTML])
        .filter(([found]) => found < 4.5);
}"""


def test_all_text_has_contrast(site: Site) -> None:
    def check() -> None:
        for scheme in ("light", "dark"):
            site.page.emulate_media(color_scheme=scheme)
            assert site.page.evaluate(CONTRASTS) == []

    check()
    site.open("#c=New+York&c=prime+minister&decoding=sample&n=2&max_stages=11")
    site.finished()
    site.page.get_by_text("All stages").click()
    site.page.get_by_role("button", name="Go to stage 1").click()
    assert site.line.locator(".new").count() > 0
    check()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """axe-core, from npm; without it the test is skipped, but not in CI."""
    folder = tmp_path_factory.mktemp("axe")
    npm = shutil.which("npm")
    command = [npm or "npm", "install", "--silent", "--no-save", "--prefix", str(folder), f"axe-core@{AXE}"]
    if npm is None or subprocess.run(command, capture_output=True, timeout=300).returncode:
        reason = f"npm with axe-core {AXE} is needed"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


AXE = "4.10.3"


def test_axe_finds_nothing_serious(site: Site, axe: str) -> None:
    def check() -> None:
        site.page.evaluate(axe)
        found = site.page.evaluate("axe.run()")["violations"]
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert not serious, [(one["id"], [node["html"] for node in one["nodes"]]) for one in serious]

    check()
    site.type("~love", "?rice", "!very", "back")
    site.page.get_by_text("More options").click()
    site.write()
    site.page.get_by_text("All stages").click()
    check()
    site.page.emulate_media(color_scheme="dark")
    site.chips.first.click()
    check()


# ---------------------------------------------------------------------------------------------------------------------
# From tokens to words


def grown(*stages: str, constraints: list[str], text: str, spans: list[list[int]] | None = None) -> dict[str, Any]:
    """Stages as the server sends them; `+` marks what is new."""
    tokens = [[{"token": t.removeprefix("+"), "new": t.startswith("+")} for t in stage.split()] for stage in stages]
    return {"constraints": constraints, "stages": tokens, "text": text, "spans": spans or []}


GROWTHS = [
    (
        grown(
            "new york rice",
            "+un new york rice +.",
            "un +##heard new york +, rice .",
            constraints=["New York", "rice"],
            text="Unheard New York, rice.",
        ),
        ["<New York> <rice>", "+Un <New York> <rice>+.", "+Unheard <New York>+, <rice>."],
    ),
    (
        grown("[UNK] [UNK] cafe", "[UNK] [UNK] +( cafe +)", constraints=["🍕 ☃", "Café"], text="🍕 ☃ (Café)"),
        ["<🍕 ☃> <Café>", "<🍕 ☃> +(<Café>+)"],
    ),
    (  # late - 19th: no hyphen yet, so a space
        grown("war", "war +late +19th", "war late +- 19th", constraints=["war"], text="War late-19th"),
        ["<War>", "<War> +late +19th", "<War> late+-19th"],
    ),
    (  # the preset `released` does not mark what is new
        grown("rice", "the rice is", constraints=["rice"], text="The rice is"),
        ["<rice>", "+The <rice> +is"],
    ),
    (  # ... and shows what stands around a text
        grown("[CLS] rice", "[CLS] the rice [SEP]", constraints=["rice"], text="the rice"),
        ["<rice>", "+the <rice>"],
    ),
    (  # a text that is not what the tokens say is shown as it is
        grown(
            "rice back",
            "rice +is back",
            constraints=["rice", "back"],
            text="🍕 Rice, back!",
            spans=[[2, 6], [8, 12]],
        ),
        ["<rice> <back>", "🍕 <Rice,> <back!>"],
    ),
]


def test_tokens_become_words(site: Site) -> None:
    readable = "async (growth) => (await import('/static/words.js')).readable(growth)"
    for growth, expected in GROWTHS:
        shown = [drawn(words) for words in site.page.evaluate(readable, growth)]
        assert shown[1:] == expected[1:] and shown[0].lower() == expected[0].lower()


def drawn(words: list[dict[str, Any]]) -> str:
    """The words of a stage on one line: `<constraint>`, `+new`."""
    text, inside = "", False
    for word in words:
        is_key = word["constraint"] is not None
        text += "" if word["glued"] else " "
        text += "+" if word["isNew"] else ""
        text += "<" if is_key and not inside else ""
        inside = is_key and word["goesOn"]
        text += word["text"] + (">" if is_key and not inside else "")
    return text.strip()
