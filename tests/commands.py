"""The command line, in a process of its own for every call that finds PyTorch and the rest already imported.

A parent imports them once and forks for each call. Run as a program this file is that parent: a call a line on stdin,
an exit code a line on stdout.
"""

import atexit
import contextlib
import gc
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

IMPORTED = ("pointer.baselines.autoregressive", "pointer.baselines.cgmh", "pointer.evaluation.metrics")


class Commands:
    """Calls of `pointer`, one after the other."""

    def __init__(self, parent: "subprocess.Popen[str]", folder: Path) -> None:
        self._parent = parent
        self._streams = [folder / name for name in ("stdin", "stdout", "stderr")]

    def __call__(
        self, arguments: Sequence[str], stdin: bytes, cwd: Path, environment: Mapping[str, str]
    ) -> "subprocess.CompletedProcess[str]":
        self._streams[0].write_bytes(stdin)
        call = [list(arguments), [str(path) for path in self._streams], str(cwd), dict(environment)]
        assert self._parent.stdin is not None and self._parent.stdout is not None
        print(json.dumps(call), file=self._parent.stdin, flush=True)
        code = int(self._parent.stdout.readline())
        out, err = (path.read_text("utf-8") for path in self._streams[1:])
        return subprocess.CompletedProcess(arguments, code, out, err)


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Commands]:
    """Start the parent; `folder` holds the streams of its children."""
    command = [sys.executable, __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        yield Commands(parent, folder)


def _fork_for_each() -> None:
    for name in IMPORTED:
        import_module(name)
    gc.freeze()  # so that a child's garbage collector does not touch, and thereby copy, all that was imported
    while line := sys.stdin.readline():
        if child := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        else:
            # At the usual end all that was imported would be taken down, which takes a second.
            os._exit(_called(*json.loads(line)))


def _called(arguments: list[str], streams: list[str], cwd: str, environment: dict[str, str]) -> int:
    """Be `python -m pointer ARGUMENTS`, up to the exit code."""
    from pointer.cli import main

    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, name in enumerate(streams):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY), number)
    sys.stdin = os.fdopen(0, encoding="utf-8")  # the old one has read on
    sys.argv = ["pointer", *arguments]
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    _fork_for_each()
