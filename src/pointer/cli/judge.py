"""`pointer judge`: make a study of human judgements, ask people in a browser or here, report what they said."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from pointer.cli.help import add_command
from pointer.cli.shared import Json, Seed, show_table
from pointer.errors import UsageError

judge = typer.Typer(
    help="Human evaluation: people compare or rate texts without knowing who wrote which.",
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
    form: Annotated[
        str, typer.Option(help="pairs: which of two texts is better? ratings: does a text make sense?")
    ] = "pairs",
    human: Annotated[str | None, typer.Option(help="The human text; then all FILES are systems.")] = None,
    questions: Annotated[
        str | None,
        typer.Option(help="What to ask of pairs, by commas: semantics, fluency, informativeness; all if left out."),
    ] = None,
    samples: Annotated[int, typer.Option(help="Lines of the files to draw.")] = 400,
    judges: Annotated[int, typer.Option(help="Judges of each pair or text.")] = 5,
    panel: Annotated[
        int | None, typer.Option(help="People who share the work; as many as --judges if left out.")
    ] = None,
    checks: Annotated[
        int | None, typer.Option(help="Attention checks for each person; one for 20 pairs or texts if left out.")
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Draw a study: the first system against each other one and the human text, or all texts one by one.

    Examples:
        pointer judge new ours.jsonl theirs.txt --human refs.txt --samples 4 --judges 2 --out study
        pointer judge new --form ratings ours.jsonl --human refs.txt --samples 4 --judges 1 --out ratings
    """
    from pointer.judging.study import StudySettings, new_study

    asked = None if questions is None else tuple(name.strip() for name in questions.split(",") if name.strip())
    study = new_study(files, out, StudySettings(form, asked, samples, judges, panel, checks, seed), human)
    loads = [len(sheet) for sheet in study.sheets]
    summary = {
        "study": str(out),
        "form": form,
        "systems": [list(systems) for systems in study.lineups],
        "items": sum(not item.check for item in study.items),
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
        f"{out}: {summary['items']:,} {study.form.noun}s ({'; '.join(map(' - '.join, study.lineups))}), {people} with "
        f"{share} each, {study.settings.checks} attention checks among them"
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


def rate(
    study: Folder,
    judge: Annotated[int, typer.Option(help="Whose sheet, from 1 in the order of the links.")] = 1,
) -> None:
    """Judge in this terminal: read a text, type a number; an empty line stops, the same command goes on.

    Examples:
        pointer judge rate ratings
    """
    import time

    from pointer.judging.answers import Answer, Answers
    from pointer.judging.study import open_study

    found = open_study(study)
    if not 1 <= judge <= len(found.sheets):
        raise UsageError(f"judge: expected a number from 1 to {len(found.sheets)}, found {judge}.", "Correct it.")
    answers = Answers(study, found.fingerprint)
    sheet = found.sheets[judge - 1]
    choices = "   ".join(f"{number} {choice}" for number, choice in enumerate(found.choices, 1))
    try:
        for place in answers.open_places(found, judge - 1):
            item, texts = found.shown(sheet[place])
            print(f"\n{found.form.noun.capitalize()} {place + 1} of {len(sheet)}: {'; '.join(item.constraints)}\n")
            print("\n\n".join(texts if len(texts) == 1 else map("{}  {}".format, "AB", texts)), end="\n\n")
            shown = time.monotonic()
            given = answers.of(judge - 1).get(place, {})
            for name, wording in found.questions.items():
                if name not in given:
                    choice = _choose(f"{wording}\n{choices}\n> ", len(found.choices))
                    if choice is None:
                        return
                    answers.give(Answer(judge - 1, place, name, choice, round(time.monotonic() - shown, 1)))
        print(f"\nAll {len(sheet)} are judged. pointer judge report {study} counts them.")
    finally:
        answers.close()


def _choose(question: str, most: int) -> int | None:
    """A number from 1 to `most` that is typed; None where somebody stops."""
    while True:
        try:
            typed = input(question).strip()
        except EOFError:
            return None
        if not typed:
            return None
        if typed.isdecimal() and 1 <= int(typed) <= most:
            return int(typed)
        question = f"Expected a number from 1 to {most}, or nothing to stop.\n> "


def report(
    study: Folder,
    as_json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print markdown.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Also draw the shares: .png, .svg or .pdf.")] = None,
    everyone: Annotated[
        bool, typer.Option("--everyone", help="Count judges who fail the attention checks, too.")
    ] = False,
) -> None:
    """Print preferences or ratings, how sure they are, agreement and the quality of judges, so far.

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


for command in (new, serve, rate, report):
    add_command(judge, command)
