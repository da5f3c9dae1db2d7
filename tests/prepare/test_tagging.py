"""The built-in tagger gives the tags of NLTK, and its weights are read without running their pickle."""

import gzip
import importlib.util
import itertools
import json
import lzma
import os
import pickle
import re
import sys
import zipfile
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointer.errors import MissingPartError
from pointer.prepare import tagging
from pointer.prepare.tagging import spacy_tagger, tag

perceptron = pytest.importorskip("nltk.tag.perceptron")

RECIPE = Path(__file__).parents[2] / "recipes" / "convert_tagger.py"
SENTENCES = [
    text.split()
    for text in (
        "It ' s a well - known fact that they don ' t run .",
        "I can fish .",
        "He kicked the can down the road in 1999 , 20 times .",
        'The U . S . Senate passed $ 3 . 5 billion on Jan . 12 , " said Dr . Smith .',
        "well-known -start- -START- -START2- -END- - -- -x x- 1-2 2x",
        "Zoë naïvely visited İstanbul , ½ ² ²²²² ١٩٩٩ 東京 🙂 ß",
        "SHOUTED WORDS AND quiet ones",
        "!HYPHEN !YEAR !DIGITS `` '' ( ) # : ; &",
        "Stop",
        "",
    )
]
VOCABULARY = sorted({*itertools.chain(*SENTENCES), "", "a b", "time", "flies", "like", "1850", "007"})
WORDS = st.one_of(st.sampled_from(VOCABULARY), st.text(max_size=5))
TEXTS = st.lists(st.lists(WORDS, max_size=8), max_size=6)


def nltk_tagger(weights, tagdict, classes):
    """What NLTK's tagger answers with these parameters, in the shape of `tag`."""
    tagger = perceptron.PerceptronTagger(load=False)
    tagger.decode_json_params((weights, tagdict, classes))
    return lambda texts: [[label for _, label in tagger.tag(list(text))] for text in texts]


@pytest.fixture(scope="module")
def nltk_tag():
    packed = (resources.files("pointer.prepare") / "tagger" / "english.json.gz").read_bytes()
    return nltk_tagger(*json.loads(gzip.decompress(packed)))


@pytest.fixture(scope="module")
def recipe():
    spec = importlib.util.spec_from_file_location("convert_tagger", RECIPE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_wheel(recipe, path, content):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(recipe.PICKLE, content)
    return path


def test_the_tags_are_those_of_nltk(nltk_tag):
    assert tag(SENTENCES) == nltk_tag(SENTENCES)


@settings(deadline=None)
@given(texts=TEXTS)
def test_any_words_get_the_tags_of_nltk(nltk_tag, texts):
    assert tag(texts) == nltk_tag(texts)


CLASSES = ["A", "B", "C"]
CONTEXTS = [*CLASSES, "-START-", "-START2-"]
FORMS = ["x", "y", "-START-", "-START2-", "-END-", "-END2-", "-start-", "!YEAR", "!HYPHEN", "!DIGITS"]
PLACES = ["i word", "i-1 word", "i-2 word", "i+1 word", "i+2 word"]
FEATURES = [
    "bias",
    *(f"{name} {letter}" for name in ("i suffix", "i pref1", "i-1 suffix", "i+1 suffix") for letter in "xy"),
    *(f"{name} {tag}" for name in ("i-1 tag", "i-2 tag") for tag in CONTEXTS),
    *(f"i tag+i-2 tag {last} {last2}" for last in CONTEXTS for last2 in CONTEXTS),
    *(f"{name} {form}" for name in PLACES for form in FORMS),
    *(f"i-1 tag+i word {last} {form}" for last in CONTEXTS for form in FORMS),
]


@settings(deadline=None)
@given(
    # Tenths add up to one number in different ways, so that equal scores and rounding errors abound.
    weights=st.dictionaries(
        st.sampled_from(FEATURES),
        st.dictionaries(st.sampled_from(CLASSES), st.sampled_from([0.1, 0.2, 0.3, -0.1, 0.7]), min_size=1),
        min_size=30,
    ),
    tagdict=st.dictionaries(st.sampled_from(["x", "Y"]), st.sampled_from(CLASSES)),
    texts=st.lists(st.lists(st.sampled_from(["x", "Y", "-START-", "1999", "x-y"]), max_size=6), max_size=4),
)
def test_equal_scores_are_decided_as_nltk_decides_them(weights, tagdict, texts):
    made_up = tagging._arrays(weights, tagdict, CLASSES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tagging, "_perceptron", lambda: made_up)
        assert tag(texts) == nltk_tagger(weights, tagdict, CLASSES)(texts)


@pytest.mark.parametrize(
    ("verb", "noun", "word"),
    [
        ("They run every day .", "She went for a run today .", "run"),
        ("I can fish .", "The fish was cold .", "fish"),
        ("We record a song .", "The record was broken .", "record"),
    ],
)
def test_the_same_word_is_a_verb_or_a_noun_by_its_context(verb, noun, word):
    (verb_tags, noun_tags) = tag([verb.split(), noun.split()])
    assert verb_tags[verb.split().index(word)] in {"VB", "VBP"}
    assert noun_tags[noun.split().index(word)] == "NN"


def test_the_tags_of_a_sentence_do_not_depend_on_its_batch():
    together = tag(SENTENCES)
    assert together == [tag([sentence])[0] for sentence in SENTENCES]
    assert together == tag(SENTENCES[::-1])[::-1]


def test_the_tags_are_the_same_every_time():
    assert tag(SENTENCES) == tag(SENTENCES)


def test_no_text_and_empty_texts_have_no_tags():
    assert tag([]) == []
    assert tag([[], []]) == [[], []]


def test_the_example_in_the_docstring_holds():
    assert tag([["They", "run", "."], ["A", "long", "run", "."], []]) == [
        ["PRP", "VBP", "."],
        ["DT", "JJ", "NN", "."],
        [],
    ]


@pytest.mark.skipif("POINTER_DATA" not in os.environ, reason="POINTER_DATA does not name a folder of corpora")
def test_real_text_gets_the_tags_of_nltk(nltk_tag):
    corpus = Path(os.environ["POINTER_DATA"]) / "wiki" / "train.txt.xz"
    with lzma.open(corpus, "rt", encoding="utf-8") as lines:
        texts = [re.findall(r"[^\W_]+|[^\w\s]|_", line) for line in itertools.islice(lines, 2000)]
    assert tag(texts) == nltk_tag(texts)


def test_a_pickle_that_runs_code_is_refused_and_runs_nothing(recipe, tmp_path):
    witness = tmp_path / "executed"

    class Malice:
        def __reduce__(self):
            return os.system, (f"touch {witness}",)

    wheel = write_wheel(recipe, tmp_path / "bad.whl", pickle.dumps(({}, {}, Malice()), protocol=2))
    with pytest.raises(pickle.UnpicklingError, match=r"asks for \w+\.system"):
        recipe.convert(wheel, tmp_path / "out")
    assert not witness.exists()
    assert not (tmp_path / "out").exists()


def test_a_small_wheel_becomes_sorted_json_without_zeros(recipe, tmp_path):
    weights = {"i word b": {"NN": 0.5, "DT": -1.25, "VB": 0.0}, "bias": {"NN": 0.125}, "i word a": {}}
    content = pickle.dumps((weights, {"the": "DT", "a": "DT"}, {"VB", "NN", "DT"}), protocol=2)
    wheel = write_wheel(recipe, tmp_path / "small.whl", content)
    first, second = (recipe.convert(wheel, tmp_path / folder).read_bytes() for folder in ("first", "second"))
    assert first == second
    assert gzip.decompress(first).decode() == (
        '[{"bias":{"NN":0.125},"i word b":{"DT":-1.25,"NN":0.5}},{"a":"DT","the":"DT"},["DT","NN","VB"]]'
    )


def test_python_2_strings_are_read_as_text(recipe):
    half = b"G?\xe0\x00\x00\x00\x00\x00\x00"
    python_2 = b"\x80\x02}U\x04bias}U\x02NN" + half + b"ss}c__builtin__\nset\n]U\x02NNa\x85R\x87."
    assert recipe.read_pickle(python_2) == ({"bias": {"NN": 0.5}}, {}, ["NN"])


@pytest.mark.parametrize(
    ("weights", "tagdict", "complaint"),
    [({"bias": {"NN": 0.1234}}, {}, "three decimals"), ({}, {"the": "DT"}, "not among the classes")],
)
def test_a_tagger_that_the_package_cannot_hold_is_refused(recipe, weights, tagdict, complaint):
    with pytest.raises(ValueError, match=complaint):
        recipe.read_pickle(pickle.dumps((weights, tagdict, {"NN"}), protocol=2))


def test_spacy_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingPartError, match="pip install spacy"):
        spacy_tagger("en_core_web_sm")


def fake_spacy(load):
    """As much of spaCy as the tagger touches; its documents are lists of tokens."""

    def make_document(vocab, words):
        return [SimpleNamespace(tag_=vocab[word]) for word in words]

    return SimpleNamespace(load=load, tokens=SimpleNamespace(Doc=make_document))


def test_a_spacy_model_that_is_not_installed_is_named(monkeypatch):
    def load(model, exclude):
        raise OSError(f"[E050] Can't find model '{model}'.")

    monkeypatch.setitem(sys.modules, "spacy", fake_spacy(load))
    with pytest.raises(MissingPartError, match="spacy download en_core_web_sm"):
        spacy_tagger("en_core_web_sm")


def test_a_spacy_model_without_a_tagger_is_refused(monkeypatch):
    pipeline = SimpleNamespace(pipe_names=["tok2vec"])
    monkeypatch.setitem(sys.modules, "spacy", fake_spacy(lambda model, exclude: pipeline))
    with pytest.raises(MissingPartError, match="has no tagger; its parts: tok2vec"):
        spacy_tagger("en_blank")


def test_a_spacy_model_tags_the_given_words(monkeypatch):
    pipeline = SimpleNamespace(pipe_names=["tagger"], vocab={"They": "PRP", "run": "VBP"}, pipe=iter)
    monkeypatch.setitem(sys.modules, "spacy", fake_spacy(lambda model, exclude: pipeline))
    assert spacy_tagger("any")([["They", "run"], []]) == [["PRP", "VBP"], []]
