"""The array version of YAKE against the library that it stands for."""

# ruff: noqa: RUF001 (the marks that look like others are here because they do)

import lzma
import os
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import yake
from hypothesis import given, settings
from hypothesis import strategies as st

from pointer.prepare.yake import ranked, stop_words, yake_scores

ENGLISH = stop_words("en")

SAMPLE = """
The harbour town was quiet until the fishing boats came home.
Boats, boats, and more boats: the boat builders of the river build boats for other boat builders.
She doesn't know who's there, but it's not the postman's dog.
A well-known, state-of-the-art, twenty-year-old steam engine.
In 1987 about 1,600 visitors paid $12.50 each; by 2004 it was 23,481.
He said "no" - and then, after a long silence (or so it seemed), he said "yes".
Wait... what? No!! Really?! Yes. OK.
Great food! Great service! Great price! We will be back!!!
The soup was cold . . . the bread was stale . . . and the waiter was gone .
We waited . . (for more than an hour) . . and left [without paying] . .
Too salty. . . by far. . . of all the dishes . . . via the kitchen.
. . . and so it begins
! ! ! wow ! ! !
? ! ? !
Does the doe see what the other does? Does it? The doe does.
The doe ran. Does it run? Deer do.
Gas and gases; bus and buses; lens, lenses, len.
Its his her hers ours yours theirs this thus.
News of the new: a news paper is a newspaper, new papers are news papers.
very very very very good good very good
buffalo buffalo buffalo buffalo
a b c d e f g h i j k
up to us to go on or to be in it
The B2B company sold 4x4 trucks and mp3 players in the 1990s, the 2nd time in the 21st century.
H2O, CO2 and NaCl are formulas; x2 + y2 = z2 is another one.
3.14159 is pi, 2.718 is e, 1/2 is a half and 50% is too.
Email me at someone@example.com or visit https://www.example.com/path?x=1&y=2.
R&D at AT&T & Co. & Sons &amp; daughters &lt;3
snake_case and __init__ and CamelCase and kebab-case #hashtag @mention
Mr. Smith went to Washington, D.C., with Mrs. Jones, Dr. No et al. in Jan. 1999.
The U.S.A., the U.K. and the E.U. signed, i.e. agreed; e.g. on vol. 3, no. 7, p. 12.
(She was born in Paris.) She grew up in Lyon (France). [She] died in Nice.
Café, naïve, façade, jalapeño, Zürich, Ångström, São Paulo, Dvořák, œuvre.
It costs 10½ euros, or €11 — no, £9… “perhaps” ‘less’ – who knows?
The temperature was 25° in the shade; the field measured 30 m² and the tank 5 cm³.
Don´t use an acute accent for an apostrophe; don’t use this one either, rockʼn’roll.
北京 is Beijing and 東京 is Tokyo; Москва is Moscow, Αθήνα is Athens, ירושלים is Jerusalem.
हिन्दी and العربية and 한국어 are languages with scripts of their own.
The ﬁrst ﬂight of the Ⅷ squadron, №5, took ½ of the fuel.
ﬀ ß straße STRASSE İstanbul ısırgan ǅ
One sentence . One more sentence . Another sentence . Still one text .
The cat sat on the mat; the mat sat on the cat; the rat sat on both.
To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer.
Tomatoes, potatoes, tomatoes, potatoes, tomato, potato.
Service service services; server servers serve serves.
"What?" "Nothing." "What??" "Nothing.." "..."
Room 101, room 102, room 103, room 101 again.
I I I me me me mine mine mine
Good: cheap. Bad: loud. Ugly: the carpet!
Tea, eat, ate; arc, car; art, rat, tar; god, dog.
Stop. stop. STOP. Stop, stop. . stop
The committee of the committee on committees committed itself to a committee.
An experimental experiment experimentally experimented with experiments.
Nothing.
word
...
12 34 56
,
-- --- ----
The restaurant, a restaurant like all restaurants, was a restaurant in name. . Restaurants are restaurants.
They reopened . . ! with new owners . ? the old menu stayed . . ! the prices did not .
""".strip().splitlines()


def split(line: str) -> list[str]:
    """Words as BERT's basic tokenizer cuts them: runs of letters and digits, and single marks."""
    return re.findall(r"[^\W_]+|[^\w\s]|_", line.lower())


PLAIN = split("harbour boat boats doe does gas gases bus news new the of and has very it its s t ai ox 3d")
ODD = [*split("12 1600 b2b café 10½ ʼtis — “ … ‼ 。 日 한국어 ⅷ _"), "don´t", "n´t", "m²", "h₂o", "हिन्दी"]
MARKS = list(".!?.!?,;:'\"()[]-$&@#/")
NOT_PUNCTUATION = ["Ll", "Lo", "Lm", "Mn", "Nd", "Nl", "No", "Sc", "Sk", "Sm", "So"]

vocabulary_words = st.sampled_from(PLAIN) | st.sampled_from(PLAIN + ODD + MARKS)
letters = st.sampled_from("abcdest019") | st.characters(min_codepoint=128, categories=NOT_PUNCTUATION)
# Some symbols are capitals without a small letter; the module says that it knows no capitals.
unicode_words = st.text(letters.filter(lambda c: not c.isupper()), min_size=1).map(str.lower)


def extractor(**options: object) -> yake.KeywordExtractor:
    return yake.KeywordExtractor(**{"n": 1, "window_size": 1, "dedup_lim": 1.0, "top": 10**9, **options})


def assert_equal_to_the_library(texts: list[list[str]]) -> None:
    reference = extractor()
    for words, scores in zip(texts, yake_scores(texts, ENGLISH), strict=True):
        expected = dict(reference.extract_keywords(" ".join(words)))
        assert scores == pytest.approx(expected, rel=1e-9, abs=0), words
        assert ranked(scores, 10**9, dedup=1.0) == list(expected), words


def test_scores_equal_the_library_on_sentences_of_every_kind() -> None:
    assert_equal_to_the_library([split(line) for line in SAMPLE])


def test_a_passage_of_all_sentences_equals_the_library() -> None:
    assert_equal_to_the_library([split(" ".join(SAMPLE)), split(" . . ".join(SAMPLE))])


@settings(deadline=None, max_examples=300)
@given(st.lists(st.lists(vocabulary_words, max_size=40), max_size=4))
def test_scores_equal_the_library_on_any_order_of_words_and_marks(texts: list[list[str]]) -> None:
    assert_equal_to_the_library(texts)


@settings(deadline=None, max_examples=200)
@given(st.lists(unicode_words | vocabulary_words, max_size=12))
def test_scores_equal_the_library_on_any_script(words: list[str]) -> None:
    assert_equal_to_the_library([words])


def test_a_text_has_the_same_scores_alone_and_in_a_batch() -> None:
    texts = [split(line) for line in SAMPLE]
    batch = yake_scores(texts, ENGLISH)
    assert batch == [scores for text in texts for scores in yake_scores([text], ENGLISH)]
    assert batch[::-1] == yake_scores(texts[::-1], ENGLISH)


def test_texts_without_a_candidate_have_no_scores() -> None:
    assert yake_scores([], ENGLISH) == []
    assert yake_scores([[], ["."], ["the", "of"], ["12", "ox"]], ENGLISH) == [{}, {}, {}, {}]


def test_candidates_come_in_order_of_first_occurrence() -> None:
    [scores] = yake_scores([split("the rats and the cats, the cats and the dogs, the rats")], ENGLISH)
    assert list(scores) == ["rats", "cats", "dogs"]


def test_the_first_form_of_a_stem_decides_whether_it_is_a_stop_word() -> None:
    doe_first, does_first = yake_scores([["doe", "does"], ["does", "doe"]], ENGLISH)
    assert list(doe_first) == ["doe", "does"]
    assert does_first == {}


def test_own_stop_words_take_the_place_of_the_list() -> None:
    [scores] = yake_scores([["the", "harbour"]], frozenset({"harbour"}))
    assert list(scores) == ["the"]


def test_stop_words_are_those_of_the_library() -> None:
    for language in ("en", "de", "xx"):
        assert stop_words(language) == extractor(lan=language).stopword_set


def test_equal_scores_are_ranked_by_first_occurrence() -> None:
    [scores] = yake_scores([split("zebra, apple, mango")], ENGLISH)
    assert len(set(scores.values())) == 1
    assert ranked(scores, 2) == ["zebra", "apple"]


def test_near_duplicates_are_dropped_as_in_the_library() -> None:
    for dedup in (0.9, 0.3):
        for top in (1, 4, 1000):
            reference = extractor(dedup_lim=dedup, top=top)
            for line in SAMPLE:
                words = split(line)
                [scores] = yake_scores([words], ENGLISH)
                expected = [word for word, _ in reference.extract_keywords(" ".join(words))]
                assert ranked(scores, top, dedup) == expected


def test_the_library_takes_short_anagrams_for_duplicates() -> None:
    assert ranked({"tea": 0.1, "eat": 0.2, "cup": 0.3}, 3) == ["tea", "cup"]
    assert ranked({"tea": 0.1, "eat": 0.2, "cup": 0.3}, 3, dedup=1.0) == ["tea", "eat", "cup"]


def test_asking_for_no_keyword_returns_none() -> None:
    assert ranked({"tea": 0.1}, 0) == []


def test_results_do_not_depend_on_the_hash_seed() -> None:
    script = (
        "import sys; from pointer.prepare.yake import *; texts = [line.split() for line in sys.stdin]\n"
        "for s in yake_scores(texts, stop_words()): print(ascii(s), ascii(ranked(s, 7)))"
    )
    lines = "\n".join(" ".join(split(line)) for line in SAMPLE)
    environment = {**os.environ, "PYTHONUTF8": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            input=lines,
            capture_output=True,
            check=True,
            encoding="utf-8",
            env={**environment, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1")
    }
    assert len(outputs) == 1
    assert outputs.pop().count("\n") == len(SAMPLE)


@pytest.mark.skipif("POINTER_DATA" not in os.environ, reason="POINTER_DATA names no folder of corpora")
@pytest.mark.parametrize("corpus", ["wiki", "yelp"])
def test_scores_equal_the_library_on_real_text(corpus: str) -> None:
    with lzma.open(Path(os.environ["POINTER_DATA"], corpus, "train.txt.xz"), "rt", encoding="utf-8") as lines:
        assert_equal_to_the_library([split(line) for line in islice(lines, 1000)])
