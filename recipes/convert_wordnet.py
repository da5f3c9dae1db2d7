"""Turn a WordNet 3.0 database into the data of `pointer.evaluation.meteor`, and prove it against NLTK's reader.

    apt-get install wordnet-base
    python recipes/convert_wordnet.py /usr/share/wordnet src/pointer/evaluation/wordnet \\
        --golden tests/golden/meteor.json

The result holds what METEOR can see of WordNet: by part of speech, the groups of synonyms (as written; a name with a
capital or `_` is only a way to find its group) and the irregular forms. The same database always gives the same
bytes. Then every lemma, its inflected forms and its stems are looked up in both, which takes minutes.
"""

import argparse
import gzip
import io
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
OUTPUT = "english.json.gz"
INFLECTIONS = ("s", "es", "ed", "d", "ing", "er", "r", "est", "st", "ses", "ves", "ies", "men")


def convert(database: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """Write the compact form of `database` and its licence into `folder`, and return the compact form."""
    compact = {
        part: {
            "synonyms": groups(read_synsets(database / f"data.{part}")),
            "exceptions": read_exceptions(database / f"{part}.exc"),
        }
        for part in PARTS_OF_SPEECH
    }
    folder.mkdir(parents=True, exist_ok=True)
    # Not gzip.compress, whose header differs between versions of Python.
    with (folder / OUTPUT).open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(json.dumps(compact, separators=(",", ":")).encode())
    (folder / "LICENSE").write_text(read_licence(database / "data.noun"), "utf-8")
    return compact


def read_synsets(data: Path) -> list[list[str]]:
    """The names in each synset of a data file, without the marks of where an adjective may stand."""
    synsets = []
    for line in data.read_text("ascii").splitlines():
        if line.startswith("  "):  # the licence
            continue
        fields = line.split("|")[0].split()  # offset, file number, type, number of names (hexadecimal), name, id, ...
        names = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
        synsets.append([re.sub(r"\([^()]*\)$", "", name) for name in names])
    return synsets


def groups(synsets: Iterable[list[str]]) -> list[str]:
    """The synsets as lines, sorted, without those that tell METEOR nothing."""
    useful = {frozenset(names) for names in synsets if any(map(visible, names))}
    found_elsewhere = {name for names in useful if len(names) > 1 for name in names}
    return sorted(" ".join(sorted(names)) for names in useful if len(names) > 1 or not names <= found_elsewhere)


def visible(name: str) -> bool:
    """Whether METEOR can match a name: it drops phrases and compares with words in lower case."""
    return "_" not in name and name == name.lower()


def read_exceptions(listing: Path) -> dict[str, list[str]]:
    """Base forms by irregular form; of several lines for one form NLTK believes the last."""
    lines = (line.split() for line in listing.read_text("ascii").splitlines())
    return {form: bases for form, *bases in sorted(lines, key=lambda line: line[0])}


def read_licence(data: Path) -> str:
    """The licence at the head of a data file, without its line numbers."""
    head = (line for line in data.read_text("ascii").splitlines() if line.startswith("  "))
    return "\n".join(re.sub(r"^ +\d+ ?", "", line).rstrip() for line in head) + "\n"


def nltk_reader(database: Path) -> Any:
    """NLTK's own reader of a database that was not packed for NLTK."""
    import nltk
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    nltk.data.path.append(str(database))  # NLTK refuses to read what is under none of these folders

    class Reader(WordNetCorpusReader):  # type: ignore[misc]
        def open(self, file: str) -> Any:
            # Debian leaves out the names of the lexicographers' files, which synonyms do not depend on.
            names = "".join(f"{number:02} file{number:02} 0\n" for number in range(45))
            return io.StringIO(names) if file == "lexnames" else super().open(file)

        def map_wn(self, version: str = "wordnet") -> dict[str, str]:
            return {}  # the way to other languages, by an index that Debian leaves out

    return Reader(str(database), omw_reader=False)


def reader_synonyms(reader: Any, word: str) -> set[str]:
    """What METEOR can match of what NLTK's reader says."""
    return {lemma.name() for synset in reader.synsets(word) for lemma in synset.lemmas() if visible(lemma.name())}


def lookups(compact: dict[str, dict[str, Any]], lemmas: Iterable[str]) -> list[str]:
    """All that is worth looking up: lemmas, forms (good and bad) and stems of them, irregular forms."""
    from nltk.stem.porter import PorterStemmer

    lemmas = sorted(lemmas)
    irregular = [form for part in compact.values() for form in part["exceptions"]]
    inflected = [stem + ending for ending in INFLECTIONS for lemma in lemmas for stem in (lemma, lemma[:-1])]
    stems = [*map(PorterStemmer().stem, lemmas + irregular)]
    return sorted({*lemmas, *irregular, *inflected, *stems})


def differences(reader: Any, synonyms: Callable[[str], set[str]], words: Iterable[str]) -> list[str]:
    """The words for which the compact WordNet and NLTK's reader disagree."""
    return [word for word in words if set(synonyms(word)) != reader_synonyms(reader, word)]


def write_golden(reader: Any, golden: Path) -> None:
    """Fill in anew the synonyms of the words and the scores of the pairs that `golden` names, by NLTK alone."""
    from nltk.translate.meteor_score import single_meteor_score

    answers = json.loads(golden.read_text("utf-8"))
    answers["synonyms"] = {word: " ".join(sorted(reader_synonyms(reader, word))) for word in answers["synonyms"]}
    answers["scores"] = [
        [hypothesis, reference, single_meteor_score(reference.split(), hypothesis.split(), wordnet=reader)]
        for hypothesis, reference, _ in answers["scores"]
    ]
    golden.write_text(json.dumps(answers, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Convert a WordNet 3.0 database.")
    parser.add_argument("database", type=Path, help="a folder with data.noun, index.noun, noun.exc and so on")
    parser.add_argument("folder", type=Path, help=f"where to write {OUTPUT} and LICENSE")
    parser.add_argument("--golden", type=Path, help="a golden file of the tests, to be computed anew by NLTK")
    arguments = parser.parse_args()

    from pointer.evaluation.meteor import compact_synonyms

    compact = convert(arguments.database, arguments.folder)
    print(f"{arguments.folder / OUTPUT}: {(arguments.folder / OUTPUT).stat().st_size:,} bytes")
    reader = nltk_reader(arguments.database)
    words = lookups(compact, set(reader.all_lemma_names()))
    wrong = differences(reader, compact_synonyms(compact), words)
    print(f"{len(words):,} words looked up, {len(wrong):,} differ from NLTK's reader: {wrong[:10]}")
    if arguments.golden:
        write_golden(reader, arguments.golden)
    raise SystemExit(bool(wrong))
