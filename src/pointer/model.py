"""The insertion transformer: a BERT masked language model that says for every gap what goes into it.

The prediction at a position fills the gap to its right: a token, or `[NOI]` for nothing. A text stands between `[CLS]`
and `[SEP]`, so gap 0 is right of `[CLS]` and `[SEP]` has none. The folder that `save_pretrained` writes is an
ordinary Transformers checkpoint with a tokenizer, plus what only POINTER reads: a `pointer` section in the config, the
casing table and the document frequencies.
"""

import contextlib
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from transformers import BertConfig, BertForMaskedLM
from transformers.utils import logging as transformers_logging

from pointer.card import plain_card
from pointer.checkpoint import (
    CARD,
    CURVE,
    ONNX,
    SIZES,
    TABLES,
    bert_config,
    checkpoint_folder,
    insertion_config,
    read_files,
)
from pointer.errors import CheckpointError, VocabularyError
from pointer.integrity import AGAIN, check_files, check_sizes
from pointer.runtime.export import onnx_weights
from pointer.storage import replaced
from pointer.vocabulary import Vocabulary

Made = TypeVar("Made", bound=BertForMaskedLM)


class InsertionTransformer(BertForMaskedLM):  # type: ignore[no-untyped-call]
    """A `BertForMaskedLM` that knows its vocabulary, what travels with it, and how to start from other checkpoints.

    >>> model = InsertionTransformer.start("tiny", Vocabulary.open("english"))
    >>> model.config.pointer["end"], model.config.pointer["noi_token_id"] == Vocabulary.open("english").noi
    ('fixed', True)
    """

    def __init__(self, config: BertConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)  # type: ignore[no-untyped-call]
        self.vocabulary: Vocabulary | None = None
        self.files: dict[str, bytes] = {}
        """What is saved beside weights, config and vocabulary: tables, the card and its picture."""

    @classmethod
    def start(
        cls, init: str | Path, vocabulary: Vocabulary, positions: int | None = None, dropout: float | None = None
    ) -> "InsertionTransformer":
        """A model for `vocabulary`, from scratch (a name in `SIZES`) or from any BERT checkpoint.

        `init` is a size, an embedded name, a folder or a Hub id; an encoder without a head gets one that is tied to
        its embeddings. Embeddings follow their tokens into the new vocabulary. `positions` bounds the longest input,
        `dropout` replaces that of the checkpoint (both kinds).
        """
        weights: dict[str, torch.Tensor] = {}
        files: dict[str, bytes] = {}
        if str(init) in SIZES:
            config = BertConfig.from_dict(SIZES[str(init)])
        else:
            folder = checkpoint_folder(init)
            check_sizes(folder)
            config, weights, files = _read_config(folder), _read_weights(folder), read_files(folder, TABLES)
            weights = _for_vocabulary(weights, _vocabulary_of(folder, weights), vocabulary)
        _cut_positions(config, weights, positions)
        if dropout is not None:
            config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
        config.vocab_size, config.pad_token_id = len(vocabulary), vocabulary.id("[PAD]")
        _mark(config, vocabulary)
        model = _loaded(cls, config, weights, str(init))
        model.vocabulary, model.files = vocabulary, files
        return model

    @classmethod
    def from_pretrained(cls, name: str | Path, *args: Any, **kwargs: Any) -> "InsertionTransformer":  # type: ignore[override]
        """Open a checkpoint by embedded name, folder (also the `--out` of a training run) or Hub id, in float32."""
        folder = checkpoint_folder(name)
        check_sizes(folder)
        insertion_config(folder)
        config = _read_config(folder)
        kwargs.setdefault("dtype", torch.float32)
        if not any(folder.glob("*.safetensors")) and (folder / ONNX).is_file():
            model = _loaded(cls, config, _read_weights(folder), str(name), head_needed=True)
            model.to(kwargs["dtype"])
            return model._of_folder(folder)
        _check_weights(cls, config, folder)
        try:
            with quiet():
                model = super().from_pretrained(folder, *args, use_safetensors=True, **kwargs)
        except (OSError, RuntimeError, SafetensorError) as error:  # a file that is missing, of another shape, cut off
            raise CheckpointError(
                f"Expected in {folder} the weights that its config.json describes, found others or none "
                f"({type(error).__name__}).",
                "Copy or download it again, or train it again.",
            ) from error
        return model._of_folder(folder)

    def _of_folder(self, folder: Path) -> "InsertionTransformer":
        """The model with what lies beside its weights."""
        self.vocabulary = Vocabulary.of_checkpoint(folder, self.config.pointer["vocabulary"])
        self.files = read_files(folder, (*TABLES, CARD, CURVE))
        return self

    def save_pretrained(  # type: ignore[override]
        self,
        folder: str | Path,
        dtype: torch.dtype = torch.float32,
        extras: dict[str, bytes] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write the checkpoint so that it appears whole or not at all.

        `dtype` is that of the stored weights: `torch.float16` halves the file, and opening gives float32 again.
        `extras` are further files by name.
        """
        tied = self._tied_weights_keys or {}
        weights = {name: value.to(dtype) for name, value in self.state_dict().items() if name not in tied}
        with replaced(Path(folder)) as beside:
            with quiet():
                super().save_pretrained(beside, state_dict=weights, **kwargs)
            # What other programs should take it for; they know nothing of an InsertionTransformer.
            config = json.loads((beside / "config.json").read_text("utf-8")) | {"architectures": ["BertForMaskedLM"]}
            (beside / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", "utf-8")
            if self.vocabulary is not None:
                self.vocabulary.save(beside)
            files = {CARD: plain_card("An insertion transformer").encode()} | self.files | (extras or {})
            for name, content in files.items():
                (beside / name).write_bytes(content)

    def push_to_hub(self, repo_id: str, *, commit_message: str = "Upload a POINTER model", **kwargs: Any) -> str:  # type: ignore[override]
        """Upload the checkpoint; the arguments are those of any Transformers model.

        The inherited method would put an empty card in the place of ours and leave out the tables.
        """
        from huggingface_hub import HfApi

        api = HfApi(token=kwargs.pop("token", None))
        repo_id = api.create_repo(repo_id, private=kwargs.pop("private", None), exist_ok=True).repo_id
        with tempfile.TemporaryDirectory() as scratch:
            self.save_pretrained(Path(scratch) / "checkpoint")
            found = api.upload_folder(
                repo_id=repo_id, folder_path=Path(scratch) / "checkpoint", commit_message=commit_message, **kwargs
            )
        return str(found)


def convert_released(source: str | Path, target: str | Path) -> InsertionTransformer:
    """Turn a checkpoint of the authors' 2020 release into a folder of ours, without executing its pickle."""
    source = Path(source)
    missing = [name for name in ("config.json", "vocab.txt", "pytorch_model.bin") if not (source / name).is_file()]
    if missing:
        raise CheckpointError(
            f"Expected a released POINTER checkpoint in {source}, found no {' and no '.join(missing)}.",
            "Name the folder that was unpacked from the authors' archive.",
        )
    check_files(source)
    vocabulary, config, weights = Vocabulary.open(source), _read_config(source), _read_weights(source)
    rows = weights.get("bert.embeddings.word_embeddings.weight", torch.empty(0)).shape[0]
    if not rows == len(vocabulary) == config.vocab_size:
        raise CheckpointError(
            f"Expected as many embeddings as vocabulary entries in {source}, found {rows} embeddings, "
            f"{len(vocabulary)} entries in vocab.txt and {config.vocab_size} in config.json.",
            "The three files do not belong together; unpack the archive again.",
        )
    config.pointer = {"end": "inserted"}  # the release gives its model no [SEP]: it is inserted where the text ends
    _mark(config, vocabulary)
    model = _loaded(InsertionTransformer, config, weights, str(source), head_needed=True)
    model.vocabulary = vocabulary
    about = (
        "Weights of the authors' 2020 release (https://github.com/dreasysnail/POINTER), renamed and stored as "
        "safetensors; nothing was trained. The model inserts `[SEP]` itself (`end: inserted`)."
    )
    model.files[CARD] = plain_card("A released POINTER checkpoint, converted", about).encode()
    model.save_pretrained(target)
    return model


def _mark(config: BertConfig, vocabulary: Vocabulary) -> None:
    """Write the `pointer` section of a config; what is there already stays, but for the vocabulary."""
    earlier = getattr(config, "pointer", None) or {}
    here = {"noi_token_id": vocabulary.noi, "vocabulary": vocabulary.fingerprint}
    config.pointer = {"end": "fixed", "tokens_seen": 0} | earlier | here


# ---------------------------------------------------------------------------------------------------------------------
# Reading other people's checkpoints


def _read_config(folder: Path) -> BertConfig:
    try:
        config = BertConfig.from_dict(bert_config(folder))
    except CheckpointError:
        raise
    except Exception as error:
        raise _no_bert(folder / "config.json", error) from error
    config.is_decoder, config.dtype = False, torch.float32
    return config


def _no_bert(path: Path | str, error: Exception) -> CheckpointError:
    """Transformers takes values as they come, and fails wherever they lead."""
    return CheckpointError(
        f"Expected the config of a BERT in {path}, found values that make none ({type(error).__name__}).", AGAIN
    )


def _made(kind: type[Made], config: BertConfig, source: Path | str, device: str = "cpu") -> Made:
    """A model as a config describes it; on the device `meta` it takes no memory."""
    try:
        with torch.device(device):
            return kind(config)
    except Exception as error:
        raise _no_bert(source, error) from error


def _check_weights(kind: type[BertForMaskedLM], config: BertConfig, folder: Path) -> None:
    """Refuse weights that are not exactly those of the model: Transformers would make up what is missing."""
    if (folder / "adapter_config.json").exists():  # which Transformers would follow
        raise CheckpointError(f"Expected a whole model in {folder}, found an adapter beside it.", AGAIN)
    model = _made(kind, config, folder, "meta")
    tied = set(model._tied_weights_keys or ())
    wanted = {name: value.shape for name, value in model.state_dict().items()}
    found = weight_shapes(sorted(folder.glob("model*.safetensors")), folder)
    check_weights(found, {name: shape for name, shape in wanted.items() if name not in tied}, tied, folder)


FLOATS = ("F64", "F32", "F16", "BF16")
COUNTED = "embeddings.position_ids"
"""Whole numbers from 0 that BERT checkpoints of earlier years hold beside their weights; nobody needs them."""
Shapes = Mapping[str, Sequence[int]]


def weight_shapes(files: list[Path], folder: Path) -> dict[str, list[int]]:
    """The names and shapes of all weights in some files, which have to be numbers with a fraction."""
    if not files:
        hint = "pytorch_model.bin is not opened; pointer convert makes safetensors of it, or train the model again."
        pickled = (folder / "pytorch_model.bin").exists()
        raise CheckpointError(f"Expected safetensors in {folder}, found no weights.", hint if pickled else AGAIN)
    shapes: dict[str, list[int]] = {}
    for path in files:
        try:
            with safe_open(path, "pt") as weights:
                names = [name for name in weights.keys() if not name.endswith(COUNTED)]  # noqa: SIM118 (no dictionary)
                kinds = {name: weights.get_slice(name) for name in names}
                shapes |= {name: part.get_shape() for name, part in kinds.items()}
                strange = [name for name, part in kinds.items() if part.get_dtype() not in FLOATS]
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"Expected in {folder} the weights that its config.json describes, found others or none "
                f"({type(error).__name__}).",
                "Copy or download it again, or train it again.",
            ) from error
        if strange:
            raise CheckpointError(f"Expected floating point numbers in {path}, found others in {strange[0]}.", AGAIN)
    return shapes


def check_weights(found: Shapes, wanted: Shapes, may_be: set[str], folder: Path) -> None:
    """Refuse weights of which one is missing, too many, or of another shape."""
    missing = [name for name in wanted if name not in found]
    surplus = [name for name in found if name not in wanted and name not in may_be]
    shaped = [name for name in wanted if name in found and list(found[name]) != list(wanted[name])]
    for names, how in ((missing, "missing"), (surplus, "too many"), (shaped, "of another shape")):
        if names:
            raise CheckpointError(
                f"Expected in {folder} the weights that its config.json describes, found {names[0][:100]} {how} "
                f"({len(names)} such).",
                "Copy or download it again, or train it again.",
            )


def _read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """All weights of a BERT in float32, under the names that `BertForMaskedLM` has today."""
    safe, pickled = sorted(folder.glob("*.safetensors")), folder / "pytorch_model.bin"
    if safe:
        weight_shapes(safe, folder)
        found = {name: value for path in safe for name, value in load_file(path).items()}
    elif pickled.is_file():
        found = _read_pickle(pickled)
    elif (folder / ONNX).is_file():
        found = {name: torch.from_numpy(value) for name, value in onnx_weights(folder / ONNX).items()}
    else:
        raise CheckpointError(
            f"Expected model.safetensors in {folder}, found no weights.", "Download the weights into that folder too."
        )
    renamed = {_current_name(name): value.float() for name, value in found.items()}
    return {name: value for name, value in renamed.items() if name is not None}


def _read_pickle(path: Path) -> dict[str, torch.Tensor]:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and torch each have their own way to fail
        raise CheckpointError(
            f"Expected nothing but tensors in {path}, found something else ({type(error).__name__}).",
            "It was not executed. Get the file from its authors again.",
        ) from error
    if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise CheckpointError(f"Expected tensors by name in {path}, found something else.", "Get the file again.")
    return found


def _current_name(name: str) -> str | None:
    """The present name of a weight, None for parts that an insertion transformer does not have."""
    name = name.removeprefix("module.")
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
    if name.startswith(("embeddings.", "encoder.", "pooler.")):  # an encoder that was saved without its prefix
        name = f"bert.{name}"
    # The decoder is tied: its weight is the word embeddings, its bias is cls.predictions.bias.
    if not re.match(r"bert\.(embeddings|encoder)\.|cls\.predictions\.(bias|transform)", name):
        return None
    return None if name.endswith(COUNTED) else name


def _vocabulary_of(folder: Path, weights: dict[str, torch.Tensor]) -> Vocabulary:
    """The vocabulary of a checkpoint; one whose embeddings lack the row of an added `[NOI]` is fine."""
    vocabulary = Vocabulary.open(folder)
    rows = weights["bert.embeddings.word_embeddings.weight"].shape[0]
    if rows < len(vocabulary) - 1:
        raise VocabularyError(
            f"Expected an embedding for each of the {len(vocabulary)} vocabulary entries in {folder}, found {rows}.",
            "Tokenizer and weights are of different models; download the folder again.",
        )
    return vocabulary


def _for_vocabulary(weights: dict[str, torch.Tensor], old: Vocabulary, new: Vocabulary) -> dict[str, torch.Tensor]:
    """The weights for another vocabulary: each row follows its token; a new token is the mean of its old pieces."""
    table = weights["bert.embeddings.word_embeddings.weight"]
    if old.fingerprint == new.fingerprint and table.shape[0] == len(new):
        return weights
    places = {token: i for i, token in enumerate(old.tokens) if i < table.shape[0]}
    sources = [_old_ids(token, places, old) for token in new.tokens]
    moved = dict(weights)
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        if name in weights:
            mean = weights[name].mean(0)
            moved[name] = torch.stack([weights[name][ids].mean(0) if len(ids) else mean for ids in sources])
    return moved


def _old_ids(token: str, places: dict[str, int], old: Vocabulary) -> npt.NDArray[np.int64]:
    if token in places:
        return np.array([places[token]])
    if re.fullmatch(r"\[.*\]", token):
        return np.array([], np.int64)
    ids = old.encode([token.removeprefix("##")])[0].ids
    known: npt.NDArray[np.int64] = ids[(ids != old.id("[UNK]")) & (ids < len(places))]
    return known


def _cut_positions(config: BertConfig, weights: dict[str, torch.Tensor], positions: int | None) -> None:
    """Keep at most `positions` of a checkpoint's; a model from scratch gets as many."""
    if positions is None:
        return
    name = "bert.embeddings.position_embeddings.weight"
    if name in weights:
        positions = min(positions, len(weights[name]))
        weights[name] = weights[name][:positions].clone()
    config.max_position_embeddings = positions


def _loaded(
    kind: type[Made], config: BertConfig, weights: dict[str, torch.Tensor], source: str, head_needed: bool = False
) -> Made:
    """A model with these weights, or fresh ones if there are none; only the head may be missing, and only all of it."""
    wanted = _made(kind, config, source, "meta").state_dict()  # before there is memory for as much as a config likes
    wrong = [name for name, value in wanted.items() if name in weights and weights[name].shape != value.shape]
    missing = [name for name in wanted if name not in weights and ".decoder." not in name] if weights else []
    headless = not head_needed and all(name.startswith("cls.") for name in missing) and len(missing) in (0, 5)
    if wrong or (missing and not headless):
        wrong = wrong or missing
        raise CheckpointError(
            f"Expected the weights of the BERT that config.json describes in {source}, found {wrong[0]} missing or of "
            f"another shape ({len(wrong)} such).",
            "Name the folder of a complete checkpoint.",
        )
    model = _made(kind, config, source)
    model.load_state_dict(weights, strict=False)
    return model


# ---------------------------------------------------------------------------------------------------------------------
# Writing ours


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Transformers draws a bar for every load and save; ours take less than a second."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
