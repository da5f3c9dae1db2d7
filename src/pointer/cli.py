"""The command line: parse, call, print. Data goes to stdout, talk to stderr.

Exit codes: 0 done, 1 could not, 2 wrong call. Everything heavy is imported inside the command that needs it, so that
`pointer --help` answers at once.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pointer import __version__
from pointer.errors import PointerError, UsageError

if TYPE_CHECKING:
    from pointer.decoding.bulk import Asked
    from pointer.decoding.generator import Generation
    from pointer.picture import Token
    from pointer.prepare.corpus import Skipped
    from pointer.prepare.shards import Progress

app = typer.Typer(
    help="Turn a few words into a fluent text that contains every one of them, from coarse to fine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Importance = Annotated[
    str, typer.Option(help="Parts of the importance score, by commas: tfidf, pos, yake; or none (interleaved masking).")
]
Tagger = Annotated[str, typer.Option(help="Part-of-speech tagger: perceptron (English) or spacy:MODEL.")]
Language = Annotated[str, typer.Option(help="Language of the stop words, two letters.")]
Skeleton = Annotated[str, typer.Option(help="What stage 0 holds: importance, keywords, or mixed.")]
Seed = Annotated[int, typer.Option(help="Seed of all random draws.")]


def main() -> None:
    """Run the command line; an expected failure prints one sentence, never a traceback."""
    try:
        app()
    except PointerError as error:
        print(f"pointer: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except BrokenPipeError:  # the reader of our output has seen enough, as in `pointer ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"pointer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = (
        False
    ),
) -> None:
    """Options that come before the command."""


def _parts(importance: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in importance.split(",") if part.strip())
    return () if names == ("none",) else names


@app.command()
def prepare(
    corpus: Annotated[list[str], typer.Argument(help="Text, jsonl or parquet files, also .gz .xz .zst; - is stdin.")],
    out: Annotated[Path, typer.Option(help="The data folder to make, or to go on with.")],
    vocabulary: Annotated[str, typer.Option(help="An embedded name, a folder or a Hub id.")] = "english",
    max_length: Annotated[int, typer.Option(help="Tokens of a text; longer ones are split at sentence ends.")] = 64,
    layout: Annotated[str, typer.Option(help="lines: one text a line; running: split into sentences.")] = "lines",
    column: Annotated[str, typer.Option(help="The column or key that holds the text (parquet, jsonl).")] = "text",
    importance: Importance = "tfidf,pos,yake",
    tagger: Tagger = "perceptron",
    language: Language = "en",
    skeleton: Skeleton = "importance",
    keywords: Annotated[int, typer.Option(help="The most words of a keywords skeleton.")] = 7,
    seed: Seed = 0,
    workers: Annotated[int | None, typer.Option(help="Processes; all cores if left out.")] = None,
    as_json: Json = False,
) -> None:
    """Turn a corpus into training data: texts with their importance and stages, in parquet shards.

    Killed at any moment, the same command finishes the rest.
    """
    from pointer.prepare.corpus import Corpus
    from pointer.prepare.rows import RowSettings
    from pointer.prepare.shards import Preparation
    from pointer.prepare.shards import prepare as run

    settings = RowSettings(_parts(importance), tagger, language, skeleton, keywords, seed=seed)
    preparation = Preparation(Corpus(tuple(corpus), layout, column), vocabulary, max_length, settings)
    report = _Reporter()
    with _bar() as progress:
        manifest = run(preparation, out, workers or os.cpu_count() or 1, progress, report)
    report.rest()
    if as_json:
        print(json.dumps(manifest, indent=2))
        return
    counts = manifest["counts"]
    lost = sum(counts["skipped"].values())
    print(
        f"{out}: {counts['rows']:,} texts, {counts['tokens']:,} tokens, {len(manifest['shards'])} shards, from "
        f"{counts['lines']:,} lines{f' ({lost:,} skipped)' if lost else ''}"
    )


class _Reporter:
    """Tells about skipped lines: the first few of each kind, the others as a number."""

    most = 5

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __call__(self, skipped: "Skipped") -> None:
        self.counts[skipped.reason] += 1
        if self.counts[skipped.reason] <= self.most:
            print(f"pointer: {skipped}", file=sys.stderr)

    def rest(self) -> None:
        for reason, count in self.counts.items():
            if count > self.most:
                print(f"pointer: {count - self.most:,} more like the last: {reason}.", file=sys.stderr)


@contextmanager
def _bar() -> "Iterator[Progress]":
    """A progress bar on stderr if that is a terminal, one task a phase."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def progress(phase: str, done: int, total: int | None) -> None:
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase, total=total)
            bar.update(tasks[phase], completed=done, total=total)

        yield progress


@app.command()
def explain(
    text: Annotated[str, typer.Argument(help="A sentence or a short passage; - reads stdin.")],
    source: Annotated[str, typer.Option("--from", help="Embedded name, data folder or checkpoint.")] = "english",
    importance: Importance = "tfidf,pos,yake",
    tagger: Tagger = "perceptron",
    language: Language = "en",
    skeleton: Skeleton = "importance",
    keywords: Annotated[int, typer.Option(help="The most words of a keywords skeleton.")] = 7,
    seed: Seed = 0,
    as_json: Json = False,
    html: Annotated[Path | None, typer.Option(help="Also draw the stages into this HTML file.")] = None,
) -> None:
    """Show what each word of a text is worth and at which stage it is born."""
    from rich.console import Console
    from rich.table import Table

    from pointer.picture import stage_table
    from pointer.prepare.explain import explain as run
    from pointer.prepare.rows import RowSettings

    settings = RowSettings(_parts(importance), tagger, language, skeleton, keywords, seed=seed)
    explanation = run(sys.stdin.read() if text == "-" else text, source, settings)
    if html is not None:
        _draw(explanation.stages, explanation.text, html)
    if as_json:
        print(json.dumps(explanation.to_dict(), indent=2, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("token")
    names = list(explanation.tokens[0].scores)
    for name in [*names, "factor", "importance", "born at"]:
        table.add_column(name, justify="right")
    for token in explanation.tokens:
        numbers = [*(token.scores[name] for name in names), token.factor, token.importance]
        table.add_row(token.token, *(f"{number:.2f}" for number in numbers), f"X{token.stage}")
    console = Console()
    console.print(table)
    console.print()
    console.print(stage_table(explanation.stages))


@app.command()
def keywords(
    text: Annotated[str, typer.Argument(help="A text, a file with one text a line, or - for stdin.")],
    most: Annotated[int, typer.Option("--max", help="The most keywords of a text.")] = 4,
    language: Language = "en",
    seed: Seed = 0,
    separator: Annotated[str, typer.Option(help="What stands between keywords.")] = " ",
    as_json: Json = False,
) -> None:
    """Draw keywords from texts as the paper does for testing: YAKE's best words, in text order, one line a text."""
    from pointer.prepare.corpus import Corpus, Skipped
    from pointer.prepare.keywords import keywords as draw

    if text != "-" and not _is_file(text):
        found = draw(text, most, seed, language)
        print(json.dumps(found, ensure_ascii=False) if as_json else separator.join(found))
        return
    report = _Reporter()
    for line in Corpus((text,)):
        if isinstance(line, Skipped):
            report(line)
            continue
        found = draw(line.text, most, seed, language)
        print(json.dumps(found, ensure_ascii=False) if as_json else separator.join(found))
    report.rest()


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # a sentence can be too long for a file name
        return False


@app.command()
def vocabulary(
    corpus: Annotated[list[str], typer.Argument(help="Files of the domain; - is stdin.")],
    out: Annotated[Path, typer.Option(help="The folder to write the tokenizer to.")],
    source: Annotated[str, typer.Option("--from", help="The vocabulary to shrink: name, folder or Hub id.")],
    size: Annotated[int, typer.Option(help="How many entries to keep.")] = 10_000,
    column: Annotated[str, typer.Option(help="The column or key that holds the text (parquet, jsonl).")] = "text",
) -> None:
    """Shrink a vocabulary to a domain: keep its most frequent words and all that spells any other."""
    from pointer.prepare.corpus import Corpus, Text
    from pointer.text import normalise
    from pointer.vocabulary import Vocabulary, shrink, word_counts

    texts = (normalise(line.text) for line in Corpus(tuple(corpus), column=column) if isinstance(line, Text))
    large = Vocabulary.open(source)
    small, _ = shrink(large, word_counts(texts, large), size)
    small.save(out)
    print(f"{out}: {len(small):,} of {len(large):,} entries")


@app.command()
def train(
    data: Annotated[Path, typer.Argument(help="A folder that `pointer prepare` made.")],
    init: Annotated[str, typer.Option(help="Embedded model, folder or Hub id; from scratch: tiny, mini, base, large.")],
    out: Annotated[Path, typer.Option(help="The folder of the run, to make or to go on with.")],
    preset: Annotated[str, typer.Option(help="small (little compute) or paper; what follows changes it.")] = "small",
    validation: Annotated[Path | None, typer.Option(help="Data to validate on; else some is held out.")] = None,
    about: Annotated[str, typer.Option(help="For the model card: what the data is, under which licence.")] = "",
    epochs: Annotated[float | None, typer.Option(help="Budget: passes over the data.")] = None,
    steps: Annotated[int | None, typer.Option(help="Budget: optimizer steps.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Budget: tokens of training inputs.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Budget: time on the clock.")] = None,
    patience: Annotated[int | None, typer.Option(help="Stop after so many validations without progress.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="The highest learning rate.")] = None,
    warmup_steps: Annotated[int | None, typer.Option(help="Steps until it is reached.")] = None,
    decay: Annotated[str | None, typer.Option(help="How it falls afterwards: none, linear.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Decoupled weight decay.")] = None,
    clip: Annotated[float | None, typer.Option(help="The largest norm of the gradient.")] = None,
    dropout: Annotated[float | None, typer.Option(help="In the place of the checkpoint's.")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Positions of a batch.")] = None,
    accumulate: Annotated[int | None, typer.Option(help="Batches of each process that make a step.")] = None,
    skeleton: Annotated[str | None, typer.Option(help="Stage 0: prepared; drawn: importance, keywords, mixed.")] = None,
    keywords: Annotated[tuple[int, int] | None, typer.Option(help="Fewest and most words of a skeleton.")] = None,
    closing_share: Annotated[float | None, typer.Option(help="Share of closing pairs to train on.")] = None,
    positions: Annotated[int | None, typer.Option(help="The longest input of the model.")] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="Steps between validations.")] = None,
    validation_rows: Annotated[int | None, typer.Option(help="Texts to validate on.")] = None,
    save_every: Annotated[int | None, typer.Option(help="Steps between checkpoints.")] = None,
    log_every: Annotated[int | None, typer.Option(help="Steps between lines of metrics.jsonl.")] = None,
    half: Annotated[bool | None, typer.Option("--half", help="Store the best checkpoint in float16.")] = None,
    precision: Annotated[str | None, typer.Option(help="Mixed precision on a GPU: no, fp16, bf16.")] = None,
    gradient_checkpointing: Annotated[
        bool | None, typer.Option("--gradient-checkpointing", help="Less memory, more time.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random draws.")] = None,
    as_json: Json = False,
) -> None:
    """Train a model on prepared data: pre-training and fine-tuning alike.

    Killed at any moment, the same command goes on from the last checkpoint as if nothing had happened. Many GPUs:
    `accelerate launch -m pointer train ...`
    """
    given = {name: value for name, value in locals().items() if value is not None}
    from dataclasses import asdict, fields

    from pointer.settings import TrainingSettings

    names = [field.name for field in fields(TrainingSettings)]
    settings = TrainingSettings.preset(preset, **{name: given[name] for name in names if name in given})
    from pointer.training import train as run

    outcome = run(data, out, settings, init, validation, about)
    if int(os.environ.get("RANK", "0")):  # one process of many speaks for all
        return
    if as_json:
        print(json.dumps(asdict(outcome), indent=2))
        return
    print(
        f"{out}: {outcome.reason} after {outcome.step:,} steps and {outcome.tokens:,} tokens; validation loss "
        f"{outcome.validation['loss']:.4f}; {outcome.real_share:.1%} of the positions computed were real tokens"
    )


@app.command()
def convert(
    released: Annotated[Path, typer.Argument(help="The folder of a checkpoint that the paper's authors released.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
) -> None:
    """Turn a checkpoint of the authors' 2020 release into one of ours, without executing its pickle."""
    from pointer.model import convert_released

    model = convert_released(released, out)
    print(f"{out}: {model.num_parameters():,} parameters, {model.config.vocab_size:,} vocabulary entries")


@app.command()
def generate(
    constraints: Annotated[
        list[str] | None,
        typer.Argument(help="Words and phrases, or one string with ; between.", show_default=False),
    ] = None,
    model: Annotated[str, typer.Option(help="Embedded model, folder or Hub id.")] = "wiki",
    file: Annotated[str | None, typer.Option("-f", "--file", help="A list of constraints a line; - is stdin.")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write jsonl here; goes on where it stopped.")] = None,
    separator: Annotated[str, typer.Option(help="What stands between constraints in one string.")] = ";",
    decoding: Annotated[str, typer.Option(help="greedy, sample or beam.")] = "greedy",
    preset: Annotated[str, typer.Option(help="default, plain, paper or released.")] = "default",
    n: Annotated[int, typer.Option("-n", help="Texts for each list (sample, beam).")] = 1,
    seed: Seed = 0,
    temperature: Annotated[float, typer.Option(help="Of sampling.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Of sampling; 0 for all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Of sampling.")] = 1.0,
    width: Annotated[int, typer.Option(help="Of beam search.")] = 4,
    blocks: Annotated[int, typer.Option(help="Of beam search: rounds a stage; 0 for one gap at a time.")] = 2,
    length: Annotated[int | None, typer.Option(help="About how many words.")] = None,
    noi_offset: Annotated[float, typer.Option(help="Above 0 shorter, below 0 longer.")] = 0.0,
    repetition_penalty: Annotated[float | None, typer.Option(help="Against words that are already there.")] = None,
    max_stages: Annotated[int, typer.Option(help="Stages after which to stop.")] = 12,
    max_length: Annotated[int, typer.Option(help="Tokens at which the text stops growing.")] = 128,
    lock_start: Annotated[bool, typer.Option("--lock-start", help="Nothing before the first constraint.")] = False,
    lock_end: Annotated[bool, typer.Option("--lock-end", help="Nothing after the last constraint.")] = False,
    ban: Annotated[list[str] | None, typer.Option(help="A word that must not be inserted; may be repeated.")] = None,
    batch_size: Annotated[int, typer.Option(help="Lists that are decoded together.")] = 64,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...; the best there is if left out.")] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    threads: Annotated[int | None, typer.Option(help="CPU threads.")] = None,
    show_stages: Annotated[bool, typer.Option("--show-stages", help="Show how the text grows.")] = False,
    html: Annotated[Path | None, typer.Option(help="Also draw the stages into this HTML file.")] = None,
    as_json: Json = False,
) -> None:
    """Write a text around words and phrases: all of them come back, in order."""
    from pointer.decoding.options import Options

    if bool(constraints) == (file is not None):
        raise UsageError("Expected constraints or --file, found both or neither.", "Give one of them.")
    options = Options(
        decoding, preset, n, seed, temperature, top_k, top_p, width, blocks, max_stages, max_length, length, noi_offset,
        repetition_penalty, lock_start, lock_end, tuple(word.lower() for word in ban or ()),
    )  # fmt: skip
    from pointer.decoding.bulk import Asked, ResultFile, generate_lines, read_lists, records
    from pointer.decoding.generator import Pointer

    asked = _asked(constraints or [], separator) if constraints else read_lists(str(file), separator)
    pointer = Pointer.from_pretrained(model, device, dtype, threads)
    results = ResultFile(out, pointer, options) if out is not None else None
    report = _Reporter()
    with _bar() as progress:
        rest = (one for one in asked if not isinstance(one, Asked) or results is None or one.line > results.done)
        for done, (one, found) in enumerate(generate_lines(pointer, rest, options, batch_size, report), 1):
            if found[0].missing:
                print(f"pointer: line {one.line}: lost {', '.join(found[0].missing)}", file=sys.stderr)
            if results is not None:
                results.add(one, found)
                progress("generating", done, None)
            elif as_json:
                for record in records(pointer, one, found, options):
                    print(json.dumps(record, ensure_ascii=False))
            else:
                _show(found, show_stages)
            if html is not None:
                _draw(found[0].stages, found[0].text, html)
    report.rest()
    if report.counts and constraints:
        raise typer.Exit(1)


def _asked(constraints: list[str], separator: str) -> "Iterator[Asked | Skipped]":
    from pointer.decoding.bulk import Asked
    from pointer.decoding.constraints import parse

    if len(constraints) == 1 and separator not in constraints[0] and " " in constraints[0].strip():
        hint = f'for several constraints give several arguments, or put "{separator}" between them'
        print(f"pointer: one phrase of {len(constraints[0].split())} words; {hint}.", file=sys.stderr)
    yield Asked(1, parse(constraints[0] if len(constraints) == 1 else constraints, separator))


def _show(found: "list[Generation]", show_stages: bool) -> None:
    from rich.console import Console

    from pointer.picture import stage_table

    for generation in found:
        if show_stages:
            Console().print(stage_table(generation.stages))
        print(generation.text)


def _draw(stages: "Sequence[Sequence[Token]]", title: str, html: Path) -> None:
    from pointer.picture import stage_page
    from pointer.storage import write_whole

    write_whole(html, stage_page(stages, title).encode())
    print(f"pointer: wrote {html}", file=sys.stderr)


@app.command()
def info(as_json: Json = False) -> None:
    """Print versions, device, threads, embedded models, and which optional parts are present."""
    from rich.console import Console

    from pointer.information import gather

    found = gather()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    console = Console(highlight=False, soft_wrap=True)
    for title, value in found.items():
        if isinstance(value, dict):
            console.print(f"{title}:")
            for name, state in value.items():
                console.print(f"  {name:14} {state}")
        else:
            console.print(f"{title + ':':16} {', '.join(value) or 'none' if isinstance(value, list) else value}")
