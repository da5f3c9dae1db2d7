"""The documentation as a site: it is built strictly, so that a link that leads nowhere fails."""

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import pointer

ROOT = Path(__file__).parents[1]


def build(root: Path, out: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT, out)
    assert done.returncode == 0, done.stderr
    return out


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which a folder is served."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_every_document_is_a_page_and_every_picture_is_there(site: Path) -> None:
    for source in (ROOT / "docs").iterdir():
        if source.suffix != ".py":
            assert (site / source.with_suffix(".html").name if source.suffix == ".md" else site / source.name).is_file()


def test_files_of_the_repository_that_pages_link_to_are_on_the_site(site: Path) -> None:
    assert 'href="project/CHANGELOG.html"' in (site / "index.html").read_text("utf-8")
    card = site / "project" / "src" / "pointer" / "checkpoints" / "news"
    assert (card / "index.html").is_file() and (card / "curve.png").is_file()
    assert (site / "project" / "src" / "pointer" / "evaluation" / "report.schema.json").is_file()


@pytest.mark.parametrize("name", pointer.__all__)
def test_the_reference_has_what_people_import(site: Path, name: str) -> None:
    assert f'.{name}"' in (site / "api.html").read_text("utf-8")


def test_examples_of_docstrings_are_code(site: Path) -> None:
    reference = (site / "api.html").read_text("utf-8")
    assert "doctest:" not in reference and "<blockquote>\n<blockquote>" not in reference


def test_search_finds_a_page_and_nothing_is_loaded_from_elsewhere(site: Path, browser: Browser) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with served(site) as address:
        page.goto(address)
        box = page.get_by_role("textbox", name="Search")
        box.focus()
        expect(page.locator(".md-search-result__meta")).to_have_text("Type to start searching", timeout=20_000)
        box.press_sequentially("quickstart")  # what is typed before the index is there is not looked up
        found = page.locator("[data-md-component=search-result] a").first
        expect(found).to_have_attribute("href", re.compile(r"quickstart\.html"), timeout=20_000)
        page.close()
    assert asked and not [url for url in asked if not url.startswith((address, "data:", "blob:"))]


def test_links_that_lead_nowhere_fail_the_build(tmp_path: Path) -> None:
    for part in ("docs", "recipes", "examples", "src/pointer"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("*.safetensors", "*.onnx"))
    for part in ("mkdocs.yml", "CHANGELOG.md"):
        shutil.copy(ROOT / part, tmp_path)
    with (tmp_path / "docs" / "page.md").open("a", encoding="utf-8") as page:
        page.write("\n[a](page-nowhere.md) [b](../file-nowhere.md) [c](decoding.md#part-nowhere)\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert all(f"{what}-nowhere" in done.stderr for what in ("page", "file", "part"))
