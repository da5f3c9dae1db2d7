"""Draws the pictures of docs/judging.md: python docs/judge-pictures.py (needs chromium and playwright)."""

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
PICTURES = {
    "desktop": ("pairs", {"width": 1100, "height": 700}),
    "phone": ("pairs", {"width": 390, "height": 844}),
    "ratings": ("ratings", {"width": 1100, "height": 420}),
}

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    for system, text in TEXTS.items():
        record = json.dumps({"constraints": CONSTRAINTS, "text": text})
        (folder / f"{system}.jsonl").write_text(f"{record}\n" * 12)
    pointer = [sys.executable, "-m", "pointer", "judge"]
    new = [*pointer, "new", "one.jsonl", "two.jsonl", "--samples=12", "--judges=1", "--checks=0"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for kind, (form, size) in PICTURES.items():
            study = folder / kind
            subprocess.run([*new, f"--form={form}", f"--out={study}"], cwd=folder, check=True)
            serve = [*pointer, "serve", str(study), "--port", "0", "--json"]
            with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
                assert server.stdout is not None
                [link] = json.loads(server.stdout.readline())["links"]
                page = browser.new_page(viewport=size, is_mobile=kind == "phone", has_touch=kind == "phone")
                page.goto(link)
                page.get_by_role("button", name="Go on").press("Enter")
                page.keyboard.press("1" if form == "pairs" else "3")
                page.get_by_text("Saved").wait_for()
                page.screenshot(path=DOCS / f"judge-{kind}.png")
                server.kill()
        browser.close()
