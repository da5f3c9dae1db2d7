"""Every word list of ours, and the few facts of English that the rules of decoding and writing go by.

The files beside this module are the English stop words (`pointer.prepare.yake.stop_words` has those of other languages
from the yake library), the embedded vocabulary and its tables.
"""

import re
from functools import cache

from pointer.errors import missing_extra

SENTENCE_ENDS = frozenset(".!?")
SENTENCE_MARKS = frozenset(".,!?;:")

ABBREVIATIONS = re.compile(
    r"mrs?|ms|dr|prof|sen|rep|gov|gen|col|sgt|capt|lt|cmdr|rev|hon|st|mt|ft|sr|jr|vs|etc|inc|ltd|co|corp|bros|no|vol|fig|"
    r"al|approx|dept|est|min|max|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|ph|cf|ca|pp|eds?"
    r"|\w|(\w\.)+\w"  # initials, e.g., U.S.
)
"""What a dot follows without ending a sentence."""
NOT_ONLY_ABBREVIATIONS = frozenset(["i", "etc", "no", "co", "al", "min", "max", "mar", "dec", "est", "fig"])
"""Abbreviations that a sentence ends with as often as not, or that are words as well."""
OPENS_SENTENCE = frozenset(".!?:;\"'()[]-\u2013\u2014*\u2022")
"""What makes the next word the first of a sentence, and what may stand between the two."""
NEVER_A_NAME = re.compile(
    r"a|all|an|and|are|as|at|be|because|but|by|can|do|during|for|from|go|had|has|have|he|her|his|i|if|in|is|it|its|my|no|"
    r"not|of|on|or|our|out|she|so|than|that|the|their|there|they|this|to|until|was|we|were|what|when|where|while|will|"
    r"with|you|your"
)
"""What is no part of a name, capital or not."""

ADDRESS = re.compile(r"\w+://|www\.|\S+@\S|\S+\.(com|org|net|io|gov|edu|co|uk|de)\b", re.IGNORECASE)
"""What an address on the Internet begins with; it has no capitals of its own."""

# Contractions. WordPiece cuts `don't` into `don`, `'` and `t`.

HALF_WORDS = frozenset([
    "ain", "aren", "couldn", "didn", "doesn", "don", "hadn", "hasn", "haven", "isn", "mustn", "needn", "shouldn",
    "wasn", "weren", "wouldn",
])  # fmt: skip
"""What is hardly a word without the `'t` that it had: with it, a constraint is not made another word, but whole."""
NOT = ("'t", "\u2019t")
"""What makes a half word whole."""
SHORT_FORMS = frozenset(["s", "d", "m", "re", "ve", "ll"])
"""What else follows an apostrophe."""
CLIPPED = re.compile(r"em|til|till|cause|n|tis|twas|bout|round|cuz|\d\ds?")
"""What an apostrophe stands before: 'em, the '90s."""

# Marks.

SAYING = re.compile(r"sa(id|ys?)|wr(ote|ites?)|t(old|ells)|add(ed|s)|ask(ed|s)|tweeted|explained|recalled")
"""What follows the end of a speech."""
OPENS_CLAUSE = re.compile(
    r"a|although|and|as|because|but|even|for|he|here|i|if|is|it|just|my|no|not|or|our|she|since|so|such|that|the|their|"
    r"then|there|they|this|very|was|we|what|when|where|which|while|who|why|with|you|your"
)
"""Before these a hyphen is a dash."""

# `a` or `an`.

NEVER_AFTER_AN_ARTICLE = re.compile(r"a|am|an|and|are|as|at|i|if|in|into|is|it|its|of|on|or|us")
"""Before these, `a` is a letter (vitamin a is good), or nothing is to be saved."""
SPOKEN_WITH_A_VOWEL = re.compile(r"[aeiou]|hour|honest|honou?r|heir|8|1[18](?!\d\b|\d\d\b)")
SPOKEN_WITH_A_CONSONANT = re.compile(r"(one|ones|once)\b|eu|ewe|u(ni(?![dmn])|s[aeu]|t[aeio]|ra|ri|bi)")


# ---------------------------------------------------------------------------------------------------------------------
# Forms of words, by the library lemminflect


@cache
def is_word(text: str) -> bool:
    """Does the dictionary have it, as a word or a form of one?"""
    return bool(_lemmas(text.lower()))


@cache
def inflections(word: str) -> frozenset[str]:
    """All forms of a word, itself among them, in lower case.

    >>> sorted(inflections("Bought"))
    ['bought', 'buy', 'buying', 'buys']
    """
    lemmas = _lemmas(word.lower())
    forms = {form for lemma in lemmas for form in _inflected(lemma)}
    return frozenset({word.lower(), *lemmas, *forms})


@cache
def word_forms(word: str) -> frozenset[str]:
    """The forms of a word that is meant as it stands: of `left` not those of `leave`, of `bought` those of `buy`.

    A word that the dictionary does not have is inflected by rule.

    >>> sorted(word_forms("left")), sorted(word_forms("frisbee"))
    (['left', 'lefts'], ['frisbee', 'frisbeed', 'frisbeeing', 'frisbees'])
    """
    word = word.lower()
    lemmas = _lemmas(word)
    if word in lemmas:
        return frozenset({word, *_inflected(word)})
    if lemmas or not word.isalpha():
        return inflections(word)
    from lemminflect import getAllInflectionsOOV

    guesses = [getAllInflectionsOOV(word, kind) for kind in ("NOUN", "VERB")]
    return frozenset({word, *(form for found in guesses for some in found.values() for form in some)})


def _lemmas(word: str) -> set[str]:
    try:
        from lemminflect import getAllLemmas
    except ImportError as missing:
        raise missing_extra("Any form of a word", "lemminflect", "writer") from missing
    return {lemma for found in getAllLemmas(word).values() for lemma in found}


def _inflected(lemma: str) -> set[str]:
    from lemminflect import getAllInflections

    return {form for found in getAllInflections(lemma).values() for form in found}
