"""What a newcomer sees first: the moving picture, the text in the README, the outputs of the notebook.

    python recipes/first_screen.py --read     # prints a text for every list of examples/demo-candidates.txt
    python recipes/first_screen.py            # draws docs/growing.svg and writes README.md and the notebook anew
    python recipes/first_screen.py --check    # fails if the README says anything else than the present model writes

The lists of `make demo`, examples/demo.txt, were chosen by reading what `--read` printed. All of it needs
`pointer fetch smollm2`; the notebook needs `pip install ".[dev]"`.
"""

import argparse
import contextlib
import io
import os
import re
import sys
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pointer import Generation, Pointer

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "growing.svg"
BLOCK = re.compile(r"(```python\n(.*?)```\n\n```text\n)(.*?)(```)", re.DOTALL)
"""Python in the README, and what it prints."""

STEP, MOVE, HOLD = 0.55, 0.3, 3.0
"""Seconds between two words, for words to make room, and to read the text before all begins again."""
LETTER, LINE, EDGE = 11, 20, 26
"""Width of a letter, its size, and the margin, in pixels."""
STYLE = """
  svg { --text: #1c2330; --new: #0b63c4; --key: #d97706; }
  @media (prefers-color-scheme: dark) { svg { --text: #e6e8ec; --new: #8cc2ff; --key: #ffa94d; } }
  text { font: %dpx ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: var(--text); }
  .key { font-weight: bold; }
  .new { fill: var(--new); }
  rect { fill: var(--key); }
  @media (prefers-reduced-motion: reduce) { * { animation: none !important; } }
"""


class Word(NamedTuple):
    """A word or a mark of the finished text, or one of the user's phrases."""

    text: str
    key: bool
    """Is it one of the user's?"""
    born: int
    """The draft in which it appears."""


def words_of(drafts: list[Generation]) -> list[Word]:
    """The words of the last draft, each with the draft that it is born in.

    The writer goes from left to right, so what stands in a gap is only ever added to at its end.
    """
    gaps = [_gaps(draft) for draft in drafts]
    last, found = drafts[-1], []
    for number, gap in enumerate(gaps[-1]):
        for place, text in enumerate(gap):
            born = next(k for k, earlier in enumerate(gaps) if len(earlier[number]) > place)
            found.append(Word(text, False, born))
        if number < len(last.spans):
            start, end = last.spans[number]
            found.append(Word(last.text[start:end], True, 0))
    return found


def _gaps(draft: Generation) -> list[list[str]]:
    """The words and marks between the constraints, before the first and after the last."""
    ends = [0, *(edge for span in draft.spans for edge in span), len(draft.text)]
    return [re.findall(r"[\w'-]+|[^\w\s]", draft.text[a:b]) for a, b in zip(ends[::2], ends[1::2], strict=True)]


def picture(drafts: list[Generation]) -> str:
    """The drafts as a moving SVG: words make room for the one that comes. Without motion it shows the last."""
    words = words_of(drafts)
    beats = sorted({word.born for word in words})
    places = [_places(words, beat) for beat in beats]
    seconds = STEP * len(beats) + HOLD
    drawn, moves = [], []
    for number, word in enumerate(words):
        path = [place[number] for place in places]
        moves.append(_motion(number, path, beats.index(word.born), seconds))
        bar = f'<rect y="8" width="{LETTER * len(word.text)}" height="2"/>' if word.key else ""
        drawn.append(
            f'<g style="transform: translateX({path[-1]}px); animation: w{number} {seconds:.2f}s infinite">'
            f'<text class="{"key" if word.key else "new"}" textLength="{LETTER * len(word.text)}">'
            f"{escape(word.text)}</text>{bar}</g>"
        )
    width = 2 * EDGE + LETTER * len(drafts[-1].text)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 64" width="{width}" role="img">'
        f"<title>{escape(drafts[-1].text)}</title><style>{STYLE % LINE}{''.join(moves)}</style>"
        f'<g transform="translate({EDGE}, 38)">{"".join(drawn)}</g></svg>\n'
    )


def _places(words: list[Word], beat: int) -> list[int]:
    """Where each word stands in a draft; one that is still to come stands where it will appear."""
    places, at = [], 0
    for word in words:
        if not (word.key or word.text[0].isalnum()) and at:
            at -= LETTER  # a mark follows its word without a blank
        places.append(at)
        at += LETTER * (len(word.text) + 1) if word.born <= beat else LETTER * (not word.text[0].isalnum())
    return places


def _motion(number: int, path: list[int], born: int, seconds: float) -> str:
    """The keyframes of a word: it appears, and moves where another one needs room."""

    def frame(time: float, place: int, shown: bool) -> str:
        return f"{100 * time / seconds:.2f}% {{ transform: translateX({place}px); opacity: {shown:d}; }}\n"

    frames = [frame(0, path[0], born == 0)]
    for beat, (before, after) in enumerate(pairwise(path), 1):
        if before != after or beat == born:
            frames.append(frame(beat * STEP, before, beat > born or born == 0))
            frames.append(frame(beat * STEP + MOVE, after, beat >= born))
    frames.append(frame(seconds, path[-1], True))
    return f"@keyframes w{number} {{\n{''.join(frames)}}}\n"


def readme() -> str:
    """The README with what its Python prints now."""

    def run(block: re.Match[str]) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(block[2], {})
        return f"{block[1]}{printed.getvalue()}{block[4]}"

    return BLOCK.sub(run, README.read_text("utf-8"), count=1)


def run_notebook(path: Path) -> None:
    """Run a notebook and keep what it shows."""
    import nbformat
    from nbclient import NotebookClient

    os.environ["PYTHONWARNINGS"] = "ignore"  # a library misses a package for bars in notebooks, and says so
    notebook = nbformat.read(path, 4)
    NotebookClient(notebook, resources={"metadata": {"path": str(path.parent)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times
    nbformat.write(notebook, path)


def main() -> None:
    """Read, check or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--read", action="store_true", help="print a text for every candidate")
    parser.add_argument("--check", action="store_true", help="compare and change nothing")
    options = parser.parse_args()
    if options.read:
        lists = (EXAMPLES / "demo-candidates.txt").read_text("utf-8").splitlines()
        writer = Pointer.from_pretrained("writer")
        for asked in lists:
            print(f"{asked}\n    {writer.generate(asked, best_of=8)}", flush=True)
        return
    written = readme()
    if options.check:
        sys.exit(None if written == README.read_text("utf-8") else "README.md: the present model writes something else")
    README.write_text(written, "utf-8")
    first = (EXAMPLES / "demo.txt").read_text("utf-8").splitlines()[0]
    PICTURE.write_text(picture(list(Pointer.from_pretrained("writer").stream(first))), "utf-8")
    run_notebook(EXAMPLES / "quickstart.ipynb")


if __name__ == "__main__":
    main()
