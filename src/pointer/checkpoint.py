"""Where a checkpoint is: an embedded name, a folder, a training run or a Hub id. Light to import.

A wrong name is refused here, before anything that computes is imported.
"""

from pathlib import Path
from typing import Any

from pointer.errors import CheckpointError
from pointer.integrity import AGAIN, check_files, read_json, unpacked

EMBEDDED = "english"
"""The name of the vocabulary, document frequencies and casing table that come with the package."""
SIZES = {
    "tiny": {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512},
    "mini": {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
    "base": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    "large": {"num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096},
}
"""What can be started from scratch, by the names of the BERT family."""
TABLES = ("casing.json.gz", "document_frequencies.json.gz")
"""Files of a data folder that travel with a checkpoint."""
ONNX = "model.onnx"
"""The model for onnxruntime; an embedded checkpoint has it in the place of `model.safetensors`."""
CAUSAL = "causal"
"""What the `pointer` section of a causal checkpoint's config says it is."""
LARGEST = {
    "vocab_size": 1_000_000, "hidden_size": 16_384, "num_hidden_layers": 128, "num_attention_heads": 256,
    "intermediate_size": 65_536, "max_position_embeddings": 65_536, "type_vocab_size": 64,
}  # fmt: skip
"""What the sizes in a config may be at most, far above those of any BERT."""
CARD = "README.md"
CURVE = "curve.png"
_FROM_HUB = ["*.json", "*.safetensors", ONNX, "vocab.txt", CARD, *TABLES]


def embedded_folder(name: str) -> Path | None:
    """The folder inside the package that goes by this name: `english` (no weights) or an embedded checkpoint."""
    package = Path(__file__).parent
    folders = {EMBEDDED: package / EMBEDDED} | {f.name: f for f in (package / "checkpoints").glob("*/")}
    return folders.get(name)


def checkpoint_folder(name: str | Path) -> Path:
    """The folder behind an embedded name, a path (a training run stands for its best checkpoint) or a Hub id."""
    folder = embedded_folder(str(name)) or Path(name)
    for found in (folder, folder / "best", folder / "last"):
        if (found / "config.json").is_file():
            check_files(found)
            return found
    if folder.exists():
        raise CheckpointError(
            f"Expected a checkpoint with a config.json in {folder}, found none.",
            "Name a folder that holds a checkpoint, an embedded model or a Hub id.",
        )
    from huggingface_hub import snapshot_download

    try:
        found = Path(snapshot_download(str(name), allow_patterns=_FROM_HUB))
    except Exception as error:  # the Hub client raises a dozen unrelated types for "no such thing" and "no network"
        raise CheckpointError(
            f'Expected a size ({", ".join(SIZES)}), an embedded model, a folder or a Hub id, found "{name}", which is '
            f"none of them or cannot be reached ({type(error).__name__}).",
            "Check the name; without a network, give the path of a folder.",
        ) from error
    check_files(found)
    return found


def writer_folder(name: str) -> Path:
    """The folder of a model to write with. On the Hub it has an owner, so a bare name that is not here is a slip."""
    if "/" not in name and embedded_folder(name) is None and not Path(name).exists():
        embedded = sorted(folder.name for folder in (Path(__file__).parent / "checkpoints").glob("*/"))
        raise CheckpointError(
            f"model: expected an embedded model ({', '.join(embedded)}), a folder or a Hub id (OWNER/NAME), found "
            f'"{name}".',
            "Check the name.",
        )
    return checkpoint_folder(name)


def bert_config(folder: Path) -> dict[str, Any]:
    """The `config.json` of a BERT."""
    path = folder / "config.json"
    content = read_json(path)
    # The oldest BERT configs name no model type; all of them have a vocabulary and layers.
    if content.get("model_type", "bert") != "bert" or "num_hidden_layers" not in content:
        raise CheckpointError(
            f"Expected a BERT checkpoint in {folder}, found one of type {content.get('model_type')}.",
            "POINTER needs a BERT: masked language model or encoder.",
        )
    for name, most in LARGEST.items():
        size = content.get(name, 1)
        if type(size) is not int or not 1 <= size <= most:
            found = str(size)[:40]
            raise CheckpointError(f"Expected {name} in {path} to be from 1 to {most:,}, found {found}.", AGAIN)
    return content


def insertion_config(folder: Path) -> dict[str, Any]:
    """The `config.json` of an insertion transformer."""
    config = bert_config(folder)
    section = config.get("pointer")
    if not section:
        raise CheckpointError(
            f"Expected a POINTER checkpoint in {folder}, found a BERT without insertion training.",
            "Train it first (pointer train --init), or convert one of the authors' releases (pointer convert).",
        )
    wanted = {"vocabulary": (str, ""), "end": (str, "fixed"), "noi_offset": (int | float, 0.0), "rounds": (int, 1)}
    is_ours = isinstance(section, dict) and all(
        isinstance(section.get(name, default), kind) for name, (kind, default) in wanted.items()
    )
    if not is_ours or section["end"] not in ("fixed", "inserted") or not 0 <= section.get("rounds", 1) <= 8:
        raise CheckpointError(
            f"Expected the `pointer` section that POINTER writes in {folder / 'config.json'}, found another.", AGAIN
        )
    return config


def is_causal(folder: Path) -> bool:
    """Is a checkpoint of this kind?"""
    return causal_config(folder) is not None


def causal_config(folder: Path) -> dict[str, Any] | None:
    """The `pointer` section of a causal checkpoint's config; None for a checkpoint of another kind."""
    try:
        section = read_json(folder / "config.json").get("pointer") or {}
        if not isinstance(section, dict):
            return None  # whoever opens it as another kind says what is wrong with it
        if section.get("kind") != CAUSAL:
            return None
        wanted = {"base": str, "vocabulary": str, "styles": list, "noi_offset": float, "tokens_seen": int}
        if any(type(section.get(name)) is not kind for name, kind in wanted.items()):
            raise ValueError("a field of another type")
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"Expected the config of a POINTER checkpoint in {folder / 'config.json'}, found something else.",
            "Copy or download the folder again.",
        ) from error
    found: dict[str, Any] = section
    return found


def base_of(name: str) -> str | None:
    """The base of a causal checkpoint that is in the package or on this machine; None for all others.

    >>> base_of("writer"), base_of("wiki")
    ('smollm2', None)
    """
    folder = embedded_folder(name) or Path(name)
    try:
        config = causal_config(checkpoint_folder(folder)) if folder.is_dir() else None
    except CheckpointError:  # a folder of that name that is none
        return None
    return None if config is None else str(config["base"])


def read_files(folder: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """Those of the files that are there, by name."""
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}


def casing_of(packed: bytes | None) -> dict[str, dict[str, str]]:
    """The casing table of a checkpoint; an empty one where it has none."""
    if packed is None:
        return {}
    try:
        table = unpacked(packed)
        if not all(
            isinstance(forms, dict) and all(isinstance(form, str) for form in forms.values())
            for forms in table.values()
        ):
            raise ValueError("other types")
    except ValueError as error:
        message = f"Expected a casing table in casing.json.gz, found something else ({error})."
        raise CheckpointError(message, AGAIN) from error
    return table


def words_of(packed: bytes) -> frozenset[str]:
    """The words of the document frequencies of a checkpoint."""
    try:
        counts = unpacked(packed)["counts"]
        if not isinstance(counts, dict):
            raise ValueError("other types")
    except (ValueError, KeyError) as error:
        raise CheckpointError(
            f"Expected document frequencies in document_frequencies.json.gz, found something else ({error}).", AGAIN
        ) from error
    return frozenset(counts)
