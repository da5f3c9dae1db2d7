"""A text growing stage by stage, as a table on a terminal or as a page to share."""

import html
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from pointer.stage import Token, words_of


def stage_table(stages: Sequence[Sequence[Token]]) -> Table:
    """The paper's Table 1: a row a stage, new words in colour."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for k, stage in enumerate(stages):
        line = Text(" ").join(
            Text(word.text, style="bold bright_cyan" if word.new and k else "") for word in words_of(stage)
        )
        table.add_row(f"X{k}", line)
    return table


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
    for k, stage in enumerate(stages):
        spans = []
        for word in words_of(stage):
            kind = "key" if k == 0 else "new" if word.new else ""
            spans.append(f'<span class="{kind}">{html.escape(word.text)}</span>' if kind else html.escape(word.text))
        rows.append(f"<li><b>X<sup>{k}</sup></b><span>{' '.join(spans)}</span></li>")
    return _PAGE.format(title=html.escape(title), stages="\n".join(rows))
