"""What more training brings: how the checkpoints of a run write, against the tokens that each of them has seen.

    pointer train DATA --keep-every 1000 --out RUN ...
    POINTER_DATA=... python benchmarks/curve.py RUN/step-* --corpus news --keywords 4 [--lists 300] [--plot FILE]

Greedy, on validation texts, with the columns of `rules.py`. The learning rate of a kept checkpoint has not come
down yet, so it writes a little worse than a run that was meant to end there.
"""

import argparse
from pathlib import Path

from rules import COLUMNS, Table

from pointer.decoding.generator import Pointer
from pointer.decoding.parallel import ParallelPointer
from pointer.evaluation.drawing import new_figure, save_picture

DRAWN = ("BLEU-2", "BLEU-4", "Dist-2", "PPL ratio")


def draw(points: list[tuple[float, dict[str, float]]], path: Path) -> None:
    """A panel for every column, over millions of tokens."""
    figure = new_figure(2.6 * len(DRAWN), 2.6)
    for panel, name in zip(figure.subplots(1, len(DRAWN)), DRAWN, strict=True):
        panel.plot([tokens for tokens, _ in points], [values[name] for _, values in points], "o-", markersize=4)
        panel.set_title(name)
        panel.set_xlabel("million tokens")
    save_picture(figure, path)


def main() -> None:
    """Print the table, a line as soon as it is measured, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="+", type=Path)
    parser.add_argument("--corpus", default="news")
    parser.add_argument("--keywords", type=int, default=4)
    parser.add_argument("--lists", type=int, default=300)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    table = Table(arguments.corpus, arguments.keywords, arguments.lists)
    print(f"| million tokens | {' | '.join(COLUMNS)} |\n|" + "---|" * (len(COLUMNS) + 1))
    points = []
    for checkpoint in arguments.checkpoints:
        pointer = Pointer.from_pretrained(checkpoint)
        assert isinstance(pointer, ParallelPointer) and pointer.model is not None
        tokens = pointer.model.config.pointer["tokens_seen"] / 1e6
        measured = table.row(pointer)
        print(f"| {tokens:.2f} | {' | '.join(measured)} |", flush=True)
        points.append((tokens, dict(zip(COLUMNS, map(float, measured), strict=True))))
    if arguments.plot:
        draw(sorted(points, key=lambda point: point[0]), arguments.plot)


if __name__ == "__main__":
    main()
