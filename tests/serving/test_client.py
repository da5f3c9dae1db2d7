"""`pointer generate --server`: what a running server writes is shown as if this process had written it."""

import json
import subprocess
import sys

import pytest
from conftest import Run
from servers import Command

pytest_plugins = ("shared",)


def test_a_server_writes_what_the_command_shows(server: Command, pointer: Run) -> None:
    asked = ["generate", "food; drinks", "--server", server.url]
    done = pointer(*asked)
    answer = server.client.post("/v1/generate", json={"constraints": ["food", "drinks"]}).json()
    assert done.stdout == answer["results"][0][0]["text"] + "\n" and done.returncode == 0
    several = pointer("generate", "food", "--server", server.url, "--decoding", "sample", "-n", "2", "--json")
    assert all(json.loads(line)["constraints"] == ["food"] for line in several.stdout.splitlines())
    group = pointer("generate", "[~love; drinks]; ?very; =6-9", "--server", server.url, "--json")
    assert json.loads(group.stdout)["asked"] == ["~love", "drinks", "?very"]
    fewer = pointer("generate", "food", "--server", server.url, "-n", "3", "--max-stages", "0")
    assert fewer.stdout == "Food\n" and "Expected 3 texts that differ, found 1" in fewer.stderr
    shown = pointer(*asked, "--show-stages")
    assert len(shown.stdout.splitlines()) > 2


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["food", "--model", "nobody"], 1, "nobody"),
        (["food", "--decoding", "beam", "--width", "64"], 2, "Expected width of at most 16 on this server, found 64."),
    ],
)
def test_what_a_server_refuses_is_one_sentence(
    arguments: list[str], code: int, sentence: str, server: Command, pointer: Run
) -> None:
    done = pointer("generate", *arguments, "--server", server.url)
    assert done.returncode == code and done.stdout == ""
    assert sentence in done.stderr and "Traceback" not in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("url", "code", "sentence"),
    [
        ("http://127.0.0.1:9", 1, "Start one with: pointer serve"),
        ("nowhere", 2, "expected a URL"),
    ],
)
def test_a_server_that_is_not_there_is_one_sentence(url: str, code: int, sentence: str, pointer: Run) -> None:
    done = pointer("generate", "food", "--server", url)
    assert done.returncode == code and sentence in done.stderr and "Traceback" not in done.stderr


def test_asking_a_server_imports_no_model(server: Command) -> None:
    program = (
        "import sys; sys.argv = ['pointer', 'generate', 'food', '--server', sys.argv[1]]\n"
        "from pointer.cli import main\ntry: main()\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'onnxruntime', 'torch', 'tokenizers', 'rich', 'pydantic'}\n"
        "print(heavy & set(sys.modules) or 'light')"
    )
    done = subprocess.run([sys.executable, "-c", program, server.url], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "light", done.stdout + done.stderr
