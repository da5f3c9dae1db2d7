"""How a text that grows is drawn: on a terminal, on a page, in a notebook, at a Python prompt."""

import io
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from pointer.decoding.generator import Generation
from pointer.picture import stage_page, stage_table
from pointer.stage import Stage, Token


def stage(*words: str) -> Stage:
    """Words as tokens; `+` marks the new ones."""
    return tuple(Token(word.removeprefix("+"), word.startswith("+")) for word in words)


STAGES = (
    stage("dog", "park"),
    stage("+a", "dog", "+jump", "park"),
    stage("a", "dog", "+quick", "+##ly", "jump", "+##ing", "+<script>", "park", "+."),
    stage("a", "dog", "quick", "##ly", "jump", "##ing", "<script>", "park", "."),
)
TEXT = "A dog quickly jumping <script> park."


@pytest.fixture
def generation() -> Generation:
    tokens = tuple(token.text for token in STAGES[-1])
    return Generation(TEXT, tokens, ((2, 5), (31, 35)), STAGES, -0.5, "converged", ("dog", "park"))


class Drawn(HTMLParser):
    """The cells of a drawing, and the words in each tag."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[str] = []
        self.tagged: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        if tag in ("p", "td"):
            self.rows.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "tags are closed in order"

    def handle_data(self, data: str) -> None:
        assert "script" not in self.open and "style" not in self.open
        self.tagged.setdefault(self.open[-1], []).append(data)
        if {"p", "td"} & {*self.open}:
            self.rows[-1] += data


def test_a_notebook_shows_the_text_and_every_stage_that_adds_something(generation: Generation) -> None:
    drawn = Drawn(generation._repr_html_())
    assert not drawn.open
    assert drawn.rows == [TEXT, "dog park", "a dog jump park", "a dog quickly jumping <script> park ."]
    assert drawn.tagged["th"] == ["0", "1", "2"]


def test_a_notebook_underlines_constraints_and_colours_what_is_new(generation: Generation) -> None:
    drawn = Drawn(generation._repr_html_())
    assert drawn.tagged["u"] == ["dog", "park"] * 4, "in the text and in all three stages"
    assert drawn.tagged["b"] == ["a", "jump", "quickly", "jumping", "<script>", "."]


def test_letters_in_a_notebook_keep_the_colour_of_its_theme(generation: Generation) -> None:
    styles = re.findall(r'style="([^"]*)"', generation._repr_html_())
    rules = [tuple(map(str.strip, rule.split(":"))) for style in styles for rule in style.split(";")]
    assert {value for name, value in rules if name == "color"} == {"inherit"}
    [colour] = {value for name, value in rules if name == "background"}
    assert re.fullmatch(r"rgba\(.*, \.\d+\)", colour), "the theme shines through"


def test_a_prompt_shows_a_line_and_print_the_text(generation: Generation) -> None:
    shown = "constraints=['dog', 'park'], stages=4, score=-0.5, stopped='converged'"
    assert repr(generation) == f"Generation({TEXT!r}, {shown})"
    assert str(generation) == TEXT


def test_a_terminal_and_a_page_show_the_same_stages() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(stage_table(STAGES))
    assert isinstance(console.file, io.StringIO)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert [line[0] for line in lines] == ["X0", "X1", "X2"] and lines[1][1:] == ["a", "dog", "jump", "park"]
    page = stage_page(STAGES, TEXT)
    assert page.count("<li>") == 3 and "<script>" not in page and page.count('class="new"') == 6


def test_stages_that_lose_words_at_their_end_are_drawn_too() -> None:
    """The preset `released` cuts at its length limit."""
    cut = Generation("a dog", ("a", "dog"), (), (stage("dog", "park"), stage("+a", "dog")), 0.0, "max_length")
    assert Drawn(cut._repr_html_()).rows == ["a dog", "dog park", "a dog"]


def test_constraints_to_which_nothing_is_added_are_one_stage() -> None:
    bare = Generation("dog", ("dog",), ((0, 3),), (stage("dog"), stage("dog")), 0.0, "converged", ("dog",))
    assert Drawn(bare._repr_html_()).rows == ["dog", "dog"]
