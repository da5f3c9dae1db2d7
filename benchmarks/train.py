"""How fast training goes: our batches against unsorted ones padded to 256, and what a smaller vocabulary buys.

    POINTER_DATA=... python benchmarks/train.py [--lines 3000] [--rounds 12] [--size mini]

The variants take turns, step by step, so that a busy machine slows all of them alike. Useful tokens are those of
training inputs, `[CLS]` and `[SEP]` included, padding not; a text counts as done with as many of them as it has.
"""

import argparse
import itertools
import lzma
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from corpora import corpus_file

from pointer.checkpoint import SIZES
from pointer.model import InsertionTransformer
from pointer.prepare.corpus import Corpus
from pointer.prepare.shards import Preparation, PreparedData, Rows, prepare
from pointer.training.batches import IGNORED, Place
from pointer.training.objective import gap_loss
from pointer.training.pairs import Batch, StageBatches, all_pairs, collate
from pointer.training.settings import Stages
from pointer.vocabulary import Vocabulary

PADDED = 256
"""Positions of every input in the authors' release."""
BATCH_TOKENS = 2048
FULL_VOCABULARY = 30_522
"""Entries of bert-base-uncased."""


@dataclass
class Variant:
    """One way to train: a model, its stream of batches with the useful tokens in each, and what was measured."""

    name: str
    model: InsertionTransformer
    batches: Iterator[tuple[Batch, int, float]]
    loss: Callable[[InsertionTransformer, Batch], torch.Tensor]
    seconds: float = 0.0
    tokens: int = 0
    texts: float = 0.0

    def __post_init__(self) -> None:
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-5, fused=True)

    def step(self, measured: bool) -> None:
        """One optimizer step."""
        start = time.perf_counter()
        batch, tokens, texts = next(self.batches)
        (self.loss(self.model, batch) / tokens).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if measured:
            self.seconds += time.perf_counter() - start
            self.tokens += tokens
            self.texts += texts


def plain_loss(model: InsertionTransformer, batch: Batch) -> torch.Tensor:
    """The objective as one writes it first: logits at every position, padding included."""
    logits = model(batch.ids, attention_mask=batch.attention).logits  # B T V
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED)


def padded_batches(rows: Rows, vocabulary: Vocabulary) -> Iterator[tuple[Batch, int, float]]:
    """Pairs in random order, every input padded to 256."""
    random = np.random.default_rng(0)
    pairs = all_pairs(rows, Stages(), random)
    per_text = pairs.positions.sum() / len(rows)
    while True:
        chosen = pairs[random.choice(len(pairs), BATCH_TOKENS // PADDED)]
        batch = collate(rows, chosen, vocabulary)
        missing = PADDED - batch.ids.shape[1]
        ids = torch.nn.functional.pad(batch.ids, (0, missing), value=vocabulary.id("[PAD]"))
        labels = torch.nn.functional.pad(batch.labels, (0, missing), value=IGNORED)
        attention = (ids != vocabulary.id("[PAD]")).long()
        padded = Batch(ids, attention, labels, batch.weight, batch.stage)
        yield padded, int(chosen.positions.sum()), chosen.positions.sum() / per_text


def our_batches(rows: Rows, vocabulary: Vocabulary, closing_share: float) -> Iterator[tuple[Batch, int, float]]:
    """The batches that training uses."""
    stages = Stages(closing_share=closing_share)
    stream = StageBatches(rows, vocabulary, stages, BATCH_TOKENS)
    per_text = all_pairs(rows, stages, np.random.default_rng(0)).positions.sum() / len(rows)
    for step in stream(Place()):
        [pairs] = step.batches
        yield collate(step.rows, pairs, vocabulary), int(pairs.positions.sum()), pairs.positions.sum() / per_text


def widened(model: InsertionTransformer) -> InsertionTransformer:
    """The same model with as many vocabulary entries as BERT has."""
    model.resize_token_embeddings(FULL_VOCABULARY, mean_resizing=False)
    return model


def main() -> None:
    """Run all variants and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=3000, help="lines of the Wikipedia corpus")
    parser.add_argument("--rounds", type=int, default=12, help="measured steps of each variant")
    parser.add_argument("--size", choices=list(SIZES), default="mini", help="size of the model")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "wiki.txt"
        source = corpus_file("wiki/train")
        with lzma.open(source, "rt", encoding="utf-8") as lines:
            corpus.write_text("".join(itertools.islice(lines, arguments.lines)), "utf-8")
        prepare(Preparation(Corpus((str(corpus),))), Path(scratch) / "data", workers=os.cpu_count() or 1)
        data = PreparedData.open(Path(scratch) / "data")
        rows, vocabulary = data.load(), data.vocabulary

    def model() -> InsertionTransformer:
        return InsertionTransformer.start(arguments.size, vocabulary, dropout=0.0)

    variants = [
        Variant(
            "unsorted, padded to 256, 30,522 entries", widened(model()), padded_batches(rows, vocabulary), plain_loss
        ),
        Variant("unsorted, padded to 256", model(), padded_batches(rows, vocabulary), plain_loss),
        Variant("ours, 30,522 entries", widened(model()), our_batches(rows, vocabulary, 1.0), gap_loss),
        Variant("ours", model(), our_batches(rows, vocabulary, 1.0), gap_loss),
        Variant("ours, a quarter of the closing pairs", model(), our_batches(rows, vocabulary, 0.25), gap_loss),
    ]
    for turn in range(arguments.rounds + 1):
        for variant in variants:
            variant.step(measured=turn > 0)
    speeds = {v.name: (v.tokens / v.seconds, v.texts / v.seconds) for v in variants}
    base, base_texts = speeds["unsorted, padded to 256"]
    print(f"{arguments.size}, {len(vocabulary):,} entries unless said otherwise, {torch.get_num_threads()} threads")
    print(f"{'':42}{'useful tokens/s':>16}{'':>8}{'texts/s':>9}")
    for name, (tokens, texts) in speeds.items():
        print(f"{name:42}{tokens:16,.0f}{tokens / base:7.1f}x{texts:9,.1f}{texts / base_texts:7.1f}x")


if __name__ == "__main__":
    main()
