"""Takes the pictures of the page in docs/: `python docs/screenshots.py`, with chromium and `pip install playwright`."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

HERE = Path(__file__).parent
EMBEDDED = HERE.parent / "src" / "pointer" / "checkpoints"
DESKTOP: dict[str, Any] = {"viewport": {"width": 1040, "height": 940}, "device_scale_factor": 1.25}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True, "has_touch": True,
}  # fmt: skip
WORDS = {
    "reviews": ("delicious;love;mole;rice;back", "friendly staff;coffee;cozy"),
    "wiki": ("party;election;president;government", "castle;king;century;destroyed"),
}
LANGUAGE = "[~catch; dog > frisbee; ?happy]; !the; =8-12"


@contextmanager
def serving() -> Iterator[str]:
    """The address of a server with the embedded models."""
    command = [sys.executable, "-m", "pointer", "serve", "--port", "0", "--threads", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"http://\S+", line)
            if not found:
                raise SystemExit(line + process.stderr.read())
            yield found[0]
        finally:
            process.terminate()


def visit(browser: Browser, url: str, words: str, options: str = "", **settings: Any) -> Page:
    """The page after it has written around some words; nothing moves."""
    page = browser.new_context(reduced_motion="reduce", **settings).new_page()
    page.set_default_timeout(60_000)
    constraints = "&".join(f"c={word.replace(' ', '+')}" for word in words.split(";"))
    page.goto(f"{url}/#{constraints}{options}")
    page.locator("[data-part=caption]").filter(has_text="finished").wait_for()
    page.locator("#write").wait_for()
    return page


def stage(page: Page, number: int) -> None:
    """Go to a stage."""
    slider = page.get_by_role("slider", name="Stage")
    slider.press("Home")
    for _ in range(number):
        slider.press("ArrowRight")
    slider.evaluate("(slider) => slider.blur()")


def around(page: Page, part: str, margin: int = 24) -> Any:
    """Where a part of the page is, with some air around it."""
    box = page.locator(part).bounding_box()
    assert box is not None
    top = box["y"] + page.evaluate("scrollY")
    return {
        "x": box["x"] - margin, "y": top, "width": box["width"] + 2 * margin, "height": box["height"] + margin,
    }  # fmt: skip


def main() -> None:
    """Take all of them."""
    model = "reviews" if (EMBEDDED / "reviews").is_dir() else "wiki"
    first, second = WORDS[model]
    with serving() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])

        page = visit(browser, url, first, f"&model={model}", **DESKTOP)
        stage(page, 2)
        page.screenshot(path=HERE / "page-desktop.png")

        page.get_by_text("All stages").click()
        stage(page, 99)
        page.mouse.move(0, 0)
        page.screenshot(path=HERE / "page-stages.png", full_page=True, clip=around(page, "#result"))

        page = visit(browser, url, second, f"&model={model}", **PHONE)
        page.screenshot(path=HERE / "page-phone.png")

        page = visit(
            browser, url, second, f"&model={model}&decoding=sample&n=3&temperature=0.6", **DESKTOP, color_scheme="dark"
        )
        page.screenshot(path=HERE / "page-dark.png", full_page=True)

        page = browser.new_context(reduced_motion="reduce", **DESKTOP).new_page()
        page.set_default_timeout(60_000)
        page.goto(url)
        page.locator(".example").first.wait_for()
        page.screenshot(path=HERE / "page-gallery.png")
        page.locator("#entry").fill(LANGUAGE)
        page.locator("#entry").press("Enter")
        page.locator("#write").click()
        page.locator("[data-part=chosen]").wait_for()
        page.locator(".chip .face").first.click()
        page.screenshot(path=HERE / "page-menu.png")
        browser.close()


if __name__ == "__main__":
    main()
