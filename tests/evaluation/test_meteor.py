"""METEOR is NLTK's, and the WordNet of the package tells it what NLTK's own reader of WordNet would."""

import gzip
import importlib.util
import inspect
import json
import re
import sys
import zipfile
from collections import defaultdict
from importlib import resources
from pathlib import Path

import pytest

from pointer.errors import MissingPartError, UsageError
from pointer.evaluation.meteor import (
    ALPHA,
    BETA,
    GAMMA,
    compact_synonyms,
    embedded_thesaurus,
    meteor,
    signature,
    thesaurus,
)

nltk = pytest.importorskip("nltk")
meteor_score = pytest.importorskip("nltk.translate.meteor_score")

ROOT = Path(__file__).parents[2]
GOLDEN = json.loads((ROOT / "tests" / "golden" / "meteor.json").read_text("utf-8"))
DATA = resources.files("pointer.evaluation") / "wordnet"
DATABASE = Path("/usr/share/wordnet")  # where Debian's package wordnet-base puts it
needs_database = pytest.mark.skipif(
    not (DATABASE / "data.noun").is_file(), reason="There is no WordNet database; apt-get install wordnet-base."
)

# A WordNet small enough to read: by part of speech, synsets (the first adjectives are the head of all others) and
# irregular forms. It has every case in which a name can be found but not matched, or the other way round.
SYNSETS = {
    "noun": [
        "shop store",
        "Satan devil Prince_of_Darkness",
        "Paris City_of_Light",
        "comic_strip funnies strip",
        "comic",
        "strip",
        "24 two_dozen",
        "man",
        "wolf",
        "bus",
        "lens",
        "ash",
        "lady",
        "ax axe",
        "axis",
        "eyrir",
        "leaf",
        "brant brent_goose",
        "brent",
    ],
    "verb": ["shop", "store stash", "marry wed", "go travel", "bus", "axe ax", "strip", "fine mulct"],
    "adj": ["fine(a) good", "better(p)", "fine(ip) thin", "tame broken_in", "hot", "offer"],
    "adv": ["better", "well good", "hotter"],
}
EXCEPTIONS = {
    "noun": [
        "comics comic_strip comic",
        "axes ax axis",
        "aurar eyir",
        "aurar eyrir",
        "lens lens",
        "brants brent",
        "brants brant",
    ],
    "verb": ["went go", "goes gone", "fines"],
    "adj": ["better good", "offer off", "offer offer", "hotter hot"],
    "adv": ["better well"],
}
ENDINGS = re.split(" ", " s es ed ing er est ses ves xes zes ches shes men ies d r st y")


@pytest.fixture(scope="module")
def recipe():
    spec = importlib.util.spec_from_file_location("convert_wordnet", ROOT / "recipes" / "convert_wordnet.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def nltk_data(monkeypatch):
    """NLTK as it is straight after its installation, without a corpus; what a test adds here is where NLTK looks."""
    from nltk.corpus.reader.wordnet import WordNetCorpusReader
    from nltk.corpus.util import LazyCorpusLoader

    folders = []
    monkeypatch.setattr(nltk.data, "path", folders)
    monkeypatch.setattr(nltk.corpus, "wordnet", LazyCorpusLoader("wordnet", WordNetCorpusReader, False))
    thesaurus.cache_clear()
    yield folders
    thesaurus.cache_clear()


@pytest.fixture
def database(tmp_path):
    """The small WordNet as files in the form of a WordNet database, and what NLTK wants beside them."""
    folder = tmp_path / "corpora" / "wordnet"
    folder.mkdir(parents=True)
    for part, synsets in SYNSETS.items():
        letter = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}[part]
        data = "  1 Do as you like.  \n  2   \n  3 WordNet 3.0 Copyright 2006 by nobody.  \n"
        head, offsets = len(data), defaultdict(list)
        for synset in synsets:
            names = synset.split()
            offset = len(data)
            satellite = part == "adj" and offset != head
            fields = [f"{offset:08}", "00", "s" if satellite else letter, f"{len(names):02x}"]
            fields += [f"{name} 0" for name in names]
            fields.append(f"001 & {head:08} a 0000" if satellite else "000")
            data += " ".join(fields) + " | a meaning  \n"
            for name in names:
                offsets[name.split("(")[0].lower()].append(f"{offset:08}")
        index = [f"{name} {letter} {len(at)} 0 {len(at)} 0 {' '.join(at)}  \n" for name, at in sorted(offsets.items())]
        (folder / f"data.{part}").write_text(data)
        (folder / f"index.{part}").write_text("".join(index))
        (folder / f"{part}.exc").write_text("\n".join(EXCEPTIONS[part]) + "\n")
    (folder / "lexnames").write_text("00\tall\t0\n")
    (folder / "index.sense").touch()
    (folder / "cntlist.rev").touch()
    return folder


def test_the_score_is_the_one_worked_out_by_hand():
    # "she" and "the" are equal, "loved" and "loves" have the stem "love", and "shops" has the stem "shop", a synonym
    # of "store": 4 matches of 4 and 5 words in a single run, so P = 1, R = 4/5, F = P R / (0.9 P + 0.1 R) = 0.8 / 0.98
    # and the penalty is 0.5 (1/4)^3 = 1/128.
    by_hand = 0.8 / 0.98 * (1 - 1 / 128)
    hypothesis, reference = ["she", "loved", "the", "shops"], ["she", "loves", "the", "store", "today"]
    assert meteor([hypothesis], [reference]) == pytest.approx([by_hand])


def test_the_scores_are_those_of_nltk_with_its_own_reader():
    hypotheses, references, scores = zip(*GOLDEN["scores"], strict=True)
    found = meteor([text.split() for text in hypotheses], [text.split() for text in references])
    assert thesaurus().name == "wordnet-3.0-embedded"
    assert found == pytest.approx(list(scores), abs=1e-12)
    assert all(0 <= score <= 1 for score in found)


def test_the_synonyms_are_those_of_nltk_s_own_reader():
    found = {word: " ".join(sorted(embedded_thesaurus().synonyms(word))) for word in GOLDEN["synonyms"]}
    assert found == GOLDEN["synonyms"]
    assert len(found) > 200


def test_a_hypothesis_is_scored_against_the_reference_in_its_place_and_not_the_other_way_round():
    short, long = ["fine", "food"], ["fine", "food", "here", "and", "there"]
    one_way, other_way, alone = meteor([short, long, []], [long, short, long])
    assert one_way < other_way  # recall weighs nine times as much as precision
    assert alone == 0.0


def test_the_words_are_compared_in_lower_case():
    assert meteor([["FINE", "Shops"]], [["fine", "store"]]) == meteor([["fine", "shops"]], [["Fine", "STORE"]]) > [0.9]


def test_the_parameters_are_the_defaults_of_nltk():
    parameters = inspect.signature(meteor_score.single_meteor_score).parameters
    assert [parameters[name].default for name in ("alpha", "beta", "gamma")] == [ALPHA, BETA, GAMMA]
    assert type(parameters["stemmer"].default).__name__ == "PorterStemmer"


def test_the_signature_names_the_versions_and_the_parameters():
    assert signature() == f"METEOR|nltk:{nltk.__version__}|wordnet-3.0-embedded|alpha:0.9|beta:3.0|gamma:0.5|porter"


@pytest.mark.parametrize("packed", ["as a folder", "as a zip"])
def test_the_wordnet_that_nltk_has_installed_goes_first(database, nltk_data, tmp_path, packed):
    if packed == "as a zip":
        with zipfile.ZipFile(database.with_suffix(".zip"), "w") as archive:
            archive.writestr("wordnet/", "")
            for file in sorted(database.iterdir()):
                archive.write(file, f"wordnet/{file.name}")
                file.unlink()
        database.rmdir()
    nltk_data.append(str(tmp_path))
    assert thesaurus().name == "wordnet-3.0-nltk"
    assert "|wordnet-3.0-nltk|" in signature()
    assert thesaurus().synonyms("comics") == {"comic", "funnies", "strip"}
    assert thesaurus().synonyms("films") == set()  # which only the embedded one knows
    assert meteor([["the", "shops"]], [["the", "store"]]) == [0.9375]


@pytest.mark.parametrize("broken", ["data.adj", "verb.exc"])
def test_an_incomplete_wordnet_of_nltk_gives_way_to_the_embedded_one(database, nltk_data, tmp_path, broken):
    (database / broken).unlink()
    nltk_data.append(str(tmp_path))
    assert thesaurus().name == "wordnet-3.0-embedded"


def test_the_compact_form_of_a_small_wordnet_answers_like_nltk_s_reader(recipe, database, tmp_path):
    synonyms = compact_synonyms(recipe.convert(database, tmp_path / "compact"))
    reader = recipe.nltk_reader(database)
    names = {name.split("(")[0].lower() for part in SYNSETS.values() for line in part for name in line.split()}
    forms = {form for part in EXCEPTIONS.values() for line in part for form in line.split()}
    stems = {word[: len(word) - cut] for word in names | forms for cut in range(4)}
    words = sorted({stem + ending for stem in stems for ending in ENDINGS})
    assert recipe.differences(reader, synonyms, [*words, *map(str.upper, words)]) == []
    assert sum(bool(synonyms(word)) for word in words) > 50


def test_the_comparison_with_nltk_s_reader_notices_a_lost_synonym(recipe, database, tmp_path):
    compact = recipe.convert(database, tmp_path / "compact")
    compact["noun"]["synonyms"].remove("shop store")
    assert recipe.differences(recipe.nltk_reader(database), compact_synonyms(compact), ["shop", "wolf"]) == ["shop"]


def test_a_name_with_a_capital_or_a_space_leads_to_synonyms_but_is_none(recipe, database, tmp_path):
    synonyms = compact_synonyms(recipe.convert(database, tmp_path / "compact"))
    assert synonyms("satan") == synonyms("prince_of_darkness") == synonyms("devils") == {"devil"}
    assert synonyms("paris") == set()


def test_the_recipe_writes_the_same_bytes_every_time_and_the_licence_without_line_numbers(recipe, database, tmp_path):
    recipe.convert(database, tmp_path / "one")
    recipe.convert(database, tmp_path / "other")
    packed = (tmp_path / "one" / "english.json.gz").read_bytes()
    assert packed == (tmp_path / "other" / "english.json.gz").read_bytes()
    assert packed[3:8] == bytes(5)  # neither a file name nor a time
    assert (tmp_path / "one" / "LICENSE").read_text() == "Do as you like.\n\nWordNet 3.0 Copyright 2006 by nobody.\n"


def test_the_data_is_small_and_comes_with_its_licence():
    assert len((DATA / "english.json.gz").read_bytes()) < 700_000
    licence = (DATA / "LICENSE").read_text("utf-8")
    assert "WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved." in licence
    assert licence.endswith("LICENSEE agrees to preserve same.\n")


@needs_database
def test_the_data_is_what_the_recipe_makes_of_the_database(recipe, tmp_path):
    compact = recipe.convert(DATABASE, tmp_path)
    assert json.loads(gzip.decompress((DATA / "english.json.gz").read_bytes())) == compact
    assert (tmp_path / "LICENSE").read_bytes() == (DATA / "LICENSE").read_bytes()


@needs_database
def test_the_data_answers_like_nltk_s_reader_of_the_database(recipe):
    compact = json.loads(gzip.decompress((DATA / "english.json.gz").read_bytes()))
    reader = recipe.nltk_reader(DATABASE)
    # All of it takes minutes and is the recipe's business; these are from every part of the alphabet.
    words = recipe.lookups(compact, sorted(set(reader.all_lemma_names()))[::500])[::4]
    assert recipe.differences(reader, embedded_thesaurus().synonyms, words) == []
    assert len(words) > 3_000


def test_hypotheses_without_their_references_are_refused():
    with pytest.raises(UsageError, match="2 hypotheses and 1 references"):
        meteor([["a"], ["b"]], [["a"]])


@pytest.mark.parametrize(("hypothesis", "reference"), [("a shop", ["a"]), (["a"], "a shop")])
def test_a_text_that_is_not_split_into_words_is_refused(hypothesis, reference):
    with pytest.raises(UsageError, match=r'the string "a shop"\. Expected a list of words'):
        meteor([hypothesis], [reference])


def test_without_nltk_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "nltk", None)
    for call in (lambda: meteor([["a"]], [["a"]]), signature, thesaurus):
        with pytest.raises(MissingPartError, match=r"METEOR needs the package nltk.*pointer-text\[eval\]"):
            call()
