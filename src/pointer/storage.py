"""Files that are whole or not there: write beside, then rename; a full disk is one sentence."""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from pointer.errors import CheckpointError, StorageError, missing_extra

MANIFEST = "manifest.json"
_WRITTEN = re.compile(
    r"config\.json|generation_config\.json|model.*\.safetensors.*|model\.onnx|tokenizer.*\.json|training\.pt"
)
"""Files of a checkpoint that do not survive another one in its place."""
_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota is used up", errno.EFBIG: "the file size limit"}


def is_address(name: str | Path) -> bool:
    """Is it something that `fsspec` reads, as `s3://bucket/folder`?"""
    return "://" in str(name)


def location(name: str | Path) -> Path:
    """A file or folder: a path, or what behaves like one at an address that `fsspec` reads (`s3://`, `gs://`, ...)."""
    if not is_address(name):
        return Path(name)
    try:
        from upath import UPath
    except ImportError as error:
        raise missing_extra(f"Reading {name}", "universal_pathlib", "cluster") from error
    try:
        found = UPath(name)
        found.fs  # noqa: B018  (which opens what reads such addresses)
    except (ImportError, ValueError) as error:
        raise StorageError(
            f"Expected an address that fsspec can read, found {name} ({error}).",
            "Install what it needs, as s3fs for s3:// or gcsfs for gs://.",
        ) from error
    return cast(Path, found)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it appears complete or not at all, also when the process is killed."""
    if not isinstance(path, Path):  # an object of a store appears when all of it is there
        path.write_bytes(content)
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with full_disk_explained(path):
        try:
            with beside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


@contextlib.contextmanager
def full_disk_explained(path: Path) -> Iterator[None]:
    """Turn what the system says about a full or read-only disk into one sentence with a way out."""
    try:
        yield
    except OSError as error:
        reason = _FULL.get(error.errno or 0)
        if reason is None and not isinstance(error, PermissionError):
            raise
        raise StorageError(
            f"Could not write {path}: {reason or 'no permission'}. What was finished before is kept.",
            "Make room (or choose another folder) and give the same command again.",
        ) from error


@contextlib.contextmanager
def replaced(folder: Path, **about: Any) -> Iterator[Path]:
    """A folder to write into that takes the place of `folder` when all is written; other files there are kept.

    It gets a manifest of all its files, which says what is to be known `about` it.
    """
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"Expected a folder to save to, found the file {folder}.", "Choose another name.")
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    old = folder.with_name(f".{folder.name}.old")
    with full_disk_explained(folder):
        beside.mkdir(parents=True, exist_ok=True)
        try:
            with _disk_errors():
                yield beside
            if folder.exists():
                _keep_others(folder, beside)
            write_manifest(beside, **about)
            for path in beside.iterdir():
                path.chmod(0o644)  # safetensors makes its file for the owner alone; a model is there to be shared
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            if folder.exists():
                shutil.rmtree(old, ignore_errors=True)
                folder.rename(old)
            beside.rename(folder)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


@contextlib.contextmanager
def _disk_errors() -> Iterator[None]:
    """A full disk is an OSError, also where safetensors finds it."""
    try:
        yield
    except Exception as error:
        number = re.search(r"os error (\d+)", str(error))
        if type(error).__name__ != "SafetensorError" or number is None:
            raise
        raise OSError(int(number[1]), str(error)) from error


def write_manifest(folder: Path, **about: Any) -> None:
    """Write down size and sha256 of every file of a folder, and what else is to be known `about` it."""
    files = {
        path.name: {"size": path.stat().st_size, "sha256": file_hash(path)}
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name != MANIFEST
    }
    (folder / MANIFEST).write_text(json.dumps(about | {"files": files}, indent=2) + "\n", "utf-8")


def _keep_others(folder: Path, beside: Path) -> None:
    for path in folder.iterdir():
        if path.is_file() and not (beside / path.name).exists() and not _WRITTEN.fullmatch(path.name):
            shutil.copy2(path, beside / path.name)


def recover(folder: Path) -> None:
    """Undo what a process that was killed while saving to `folder` left behind."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists() and not folder.exists():
        old.rename(folder)
    for path in (old, *folder.parent.glob(f".{folder.name}.*.partial")):
        shutil.rmtree(path, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Delete a folder and all in it."""
    if isinstance(folder, Path):
        shutil.rmtree(folder)
    else:
        folder.fs.rm(folder.path, recursive=True)


def remove_partial(folder: Path) -> None:
    """Delete what killed writers left behind in a folder."""
    for beside in folder.glob(".*.partial"):
        if beside.is_dir():
            shutil.rmtree(beside)
        else:
            beside.unlink(missing_ok=True)


def file_hash(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
