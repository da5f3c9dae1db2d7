"""A text becomes a row: tokenise, score, schedule. One row holds everything that training derives its pairs from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pointer.errors import UsageError
from pointer.prepare.importance import PARTS, Frequencies, Importance, paper_scorer
from pointer.prepare.keywords import MOST_KEYWORDS, draw, keyword_ranks, random_for
from pointer.prepare.stages import SKELETON_SIZE, schedule
from pointer.prepare.yake import Yake, stop_words
from pointer.vocabulary import Encoding, Vocabulary

SKELETONS = ("importance", "keywords", "mixed")


@dataclass(frozen=True)
class RowSettings:
    """How texts become rows; the CLI, the manifest and the model card show the same object."""

    importance: tuple[str, ...] = PARTS
    """The parts that are added up; none gives interleaved masking."""
    tagger: str = "perceptron"
    """The part-of-speech tagger: `perceptron` (embedded, English) or `spacy:MODEL`."""
    language: str = "en"
    """Two letters; chooses the stop words of YAKE's lists."""
    skeleton: str = "importance"
    """What X^0 is: the most important words, the drawn keywords, or for each text one of the two."""
    keywords: int = 7
    """The most keywords of a `keywords` skeleton."""
    skeleton_size: int = SKELETON_SIZE
    """An `importance` skeleton has fewer tokens than this."""
    seed: int = 0
    """Of the draws; the same text gets the same draw wherever it stands."""

    def __post_init__(self) -> None:
        unknown = [part for part in self.importance if part not in PARTS]
        if unknown:
            raise UsageError(
                f'importance: expected parts out of {", ".join(PARTS)}, found "{unknown[0]}".',
                "Separate the parts by commas, for example tfidf,pos; none gives interleaved masking.",
            )
        if self.tagger != "perceptron" and not self.tagger.startswith("spacy:"):
            raise UsageError(
                f'tagger: expected perceptron or spacy:MODEL, found "{self.tagger}".', "Choose one of these."
            )
        if self.skeleton not in SKELETONS:
            raise UsageError(
                f'skeleton: expected {", ".join(SKELETONS)}, found "{self.skeleton}".', "Choose one of these."
            )
        if not 1 <= self.keywords <= MOST_KEYWORDS:
            raise UsageError(
                f"keywords: expected a number from 1 to {MOST_KEYWORDS}, found {self.keywords}.", "Ask for fewer."
            )
        if self.skeleton_size < 2:
            raise UsageError(f"skeleton_size: expected at least 2, found {self.skeleton_size}.", "The paper has 4.")


@dataclass(frozen=True)
class Row:
    """One text: its tokens, the stage each is born at, what it is worth, and its rank as a keyword (0: none)."""

    ids: npt.NDArray[np.int64]
    stage: npt.NDArray[np.uint8]
    importance: npt.NDArray[np.float64]
    rank: npt.NDArray[np.uint8]


class RowMaker:
    """Turns texts into rows, with one vocabulary, one corpus' document frequencies and one set of settings."""

    def __init__(self, vocabulary: Vocabulary, frequencies: Frequencies, settings: RowSettings) -> None:
        self.vocabulary = vocabulary
        self.settings = settings
        self.yake = Yake(stop_words(settings.language))
        self.scorer = paper_scorer(frequencies, self.yake, settings.importance, settings.tagger)

    def __call__(self, texts: Sequence[str]) -> list[Row]:
        """The rows of normalised texts, in order."""
        return self.scored_rows(texts)[0]

    def scored_rows(self, texts: Sequence[str]) -> tuple[list[Row], list[Encoding], list[Importance]]:
        """The rows together with the words and word scores that they come from."""
        encodings = self.vocabulary.encode(texts)
        words = [encoding.words for encoding in encodings]
        scores, ranks = self.scorer(words), keyword_ranks(words, self.yake)
        alphas = [s.alpha[e.word_of] for s, e in zip(scores, encodings, strict=True)]
        piece_ranks = [r[e.word_of] for r, e in zip(ranks, encodings, strict=True)]
        skeletons = [self._skeleton(text, rank) for text, rank in zip(texts, ranks, strict=True)]
        unknown = self.vocabulary.id("[UNK]")
        stages = schedule(
            alphas,
            [self.vocabulary.continues[e.ids] for e in encodings],
            [chosen[e.word_of] | (e.ids == unknown) for chosen, e in zip(skeletons, encodings, strict=True)],
            [0 if chosen.any() else self.settings.skeleton_size for chosen in skeletons],
        )
        ids = [encoding.ids for encoding in encodings]
        rows = [Row(*columns) for columns in zip(ids, stages, alphas, piece_ranks, strict=True)]
        return rows, encodings, scores

    def _skeleton(self, text: str, ranks: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """Which words a `keywords` skeleton keeps; none leaves it to importance."""
        chosen = np.zeros(len(ranks), bool)
        if self.settings.skeleton == "importance":
            return chosen
        text, seed = text.lower(), self.settings.seed
        if self.settings.skeleton == "keywords" or random_for(f"which skeleton\0{text}", seed).random() < 0.5:
            chosen[draw(ranks, self.settings.keywords, random_for(text, seed))] = True
        return chosen
