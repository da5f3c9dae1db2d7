"""Writes the gallery of the page: examples with the texts that the embedded writer makes of them, as the page asks.

    python recipes/gallery.py

The lists for everyday sentences are those of `make demo`; the others show what else can be asked for. All of them were
chosen by reading, so the gallery shows what the writer does well.
"""

import json
from pathlib import Path

from pointer import Pointer
from pointer.storage import write_whole

ROOT = Path(__file__).parents[1]
EXAMPLES = [
    ("everyday", "[~read; girl; library; ?quiet]"),
    ("everyday", "child|boy; ~climb; tree; !a"),
    ("reviews", "waiter; friendly; dessert"),
    ("reviews", "delicious; love; mole; rice; back"),
    ("news", "prime minister; tax cuts; parliament"),
    ("wiki", "species; found; forests; Africa"),
    ("wiki", "castle; built; century"),
]
HEAD = """// What the writer makes of these words, as the page asks for them. Made by recipes/gallery.py.

export const GALLERY = """


def main() -> None:
    """Write the file."""
    demo = (ROOT / "examples" / "demo.txt").read_text("utf-8").splitlines()
    asked = [("everyday", line) for line in demo if line] + EXAMPLES
    writer = Pointer.from_pretrained("writer")
    found = [{"kind": kind, "asked": line, "text": writer.generate(line, style=kind).text} for kind, line in asked]
    content = f"{HEAD}{json.dumps(found, indent=2, ensure_ascii=False)};\n"
    write_whole(ROOT / "src" / "pointer" / "serving" / "page" / "gallery.js", content.encode())
    print("\n".join(f"{one['asked']}: {one['text']}" for one in found))


if __name__ == "__main__":
    main()
