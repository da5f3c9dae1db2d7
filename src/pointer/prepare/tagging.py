"""Part-of-speech tags in context, offline: importance scores weigh a word by them.

The model is the averaged perceptron that NLTK made popular (see `tagger/README.md`), and `tag` gives exactly
NLTK's tags. It is greedy, so the tag of a word waits for the two before it: all sentences of a batch advance
together, one position at a time, and each step is a few array operations.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module, resources
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pointer.errors import MissingPartError

Rows = NDArray[np.int32]

# What stands around a sentence. These words are features as they are, never normalised, so that a written
# "-START-" is something else; their places in this tuple are their word ids.
_PADS = ("-START-", "-START2-", "-END-", "-END2-")
_BEFORE, _AFTER = (0, 1), (2, 3)
_OPEN = -1  # the tag of a word that still waits for one
_PAIR = "i-1 tag+i word "


def tag(texts: Sequence[Sequence[str]]) -> list[list[str]]:
    """Penn Treebank tags of the words of each text; fastest with a few thousand texts at once.

    The case of the words counts, so give them as they are written.

    >>> tag([["They", "run", "."], ["A", "long", "run", "."], []])
    [['PRP', 'VBP', '.'], ['DT', 'JJ', 'NN', '.'], []]
    """
    perceptron = _perceptron()
    word_ids: defaultdict[str, int] = defaultdict(count(len(_PADS)).__next__)
    line: list[int] = []  # all texts in a row, each between its pads
    for text in texts:
        line += _BEFORE
        line += [word_ids[word] for word in text]
        line += _AFTER
    words = np.array(line, dtype=np.int32)
    lexicon = _lexicon(perceptron, word_ids)
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    starts = np.cumsum(lengths + len(_PADS)) - lengths - len(_AFTER)

    tags = lexicon.fixed[words]
    # The tags before a sentence run away from it, the words towards it: so were the weights trained.
    tags[starts - 1], tags[starts - 2] = perceptron.tags.index("-START-"), perceptron.tags.index("-START2-")
    for position in range(lengths.max(initial=0)):
        places = starts[lengths > position] + position
        places = places[tags[places] == _OPEN]
        tags[places] = _best_tags(perceptron, lexicon, words, tags, places)

    names = [perceptron.tags[number] for number in tags.tolist()]
    return [names[start:end] for start, end in zip(starts, starts + lengths, strict=True)]


def spacy_tagger(model: str) -> Callable[[Sequence[Sequence[str]]], list[list[str]]]:
    """A function like `tag` that asks the spaCy pipeline `model`, such as "en_core_web_sm", for its tags."""
    try:
        spacy: Any = import_module("spacy")
    except ImportError as error:
        raise MissingPartError(
            f'tagging with the spaCy model "{model}" needs the package spacy, which is not installed.',
            "Install it with: pip install spacy. Or use the built-in tagger, which needs nothing.",
        ) from error
    try:
        pipeline = spacy.load(model, exclude=["parser", "ner", "lemmatizer"])  # tags do not depend on these
    except OSError as error:
        raise MissingPartError(
            f'the spaCy model "{model}" is not installed.',
            f"Install it with: python -m spacy download {model}",
        ) from error
    if "tagger" not in pipeline.pipe_names:
        parts = ", ".join(pipeline.pipe_names) or "none"
        raise MissingPartError(
            f'the spaCy model "{model}" has no tagger; its parts: {parts}.',
            "Choose a model that tags, such as en_core_web_sm.",
        )

    def tag_with_spacy(texts: Sequence[Sequence[str]]) -> list[list[str]]:
        documents = (spacy.tokens.Doc(pipeline.vocab, words=list(text)) for text in texts)
        return [[token.tag_ for token in document] for document in pipeline.pipe(documents)]

    return tag_with_spacy


class _Perceptron(NamedTuple):
    """The trained weights; a feature is a row of them, and row 0 is every feature that training never saw."""

    weights: Rows  # features x classes, in thousandths
    tags: list[str]  # the classes, one a column of the weights, then the two tags before a sentence
    fixed: dict[str, int]  # words that have the same tag everywhere
    rows: dict[str, int]  # features of words, by name
    bias: int
    tag: Rows  # rows of the tag before
    tag2: Rows  # rows of the tag two before
    both_tags: Rows  # rows of the two, tags x tags
    pair_ids: dict[str, int]  # words that have a feature together with the tag before them
    pairs: Rows  # rows of those features, pair words x tags


class _Lexicon(NamedTuple):
    """For each word id of a batch: its tag if it has but one, and its rows, by the place it is seen from."""

    fixed: Rows
    suffix: Rows
    first_letter: Rows
    word: Rows
    pair: Rows  # not a row, but where in `_Perceptron.pairs` the rows are
    before: Rows
    before_suffix: Rows
    before2: Rows
    after: Rows
    after_suffix: Rows
    after2: Rows


def _best_tags(
    perceptron: _Perceptron, lexicon: _Lexicon, words: Rows, tags: Rows, places: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The highest-scoring tag of the words at `places`, all tags before them being known."""
    word, before, after = words[places], words[places - 1], words[places + 1]
    last, last2 = tags[places - 1], tags[places - 2]
    # NLTK's order of addition, because in float64 the order decides between scores that should be equal.
    features = (
        lexicon.suffix[word],
        lexicon.first_letter[word],
        perceptron.tag[last],
        perceptron.tag2[last2],
        perceptron.both_tags[last, last2],
        lexicon.word[word],
        perceptron.pairs[lexicon.pair[word], last],
        lexicon.before[before],
        lexicon.before_suffix[before],
        lexicon.before2[words[places - 2]],
        lexicon.after[after],
        lexicon.after_suffix[after],
        lexicon.after2[words[places + 2]],
    )
    scores = np.tile(perceptron.weights[perceptron.bias] / 1000, (len(places), 1))  # places x classes
    for rows in features:
        scores += perceptron.weights[rows] / 1000  # the very float64 that the decimal number stands for
    best: NDArray[np.int64] = scores.argmax(axis=1)  # of equals the first
    return best


def _lexicon(perceptron: _Perceptron, words: Iterable[str]) -> _Lexicon:
    """The rows of the pads and of `words`, in this order."""
    row, fixed, pair_ids = perceptron.rows.get, perceptron.fixed, perceptron.pair_ids
    forms = [(pad, pad) for pad in _PADS] + [(word, _normalised(word)) for word in words]
    table = [
        (
            fixed.get(word, _OPEN),
            row(f"i suffix {word[-3:]}", 0),
            row(f"i pref1 {word[:1]}", 0),
            row(f"i word {form}", 0),
            pair_ids.get(form, 0),
            row(f"i-1 word {form}", 0),
            row(f"i-1 suffix {form[-3:]}", 0),
            row(f"i-2 word {form}", 0),
            row(f"i+1 word {form}", 0),
            row(f"i+1 suffix {form[-3:]}", 0),
            row(f"i+2 word {form}", 0),
        )
        for word, form in forms
    ]
    return _Lexicon(*np.ascontiguousarray(np.array(table, dtype=np.int32).T))


def _normalised(word: str) -> str:
    """The form in which features name a word: lower case, or one form for all compounds, years, numbers."""
    if "-" in word[1:] and word[0] != "-":
        return "!HYPHEN"
    if word.isdigit() and len(word) == 4:
        return "!YEAR"
    return "!DIGITS" if word[:1].isdigit() else word.lower()


@cache
def _perceptron() -> _Perceptron:
    """The weights of the package as arrays; read once, when the first text is tagged."""
    packed = (resources.files("pointer.prepare") / "tagger" / "english.json.gz").read_bytes()
    return _arrays(*json.loads(gzip.decompress(packed)))


def _arrays(weights: dict[str, dict[str, float]], tagdict: dict[str, str], classes: list[str]) -> _Perceptron:
    """The arrays of a perceptron in NLTK's form."""
    labels = sorted(classes, reverse=True)  # of equal scores NLTK takes the last label, argmax the first
    column = {label: number for number, label in enumerate(labels)}
    dense = np.zeros((len(weights) + 1, len(labels)), dtype=np.int32)
    dense[
        np.repeat(np.arange(1, len(dense)), [len(by_label) for by_label in weights.values()]),
        [column[label] for by_label in weights.values() for label in by_label],
    ] = np.rint(np.array([weight for by_label in weights.values() for weight in by_label.values()]) * 1000)

    tags = [*labels, "-START-", "-START2-"]
    tag_ids = {name: number for number, name in enumerate(tags)}
    rows = {feature: row for row, feature in enumerate(weights, start=1)}
    pair_names = [feature.removeprefix(_PAIR).split(" ", 1) for feature in rows if feature.startswith(_PAIR)]
    pair_words = sorted({word for _, word in pair_names})
    pair_ids = {word: number for number, word in enumerate(pair_words, start=1)}
    pairs = np.zeros((len(pair_ids) + 1, len(tags)), dtype=np.int32)
    for last, word in pair_names:
        pairs[pair_ids[word], tag_ids[last]] = rows.pop(f"{_PAIR}{last} {word}")
    return _Perceptron(
        weights=dense,
        tags=tags,
        fixed={word: column[label] for word, label in tagdict.items()},
        rows=rows,
        bias=rows.get("bias", 0),
        tag=np.array([rows.get(f"i-1 tag {last}", 0) for last in tags], dtype=np.int32),
        tag2=np.array([rows.get(f"i-2 tag {last2}", 0) for last2 in tags], dtype=np.int32),
        both_tags=np.array(
            [[rows.get(f"i tag+i-2 tag {last} {last2}", 0) for last2 in tags] for last in tags],
            dtype=np.int32,
        ),
        pair_ids=pair_ids,
        pairs=pairs,
    )
