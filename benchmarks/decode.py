"""How fast texts are decoded: the engine against one text at a time, padded to 256, six rounds. Same tokens.

    python benchmarks/decode.py [--size embedded base large] [--lists 32] [--threads 2] [--model FOLDER]
    POINTER_DATA=... python benchmarks/decode.py --model FOLDER --beam --flips --plot docs/decode.png

Everything runs in one go on this machine, so the ratios mean something. Random weights have no idea when a text is
finished, so a rule that looks at nothing but the sequence says which gaps stay empty; both loops obey it, and which
token goes into the others is up to the weights. `--beam`, `--flips` and `--plot` need a trained checkpoint and use
no rule.
"""

import argparse
import itertools
import lzma
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from corpora import corpus_file
from transformers import BertConfig

from pointer.decoding.constraints import INSERTED, Locks, first_stage, open_gaps
from pointer.decoding.demand import demand_of
from pointer.decoding.generator import Generation, Pointer
from pointer.decoding.grammar import parse, quote
from pointer.decoding.options import Options
from pointer.decoding.parallel import ParallelPointer
from pointer.decoding.search import at_once, fill
from pointer.model import InsertionTransformer
from pointer.prepare.keywords import keywords
from pointer.runtime import Floats, Ints, Predict
from pointer.runtime.torch import predictor
from pointer.vocabulary import Vocabulary

PADDED, ROUNDS = 256, 6
"""What the authors' release computes for every text."""
EMBEDDED = {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}
SIZES = ("embedded", "base", "large")
WARM_UP = 2


@dataclass(frozen=True)
class Corpus:
    """Typical lengths of a data set of the paper, and by how much the engine should win there."""

    name: str
    keywords: int
    tokens: int
    bar: float


CORPORA = (Corpus("Yelp", 7, 50, 9.0), Corpus("News", 4, 28, 18.0))


class Counted:
    """A predict function that counts forward passes and positions."""

    def __init__(self, predict: Predict) -> None:
        self.predict = predict
        self.passes = self.positions = 0

    def __call__(self, ids: Ints, attention: Ints | None, rows: Ints, positions: Ints) -> Floats:
        self.passes += 1
        self.positions += ids.size
        return self.predict(ids, attention, rows, positions)


class Growing(Counted):
    """A model whose texts grow to about so many tokens.

    A gap stays empty by a number in [0, 1) that depends on its neighbours, its place and the length of its text alone.
    """

    def __init__(self, predict: Predict, vocabulary: Vocabulary, tokens: int) -> None:
        super().__init__(predict)
        self.vocabulary, self.tokens = vocabulary, tokens

    def __call__(self, ids: Ints, attention: Ints | None, rows: Ints, positions: Ints) -> Floats:
        logits = super().__call__(ids, attention, rows, positions)  # G V
        logits[:, self.vocabulary.noi] = np.where(self.is_filled(ids, rows, positions), -1e3, 1e3)
        return logits

    def is_filled(self, ids: Ints, rows: Ints, positions: Ints) -> npt.NDArray[np.bool_]:
        """Which gaps get a token: nearly all of them while the text is short, none once it is long enough."""
        lengths = (ids != self.vocabulary.id("[PAD]")).sum(1)[rows] - 2  # G
        missing = self.tokens - lengths
        share = np.where(missing > 0.1 * self.tokens, missing / (lengths + 1), 0.0)
        left, right = ids[rows, positions], ids[rows, positions + 1]
        mixed = (left * 7919 + right * 104_729 + positions * 1_299_709 + lengths * 15_485_863) % 1_000_003
        found: npt.NDArray[np.bool_] = mixed * 48_271 % 1_000_003 / 1_000_003 < share
        return found


@dataclass(frozen=True)
class Subject:
    """A model to measure."""

    name: str
    model: InsertionTransformer
    vocabulary: Vocabulary

    @classmethod
    def of(cls, size: str, checkpoint: str | None, seed: int) -> "Subject":
        """The paper's sizes with random weights, or the embedded size from a checkpoint or with random weights."""
        torch.manual_seed(seed)
        vocabulary = Vocabulary.open("english")
        if size != "embedded":
            model = InsertionTransformer.start(size, vocabulary, positions=PADDED)
        elif checkpoint:
            model = InsertionTransformer.from_pretrained(checkpoint)
            assert model.vocabulary is not None
            vocabulary = model.vocabulary
        else:
            shape = EMBEDDED | {"vocab_size": len(vocabulary), "max_position_embeddings": PADDED}
            model = InsertionTransformer(BertConfig.from_dict(shape))
        config = model.config
        origin = "weights of the checkpoint" if size == "embedded" and checkpoint else "random weights"
        name = f"{size}: {config.num_hidden_layers} x {config.hidden_size}, {len(vocabulary):,} entries, {origin}"
        return cls(name, model.eval(), vocabulary)  # type: ignore[no-untyped-call]

    def words(self, count: int, each: int, seed: int) -> list[list[str]]:
        """Lists of random words of one piece."""
        tokens = self.vocabulary.tokens
        usable = [t for i, t in enumerate(tokens) if self.vocabulary.is_word[i] and t.isalpha() and len(t) > 3]
        random = np.random.default_rng(seed)
        return [random.choice([t for t in usable if not t.startswith("##")], each).tolist() for _ in range(count)]


@torch.inference_mode()
def one_at_a_time(subject: Subject, rule: Growing, constraints: list[str]) -> npt.NDArray[np.int64]:
    """One text as one writes it first: padded to 256, six rounds, logits everywhere; decides as the engine does."""
    vocabulary = subject.vocabulary
    tokens = first_stage(constraints, vocabulary, "fixed")
    specials = torch.from_numpy(vocabulary.special)
    pieces = torch.from_numpy(vocabulary.continues)
    for _ in range(ROUNDS):
        padded = torch.full((1, PADDED), vocabulary.id("[PAD]"))
        padded[0, : len(tokens)] = torch.from_numpy(tokens.ids)
        visible = (padded != vocabulary.id("[PAD]")).long()
        logits = subject.model(input_ids=padded, attention_mask=visible).logits[0]  # T V
        gaps = open_gaps(tokens, vocabulary, Locks())
        is_filled = torch.from_numpy(rule.is_filled(padded.numpy(), np.zeros_like(gaps), gaps))
        may_extend = torch.from_numpy((tokens.owner == INSERTED) & vocabulary.is_word[tokens.ids])
        scores = logits[gaps]  # G V
        scores[:, specials] = -torch.inf
        scores.masked_fill_(~may_extend[gaps, None] & pieces, -torch.inf)
        scores[:, vocabulary.noi] = torch.where(is_filled, -torch.inf, torch.inf)
        best = scores.argmax(-1).tolist()
        fills = {gap: token for gap, token in zip(gaps.tolist(), best, strict=True) if token != vocabulary.noi}
        tokens, _ = tokens.filled(fills)
    return tokens.ids


def timed(work: Callable[..., Any], *given: Any, **options: Any) -> tuple[float, Any]:
    """Seconds that some work takes, and what it returns."""
    start = time.perf_counter()
    result = work(*given, **options)
    return time.perf_counter() - start, result


def compare(subject: Subject, corpus: Corpus, lists: int, slow_lists: int, seed: int) -> None:
    """Bulk greedy decoding and a single request, ours and one at a time; stops where a token differs."""
    rule = Growing(predictor(subject.model), subject.vocabulary, corpus.tokens)
    pointer = ParallelPointer(rule, subject.vocabulary, longest=PADDED)
    asked = subject.words(lists + WARM_UP, corpus.keywords, seed)
    warm, asked = asked[:WARM_UP], asked[WARM_UP:]

    def ours(chosen: list[list[str]]) -> list[Generation]:
        found = pointer.generate_many(chosen, batch_size=lists, preset="plain", max_stages=ROUNDS)
        return [texts[0] for texts in found]

    ours(warm)
    one_at_a_time(subject, rule, warm[0])
    bulk, slow, single = [], [], []
    for one in asked[:slow_lists]:  # in turns, so that a busy machine slows all of them alike
        rule.passes = rule.positions = 0
        seconds, texts = timed(ours, asked)
        passes, positions = rule.passes, rule.positions / lists
        bulk.append(seconds)
        seconds, ids = timed(one_at_a_time, subject, rule, one)
        slow.append(seconds)
        seconds, [alone] = timed(ours, [one])
        single.append(seconds)
        expected = tuple(subject.vocabulary.tokens[i] for i in ids[1:-1])
        assert texts[asked.index(one)].tokens == alone.tokens == expected
    seconds, slow_seconds, latency = (statistics.median(found) for found in (bulk, slow, single))
    speedup, limit = slow_seconds * lists / seconds, PADDED * ROUNDS / positions
    length = statistics.mean(len(text.tokens) for text in texts)
    stages = statistics.mean(insertions(text) for text in texts)
    print(f"{corpus.name}: {corpus.keywords} keywords, {length:.1f} tokens, {stages:.1f} stages on average")
    print(f"  {'':24}{'texts':>7}{'texts/s':>10}{'positions/text':>16}{'latency of one':>16}")
    print(
        f"  {'padded, one at a time':24}{slow_lists:7}{1 / slow_seconds:10.2f}{PADDED * ROUNDS:16}{slow_seconds:15.3f}s"
    )
    print(f"  {'ours':24}{lists:7}{lists / seconds:10.2f}{positions:16.1f}{latency:15.3f}s   ({passes} passes)")
    print(
        f"  bulk {speedup:.1f}x (expected at least {corpus.bar:.0f}x: {verdict(speedup >= corpus.bar)}); limit by "
        f"positions {limit:.1f}x, {speedup / limit:.0%} of it (expected 80 %: {verdict(speedup >= 0.8 * limit)}); "
        f"latency {slow_seconds / latency:.1f}x; the first {slow_lists} texts are the same\n"
    )


def verdict(is_met: bool) -> str:
    """A bar, met or not."""
    return "met" if is_met else "MISSED"


def insertions(text: Generation) -> int:
    """Stages that inserted something: X^0 is none, and a converged text shows X^K twice."""
    return len(text.stages) - 1 - (text.stopped == "converged")


def keyword_lists(count: int, seed: int) -> list[list[str]]:
    """Four keywords of each of the first validation sentences of the Wikipedia corpus."""
    path = corpus_file("wiki/valid")
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        drawn = (keywords(line, 4, seed) for line in lines)
        return list(itertools.islice((words for words in drawn if len(words) == 4), count))


def compare_beams(pointer: ParallelPointer, lists: list[list[str]]) -> None:
    """What beam search of width 4 costs in bulk, gap by gap and in two rounds, and what it finds."""
    counted = Counted(pointer.predict)
    pointer.predict = counted
    variants: dict[str, dict[str, Any]] = {
        "greedy": {},
        "beam, rounds=2": {"decoding": "beam", "width": 4, "rounds": 2},
        "beam, rounds=0 (exact)": {"decoding": "beam", "width": 4, "rounds": 0},
    }
    pointer.generate_many(lists[:WARM_UP])
    print(f"beam search, width 4, preset default, {len(lists)} lists of four keywords")
    print(
        f"  {'':24}{'s/text':>9}{'cost':>8}{'per token':>11}{'positions/text':>16}{'tokens':>8}{'score':>9}{'sum':>9}"
    )
    greedy = greedy_tokens = 0.0
    for name, options in variants.items():
        counted.passes = counted.positions = 0
        seconds, found = timed(pointer.generate_many, lists, **options)
        texts = [texts[0] for texts in found]
        tokens = statistics.mean(len(text.tokens) for text in texts)
        greedy, greedy_tokens = greedy or seconds, greedy_tokens or tokens
        score = statistics.mean(text.score for text in texts)
        total = statistics.mean(text.score * (len(text.tokens) + 1) for text in texts)
        positions = counted.positions / len(lists)
        cost, per_token = seconds / greedy, seconds / greedy * greedy_tokens / tokens
        row = f"{seconds / len(lists):9.3f}{cost:7.1f}x{per_token:10.1f}x{positions:16.0f}{tokens:8.1f}"
        bar = f"   expected at most 8x: {verdict(cost <= 8)}" if name.endswith("2") else ""
        print(f"  {name:24}{row}{score:9.3f}{total:9.1f}{bar}")
    print("  score: log-likelihood of all decisions per token; sum: the same, not divided\n")
    pointer.predict = counted.predict


def count_flips(pointer: ParallelPointer, lists: list[list[str]]) -> None:
    """How many texts depend on the batch they were decoded in, and how near to a tie each of those was."""
    together = [found[0] for found in pointer.generate_many(lists, batch_size=64)]
    alone = [found[0] for found in pointer.generate_many(lists, batch_size=1)]
    flipped = [(a, b) for a, b in zip(together, alone, strict=True) if a.tokens != b.tokens]
    print(f"batch size 64 against 1, preset default: {len(flipped)} of {len(lists)} texts differ")
    margins = [margin(pointer, *pair) for pair in flipped]
    for (text, _), (distance, is_other) in zip(flipped, margins, strict=True):
        same = "the runner-up is the other text" if is_other else "the runner-up is yet another text"
        print(f"  {'; '.join(text.constraints)}: {distance:.1e} between the two best at the first difference, {same}")
    met = all(distance <= 1e-4 and is_other for distance, is_other in margins)
    print(f"  expected all within 1e-4: {verdict(met)}")
    converged = sum(text.stopped == "converged" for text in together)
    early = sum(text.stopped == "converged" and insertions(text) <= 4 for text in together)
    tokens = statistics.mean(len(text.tokens) for text in together)
    print(f"  {converged / len(lists):.1%} converge, {early / len(lists):.1%} within 4 stages; {tokens:.1f} tokens\n")


def margin(pointer: ParallelPointer, one: Generation, other: Generation) -> tuple[float, bool]:
    """By how much the first stage that differs won in adjusted log-probability, and whether the other came second."""
    first = next(i for i, (a, b) in enumerate(itertools.zip_longest(one.stages, other.stages)) if a != b)
    engine = pointer.engine(Options())
    growth = engine.start(demand_of(parse(list(map(quote, one.constraints))), Options()))
    for [pool] in itertools.islice(engine.run([growth]), first - 1):
        growth = pool[0]
    # Gaps of one round do not know of each other, so the two best fillings differ in the gap that is nearest to a tie.
    two = Options(decoding="beam", width=2, rounds=1)
    [[best, second]] = at_once(fill(pointer.predict, [growth.text], engine.scores, engine.rules, two, pointer.name))
    shown = {
        tuple(pointer.vocabulary.tokens[i] for i in growth.text.tokens.filled(way.tokens)[0].ids[1:-1])
        for way in (best, second)
    }
    stages = {tuple(token.text for token in text.stages[first]) for text in (one, other)}
    return best.total - second.total, shown == stages


def plot(pointer: ParallelPointer, lists: list[list[str]], path: Path) -> None:
    """Stages and forward passes of texts against their length; the offset of `[NOI]` makes them short or long."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    counted = Counted(pointer.predict)
    pointer.predict = counted
    points: list[tuple[int, int, int]] = []
    # Only words of one piece, so that all texts start with four tokens.
    lists = [one for one in lists if len(first_stage(one, pointer.vocabulary, pointer.end)) == 6]
    for one, offset in itertools.product(lists, (-6.0, -3.0, -1.5, 0.0, 1.5, 4.0)):
        counted.passes = 0
        text = pointer.generate(one, noi_offset=offset)
        if text.stopped == "converged":
            points.append((len(text.tokens), insertions(text), counted.passes))
    pointer.predict = counted.predict
    lengths, stages, passes = np.array(points).T
    least = np.arange(5, lengths.max() + 1)
    figure, axes = pyplot.subplots(figsize=(7, 4))
    jitter = np.random.default_rng(0).uniform(-0.15, 0.15, len(lengths))
    axes.scatter(lengths, passes + jitter, s=8, alpha=0.4, label="forward passes (the last one inserts nothing)")
    axes.scatter(lengths, stages + jitter, s=8, alpha=0.4, label="stages that insert")
    # All gaps of all stages filled: L tokens become 2 L + 1.
    axes.plot(least, np.log2((least + 1) / 5), color="black", label="fewest possible: log2((length + 1) / 5)")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("tokens of the text (from four keywords)")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    slope = np.polyfit(np.log2(lengths), passes, 1)[0]
    print(
        f"{path}: {len(points)} converged texts from {len(lists)} lists, of {lengths.min()} to {lengths.max()} tokens;",
        end=" ",
    )
    print(f"{slope:.2f} more passes for twice the length; at most {passes.max()}\n")


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", nargs="+", choices=SIZES, default=[], help="compare with the padded loop")
    parser.add_argument("--lists", type=int, default=32, help="lists of the bulk run")
    parser.add_argument("--slow-lists", type=int, default=5, help="of these, for the padded loop; as many turns")
    parser.add_argument("--model", help="a checkpoint of the embedded size")
    parser.add_argument(
        "--beam", type=int, nargs="?", const=16, default=0, help="cost of beam search over so many lists"
    )
    parser.add_argument(
        "--flips", type=int, nargs="?", const=1000, default=0, help="batch size 64 against 1, so many lists"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw stages and passes against length")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    needs_model = bool(arguments.beam or arguments.flips or arguments.plot)
    if needs_model and not arguments.model:
        parser.error("--beam, --flips and --plot need --model")
    torch.set_num_threads(arguments.threads)
    print(f"{arguments.threads} threads, torch {torch.__version__}, float32, seed {arguments.seed}\n")
    for name in arguments.size or ([] if needs_model else SIZES[:2]):
        subject = Subject.of(name, arguments.model, arguments.seed)
        print(subject.name)
        for corpus in CORPORA:
            compare(subject, corpus, arguments.lists, arguments.slow_lists, arguments.seed)
    if needs_model:
        pointer = Pointer.from_pretrained(arguments.model, "cpu")
        assert isinstance(pointer, ParallelPointer)
        lists = keyword_lists(max(arguments.beam, arguments.flips, 160), arguments.seed)
        if arguments.beam:
            compare_beams(pointer, lists[: arguments.beam])
        if arguments.flips:
            count_flips(pointer, lists[: arguments.flips])
        if arguments.plot:
            plot(pointer, lists[:160], arguments.plot)


if __name__ == "__main__":
    main()
