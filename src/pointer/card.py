"""The model card that every checkpoint has: what the model learnt from, how it was trained, how good it is."""

import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pointer import __version__
from pointer.settings import STAGES, TrainingSettings

HEAD = "---\nlibrary_name: transformers\ntags:\n- pointer\n- insertion-transformer\n---"


def plain_card(title: str, about: str = "How it was trained is not recorded.") -> str:
    """The card of a model that did not come out of a training run."""
    return f"{HEAD}\n# {title}\n\n{about}\n"


def model_card(
    name: str,
    init: str,
    about: str,
    settings: TrainingSettings,
    manifest: dict[str, Any],
    history: list[dict[str, Any]],
    progress: dict[str, Any],
) -> str:
    """The card as markdown. `history` is the log of the run, `progress` how far it is."""
    counts = manifest["counts"]
    seen = progress["tokens_before"] + progress["tokens"]
    source = "/".join(Path(init).parts[-2:])  # enough to know it by; the rest of a path means something on one machine
    chosen = {key: value for key, value in asdict(settings).items() if value is not None}
    parts = [
        HEAD,
        f"# {name}\n\nAn insertion transformer for POINTER {__version__}: it writes a text around given words, from "
        f"coarse to fine.\n\n```python\nfrom pointer import Pointer\n\n"
        f'Pointer.from_pretrained("{name}").generate(["first", "words"])\n```',
        f"## Data and licence\n\n{about or 'The data is not described; ask who trained this model before you use it.'}"
        f"\n\n{counts['rows']:,} texts, {counts['tokens']:,} tokens; vocabulary "
        f"{manifest['vocabulary']['fingerprint']} of {manifest['vocabulary']['size']:,} entries. Preparation: "
        + ", ".join(f"{key} {value}" for key, value in manifest["settings"].items())
        + ".",
        f"## Training\n\nStarted from `{source}`. {progress['step']:,} steps, {progress['epochs']:.2f} epochs, "
        f"{progress['tokens']:,} tokens in {progress['seconds'] / 60:.0f} minutes; {seen:,} tokens with all that "
        "came before.\n\n" + table(["setting", "value"], [[key, str(value)] for key, value in chosen.items()]),
        _results(history),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def causal_card(
    name: str,
    config: dict[str, Any],
    init: object,
    about: str,
    settings: TrainingSettings,
    counts: dict[str, int],
    history: list[dict[str, Any]],
    progress: dict[str, Any],
) -> str:
    """The card of an adapter. `counts` says how many texts of each style it was trained on."""
    start = f"`{'/'.join(Path(str(init)).parts[-2:])}`" if init else "nothing"
    base = Path(config["base"]).name
    chosen = {key: value for key, value in asdict(settings).items() if value is not None and key not in STAGES}
    texts = ", ".join(f"{count:,} of the style {style}" for style, count in counts.items())
    validations = [line for line in history if "validation" in line]
    results = [[f"{v['step']:,}", f"{v['validation']['loss']:.4f}"] for v in validations]
    parts = [
        f"---\nlibrary_name: peft\nbase_model: {base}\ntags:\n- pointer\n- lora\n---",
        f"# {name}\n\nAn adapter (LoRA) for `{base}` and POINTER {__version__}: it writes a text around given words by "
        f"inserting between them from left to right.\n\n```python\nfrom pointer import Pointer\n\n"
        f'Pointer.from_pretrained("{name}").generate(["first", "words"])\n```',
        f"## Data and licence\n\n{about or 'The data is not described; ask who trained this model before you use it.'}"
        f"\n\nTexts: {texts}.",
        f"## Training\n\nStarted from {start}. {progress['step']:,} steps, {progress['epochs']:.2f} epochs, "
        f"{progress['tokens']:,} tokens in {progress['seconds'] / 60:.0f} minutes; "
        f"{progress['tokens_before'] + progress['tokens']:,} tokens with all that came before.\n\n"
        + table(["setting", "value"], [[key, str(value)] for key, value in chosen.items()]),
        "## Results\n\nLoss of a decision on held-out texts. ![](curve.png)\n\n" + table(["step", "loss"], results),
        _samples(validations),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _samples(validations: list[dict[str, Any]]) -> str:
    """The texts of the last validation."""
    found = validations[-1].get("samples", []) if validations else []
    samples = [[", ".join(sample["constraints"]), sample["text"]] for sample in found]
    return "## Samples\n\nNot chosen: the first held-out texts that have keywords.\n\n" + table(
        ["constraints", "text"], [[cell.replace("|", "\\|") for cell in row] for row in samples]
    )


def _results(history: list[dict[str, Any]]) -> str:
    validations = [line for line in history if "validation" in line]
    if not validations:
        return "## Results\n\nNot validated yet."
    found = validations[-1]["validation"]
    groups = {"all": found} | found["stages"] | {"closing": found["closing"]}
    measures = ("loss", "perplexity", "accuracy", "noi_precision", "noi_recall")
    rows = [
        [stage, *("" if values[m] is None else f"{values[m]:.3f}" for m in measures)]
        for stage, values in groups.items()
    ]
    head = ["stage", "loss", "perplexity of insertions", "top-1 accuracy", "[NOI] precision", "[NOI] recall"]
    return (
        f"## Results\n\nOn held-out texts, at step {validations[-1]['step']:,}. ![](curve.png)\n\n{table(head, rows)}"
        f"\n\n{_samples(validations)}"
    )


def table(head: list[str], rows: list[list[str]]) -> str:
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
