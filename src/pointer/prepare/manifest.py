"""The manifest of a data folder: what says that preparation is finished, and what it made. Light to import."""

import json
from pathlib import Path
from typing import Any

from pointer.errors import DataError

FORMAT = 1
MANIFEST = "manifest.json"
AGAIN = "Prepare it again into a new folder."


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a data folder, if all shards that it names are there."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text("utf-8"))
        files, _ = [shard["file"] for shard in manifest["shards"]], manifest["vocabulary"]["fingerprint"]
    except (FileNotFoundError, NotADirectoryError) as error:
        unfinished = "an unfinished preparation" if (folder / ".work").exists() else "none"
        raise DataError(
            f"Expected prepared data with a {MANIFEST} in {folder}, found {unfinished}.",
            "Make it with `pointer prepare` (the same command again finishes an interrupted one).",
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"Expected a manifest of prepared data in {folder}, found something else.", AGAIN) from error
    if manifest.get("format") != FORMAT:
        raise DataError(f"Expected data of format {FORMAT} in {folder}, found {manifest.get('format')}.", AGAIN)
    for file in files:
        if not (folder / file).is_file():
            raise DataError(f"Expected the shard {file} in {folder}, found no such file.", AGAIN)
    return manifest
