"""The command that answers over HTTP: serve."""

import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from pointer.cli.help import ADVANCED
from pointer.cli.options import with_options
from pointer.serving.limits import LOOPBACK, RANGES, Limits, Settings


@with_options("limits", Limits, RANGES, {}, {"Limits": " ".join(field.name for field in fields(Limits))})
def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="An embedded model, a folder or a Hub id; may be repeated, the first is the default. Left out, all "
            "embedded models are served."
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(help="Where to listen. Loopback, as anybody who reaches the server can use it: it has no TLS."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at; 0 takes any that is free.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="How many processes answer; each opens the models.")] = 1,
    api_key_file: Annotated[
        Path | None, typer.Option(help="Answer only those who have a key of this file, which has one key a line.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="A site whose pages may call the API from a browser; may be repeated.")
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            help="A name by which the server may be called, beside those of this machine; may be repeated, * is any."
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="CPU threads of a process; left out, all cores are shared out.", rich_help_panel=ADVANCED
        ),
    ] = None,
    *,
    limits: Limits,
) -> None:
    """Answer over HTTP: a page for people, an API for programs, its description at /openapi.json. Ctrl-C ends it.

    Examples:
        pointer serve
        pointer serve --model writer --port 8080
        pointer serve --host 0.0.0.0 --api-key-file keys.txt
    """
    from pointer.serving.keys import read_keys

    keys = read_keys(api_key_file) if api_key_file else ()
    from pointer.serving.server import Plan, embedded_models, served_names
    from pointer.serving.server import serve as run

    shared = threads or (max(1, (os.cpu_count() or 1) // workers) if workers > 1 else None)
    names = served_names(model or embedded_models())
    hosts = (*LOOPBACK, host, *(allowed_host or ()))
    plan = Plan(names, Settings(limits, keys, tuple(allow_origin or ()), hosts), shared)

    def announce(address: str) -> None:
        print(f"pointer: serving {', '.join(names)} at {address}", file=sys.stderr, flush=True)

    run(plan, host, port, workers, announce)
