"""Draws `judge-desktop.png` and `judge-phone.png`: python docs/judge-pictures.py (needs chromium and playwright)."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent
CONSTRAINTS = ["bread", "blue cart", "gate"]
TEXTS = {
    "one": "A baker with fresh bread pushed a blue cart up the hill, and by eight the line had reached the gate.",
    "two": "The bread is a bread of the blue cart and it was the gate of the gate.",
}
SIZES = {"desktop": {"width": 1100, "height": 700}, "phone": {"width": 390, "height": 844}}

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    for system, text in TEXTS.items():
        record = json.dumps({"constraints": CONSTRAINTS, "text": text})
        (folder / f"{system}.jsonl").write_text(f"{record}\n" * 12)
    pointer = [sys.executable, "-m", "pointer", "judge"]
    draw = [*pointer, "new", "one.jsonl", "two.jsonl", "--samples=12", "--judges=1", "--checks=0", "--out=study"]
    subprocess.run(draw, cwd=folder, check=True)
    serve = [*pointer, "serve", str(folder / "study"), "--port", "0", "--json"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        assert server.stdout is not None
        [link] = json.loads(server.stdout.readline())["links"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for kind, size in SIZES.items():
            page = browser.new_page(viewport=size, is_mobile=kind == "phone", has_touch=kind == "phone")
            page.goto(link)
            if kind == "desktop":
                page.get_by_role("button", name="Go on").click()
                page.keyboard.press("5")
                page.get_by_text("Saved").wait_for()
            page.get_by_role("radio", checked=True).wait_for()
            page.screenshot(path=DOCS / f"judge-{kind}.png")
        browser.close()
        server.kill()
