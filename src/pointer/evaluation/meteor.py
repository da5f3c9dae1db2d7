"""METEOR, offline: NLTK computes the score, and WordNet 3.0 comes with the package.

NLTK aligns equal words, then equal Porter stems, then synonyms, which it asks WordNet for. Its own WordNet is a
separate download. Where that is installed it is used; otherwise the package's compact one answers
(`wordnet/README.md`), which gives NLTK the same synonyms and so the same scores. `signature` says which it was.
METEOR 1.5, which papers report, is another formula and a Java program; `meteor_by_jar` asks it.
"""

import gzip
import json
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

from pointer.errors import UsageError, missing_extra

# NLTK's defaults, written out so that a score and its signature cannot drift apart.
ALPHA, BETA, GAMMA = 0.9, 3.0, 0.5

# How NLTK undoes a regular inflection, by part of speech: an ending, and what stands in its place in the base form.
_ENDINGS = {
    "noun": "s: ses:s ves:f xes:x zes:z ches:ch shes:sh men:man ies:y",
    "verb": "s: ies:y es:e es: ed:e ed: ing:e ing:",
    "adj": "er: er:e est: est:e",
    "adv": "",
}


def meteor(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> list[float]:
    """The METEOR score in [0, 1] of each hypothesis against its reference; that of a corpus is their mean.

    Both sides are words, already tokenised; case does not count.

    >>> [round(score, 3) for score in meteor([["a", "big", "shop"], []], [["a", "big", "store"], ["so"]])]
    [0.981, 0.0]
    """
    if len(hypotheses) != len(references):
        raise UsageError(
            f"METEOR got {len(hypotheses)} hypotheses and {len(references)} references. Expected as many of each.",
            "Give one reference for every hypothesis, in the same order.",
        )
    untokenised = [text for texts in (hypotheses, references) for text in texts if isinstance(text, str)]
    if untokenised:
        raise UsageError(f'METEOR got the string "{untokenised[0]}". Expected a list of words.', "Tokenise it first.")
    _nltk()
    from nltk.translate.meteor_score import single_meteor_score

    wordnet, stemmer = thesaurus(), _stemmer()
    return [
        float(
            single_meteor_score(
                reference, hypothesis, stemmer=stemmer, wordnet=wordnet, alpha=ALPHA, beta=BETA, gamma=GAMMA
            )
        )
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]


def signature() -> str:
    """What METEOR was computed with, in one line that belongs beside every score."""
    version = _nltk().__version__
    return f"METEOR|nltk:{version}|{thesaurus().name}|alpha:{ALPHA}|beta:{BETA}|gamma:{GAMMA}|porter"


def meteor_by_jar(texts: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]], jar: Path) -> float:
    """METEOR 1.5 of all texts together, by its own Java program, as caption scorers call it; 0 to 1."""
    if not jar.is_file():
        raise UsageError(f"meteor-jar: expected a file, found none at {jar}.", "Name meteor-1.5.jar.")
    scored = [
        " ||| ".join(["SCORE", *(_without_bars(one) for one in some), _without_bars(words)])
        for words, some in zip(texts, references, strict=True)
    ]
    command = ["java", "-jar", "-Xmx2G", str(jar.resolve()), "-", "-", "-stdio", "-l", "en", "-norm"]
    try:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=jar.parent
        ) as java:
            assert java.stdin is not None and java.stdout is not None
            statistics = []
            for line in scored:
                java.stdin.write(line + "\n")
                java.stdin.flush()
                statistics.append(java.stdout.readline().strip())
            java.stdin.write(f"EVAL ||| {' ||| '.join(statistics)}\n")
            java.stdin.close()
            # One number for each text, then that of their statistics summed, which is what papers give.
            *_, overall = [float(line) for line in java.stdout.read().split()]
            return overall
    except FileNotFoundError:
        raise UsageError("meteor-jar: expected Java, found none.", "Install a Java runtime.") from None
    except (ValueError, BrokenPipeError):
        raise UsageError(
            f"meteor-jar: expected METEOR 1.5 in {jar}, found none that answers.",
            "Name its jar, with its folder data beside it.",
        ) from None


def _without_bars(words: Sequence[str]) -> str:
    """A text on a line of its own, without what separates texts there."""
    return " ".join(" ".join(words).replace("|||", " ").split())


class Thesaurus:
    """The synonyms of words, which it remembers, in the shape in which NLTK's METEOR asks a WordNet for them."""

    def __init__(self, name: str, synonyms: Callable[[str], Iterable[str]]) -> None:
        self.name = name
        """What it is and where it comes from, such as `wordnet-3.0-embedded`."""
        self.synonyms = cache(lambda word: frozenset(synonyms(word)))
        """What METEOR takes for a word: names in lower case without `_`, of its base forms and all their synonyms."""
        self.synsets = cache(lambda word: [_Synset([_Lemma(name) for name in self.synonyms(word)])])
        """The same as one set of lemmas: METEOR joins the sets of all meanings anyway."""


@dataclass(frozen=True)
class _Lemma:
    text: str

    def name(self) -> str:
        return self.text


@dataclass(frozen=True)
class _Synset:
    members: list[_Lemma]

    def lemmas(self) -> list[_Lemma]:
        return self.members


@cache
def thesaurus() -> Thesaurus:
    """NLTK's own WordNet where it is installed, otherwise the one of this package."""
    _nltk()
    from nltk.corpus import wordnet

    try:
        version = wordnet.get_version() or "unknown"  # at the first touch NLTK looks for a folder and for a zip
    except (LookupError, OSError, BadZipFile):  # not there, or only in part
        return embedded_thesaurus()
    return Thesaurus(
        f"wordnet-{version}-nltk",
        lambda word: _visible(lemma.name() for synset in wordnet.synsets(word) for lemma in synset.lemmas()),
    )


@cache
def embedded_thesaurus() -> Thesaurus:
    """The WordNet 3.0 of this package, whatever else is installed.

    >>> sorted(embedded_thesaurus().synonyms("happier"))
    ['felicitous', 'glad', 'happy', 'well-chosen']
    """
    packed = (resources.files("pointer.evaluation") / "wordnet" / "english.json.gz").read_bytes()
    return Thesaurus("wordnet-3.0-embedded", compact_synonyms(json.loads(gzip.decompress(packed))))


def compact_synonyms(parts_of_speech: dict[str, dict[str, Any]]) -> Callable[[str], set[str]]:
    """A function from a word to its synonyms, by the compact WordNet that `recipes/convert_wordnet.py` writes."""
    lexicons = [
        _lexicon(part["synonyms"], part["exceptions"], _ENDINGS[name]) for name, part in parts_of_speech.items()
    ]

    def synonyms(word: str) -> set[str]:
        word = word.lower()
        groups = (
            group
            for lexicon in lexicons
            for form in (word, *_base_forms(lexicon, word))
            for group in lexicon.groups.get(form, ())
        )
        return set(_visible(name for group in groups for name in group.split()))

    return synonyms


class _Lexicon(NamedTuple):
    """One part of speech."""

    groups: dict[str, list[str]]  # by lemma in lower case: groups of synonyms as they are written, "Satan devil"
    exceptions: dict[str, list[str]]  # base forms of the irregular forms
    endings: list[list[str]]


def _lexicon(lines: list[str], exceptions: dict[str, list[str]], endings: str) -> _Lexicon:
    groups = defaultdict(list)
    for line in lines:
        for lemma in line.lower().split():
            groups[lemma].append(line)
    return _Lexicon(dict(groups), exceptions, [pair.split(":") for pair in endings.split()])


def _base_forms(lexicon: _Lexicon, word: str) -> list[str]:
    """What `word` may be an inflection of; a form that is listed as irregular follows no rule."""
    if word in lexicon.exceptions:
        return lexicon.exceptions[word]
    return [word[: -len(ending)] + base for ending, base in lexicon.endings if word.endswith(ending)]


def _visible(names: Iterable[str]) -> Iterable[str]:
    """The names that METEOR can match: it drops phrases and compares with words in lower case."""
    return (name for name in names if "_" not in name and name == name.lower())


@dataclass(frozen=True)
class _Stemmer:
    """A stemmer that remembers; stemming is where METEOR's time goes."""

    stem: Callable[[str], str]


@cache
def _stemmer() -> _Stemmer:
    from nltk.stem.porter import PorterStemmer

    return _Stemmer(cache(PorterStemmer().stem))


def _nltk() -> Any:
    try:
        import nltk
    except ImportError as error:
        raise missing_extra("METEOR", "nltk", "eval") from error
    return nltk
