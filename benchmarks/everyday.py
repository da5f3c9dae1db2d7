"""Everyday lists, to be read blind: what several models write for each, in an order that does not tell which is whose.

    python benchmarks/everyday.py write texts.jsonl writer wiki [--best-of 8]   # then give each line its "rating"
    python benchmarks/everyday.py count texts.jsonl

The lists (`everyday-6.txt`; the others are those of earlier readings) were chosen before anything was decoded. 2
is a text that makes sense, 1 one that would but for one slip, 0 any other; of several readers, a list. `write` puts the
names at the end of the file; `count` prints the shares of every model.
"""

import argparse
import json
import random
from collections import defaultdict
from pathlib import Path

from pointer.decoding.generator import Pointer

LISTS = Path(__file__).with_name("everyday-6.txt")


def write(path: Path, models: list[str], best_of: int) -> None:
    """Write a line for every text, those of a list together, in a random order."""
    lists = LISTS.read_text("utf-8").splitlines()
    texts = {name: Pointer.from_pretrained(name).generate_many(lists, 8, best_of=best_of) for name in models}
    names: list[str] = []
    lines: list[dict[str, object]] = []
    for number, asked in enumerate(lists):
        for name in random.Random(number).sample(models, len(models)):
            lines.append({"list": asked, "text": texts[name][number][0].text, "rating": None})
            names.append(name)
    lines.append({"names": names, "best_of": best_of})
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")


def count(path: Path) -> None:
    """Print the shares of sensible texts, and of those that are but for a slip."""
    *lines, last = map(json.loads, path.read_text("utf-8").splitlines())
    ratings = defaultdict(list)
    for name, line in zip(last["names"], lines, strict=True):
        given = line["rating"]
        for reader, rating in enumerate(given if isinstance(given, list) else [given], 1):
            ratings[name, reader].append(rating)
    readers = max(reader for _, reader in ratings)
    for (name, reader), found in ratings.items():
        sensible, slips = found.count(2), found.count(1)
        by = f", by reader {reader}" if readers > 1 else ""
        print(f"{name}: {sensible} of {len(found)} sensible, {sensible + slips} with one slip at most{by}")


def main() -> None:
    """Write texts, or count their ratings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "count"))
    parser.add_argument("file", type=Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--best-of", type=int, default=8)
    options = parser.parse_args()
    if options.what == "write":
        write(options.file, options.models, options.best_of)
    else:
        count(options.file)


if __name__ == "__main__":
    main()
