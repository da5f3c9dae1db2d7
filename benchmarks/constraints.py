"""What each part of the constraint language costs in time and quality, on CommonGen's validation sets.

    POINTER_DATA=... python benchmarks/constraints.py [writer] [--sets 40] [--seed 0] [--page docs/constraints.md]
    python benchmarks/constraints.py --orders wiki [--plot docs/orders.png]

The first prints a row for every part: CPU seconds a text, in ratio to plain constraints in the same run, BLEU-4 against
all references, the log-probability of a word by the writer's base as it was before training, words, and how many texts
are not what was asked; `--page` puts the table on a page of the documentation. The second prints how the time to choose
an order grows with the words.
"""

import argparse
import re
import time
from pathlib import Path
from random import Random
from typing import Any

from commongen import Asked, asked_sets, bleu, put_between

from pointer.base import has_base
from pointer.decoding.demand import count_words, demand_of
from pointer.decoding.generator import Pointer
from pointer.decoding.grammar import AnyForm, AnyOrder, Constraints, Maybe, Phrase, Template, parse
from pointer.decoding.options import Options
from pointer.runtime.writer import OnnxBase

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


def half_optional(one: Asked) -> Constraints:
    """Every other word of a set is for use if it fits."""
    return Constraints(tuple(Maybe(Phrase(w)) if i % 2 else Phrase(w) for i, w in enumerate(one.constraints)))


def as_template(one: Asked) -> Template:
    """The first reference with the words of the set as they stand, and a gap for all between."""
    words = [re.escape(word) for word in one.constraints]
    text = re.sub(rf"(?i)\b({'|'.join(words)})\b|\w[\w'\u2019-]*", lambda found: found[1] or "___", one.references[0])
    return Template(re.sub(r"___(?:\s+___)+", "___", text))


ROWS: dict[str, tuple[Any, dict[str, Any]]] = {
    "in order, as given": (plain, {}),
    "any form": (lambda one: any_form(one, False), {}),
    "any order, any form": (lambda one: any_form(one, True), {}),
    "five forbidden words": (plain, {"forbid": ("a", "the", "is", "are", "with"), "forbid_forms": True}),
    "10-12 words": (plain, {"length": "10-12"}),
    "exactly 9 words": (plain, {"length": "9"}),
    "two sentences": (plain, {"sentences": "2"}),
    "half of the words optional": (half_optional, {}),
    "two different texts": (plain, {"n": 2}),
    "a template of a reference": (as_template, {}),
    "best of 4, by the model": (plain, {"best_of": 4, "pick_by": "model"}),
    "best of 4, by minimum Bayes risk": (plain, {"best_of": 4, "pick_by": "mbr"}),
    "best of 4, by a language model": (plain, {"best_of": 4, "pick_by": "language-model"}),
}


def costs(name: str, count: int, seed: int, batch_size: int) -> str:
    """A table with a row for every part."""
    pointer = Pointer.from_pretrained(name, threads=1)
    sets = asked_sets(count, seed)
    pointer.generate_many([plain(one) for one in sets[:2]])  # what is made once is not measured
    lines = ["| | time | BLEU-4 | log-probability a word | words | not as asked |", "|---|---|---|---|---|---|"]
    first = 0.0
    for title, (ask, options) in ROWS.items():
        asked = [parse(ask(one)) for one in sets]
        started = time.process_time()
        found = [texts[0].text for texts in pointer.generate_many(asked, batch_size, **options)]
        seconds = (time.process_time() - started) / len(sets)
        first = first or seconds
        words = sum(map(count_words, found))
        fluency = sum(one.total for one in OnnxBase().likelihoods(found)) / words if has_base() else float("nan")
        demands = [demand_of(one, Options.of(options)) for one in asked]
        pairs = zip(found, demands, strict=True)
        wrong = sum(demand.forbids(text) or demand.misses(text) > 0 for text, demand in pairs)
        row = [
            title,
            f"{seconds / first:.1f}x",
            f"{bleu(found, [one.references for one in sets]):.1f}",
            f"{fluency:.2f}",
        ]
        lines.append(f"| {' | '.join([*row, f'{words / len(found):.1f}', str(wrong)])} |")
        print(lines[-1], flush=True)
    about = f"`{name}`, {count} validation sets, seed {seed}, one thread; 1x is {first:.2f} CPU seconds a text."
    return "\n".join([*lines, "", about])


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
    parser.add_argument("--sets", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--page", type=Path, help="The page that gets the table.")
    parser.add_argument("--orders", action="store_true")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.orders:
        orders(options.model, options.plot)
    else:
        table = costs(options.model, options.sets, options.seed, options.batch_size)
        if options.page:
            put_between(options.page, "costs", table)


if __name__ == "__main__":
    main()
