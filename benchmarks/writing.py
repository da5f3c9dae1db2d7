"""How much of natural text comes back character for character when its lower-cased tokens are written down again.

    POINTER_DATA=... python benchmarks/writing.py [--lines 3000] [--split valid] [--show 20]

The yardstick is what the `tokenizers` library does with the same pieces (its WordPiece decoder with clean-up). "spaces"
compares without case, so it tells the spacing rules from the casing table. Lines with `[UNK]` are left out.
"""

import argparse
import gzip
import json
import lzma
from collections import Counter

from corpora import corpus_file
from tokenizers.decoders import WordPiece

from pointer.checkpoint import EMBEDDED, embedded_folder
from pointer.text import normalise
from pointer.vocabulary import Vocabulary
from pointer.writing import Unit, write


def corpus_lines(name: str, split: str, count: int) -> list[str]:
    """The first lines of a corpus of natural text."""
    with lzma.open(
        corpus_file(f"{name}/{split}"),
        "rt",
        encoding="utf-8",
    ) as file:
        return [normalise(line) for _, line in zip(range(count), file, strict=False)]


def first_difference(written: str, line: str) -> str:
    """The two texts around the place where they part."""
    at = next((i for i, (a, b) in enumerate(zip(written, line, strict=False)) if a != b), min(len(written), len(line)))
    return f"{written[max(0, at - 25) : at + 15]!r} was {line[max(0, at - 25) : at + 15]!r}"


def main() -> None:
    """Print the shares for both corpora, and with `--show` what went wrong in some lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--split", default="valid")
    parser.add_argument("--show", type=int, default=0)
    options = parser.parse_args()
    vocabulary = Vocabulary.open(EMBEDDED)
    folder = embedded_folder(EMBEDDED)
    assert folder is not None
    casing = json.loads(gzip.decompress((folder / "casing.json.gz").read_bytes()))
    for name in ("yelp", "wiki"):
        lines = corpus_lines(name, options.split, options.lines)
        found: Counter[str] = Counter()
        for line, encoding in zip(lines, vocabulary.encode(lines), strict=True):
            if vocabulary.id("[UNK]") in encoding.ids:
                continue
            plain = WordPiece(cleanup=True).decode([vocabulary.tokens[i] for i in encoding.ids])
            written, _ = write([Unit(word.lower()) for word in encoding.words], casing)
            found["lines"] += 1
            found["library, spaces"] += plain == line.lower()
            found["spaces"] += written.lower() == line.lower()
            found["exact"] += written == line
            if written != line and found["shown"] < options.show:
                found["shown"] += 1
                print(first_difference(written, line))
        shares = (f"{key} {found[key] / found['lines']:.1%}" for key in ("library, spaces", "spaces", "exact"))
        print(f"{name}: {found['lines']} lines; {'; '.join(shares)}")


if __name__ == "__main__":
    main()
