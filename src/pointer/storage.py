"""Files that are whole or not there: write beside, then rename; a full disk is one sentence."""

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from pointer.errors import StorageError

_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota is used up", errno.EFBIG: "the file size limit"}


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it appears complete or not at all, also when the process is killed."""
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
