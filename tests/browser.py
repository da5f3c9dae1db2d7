"""A real browser for tests: Debian's chromium, driven by playwright. Without one they are skipped, but fail in CI."""

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def _unavailable(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; CI must have it")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """One browser for all tests of a session."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        _unavailable("no chromium here (apt install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _unavailable("no playwright here (pip install playwright)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def browser_page(browser: "Browser") -> "Iterator[Page]":
    """An empty page with storage of its own. A test fails if its scripts do, or break the content security policy."""
    context = browser.new_context(viewport={"width": 1200, "height": 850})
    context.set_default_timeout(20_000)
    page = context.new_page()
    problems: list[str] = []

    def heard(message: "ConsoleMessage") -> None:
        if "Content Security Policy" in message.text:
            problems.append(message.text)

    page.on("console", heard)
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    context.close()
    assert not problems
