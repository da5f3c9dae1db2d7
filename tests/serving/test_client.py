"""`pointer generate --server`: what a running server writes is shown as if this process had written it."""

import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

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
        ("http://127.0.0.1:99999", 1, "Start one with: pointer serve"),
        ("nowhere", 2, "expected a URL"),
    ],
)
def test_a_server_that_is_not_there_is_one_sentence(url: str, code: int, sentence: str, pointer: Run) -> None:
    done = pointer("generate", "food", "--server", url)
    assert done.returncode == code and sentence in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n", b'HTTP/1.1 200 OK\r\n\r\n{"results": [[{"te'])
def test_what_is_no_answer_is_one_sentence(answer: bytes, pointer: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTER_API_KEY", "secret")
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor() as threads:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        done = threads.submit(pointer, "generate", "food", "--server", f"{url}/a b/")
        with listening.accept()[0] as connection:
            request = connection.recv(2**16).decode()
            connection.sendall(answer)
        assert "Start one with: pointer serve" in done.result().stderr
    assert request.startswith("POST /a%20b/v1/generate HTTP/1.0\r\n")
    assert f"\r\nHost: {url.removeprefix('http://')}\r\n" in request
    assert "\r\nAuthorization: Bearer secret\r\n" in request
    assert done.result().returncode == 1 and done.result().stderr.count("\n") == 1


def test_asking_a_server_imports_no_model(server: Command) -> None:
    program = (
        "import sys; sys.argv = ['pointer', 'generate', 'food', '--server', sys.argv[1]]\n"
        "from pointer.__main__ import main\ntry: main()\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'onnxruntime', 'torch', 'tokenizers', 'rich', 'pydantic', 'http.client', 'ssl'}\n"
        "print(heavy & set(sys.modules) or 'light')"
    )
    done = subprocess.run([sys.executable, "-c", program, server.url], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "light", done.stdout + done.stderr
