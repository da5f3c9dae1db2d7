"""The texts that the model `writer` learns from: a file for each style, one text a line.

    apt-get install wordnet-base
    POINTER_DATA=... python recipes/writer_texts.py OUT

Captions that are no sentences teach a model to write none, so everyday texts are kept if they have a finite verb and
none of the stand-ins by which captions of one source hide names ("actor attends premiere"). Beside them stand the
sentences by which WordNet shows how a word is used: short, whole, of every kind of thing. News with spaces round its
marks is written as people write. Nothing that is kept for the scorer of perplexity is read.
"""

import json
import lzma
import os
import random
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from pointer.prepare.tagging import tag
from pointer.text import normalise, split_sentences
from pointer.writing import Unit, write

DATA = Path(os.environ["POINTER_DATA"])
WORDNET = Path("/usr/share/wordnet")
FINITE = {"VBZ", "VBD", "VBP", "MD"}
DESCRIBES = {"JJ", "JJR", "JJS", "RB", "VBN", "VBG", "NN", "NNP"}
STAND_IN = re.compile(
    r"(?P<before>\w+ )?\b(actor|actress|person|politician|athlete|business|celebrity|artist|character|country|industry|"
    r"film|festival|sport|soccer|football|award|holiday|military|ship|novel|author|award winner|biological species|"
    r"geographical feature|automobile model|census|tourist attraction|organi[sz]ation|structure|filming location|tv|"
    r"invention|ingredient|footballer|cricketer|government agency|us state|republic|continent|armed force|player|"
    r"sports league|sports team|venue|title|organism|monarch|religious leader|performance|profession|event)s?\b",
    re.IGNORECASE,
)
DETERMINERS = re.compile(r"a|an|the|th(is|at|ese|ose)|each|every|another|one|some|any|no|my|your|his|her|its|our|their")
CAPTIONS = re.compile(
    r"\b(vector|illustration|isolated|clipart|silhouette|premiere|royalty|stock|person's|icon|seamless|wallpaper|"
    r"watermark|actors attend)\b",
    re.IGNORECASE,
)
ODD = re.compile(r"\.\.|[`\\/*<>\[\]#_=@{}|~^\"()]|\d{3}|[A-Z]{3}|https?:|www")
WORD = re.compile(r"\w+(?:'\w+)?|[^\w\s]")


def lines(name: str) -> Iterator[str]:
    with lzma.open(DATA / name, "rt", encoding="utf-8") as file:
        for line in file:
            yield normalise(line)


def is_plain(text: str, least: int, most: int) -> bool:
    """A whole sentence or passage of ordinary words?"""
    size = len(text.split())
    return least <= size <= most and text[0].isupper() and text[-1] in ".!?" and not ODD.search(text)


def tags_of(texts: list[str]) -> list[list[str]]:
    """Parts of speech; the capital of a first word would make a name of it."""
    words = [WORD.findall(text if text.startswith("I ") else text[0].lower() + text[1:]) for text in texts]
    return tag(words)


def with_finite_verb(texts: list[str]) -> list[str]:
    return [text for text, tags in zip(texts, tags_of(texts), strict=True) if FINITE & set(tags)]


def has_stand_in(text: str) -> bool:
    """Does a caption hide a name behind a kind of thing: `actor attends gala`, where people write `the actor`?"""
    found = (match["before"] for match in STAND_IN.finditer(text))
    return any(not DETERMINERS.fullmatch((before or "").strip().lower()) for before in found)


def begins_bare(tags: list[str]) -> bool:
    """Does a caption begin with one thing and no article: `union celebrates goal`?"""
    size = next((i for i, tag in enumerate(tags) if tag not in DESCRIBES), len(tags))
    return "NN" in tags[:size] and tags[size - 1] == "NN"


def captions() -> tuple[list[str], list[str]]:
    """The texts of CommonGen: whole sentences, and captions that are none."""
    texts = []
    for line in lines("commongen/train.jsonl.xz"):
        for text in json.loads(line)["texts"]:
            tidy = re.sub(r"\s+([.,!?;:])", r"\1", normalise(text)).replace(" 's", "'s").replace(" n't", "n't")
            tidy = tidy[:1].upper() + tidy[1:]
            texts.append(tidy if tidy[-1:] in ".!?" else f"{tidy}.")
    kept = [text for text in dict.fromkeys(texts) if is_plain(text, 4, 25) and not CAPTIONS.search(text)]
    kept = [text for text in kept if not has_stand_in(text)]
    tags = tags_of(kept)
    whole = [text for text, found in zip(kept, tags, strict=True) if FINITE & set(found) and not begins_bare(found)]
    return whole, [text for text, found in zip(kept, tags, strict=True) if not FINITE & set(found)]


def shown_by_wordnet() -> list[str]:
    """The whole sentences among WordNet's examples of how a word is used."""
    found = []
    for path in sorted(WORDNET.glob("data.*")):
        for line in path.read_text("latin-1").splitlines():
            found += re.findall(r'"([^"]+)"', line.partition("|")[2])
    tidy = (text.strip(" ;,:-") for text in map(normalise, found))
    whole = [text if text[-1] in ".!?" else f"{text}." for text in tidy if text]
    texts = [text[0].upper() + text[1:] for text in dict.fromkeys(whole)]
    texts = [text for text in texts if is_plain(text, 4, 20) and ";" not in text]
    return [text for text, found in zip(texts, tags_of(texts), strict=True) if is_whole(found)]


def is_whole(tags: list[str]) -> bool:
    """Has a sentence a subject and a verb: no `preached patriotism`, no `a speaker who bored them`?"""
    verb = next((i for i, tag in enumerate(tags) if tag in FINITE), 0)
    return verb > 0 and tags[verb - 1] not in {"WDT", "WP"} and not tags[0].startswith("VB")


def sentences(texts: Iterable[str], least: int, most: int) -> list[str]:
    found = (sentence for text in texts for sentence in split_sentences(text))
    return with_finite_verb([sentence for sentence in found if is_plain(sentence, least, most)])


def as_written(text: str) -> str:
    """News that has spaces round its marks, as people write it."""
    written, _ = write([Unit(word) for word in text.split()], {})
    return written


def styles() -> Iterator[tuple[str, list[str]]]:
    reviews = list(islice(lines("yelp/train.txt.xz"), 99_000))
    passages = [text for text in reviews[:40_000] if is_plain(text, 12, 70)]
    short = sentences(reviews[40_000:99_000], 6, 18)
    random.Random(1).shuffle(short)
    whole, parts = captions()
    yield "everyday", 2 * whole + shown_by_wordnet() + short[:2_000]
    yield "captions", parts
    yield "reviews", some(passages, 4) + short[8_000:10_000]
    news = [as_written(text) for text in lines("news/train.txt.xz")]
    yield "news", some([text for text in news if is_plain(text, 8, 40)], 4)
    yield "wiki", some(sentences(islice(lines("wiki/train.txt.xz"), 40_000), 6, 26), 3)


def some(texts: list[str], thousands: int) -> list[str]:
    """As many of the texts as an hour of training has room for."""
    return random.Random(0).sample(texts, 1000 * thousands)


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for style, texts in styles():
        random.Random(style).shuffle(texts)
        (out / f"{style}.txt").write_text("".join(f"{text}\n" for text in texts), "utf-8")
        words = sum(len(text.split()) for text in texts) / len(texts)
        print(f"{style}: {len(texts):,} texts of {words:.1f} words")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
