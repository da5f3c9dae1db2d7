"""Models that answer what a test wants: the logits of a gap depend on its text and place, and on nothing else."""

import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from pointer.decoding.parallel import ParallelPointer
from pointer.model import InsertionTransformer
from pointer.runtime import Floats, Ints
from pointer.vocabulary import Vocabulary

WORDS = ["the", "a", "is", "to", "from", "and", "great", "food", "drinks", "music", "was", "very", "clean", "staff"]
WORDS += ["friendly", "new", "york", "love", "rice", "back", "place"]
PIECES = ["##s", "##ly", "##er", "##1", "##ing"]
MARKS = [*".,!?;:'\"()-$%/"]
TOKENS = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *MARKS, *"0123456789", *WORDS, "ve", *PIECES]
TOKENS += ["i", "s", "don", "t"]

HOSTILE = ("random", "insert", "never", "specials", "pieces", "ties", "infinite", "digits")


def small_vocabulary(folder: Path) -> Vocabulary:
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(TOKENS)) + "\n")
    return Vocabulary.open(folder)


Answer = Callable[[list[int], int], np.ndarray]
"""`(ids of a text without padding, position) -> logits` of the gap right of that position."""


def scripted(vocabulary: Vocabulary, answer: Answer, **options: object) -> ParallelPointer:
    """A generator whose model answers by a script."""
    pad = vocabulary.id("[PAD]")

    def predict(ids: Ints, _: object, rows: Ints, positions: Ints) -> Floats:
        texts = [[i for i in row if i != pad] for row in ids.tolist()]
        answers = [answer(texts[r], p) for r, p in zip(rows.tolist(), positions.tolist(), strict=True)]
        return np.stack(answers).astype(np.float32)

    return ParallelPointer(predict, vocabulary, name="scripted", **options)  # type: ignore[arg-type]


def hostile(vocabulary: Vocabulary, mood: str, seed: int) -> Answer:
    """Logits that try to break the decoder, in one of the moods of `HOSTILE`."""
    size = len(vocabulary)
    special = vocabulary.special
    digits = [i for i, token in enumerate(vocabulary.tokens) if token.isdigit() or token in "-'"]

    random = np.random.default_rng(seed)
    logits = random.normal(0, 3, (997, size))
    if mood == "ties":
        logits = np.round(logits / 6)
    if mood == "infinite":
        logits = np.where(random.random(logits.shape) < 0.3, np.inf * np.sign(logits), logits)
    favoured = {"specials": special, "pieces": np.flatnonzero(vocabulary.continues), "digits": digits}
    if mood in favoured:
        logits[:, favoured[mood]] += 50
    logits[:, vocabulary.noi] += {"insert": -1e9, "never": 1e9, "ties": 0.0}.get(mood, 2.0)

    def answer(ids: list[int], position: int) -> np.ndarray:
        return logits[zlib.crc32(bytes([position % 256, *ids])) % len(logits)]

    return answer


def untrained(folder: Path, noi: float) -> Path:
    """A checkpoint of a small network with random weights that has favourites, and likes `[NOI]` so much."""
    torch.manual_seed(0)
    model = InsertionTransformer.start("tiny", Vocabulary.open("english"), positions=64)
    with torch.no_grad():
        model.cls.predictions.bias.normal_(0, 2)
        model.cls.predictions.bias[model.vocabulary.noi] = noi
    model.save_pretrained(folder)
    return folder
