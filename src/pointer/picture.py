"""A text growing stage by stage: as a table on a terminal, as a page to share, and inside a notebook."""

import html
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from pointer.stage import Token

NEW = "background: rgba(64, 140, 255, .24); border-radius: .3em; padding: 0 .2em; font-weight: inherit"
"""Of a new word in a notebook. The letters keep the notebook's own colour, so they can be read on light and on dark."""
KEY = "text-decoration: underline; text-decoration-color: #d97706; text-decoration-thickness: 2px"
"""Of a constraint in a notebook."""


class Word(NamedTuple):
    """A word of a stage as it is drawn."""

    text: str
    new: bool
    """Did this stage insert it, or a piece of it?"""
    key: bool
    """Does it stand in X^0?"""


def drawn_stages(stages: Sequence[Sequence[Token]]) -> Iterator[tuple[int, list[Word]]]:
    """The number and the words of every stage, but for those that add nothing: they only say that the text is finished.

    >>> for k, words in drawn_stages([[Token("heard", False)], [Token("un", True), Token("##heard", False)]]):
    ...     print(k, words)
    0 [Word(text='heard', new=False, key=True)]
    1 [Word(text='unheard', new=True, key=True)]
    """
    keys: list[bool] = [True] * len(stages[0])
    for k, stage in enumerate(stages):
        if k:
            kept = iter(keys)
            keys = [not token.new and next(kept) for token in stage]
        words: list[Word] = []
        for token, key in zip(stage, keys, strict=True):
            word = Word(token.text, token.new and k > 0, key)
            if token.text.startswith("##") and words:
                before = words.pop()
                word = Word(before.text + token.text[2:], before.new or word.new, before.key or word.key)
            words.append(word)
        if k == 0 or any(word.new for word in words):
            yield k, words


def stage_table(stages: Sequence[Sequence[Token]]) -> Table:
    """The paper's Table 1: a row a stage, new words in colour."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for k, words in drawn_stages(stages):
        line = Text(" ").join(Text(word.text, style="bold bright_cyan" if word.new else "") for word in words)
        table.add_row(f"X{k}", line)
    return table


def stage_fragment(stages: Sequence[Sequence[Token]], text: str, spans: Sequence[tuple[int, int]]) -> str:
    """A text with its constraints underlined, and under it the stages, new words in colour: HTML for a notebook.

    Styles stand in the tags, as some notebooks take out all others; where they take out these as well, `<u>` and `<b>`
    still tell.
    """
    written, at = "", 0
    for start, end in spans:
        written += f"{html.escape(text[at:start])}{_tagged('u', KEY, text[start:end])}"
        at = end
    written += html.escape(text[at:])
    rows = []
    for k, words in drawn_stages(stages):
        line = " ".join(_word(word) for word in words)
        left = "text-align: left; vertical-align: top"
        rows.append(f'<tr><th scope="row" style="{left}; opacity: .7">{k}</th><td style="{left}">{line}</td></tr>')
    caption = '<caption style="text-align: left; opacity: .7">Stages</caption>'
    table = f'<table style="color: inherit">{caption}{"".join(rows)}</table>'
    return f'<div><p style="font-size: 1.15em; margin: .3em 0">{written}</p>{table}</div>'


def _word(word: Word) -> str:
    if word.new:
        return _tagged("b", NEW, word.text)
    return _tagged("u", KEY, word.text) if word.key else html.escape(word.text)


def _tagged(tag: str, style: str, text: str) -> str:
    return f'<{tag} style="{style}">{html.escape(text)}</{tag}>'


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>
body {{ font: 17px/1.6 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem;
       color: #1c2330; background: #fbfbf9; }}
h1 {{ font-size: 1.2rem; font-weight: 600; }}
ol {{ list-style: none; padding: 0; }}
li {{ display: flex; gap: 1rem; padding: .55rem 0; border-top: 1px solid #e4e4de; }}
li > b {{ flex: 0 0 2.2rem; color: #8a8f98; font-weight: 500; }}
.new {{ color: #0b63c4; background: #e3effc; border-radius: .3em; padding: 0 .2em; }}
.key {{ color: #8a4b00; font-weight: 600; }}
@media (prefers-color-scheme: dark) {{
  body {{ color: #e6e8ec; background: #14171c; }} li {{ border-color: #2b3038; }}
  .new {{ color: #8cc2ff; background: #1b324d; }} .key {{ color: #ffbe7a; }}
}}
</style></head><body><h1>{title}</h1><ol>
{stages}
</ol></body></html>
"""


def stage_page(stages: Sequence[Sequence[Token]], title: str) -> str:
    """The stages as one self-contained HTML page: the skeleton in one colour, what each stage adds in another."""
    rows = []
    for k, words in drawn_stages(stages):
        spans = []
        for word in words:
            kind = "key" if k == 0 else "new" if word.new else ""
            spans.append(f'<span class="{kind}">{html.escape(word.text)}</span>' if kind else html.escape(word.text))
        rows.append(f"<li><b>X<sup>{k}</sup></b><span>{' '.join(spans)}</span></li>")
    return _PAGE.format(title=html.escape(title), stages="\n".join(rows))
