"""`pointer judge`: make a study of human judgements, serve it to the judges, report what they said."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from pointer.cli.help import add_command
from pointer.cli.shared import Json, Seed, show_table
from pointer.errors import UsageError

judge = typer.Typer(
    help="Human evaluation: people compare texts in pairs without knowing who wrote which.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)

Folder = Annotated[Path, typer.Argument(help="The folder of a study.")]


def new(
    files: Annotated[
        list[str],
        typer.Argument(
            help="FILE or NAME=FILE: jsonl from `pointer generate -o`, or a text a line. A .txt last: human."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    human: Annotated[str | None, typer.Option(help="The human text; then all FILES are systems.")] = None,
    questions: Annotated[
        str, typer.Option(help="What to ask, by commas: semantics, fluency, informativeness.")
    ] = "semantics,fluency,informativeness",
    samples: Annotated[int, typer.Option(help="Lines of the files to draw.")] = 400,
    judges: Annotated[int, typer.Option(help="Judges of each pair of texts.")] = 5,
    panel: Annotated[
        int | None, typer.Option(help="People who share the work; as many as --judges if left out.")
    ] = None,
    checks: Annotated[
        int | None, typer.Option(help="Attention checks for each person; one for 20 pairs if left out.")
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Draw a study: the first system against each other one, and against the human text.

    Examples:
        pointer judge new ours.jsonl theirs.txt --human refs.txt --samples 4 --judges 2 --out study
    """
    from pointer.judging.study import StudySettings, new_study

    asked = tuple(name.strip() for name in questions.split(",") if name.strip())
    study = new_study(files, out, StudySettings(asked, samples, judges, panel, checks, seed), human)
    loads = [len(sheet) for sheet in study.sheets]
    summary = {
        "study": str(out),
        "comparisons": [list(pair) for pair in study.pairs],
        "pairs": sum(not item.check for item in study.items),
        "judges": len(loads),
        "checks": study.settings.checks,
        "fewest": min(loads),
        "most": max(loads),
    }
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    share = f"{min(loads):,}" if min(loads) == max(loads) else f"{min(loads):,} or {max(loads):,}"
    people = "1 person" if len(loads) == 1 else f"{len(loads)} people"
    print(
        f"{out}: {summary['pairs']:,} pairs ({'; '.join(f'{a} - {b}' for a, b in study.pairs)}), {people} with {share} "
        f"each, {study.settings.checks} attention checks among them"
    )


def serve(
    study: Folder,
    host: Annotated[
        str, typer.Option(help="Address to listen at; the default is for this machine only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 takes a free one.")] = 8001,
    url: Annotated[str | None, typer.Option(help="What links begin with, behind a proxy.")] = None,
    as_json: Json = False,
) -> None:
    """Print a link for each judge and serve the page until interrupted.

    Examples:
        pointer judge serve study
    """
    from pointer.judging.server import serve as run

    def announce(links: list[str]) -> None:
        if as_json:
            print(json.dumps({"links": links}), flush=True)
        else:
            for number, link in enumerate(links, 1):
                print(f"judge {number}: {link}", flush=True)
        if host not in ("127.0.0.1", "::1", "localhost") and url is None:
            hint = "put it behind a proxy that speaks HTTPS and name that with --url"
            print(f"pointer: links and answers travel unencrypted; {hint}.", file=sys.stderr)
        print("pointer: serving; Ctrl-C ends it and loses nothing.", file=sys.stderr, flush=True)

    run(study, host, port, url, announce)


def report(
    study: Folder,
    as_json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print markdown.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Also draw the preferences: .png, .svg or .pdf.")] = None,
    everyone: Annotated[
        bool, typer.Option("--everyone", help="Count judges who fail the attention checks, too.")
    ] = False,
) -> None:
    """Print preferences, significance, agreement and the quality of judges, as far as there are answers.

    Examples:
        pointer judge report study --markdown
    """
    if as_json + markdown + latex > 1:
        raise UsageError("Expected one of --json, --markdown and --latex, found several.", "Give one of them.")
    from pointer.evaluation.drawing import check_picture
    from pointer.judging.report import make_report
    from pointer.judging.report import plot as draw

    if plot is not None:
        check_picture(plot)
    found = make_report(study, screened=not everyone)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    elif markdown:
        print(found.markdown())
    elif latex:
        print(found.latex())
    else:
        for table in found.tables():
            show_table(table)
            print()
        print("\n".join(found.notes()), end="\n\n")
        show_table(found.judge_table())
    if plot is not None:
        draw(found, plot)
        print(f"pointer: wrote {plot}", file=sys.stderr)


for command in (new, serve, report):
    add_command(judge, command)
