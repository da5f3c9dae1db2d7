"""Corpus text as plain strings: normalising, splitting into sentences, and learning how words are cased."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pointer.english import ABBREVIATIONS, NEVER_A_NAME, OPENS_SENTENCE

_TYPOGRAPHY = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u0060\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033", '"'),
        **dict.fromkeys("\u2010\u2011", "-"),
        "\u2026": "...",
    }
)
_INVISIBLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\u00ad\u200b-\u200f\u2028-\u202e\u2060\ufeff\ufffd]")
_SPACE = re.compile(r"\s+")


def normalise(text: str) -> str:
    """One form for one text: composed characters, plain quotes, single spaces, nothing invisible.

    >>> normalise("  \u201cWell\u2026\u201d,\\tshe said\u00a0. ")
    '"Well...", she said .'
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text).translate(_TYPOGRAPHY)
    return _SPACE.sub(" ", _INVISIBLE.sub(" ", text)).strip()


# A possible sentence end: the mark, what closes with it, and the space after it.
_END = re.compile(r"""[.!?]+["')\]]*\s+""")


def split_sentences(text: str) -> list[str]:
    """Split a normalised text into sentences; joined with spaces they are the text again.

    >>> split_sentences('Dr. Lee paid 3.5 dollars. "Why?" asked J. Doe. The U.S. team won!')
    ['Dr. Lee paid 3.5 dollars.', '"Why?" asked J. Doe.', 'The U.S. team won!']
    """
    sentences, start = [], 0
    for end in _END.finditer(text):
        if _ends_sentence(text[start : end.start()], text[end.start() : end.end()], text[end.end() :][:1]):
            sentences.append(text[start : end.end()].rstrip())
            start = end.end()
    if text[start:].strip():
        sentences.append(text[start:].strip())
    return sentences


def _ends_sentence(before: str, mark: str, after: str) -> bool:
    if before.endswith(" ") or not before:  # text with spaces round its punctuation has no abbreviations left to guess
        return True
    if after.islower():
        return False
    if mark.strip() != ".":
        return True
    word = before.rsplit(None, 1)[-1].lstrip("\"'([").lower()
    return not ABBREVIATIONS.fullmatch(word)


@dataclass
class Casing:
    """Counts of how words and pairs of words are written away from sentence starts, where case says something.

    >>> casing = Casing()
    >>> casing.add([["he", "met", "Obama", "in", "New", "York", "."]] * 3 + [["a", "new", "day"]] * 9)
    >>> casing.table()
    {'words': {'obama': 'Obama', 'york': 'York'}, 'pairs': {'new york': 'New York'}}
    """

    words: Counter[str] = field(default_factory=Counter)
    pairs: Counter[str] = field(default_factory=Counter)

    def add(self, texts: Iterable[Sequence[str]]) -> None:
        """Count the words of texts, each a list of words as written."""
        for text in texts:
            lowered = [word.lower() for word in text]
            if 4 * sum(map(str.islower, text)) < sum(map(str.isalpha, text)):
                continue  # headlines and shouting say nothing about a word's usual form
            opening = True
            for i, word in enumerate(text):
                if not opening and word[0].isalpha():
                    self.words[word] += 1
                    if word != lowered[i] and text[i - 1].isalpha() and text[i - 1] != lowered[i - 1]:
                        self.pairs[f"{text[i - 1]} {word}"] += 1
                opening = word in OPENS_SENTENCE or (opening and not word[0].isalnum())

    def table(self, least: int = 3) -> dict[str, dict[str, str]]:
        """The usual form of every word that is not lower-case, and the pairs that words alone would get wrong."""
        total: Counter[str] = Counter()
        for form, count in self.words.items():
            total[form.lower()] += count
        words = {
            form.lower(): form
            for form, count in sorted(self.words.items())
            if form != form.lower() and count >= least and 2 * count > total[form.lower()]
        }
        pairs: dict[str, str] = {}
        for pair, count in sorted(self.pairs.items(), key=lambda item: (-item[1], item[0])):
            lower = pair.lower()
            known = " ".join(words.get(word, word) for word in lower.split(" "))
            if count >= least and lower not in pairs and known != pair and _is_name(pair, words):
                pairs[lower] = pair
        return {"words": words, "pairs": dict(sorted(pairs.items()))}


def _is_name(pair: str, words: Mapping[str, str]) -> bool:
    """Is a pair more than a heading (`Customer Service`) or shouting (`SO GOOD`)? One word is a name."""
    lower = pair.lower().split(" ")
    return not pair.isupper() and not any(map(NEVER_A_NAME.fullmatch, lower)) and any(word in words for word in lower)
