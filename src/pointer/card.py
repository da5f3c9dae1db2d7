"""The model card that every checkpoint has: what the model learnt from, how it was trained, how good it is."""

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pointer import __version__

TRANSFORMER = "library_name: transformers\ntags:\n- pointer\n- insertion-transformer"
"""The head of the card of an insertion transformer."""
NOT_DESCRIBED = "The data is not described; ask who trained this model before you use it."


@dataclass(frozen=True)
class Description:
    """What a card says of a model, beside how its training went."""

    head: str
    """For programs that read cards, as YAML."""
    what: str
    """What it is and what it does."""
    data: str
    """What it was trained on."""
    init: object = None
    """The checkpoint that training started from."""
    usage: str = 'from pointer import Pointer\n\nPointer.from_pretrained("{name}").generate(["first", "words"])'
    """How to use it, under the name `{name}`."""
    sizes: dict[str, Any] = field(default_factory=dict)
    """More for the table of settings."""


def plain_card(title: str, about: str = "How it was trained is not recorded.") -> str:
    """The card of a model that did not come out of a training run."""
    return f"---\n{TRANSFORMER}\n---\n# {title}\n\n{about}\n"


def model_card(
    name: str,
    model: Description,
    about: str,
    settings: dict[str, Any],
    history: list[dict[str, Any]],
    progress: dict[str, Any],
) -> str:
    """The card as markdown. `history` is the log of the run, `progress` how far it is."""
    # The end of a path is enough to know it by; the rest means something on one machine.
    source = f"`{'/'.join(Path(str(model.init)).parts[-2:])}`" if model.init else "nothing"
    seen = progress["tokens_before"] + progress["tokens"]
    rows = [[key, str(value)] for key, value in (model.sizes | settings).items() if value is not None]
    parts = [
        f"---\n{model.head}\n---",
        f"# {name}\n\n{model.what} Trained with POINTER {__version__}.\n\n"
        f"```python\n{model.usage.format(name=name)}\n```",
        f"## Data and licence\n\n{about or NOT_DESCRIBED}\n\n{model.data}",
        f"## Training\n\nStarted from {source}. {progress['step']:,} steps, {progress['epochs']:.2f} epochs, "
        f"{progress['tokens']:,} tokens in {progress['seconds'] / 60:.0f} minutes; {seen:,} tokens with all that "
        f"came before.\n\n{table(['setting', 'value'], rows)}",
        *_results([line for line in history if "validation" in line]),
    ]
    return "\n\n".join(parts) + "\n"


def _results(validations: list[dict[str, Any]]) -> list[str]:
    """What validations found, by stage if there are stages, and the texts of the last."""
    if not validations:
        return ["## Results\n\nNot validated yet."]
    last = validations[-1]
    shown = _by_stage(last["validation"]) if "stages" in last["validation"] else _by_step(validations)
    parts = [f"## Results\n\nOn held-out texts, at step {last['step']:,}. ![](curve.png)\n\n{shown}"]
    if last.get("samples"):
        rows = [[", ".join(sample["constraints"]), sample["text"]] for sample in last["samples"]]
        shown = table(["constraints", "text"], [[cell.replace("|", "\\|") for cell in row] for row in rows])
        parts.append(f"## Samples\n\nNot chosen: the first held-out texts that have keywords.\n\n{shown}")
    return parts


def _by_step(validations: list[dict[str, Any]]) -> str:
    found = [(line["step"], line["validation"]) for line in validations]
    rows = [[f"{step:,}", f"{measured['loss']:.4f}", f"{measured['perplexity']:.2f}"] for step, measured in found]
    return table(["step", "loss", "perplexity"], rows)


def _by_stage(found: dict[str, Any]) -> str:
    groups = {"all": found} | found["stages"] | {"closing": found["closing"]}
    measures = ("loss", "perplexity", "accuracy", "noi_precision", "noi_recall")
    rows = [
        [stage, *("" if values[m] is None else f"{values[m]:.3f}" for m in measures)]
        for stage, values in groups.items()
    ]
    head = ["stage", "loss", "perplexity of insertions", "top-1 accuracy", "[NOI] precision", "[NOI] recall"]
    return table(head, rows)


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table as markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def curve_picture(history: list[dict[str, Any]]) -> bytes | None:
    """Training and validation loss over tokens as a PNG; None where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    training = _smoothed([(line["tokens"], line["loss"]) for line in history if "loss" in line])
    validation = [(line["tokens"], line["validation"]["loss"]) for line in history if "validation" in line]
    for points, label, style in ((training, "training", "-"), (validation, "validation", "o-")):
        if points:
            axes.plot(*zip(*points, strict=True), style, label=label, linewidth=1, markersize=3)
    axes.set_xlabel("tokens")
    axes.set_ylabel("loss of a gap")
    if training or validation:
        axes.legend(frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def _smoothed(points: list[tuple[int, float]], most: int = 60) -> list[tuple[float, float]]:
    """Neighbouring points as one: a step has short inputs, the next long ones, and their losses differ by nature."""
    size = -(-len(points) // most)
    groups = [points[i : i + size] for i in range(0, len(points), size or 1)]
    return [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group)) for group in groups]
