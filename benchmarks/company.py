"""Does what the writer says, or writes, depend on what is beside it in a batch?

    python benchmarks/company.py --lists examples/demo.txt --best-of 8

Every list is written alone and in batches of several sizes. Compared are the texts and, for every prefix that both have
read, the log-probabilities of what comes next (those that are not below -15).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pointer import Pointer
from pointer.decoding.writer import Writer
from pointer.runtime import Floats, Prefix

LEAST = -15.0
SIZES = (2, 4, 12)


class Watched:
    """A writer's model that keeps what it has said after each prefix."""

    def __init__(self, writer: Writer) -> None:
        self.own = writer.predict
        self.said: dict[Prefix, Floats] = {}
        writer.predict = self

    def __call__(self, prefixes: Sequence[Prefix]) -> Floats:
        found = self.own(prefixes)
        self.said |= dict(zip(map(tuple, prefixes), found, strict=True))
        return found


def written(lists: list[str], size: int, best_of: int) -> tuple[list[str], dict[Prefix, Floats]]:
    """The texts, `size` lists at a time, and what was said on the way."""
    writer = Pointer.from_pretrained("writer", threads=1)
    assert isinstance(writer, Writer)
    watched = Watched(writer)
    batches = [lists[i : i + size] for i in range(0, len(lists), size)]
    texts = [found[0].text for batch in batches for found in writer.generate_many(batch, best_of=best_of)]
    return texts, watched.said


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", type=Path, default=Path("examples/demo.txt"))
    parser.add_argument("--best-of", type=int, default=1)
    given = parser.parse_args()
    lists = [line for line in given.lists.read_text("utf-8").splitlines() if line.strip()][:24]
    alone, expected = written(lists, 1, given.best_of)
    for size in SIZES:
        texts, said = written(lists, size, given.best_of)
        common = [(said[prefix], expected[prefix]) for prefix in said.keys() & expected.keys()]
        worst = max(float(np.abs(one - other)[other > LEAST].max()) for one, other in common)
        flips = sum(int(one.argmax() != other.argmax()) for one, other in common)
        differ = sum(one != other for one, other in zip(alone, texts, strict=True))
        print(
            f"batches of {size}: {differ} of {len(lists)} texts differ; of {len(common):,} prefixes, {flips} have "
            f"another likeliest token; the largest difference is {worst:.3g} nats"
        )


if __name__ == "__main__":
    main()
