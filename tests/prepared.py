"""A small data folder for the tests of the baselines."""

from pathlib import Path

from conftest import SAMPLE

from pointer.prepare.corpus import Corpus
from pointer.prepare.shards import Preparation, prepare
from pointer.vocabulary import Vocabulary, shrink, word_counts


def prepared_folder(home: Path, count: int) -> Path:
    """The first sentences about the harbour, prepared with a vocabulary of their own."""
    lines = SAMPLE.read_text("utf-8").splitlines()[:count]
    (home / "texts.txt").write_text("\n".join(lines) + "\n")
    english = Vocabulary.open("english")
    shrink(english, word_counts(lines, english), 600)[0].save(home / "vocabulary")
    prepare(Preparation(Corpus((str(home / "texts.txt"),)), vocabulary=str(home / "vocabulary")), home / "data")
    return home / "data"
