"""How fast each system is trained and writes, and what each wrote for the keyword lists of the paper's appendix.

    python benchmarks/systems.py OUT RUNS --results results/NAME [--plot FILE]

Reads what `recipes/tables.sh` made: `OUT/all`, `OUT/few` and `OUT/alone` (texts with the seconds they took),
`OUT/appendix`, and the logs of the training runs `RUNS-SYSTEM`. All of it ran on one machine, one thread, one after the
other. Writes `NAME-speed.json`, a table for `recipes/results.py`, and `NAME-texts.md`.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from pointer.evaluation.report import mark
from pointer.evaluation.table import markdown_text

EXAMPLES = 1000
"""Texts that times are given for, as in the paper."""
BOLD = ("\x02", "\x03")
"""What stands for the signs of bold type until a text is markdown."""


class Speed(NamedTuple):
    """How fast a system is."""

    name: str
    training: float | None
    """Tokens a second; none for what is not trained."""
    texts: int
    """That were timed."""
    seconds: float
    """For `EXAMPLES` texts, in batches."""
    alone: float | None
    """Median seconds of a text that is written alone."""


def speed(file: Path, out: Path, runs: str) -> Speed:
    """From a file of `pointer generate -o` and the log of the system's training."""
    seconds = timed(file)
    alone = out / "alone" / file.name
    system = {"grid-beam": "autoregressive"}.get(file.stem, file.stem.split("-")[0])
    return Speed(
        file.stem,
        trained(Path(f"{runs}-{system}")),
        len(seconds),
        statistics.mean(seconds) * EXAMPLES,
        statistics.median(timed(alone)) if alone.exists() else None,
    )


def timed(file: Path) -> list[float]:
    """The seconds that each text took."""
    return [json.loads(line)["seconds"] for line in file.read_text("utf-8").splitlines()]


def trained(run: Path) -> float | None:
    """The median of the tokens a second that a run logged."""
    if not (run / "metrics.jsonl").exists():
        return None
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    return statistics.median(float(line["tokens_per_second"]) for line in lines if "tokens_per_second" in line)


def speeds(out: Path, runs: str) -> list[Speed]:
    """Of every system, the fastest writer first; where it wrote all texts, those count, and otherwise the few."""
    files = {file.stem: file for folder in ("few", "all") for file in sorted((out / folder).glob("*.jsonl"))}
    found = (speed(file, out, runs) for stem, file in files.items() if stem != "keywords")
    return sorted(found, key=lambda one: one.seconds)


def report(found: list[Speed]) -> dict[str, Any]:
    """The paper's table of speed, as `pointer compare --json` would write one; the ratios are to POINTER, greedy."""
    greedy = next(one for one in found if one.name == "pointer-greedy")

    def metrics(one: Speed) -> dict[str, float | None]:
        return {
            "Tokens/s in training": one.training,
            f"Seconds for {EXAMPLES} texts": one.seconds,
            "Times pointer-greedy": one.seconds / greedy.seconds,
            "Milliseconds alone": one.alone and 1000 * one.alone,
            "Texts": one.texts,
        }

    def system(one: Speed) -> dict[str, Any]:
        given = {name: value for name, value in metrics(one).items() if value is not None}
        shown = {name: {"value": value, "better": None, "percent": False} for name, value in given.items()}
        return {"name": one.name, "metrics": shown}

    return {"systems": [system(one) for one in found], "p_values": []}


def marked(record: dict[str, Any]) -> str:
    """A text in markdown, with its constraints in bold and what it lacks behind it."""
    text = markdown_text(mark(record["text"], record["constraints"], *BOLD))
    for sign in BOLD:
        text = text.replace(sign, "**")
    return text + (f" *(lacks {', '.join(record['missing'])})*" if record["missing"] else "")


def appendix(out: Path) -> str:
    """Every system's text for every list of the appendix."""
    systems = {file.stem: [json.loads(line) for line in file.open()] for file in sorted(out.glob("appendix/*.jsonl"))}
    lists = [record["constraints"] for record in next(iter(systems.values()))]
    parts = []
    for number, constraints in enumerate(lists):
        rows = [f"| {name} | {marked(records[number])} |" for name, records in systems.items() if name != "keywords"]
        parts.append("\n".join([f"**{', '.join(constraints)}**\n", "| system | text |", "| --- | --- |", *rows]))
    return "\n\n".join(parts)


def plot(found: list[Speed], path: Path) -> None:
    """Seconds as bars on a logarithmic axis."""
    from matplotlib.figure import Figure

    found = found[::-1]
    figure = Figure(figsize=(7, 0.4 * len(found) + 1), layout="constrained")
    axes = figure.subplots()
    colors = ["tab:orange" if one.name.startswith("pointer") else "tab:blue" for one in found]
    bars = axes.barh([one.name for one in found], [one.seconds for one in found], color=colors)
    axes.bar_label(bars, [f"{one.seconds:,.0f} s" for one in found], padding=3)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel(f"seconds for {EXAMPLES:,} texts, one thread")
    figure.savefig(path, dpi=150)


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("runs")
    parser.add_argument("--results", required=True, help="what the names of both files begin with")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    found = speeds(arguments.out, arguments.runs)
    Path(f"{arguments.results}-speed.json").write_text(json.dumps(report(found), indent=1) + "\n", "utf-8")
    Path(f"{arguments.results}-texts.md").write_text(appendix(arguments.out) + "\n", "utf-8")
    if arguments.plot is not None:
        plot(found, arguments.plot)


if __name__ == "__main__":
    main()
