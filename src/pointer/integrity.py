"""Folders that came from elsewhere: may their files be read at all, and are they those that were written?

A checkpoint is data that somebody else made. So before anything is done with a file it is looked at from outside: it
has to be a plain file of its folder, and not larger than such a file can sensibly be. What it unpacks to is bounded
too. A manifest has the size and the sha256 of every file. Opening a checkpoint compares sizes, which takes no time and
finds what was cut off on its way; `pointer verify` compares every byte.
"""

import gzip
import io
import json
import zlib
from pathlib import Path
from typing import Any

from pointer.errors import CheckpointError
from pointer.storage import MANIFEST, file_hash

AGAIN = "Copy or download the folder again."
MEGABYTE = 2**20
TABLE_BYTES = 64 * MEGABYTE
"""What a compressed table may unpack to; those of the embedded models have one."""
_LARGEST = {".json": 64, ".gz": 16, ".txt": 64, ".md": 1, ".png": 16}
"""Megabytes that a file may have, by its kind. Weights are as large as config.json says, which is checked by itself."""
_OPENED = (".safetensors", ".onnx", ".gz", "tokenizer.json", "vocab.txt")
"""Files that have to be as they were written for a checkpoint to be opened. The others people change or delete, which
`pointer verify` tells."""


def check_files(folder: Path) -> None:
    """Refuse a checkpoint with files that should not be read: links to elsewhere, devices, what is far too large."""
    home = folder.resolve()
    homes = (home, home.parent.parent / "blobs")  # to where the snapshots of the Hub's cache link
    for path in sorted(folder.iterdir()):
        if path.suffix not in (*_LARGEST, ".safetensors", ".onnx", ".bin"):
            continue
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError) as error:  # a link to nothing, or to itself
            raise CheckpointError(f"Expected files in {folder}, found the broken link {path.name}.", AGAIN) from error
        if not any(real.is_relative_to(one) for one in homes):
            raise CheckpointError(
                f"Expected files in {folder}, found the link {path.name}, which leads out of the folder.",
                "Copy the file there if you trust it.",
            )
        if real.exists() and not real.is_file():
            raise CheckpointError(f"Expected files in {folder}, found that {path.name} is none.", AGAIN)
        size, most = real.stat().st_size, _LARGEST.get(path.suffix)
        if most is not None and size > most * MEGABYTE:
            raise CheckpointError(f"Expected {path} to have at most {most} MB, found {size:,} bytes.", AGAIN)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, a million brackets
        raise CheckpointError(f"Expected JSON in {path}, found something else.", AGAIN) from error
    if not isinstance(content, dict):
        raise CheckpointError(f"Expected a JSON object in {path}, found another value.", AGAIN)
    return content


def unpacked(packed: bytes) -> dict[str, Any]:
    """The JSON object in a compressed table; anything else is a ValueError."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            content = file.read(TABLE_BYTES + 1)
        if len(content) > TABLE_BYTES:
            raise ValueError(f"unpacks to more than {TABLE_BYTES // MEGABYTE} MB")
        table = json.loads(content)
    except (OSError, EOFError, zlib.error, RecursionError) as error:
        raise ValueError(type(error).__name__) from error
    if not isinstance(table, dict):
        raise ValueError("no object")
    return table


# ---------------------------------------------------------------------------------------------------------------------
# The manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `write_manifest` wrote."""
    content = read_json(folder / MANIFEST)
    files = content.get("files")
    if not isinstance(files, dict) or not all(
        isinstance(one, dict) and type(one.get("size")) is int and type(one.get("sha256")) is str
        for one in files.values()
    ):
        raise CheckpointError(f"Expected size and sha256 of every file in {folder / MANIFEST}, found others.", AGAIN)
    if any(name != Path(name).name for name in files):
        raise CheckpointError(f"Expected names of files in {folder / MANIFEST}, found a path.", AGAIN)
    return content


def differences(folder: Path, to_the_byte: bool) -> list[str]:
    """What is not as the manifest says, in words: `model.safetensors is missing`."""
    files = read_manifest(folder)["files"]
    found = [f"{name} {how}" for name, file in files.items() if (how := _differs(folder / name, file, to_the_byte))]
    if to_the_byte:
        others = (path.name for path in sorted(folder.iterdir()) if path.is_file() and path.name != MANIFEST)
        found += [f"{name} is not in the manifest" for name in others if name not in files]
    return found


def _differs(path: Path, file: dict[str, Any], to_the_byte: bool) -> str:
    if not path.is_file():
        return "is missing"
    if path.stat().st_size != file["size"]:
        return f"has {path.stat().st_size:,} bytes instead of {file['size']:,}"
    return "has other content" if to_the_byte and file_hash(path) != file["sha256"] else ""


def check_sizes(folder: Path) -> None:
    """Where there is a manifest, refuse a folder in which files are missing or of another size."""
    if not (folder / MANIFEST).is_file():
        return
    wrong = [one for one in differences(folder, to_the_byte=False) if one.split(" ")[0].endswith(_OPENED)]
    if wrong:
        raise CheckpointError(
            f"Expected in {folder} what its {MANIFEST} says, found that {wrong[0]}.",
            f"{AGAIN} If the change was yours: pointer verify {folder} --write",
        )


def verify(folder: Path) -> int:
    """Compare every byte of a folder with its manifest; how many files are as they were written."""
    if not (folder / MANIFEST).is_file():
        raise CheckpointError(
            f"Expected a {MANIFEST} in {folder}, found none.",
            f"It was written before there were any; if you trust it: pointer verify {folder} --write",
        )
    wrong = differences(folder, to_the_byte=True)
    if wrong:
        raise CheckpointError(
            f"Expected in {folder} what its {MANIFEST} says, found that {'; '.join(wrong)}.",
            f"{AGAIN} If the change was yours: pointer verify {folder} --write",
        )
    return len(read_manifest(folder)["files"])
