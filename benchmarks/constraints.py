"""What each part of the constraint language costs in time and quality, on CommonGen's validation sets.

    POINTER_DATA=... python benchmarks/constraints.py [writer] [--sets 24] [--batch-size 24]
    python benchmarks/constraints.py --orders wiki [--plot docs/orders.png]

The first prints a row for every part: seconds a text, in ratio to plain constraints in the same run, BLEU-4 against all
references, words, and how many texts are not what was asked. The second how the choice of an order grows with them.
"""

import argparse
import time
from pathlib import Path
from random import Random
from typing import Any

from commongen import Asked, asked_sets, bleu

from pointer.decoding.demand import demand_of
from pointer.decoding.generator import Pointer
from pointer.decoding.grammar import AnyForm, AnyOrder, Constraints, Phrase
from pointer.decoding.options import Options

ORDER = (3, 5, 8, 10, 15, 20, 25)
"""Words whose order is to be chosen."""


def any_form(one: Asked, in_any_order: bool) -> Constraints:
    """The words of a set, each in any form."""
    forms = [AnyForm(word) if word.isalpha() else Phrase(word) for word in one.constraints]
    if not in_any_order or len(forms) < 2:
        return Constraints(tuple(forms))
    Random(0).shuffle(forms)
    return Constraints((AnyOrder(tuple(forms)),))


def plain(one: Asked) -> Constraints:
    """The words of a set as its first reference has them."""
    return Constraints(tuple(map(Phrase, one.constraints)))


ROWS: dict[str, tuple[Any, dict[str, Any]]] = {
    "in order, as given": (plain, {}),
    "any form": (lambda one: any_form(one, False), {}),
    "any order, any form": (lambda one: any_form(one, True), {}),
    "five forbidden words": (plain, {"forbid": ("a", "the", "is", "are", "with"), "forbid_forms": True}),
    "10-12 words": (plain, {"length": "10-12"}),
    "two sentences": (plain, {"sentences": "2"}),
    "two different texts": (plain, {"n": 2}),
    "best of 4, by the model": (plain, {"best_of": 4, "pick_by": "model"}),
    "best of 4, by minimum Bayes risk": (plain, {"best_of": 4, "pick_by": "mbr"}),
    "best of 4, by a language model": (plain, {"best_of": 4, "pick_by": "language-model"}),
}


def costs(name: str, count: int, batch_size: int) -> None:
    """Print a row for every part."""
    pointer = Pointer.from_pretrained(name)
    sets = asked_sets(count)
    pointer.generate_many([plain(one) for one in sets[:2]])  # what is made once is not measured
    first = 0.0
    print("| | time | BLEU-4 | words | not as asked |\n|---|---|---|---|---|")
    for title, (ask, options) in ROWS.items():
        asked = [ask(one) for one in sets]
        started = time.perf_counter()
        found = [texts[0] for texts in pointer.generate_many(asked, batch_size, **options)]
        seconds = (time.perf_counter() - started) / len(sets)
        first = first or seconds
        words = sum(len(text.text.split()) for text in found) / len(found)
        demands = [demand_of(one, Options.of(options)) for one in asked]
        pairs = zip(found, demands, strict=True)
        wrong = sum(demand.forbids(text.text) or demand.misses(text.text) > 0 for text, demand in pairs)
        score = bleu([text.text for text in found], [one.references for one in sets])
        print(f"| {title} | {seconds / first:.1f}x | {score:.1f} | {words:.1f} | {wrong} |", flush=True)
    print(f"\n{len(sets)} sets, {name}; 1x is {first:.2f} s a text")


def orders(name: str, plot: Path | None) -> None:
    """Print how long it takes to choose the order of more and more words."""
    pointer = Pointer.from_pretrained(name)
    words = Path(__file__).with_name("everyday.txt").read_text("utf-8").replace(";", " ").split()
    nouns = list(dict.fromkeys(word for word in words if word.isalpha()))
    found = []
    for count in ORDER:
        asked = Constraints((AnyOrder(tuple(map(Phrase, nouns[:count]))),))
        plan = pointer.plan(asked, Options())
        wanted = next(plan)
        started = time.perf_counter()
        for _ in range(3):
            wanted.engine.finish(wanted.growths)
        found.append((time.perf_counter() - started) / 3)
        print(f"{count} words: {1000 * found[-1]:.0f} ms; {found[-1] / found[0]:.1f}x of {ORDER[0]} words", flush=True)
    if plot is not None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 3.5), layout="constrained")
        axes = figure.subplots()
        axes.plot(ORDER, [1000 * seconds for seconds in found], "o-", label="measured")
        quadratic = [1000 * found[-1] * (count / ORDER[-1]) ** 2 for count in ORDER]
        axes.plot(ORDER, quadratic, "--", color="gray", label="quadratic")
        axes.set_xlabel("words in any order")
        axes.set_ylabel("ms to choose the order")
        axes.legend()
        figure.savefig(plot, dpi=150)


def main() -> None:
    """Print one of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="writer")
    parser.add_argument("--sets", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--orders", action="store_true")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.orders:
        orders(options.model, options.plot)
    else:
        costs(options.model, options.sets, options.batch_size)


if __name__ == "__main__":
    main()
