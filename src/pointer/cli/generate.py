"""The command that everything is for: generate."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pointer.cli.help import ADVANCED, CONSTRAINTS, OUTPUT, WRITING
from pointer.cli.options import with_options
from pointer.cli.shared import Address, Engine, Json, Reporter, Setting, System, bar, draw_stages
from pointer.decoding.options import CHOICES, DTYPES, RANGES, Options
from pointer.errors import UsageError

if TYPE_CHECKING:
    from pointer.decoding.bulk import Asked
    from pointer.decoding.generator import Generation, Generator
    from pointer.prepare.corpus import Skipped
    from pointer.stage import Token


GROUPS = {
    WRITING: "decoding n best_of style seed",
    CONSTRAINTS: "unordered forbid forbid_forms length sentences lock_start lock_end",
}
MODEL = (
    "The model that writes: writer, wiki, reviews or news, a folder or a Hub id. Left out, it is the writer if its "
    "base is there, and wiki otherwise."
)


@with_options("options", Options, RANGES, CHOICES, GROUPS, n="-n")
def generate(
    constraints: Annotated[
        list[str] | None,
        typer.Argument(
            help="Words and phrases, or one string with ; between them. It may say more: ~word (any form of it), a|b "
            "(either of the two), ?word (if it fits), !word (never), [a; b] (any order), =10-15 (so many words).",
            show_default=False,
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help=MODEL, rich_help_panel=WRITING)] = None,
    template: Annotated[
        str | None,
        typer.Option(help="Fill the gaps of this text: 'Dear ___, thank you for ___.'", rich_help_panel=WRITING),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "-f",
            "--file",
            help="Write for each line of this file, which is a list of constraints; - is standard input.",
            rich_help_panel=WRITING,
        ),
    ] = None,
    separator: Annotated[
        str, typer.Option(help="What stands between constraints in one string.", rich_help_panel=CONSTRAINTS)
    ] = ";",
    show_stages: Annotated[
        bool, typer.Option("--show-stages", help="Show how the text grows.", rich_help_panel=OUTPUT)
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Also draw the stages into this HTML file.", rich_help_panel=OUTPUT)
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--out",
            help="Write the texts to this file, as jsonl, or to a folder at s3:// and the like. The same command goes "
            "on where it stopped.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: Json = False,
    timed: Annotated[
        bool,
        typer.Option(
            "--timed",
            help="Also write how many seconds each text took; without it, the same command writes the same bytes.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    *,
    options: Options,
    batch_size: Annotated[
        int, typer.Option(help="How many lists are decoded together.", rich_help_panel=ADVANCED)
    ] = 64,
    device: Annotated[
        str | None,
        typer.Option(
            help="Where the model runs, as cpu or cuda; left out, the best there is.", rich_help_panel=ADVANCED
        ),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(help="What the weights are held in: float32, bfloat16 or float16.", rich_help_panel=ADVANCED),
    ] = "float32",
    threads: Annotated[int | None, typer.Option(help="How many CPU threads to use.", rich_help_panel=ADVANCED)] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="What runs the model: onnx or torch; left out, the faster.", rich_help_panel=ADVANCED),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            help="The address of a running pointer serve, which writes instead of this process.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="How many models write at once; left out, one, or one a core with --engine ray.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    engine: Engine = "local",
    address: Address = None,
    system: System = "pointer",
    setting: Setting = None,
) -> None:
    """Write a text around words and phrases: all of them come back, in order.

    Examples:
        pointer generate "dog; frisbee; park" --show-stages
        pointer generate "moon; lake; night" --best-of 8
        pointer generate "[dog; ~catch; park]; ?happy; !cat; =8-12"
        pointer generate --template "Dear ___, thank you for ___."
        pointer generate -f keys.txt -o out.jsonl
    """
    if bool(constraints) + (file is not None) + (template is not None) != 1:
        raise UsageError("Expected constraints, --template or --file, found none or several.", "Give one of them.")
    if server is not None:
        if file is not None or system != "pointer" or html is not None or out is not None:
            raise UsageError("server: expected with words and phrases alone, found another option.", "Leave it out.")
        _from_server(server, constraints or [str(template)], separator, model, options, show_stages, as_json)
        return
    _check(file, system, model, dtype, setting or [])
    from pointer.decoding.bulk import generate_lines, open_results, read_lists, records
    from pointer.engines import workers as start_workers

    asked = read_lists(str(file), separator) if file is not None else _asked(constraints or [], template, separator)
    several = engine != "local" or (workers or 1) > 1
    hold = partial(_open, system, model, device, dtype, threads or (1 if several else None), backend, setting or [])
    report = Reporter()
    with start_workers(hold, workers if several else 1, engine, address) as pool, bar() as progress:
        [name] = pool.map(_name, [()])
        results = open_results(out, name, options) if out is not None else None
        before = results.done if results is not None else 0
        for done, written in enumerate(generate_lines(pool, asked, options, batch_size, report, before, timed), 1):
            best = written.found[0]
            report.about(written.asked.line, best)
            if results is not None:
                results.add(written)
                progress("generating", done, None)
            elif as_json:
                for record in records(name, written, options):
                    print(json.dumps(record, ensure_ascii=False))
            else:
                _show(written.found, show_stages)
            if html is not None:
                draw_stages(best.stages, best.text, html)
        if results is not None:
            results.close()
        [remark] = pool.map(_remark, [()])
    report.rest()
    if remark:
        print(f"pointer: {name}: {remark}", file=sys.stderr)
    if report.counts and file is None:
        raise typer.Exit(1)


def _name(generator: "Generator") -> str:
    return generator.name


def _remark(generator: "Generator") -> str:
    """What a system has to say about a run."""
    return str(getattr(generator, "remark", ""))


@with_options("options", Options, RANGES, CHOICES, GROUPS, n="-n")
def expand(
    sentence: Annotated[str, typer.Argument(help="A sentence to make richer.")],
    model: Annotated[str | None, typer.Option(help=MODEL, rich_help_panel=WRITING)] = None,
    as_json: Json = False,
    *,
    options: Options,
) -> None:
    """Make a sentence richer: words come in between, nothing is taken out or moved.

    Without --length it becomes a quarter longer at least, and at most twice as long.

    Examples:
        pointer expand "The dog ran to the park."
        pointer expand "The dog ran to the park." --length 10-14 --best-of 4
    """
    _check(None, "pointer", model, "float32", [])
    from pointer.decoding.bulk import Asked, Written, records
    from pointer.decoding.generator import expansion

    pointer = _open("pointer", model, None, "float32", None, None, [])
    constraints, options = expansion(sentence, options)
    [found] = pointer.generate_many([constraints], **asdict(options))
    Reporter().about(1, found[0])
    if as_json:
        written = Written(Asked(1, constraints), found)
        for record in records(pointer.name, written, options):
            print(json.dumps(record, ensure_ascii=False))
    else:
        _show(found, False)


def _check(file: str | None, system: str, model: str | None, dtype: str, setting: list[str]) -> None:
    """Refuse what cannot be before PyTorch is imported, which takes seconds."""
    if file is not None:
        from pointer.prepare.corpus import Corpus

        Corpus((file,))
    allowed = DTYPES if system == "pointer" else DTYPES[:1]
    if dtype not in allowed:
        raise UsageError(f'dtype: expected {", ".join(allowed)}, found "{dtype}".', f"{system} has no other.")
    if system != "pointer":
        from pointer.baselines import check_system, read_settings

        read_settings(setting)
        check_system(system, model)
    elif setting:
        raise UsageError("setting: expected with a --system of its own, found without.", "Leave it out.")
    elif model is not None:
        from pointer.checkpoint import writer_folder

        writer_folder(model)


def _from_server(
    server: str,
    constraints: list[str],
    separator: str,
    model: str | None,
    options: Options,
    show_stages: bool,
    as_json: bool,
) -> None:
    """Let a server write, and show its texts as if they were ours."""
    from pointer.cli.client import ask_server

    asked: str | list[str] = constraints[0] if len(constraints) == 1 else constraints
    if separator != ";":  # which the server does not know of
        from pointer.decoding.grammar import parse

        asked = str(parse(asked, separator))
    for rank, text in enumerate(ask_server(server, asked, model, options)):
        if text["remark"] and rank == 0:
            print(f"pointer: {text['remark']}", file=sys.stderr)
        if as_json:
            print(json.dumps(text, ensure_ascii=False))
            continue
        if show_stages:
            from pointer.stage import Token

            _show_stages([[Token(token["token"], token["new"]) for token in stage] for stage in text["stages"]])
        print(text["text"])


def _open(
    system: str,
    model: str | None,
    device: str | None,
    dtype: str,
    threads: int | None,
    backend: str | None,
    setting: list[str],
) -> "Generator":
    if system == "pointer":
        from pointer.decoding.generator import Pointer, best_model

        if model is None and best_model() != "writer":
            hint = "for better texts: pointer fetch smollm2"
            print(f"pointer: writing with the small model {best_model()}; {hint}", file=sys.stderr)
        return Pointer.from_pretrained(model, device, dtype, threads, backend)
    import torch

    from pointer.baselines import open_system, read_settings

    if threads is not None:
        torch.set_num_threads(threads)
    return open_system(system, model, device, **read_settings(setting))


def _asked(constraints: list[str], template: str | None, separator: str) -> "Iterator[Asked | Skipped]":
    from pointer.decoding.bulk import Asked
    from pointer.decoding.grammar import Template, parse

    if template is not None:
        yield Asked(1, parse(Template(template)))
        return

    found = parse(constraints[0] if len(constraints) == 1 else constraints, separator)
    if len(constraints) == 1 and found.phrases and len(found.phrases) == 1 and " " in found.phrases[0]:
        hint = f'for several constraints give several arguments, or put "{separator}" between them'
        print(f"pointer: one phrase of {len(constraints[0].split())} words; {hint}.", file=sys.stderr)
    yield Asked(1, found)


def _show(found: "list[Generation]", show_stages: bool) -> None:
    for generation in found:
        if show_stages:
            _show_stages(generation.stages)
        print(generation.text)


def _show_stages(stages: "Sequence[Sequence[Token]]") -> None:
    from rich.console import Console

    from pointer.picture import stage_table

    Console().print(stage_table(stages))
