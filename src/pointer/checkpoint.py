"""Where a checkpoint is: an embedded name, a folder, a training run or a Hub id. Light to import.

A wrong name is refused here, before anything that computes is imported.
"""

from pathlib import Path

from pointer.errors import CheckpointError

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
CARD = "README.md"
CURVE = "curve.png"
_FROM_HUB = ["*.json", "*.safetensors", "vocab.txt", CARD, *TABLES]


def embedded_folder(name: str) -> Path | None:
    """The folder inside the package that goes by this name: `english` (no weights) or an embedded checkpoint."""
    package = Path(__file__).parent
    folders = {EMBEDDED: package / EMBEDDED} | {f.name: f for f in (package / "checkpoints").glob("*/")}
    return folders.get(name)


def checkpoint_folder(name: str | Path) -> Path:
    """The folder behind an embedded name, a path (a training run stands for its best checkpoint) or a Hub id."""
    folder = embedded_folder(str(name)) or Path(name)
    if (folder / "config.json").is_file():
        return folder
    for kept in ("best", "last"):
        if (folder / kept / "config.json").is_file():
            return folder / kept
    if folder.exists():
        raise CheckpointError(
            f"Expected a checkpoint with a config.json in {folder}, found none.",
            "Name a folder that holds a checkpoint, an embedded model or a Hub id.",
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(str(name), allow_patterns=_FROM_HUB))
    except Exception as error:  # the Hub client raises a dozen unrelated types for "no such thing" and "no network"
        raise CheckpointError(
            f'Expected a size ({", ".join(SIZES)}), an embedded model, a folder or a Hub id, found "{name}", which is '
            f"none of them or cannot be reached ({type(error).__name__}).",
            "Check the name; without a network, give the path of a folder.",
        ) from error


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
