"""The n-gram model against values by hand, a second implementation in plain Python, and NLTK's Kneser-Ney."""

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pointer.errors import DataError, UsageError
from pointer.evaluation import perplexity
from pointer.evaluation.ngram import COUNTS, NGram, main, pieces, train
from pointer.vocabulary import Vocabulary

BEGIN, END, A, B, C, UNSEEN = range(6)
TOY = [[BEGIN, A, B, END], [BEGIN, A, A, END]]
EMBEDDED = Path(perplexity.__file__).parent / "scorer" / COUNTS


def toy(order: int = 2, prune: tuple[int, ...] = (0,)) -> NGram:
    return train(TOY, order=order, size=6, choices=5, prune=prune)


def probability(model: NGram, *tokens: int) -> float:
    """Of the last token after the others."""
    return float(np.exp(model.log_probabilities([tokens])[0][-1]))


def random_texts(seed: int, texts: int = 60, kinds: int = 5) -> list[list[int]]:
    random = np.random.default_rng(seed)
    weights = random.dirichlet(np.ones(kinds))
    return [[BEGIN, *(2 + random.choice(kinds, random.integers(0, 9), p=weights)), END] for _ in range(texts)]


def every_context(size: int, longest: int) -> list[list[int]]:
    contexts = [[BEGIN]]
    for n in range(1, longest + 1):
        contexts += [[BEGIN, *2 + np.array(tail)] for tail in np.ndindex(*[size - 2] * n)]
    return contexts


def test_probabilities_are_those_worked_out_by_hand() -> None:
    model = toy()
    # Different tokens stand left of a: 2 (begin, a), of b: 1, of end: 2; so few counts take 0.5, 1 and 1.5 off.
    share = (1 + 0.5 + 1) / 5 / 5  # what the discounts took, for each of five tokens that can come next
    a, b = (2 - 1) / 5 + share, (1 - 0.5) / 5 + share
    assert probability(model, BEGIN, A) == pytest.approx((2 - 1) / 2 + 1 / 2 * a)
    assert probability(model, BEGIN, A, B) == pytest.approx((1 - 0.5) / 3 + 1.5 / 3 * b)
    assert probability(model, BEGIN, A, B, END) == pytest.approx((1 - 0.5) / 1 + 0.5 / 1 * a)
    assert probability(model, BEGIN, A, UNSEEN) == pytest.approx(1.5 / 3 * share)
    assert probability(model, BEGIN, UNSEEN, B) == pytest.approx(b)


def test_what_is_left_out_goes_to_the_back_off() -> None:
    model = toy(prune=(0, 1))
    assert len(model.levels[1].keys) == 1  # only "a" at the beginning stands there twice
    # After a everything was left out, so the shorter context says it all.
    assert probability(model, BEGIN, A, B) == pytest.approx(probability(model, BEGIN, UNSEEN, B))
    mixed = train([*TOY, [BEGIN, B, END]], order=2, size=6, choices=5, prune=(0, 1))
    # After the beginning: a twice (stays, 1 off), b once (left out), so 2 of 3 go to the shorter context.
    assert probability(mixed, BEGIN, B) == pytest.approx(2 / 3 * probability(mixed, BEGIN, UNSEEN, B))


def test_discounts_are_the_estimates_of_chen_and_goodman() -> None:
    # Bigrams after the beginning: four tokens once, two twice, one three times, one four times.
    times = {10: 1, 11: 1, 12: 1, 13: 1, 14: 2, 15: 2, 16: 3, 17: 4}
    model = train([[BEGIN, token] for token, n in times.items() for _ in range(n)], order=2, size=20, choices=19)
    y = 4 / (4 + 2 * 2)
    assert model.levels[1].discounts == pytest.approx((1 - 2 * y * 2 / 4, 2 - 3 * y * 1 / 2, 3 - 4 * y * 1 / 1))


@pytest.mark.parametrize("order", [2, 3, 4, 5])
@pytest.mark.parametrize("prune", [(0,), (0, 0, 1), (0, 1, 2)])
def test_every_probability_is_that_of_a_plain_implementation(order: int, prune: tuple[int, ...]) -> None:
    texts = random_texts(order)
    model = train(texts, order=order, size=9, choices=8, prune=prune)
    limits = [*prune, *prune[-1:] * order][:order]
    plain = Plain(texts, limits, 8, [level.discounts for level in model.levels])
    scored = random_texts(seed=100, texts=30, kinds=7)  # two of the tokens were never seen
    for text, logs in zip(scored, model.log_probabilities(scored), strict=True):
        expected = [plain.probability(tuple(text[max(0, i - order + 1) : i]), text[i]) for i in range(1, len(text))]
        np.testing.assert_allclose(np.exp(logs), expected, rtol=1e-12)


class Plain:
    """Kneser-Ney with dictionaries and a recursion, to compare with."""

    def __init__(self, texts: list[list[int]], limits: list[int], choices: int, discounts: list[tuple[float, ...]]):
        grams = [
            (n, tuple(t[i : i + n])) for t in texts for n in range(1, len(limits) + 1) for i in range(len(t) - n + 1)
        ]
        raw = Counter(gram for _, gram in grams)
        left = Counter(gram[1:] for gram in raw if len(gram) > 1)
        self.choices, self.discounts = choices, discounts
        self.kept: dict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
        self.total: Counter[tuple[int, ...]] = Counter()
        for gram, count in raw.items():
            whole = len(gram) == len(limits) or (gram[0] == BEGIN and len(gram) > 1)
            self.total[gram[:-1]] += count if whole else left[gram]
            if count > limits[len(gram) - 1]:
                self.kept[gram[:-1]][gram[-1]] = count if whole else left[gram]

    def probability(self, context: tuple[int, ...], token: int) -> float:
        shorter = self.probability(context[1:], token) if context else 1 / self.choices
        kept = self.kept.get(context)
        if not kept:
            return shorter
        left = {t: c - (0, *self.discounts[len(context)])[min(c, 3)] for t, c in kept.items()}
        return (left.get(token, 0.0) + (self.total[context] - sum(left.values())) * shorter) / self.total[context]


def test_with_one_discount_it_is_the_kneser_ney_of_nltk() -> None:
    lm = pytest.importorskip("nltk.lm")
    everygrams = pytest.importorskip("nltk.util").everygrams
    texts = [list(map(str, text)) for text in random_texts(seed=7) if len(text) > 3]
    model = train([list(map(int, text)) for text in texts], order=3, size=9, choices=8)
    # NLTK has one discount for all counts, and gives single tokens none.
    off = [(0.0,) * 3, (0.4,) * 3, (0.4,) * 3]
    levels = tuple(replace(level, discounts=d) for level, d in zip(model.levels, off, strict=True))  # type: ignore[arg-type]
    model = replace(model, levels=levels)
    other = lm.KneserNeyInterpolated(3, discount=0.4)
    other.fit(
        [list(everygrams(text, max_len=3)) for text in texts], vocabulary_text=[t for text in texts for t in text]
    )
    compared = 0
    for text, logs in zip(texts, model.log_probabilities([list(map(int, text)) for text in texts]), strict=True):
        for i in range(2, len(text)):  # NLTK has no probability for what stands after one beginning alone
            assert np.exp(logs[i - 1]) == pytest.approx(other.score(text[i], text[i - 2 : i]))
            compared += 1
    assert compared > 100


@pytest.mark.parametrize("prune", [(0,), (0, 0, 1), (0, 1, 2)])
def test_probabilities_add_up_to_one_after_any_context(prune: tuple[int, ...]) -> None:
    model = train(random_texts(seed=1), order=3, size=8, choices=7, prune=prune)
    for context in every_context(size=8, longest=2):
        assert sum(probability(model, *context, token) for token in range(1, 8)) == pytest.approx(1, abs=1e-12)


def test_the_embedded_model_adds_up_to_one_after_seen_and_unseen_contexts() -> None:
    model, vocabulary = NGram.open(EMBEDDED), Vocabulary.open("english")
    never = {vocabulary.id(token) for token in ("[PAD]", "[CLS]", "[MASK]", "[NOI]")}
    choices = [i for i in range(len(vocabulary)) if i not in never]
    for text in ("", "the", "one of the", "prime minister zebra", "! ? §"):
        [context] = pieces([text], vocabulary)
        logs = model.log_probabilities([[*context[:-1], i] for i in choices])
        assert sum(np.exp(log[-1]) for log in logs) == pytest.approx(1, abs=1e-9)


def test_no_n_gram_reaches_from_one_text_into_the_next() -> None:
    one = train([[BEGIN, A, END], [BEGIN, B, END]], order=3, size=6, choices=5)
    other = train([[BEGIN, B, END], [BEGIN, A, END]], order=3, size=6, choices=5)
    assert [level.keys.tolist() for level in one.levels] == [level.keys.tolist() for level in other.levels]
    assert sum(len(level.keys) for level in one.levels[1:]) == 4 + 2


def test_a_text_is_scored_alike_alone_and_among_others() -> None:
    model = train(random_texts(seed=2), order=4, size=9, choices=8)
    texts = random_texts(seed=3, kinds=7)
    for text, logs in zip(texts, model.log_probabilities(texts), strict=True):
        np.testing.assert_array_equal(model.log_probabilities([text])[0], logs)
    assert model.log_probabilities([]) == []


def test_an_order_that_no_text_is_long_enough_for_changes_nothing() -> None:
    assert [len(level.keys) for level in toy(order=9).levels] == [len(level.keys) for level in toy(order=4).levels]


@pytest.mark.parametrize("prune", [(0,), (0, 0, 1)])
def test_a_file_gives_the_model_back_and_is_always_the_same(tmp_path: Path, prune: tuple[int, ...]) -> None:
    texts = random_texts(seed=4)
    model = train(texts, order=4, size=9, choices=8, prune=prune, vocabulary="abc")
    (tmp_path / "model").write_bytes(model.to_bytes())
    again = NGram.open(tmp_path / "model")
    assert (again.choices, again.vocabulary, len(again.levels)) == (8, "abc", 4)
    for one, other in zip(model.log_probabilities(texts), again.log_probabilities(texts), strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.to_bytes() == model.to_bytes()


def test_a_file_that_is_missing_or_damaged_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Expected an n-gram model at .*counts, found no such file"):
        NGram.open(tmp_path / "counts")
    whole = toy().to_bytes()
    for content in (b"", b"text", whole[:-20]):
        (tmp_path / "counts").write_bytes(content)
        with pytest.raises(DataError, match="found something else"):
            NGram.open(tmp_path / "counts")


@pytest.mark.parametrize(("order", "prune"), [(2, (1,)), (3, (0, 2, 1)), (1, (0,)), (3, ())])
def test_pruning_that_would_lose_contexts_is_refused(order: int, prune: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="prune: expected 0 for single tokens, then numbers that never fall"):
        toy(order, prune)


def test_the_embedded_model_is_small_and_of_the_embedded_vocabulary() -> None:
    assert EMBEDDED.stat().st_size <= 5_000_000
    assert NGram.open(EMBEDDED).vocabulary == Vocabulary.open("english").fingerprint


def test_the_command_of_the_recipe_writes_the_same_file_from_text_in_any_spacing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str, text: str) -> bytes:
        (tmp_path / name).write_text(text)
        main([str(tmp_path / name), "--order", "3", "--prune", "0", "--out", str(tmp_path / f"{name} model")])
        return (tmp_path / f"{name} model" / COUNTS).read_bytes()

    assert run("natural", "It's a good day.\n\nA good day.\n") == run("spaced", "it ' s a good day .\na good day .\n")
    assert capsys.readouterr().out.count("2 texts; n-grams by length: 9, 9, 8;") == 2
