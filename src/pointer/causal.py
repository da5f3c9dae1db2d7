"""The causal insertion transformer: a pre-trained language model, frozen, with an adapter that has learnt to insert.

It reads a task (`Words: dog, frisbee`) and writes a text around the words, left to right; `pointer.decoding.causal`
says how that is insertion. A checkpoint is the folder that `peft` writes for an adapter, with a `config.json` of ours
that names the base and says what the adapter is for. The base is not in it (`pointer.base`).
"""

import json
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from pointer.base import SMOLLM2, base_folder
from pointer.checkpoint import CARD, CAUSAL, CURVE, causal_config, checkpoint_folder, read_files
from pointer.errors import CheckpointError, missing_extra
from pointer.integrity import AGAIN, check_sizes, read_json
from pointer.language import Language, Likelihood
from pointer.model import check_weights, quiet, weight_shapes
from pointer.runtime.torch import CachedModel
from pointer.storage import replaced

ADAPTER = "adapter_model.safetensors"
LARGEST_RANK = 1024
"""Of an adapter; ours have 16."""
SCORED_TOKENS = 512
"""Positions that are scored together at most: the output layer of each is as long as the vocabulary."""


class CausalInserter:
    """A causal language model with an adapter, its language, and what travels with them."""

    def __init__(self, model: Any, language: Language, config: dict[str, Any]) -> None:
        self.model = model
        """A `PeftModel`."""
        self.language = language
        self.config = config
        """The `pointer` section: `base`, `styles`, `noi_offset`, `tokens_seen`, ..."""
        self.files: dict[str, bytes] = {}
        """What is saved beside the adapter: the card and its picture."""

    @classmethod
    def start(cls, backbone: str | Path = SMOLLM2, rank: int = 16, first_layer: int = 0) -> "CausalInserter":
        """A new adapter for a base: `smollm2`, a folder or a Hub id. It changes nothing until it is trained.

        `rank` is that of the matrices (LoRA); layers before `first_layer` get none, which makes training faster.
        """
        peft = _peft()
        base, language = open_base(backbone)
        layers = list(range(first_layer, base.config.num_hidden_layers)) if first_layer else None
        settings = peft.LoraConfig(
            r=rank,
            lora_alpha=2 * rank,
            target_modules=_linear(base) if layers else "all-linear",
            layers_to_transform=layers,
            task_type="CAUSAL_LM",
        )
        config = {
            "kind": CAUSAL,
            "base": _base_name(backbone),
            "vocabulary": language.fingerprint,
            "styles": [],
            "noi_offset": 0.0,
            "tokens_seen": 0,
        }
        return cls(peft.get_peft_model(base, settings), language, config)

    @classmethod
    def from_pretrained(
        cls, name: str | Path, backbone: str | Path | None = None, trainable: bool = False
    ) -> "CausalInserter":
        """Open a checkpoint by embedded name, folder (also the `--out` of a training run) or Hub id.

        `backbone` is where its base is, if not where the checkpoint says.
        """
        folder = checkpoint_folder(name)
        check_sizes(folder)
        config = causal_config(folder)
        if config is None:
            raise CheckpointError(
                f"Expected a causal POINTER checkpoint in {folder}, found another model.", "Name one, such as writer."
            )
        peft = _peft()
        _check_adapter(folder)
        base, language = open_base(backbone or config["base"])
        if language.fingerprint != config["vocabulary"]:
            raise CheckpointError(
                f"Expected the base that the adapter in {folder} was trained on, found another vocabulary.",
                f"Give the same one: {config['base']}.",
            )
        try:
            with quiet():
                model = peft.PeftModel.from_pretrained(base, str(folder), is_trainable=trainable)
        except Exception as error:  # peft, safetensors and torch each have their own way to fail
            raise CheckpointError(
                f"Expected in {folder} the adapter that its adapter_config.json describes, found another or none "
                f"({type(error).__name__}).",
                "Copy or download it again, or train it again.",
            ) from error
        wanted = {name: value.shape for name, value in _adapter_weights(model).items()}
        check_weights(weight_shapes([folder / ADAPTER], folder), wanted, set(), folder)
        found = cls(model.float(), language, config)
        found.files = read_files(folder, (CARD, CURVE))
        return found

    @cached_property
    def transformer(self) -> Any:
        """The language model itself, with the adapter inside it."""
        return self.model.get_base_model()

    @property
    def longest(self) -> int:
        """The most tokens of task and text."""
        return int(self.transformer.config.max_position_embeddings)

    def next_token(self) -> CachedModel:
        """The model as a function of prefixes."""
        return CachedModel(self.transformer, starts=self.language.starts)

    def without_adapter(self) -> AbstractContextManager[None]:
        """Where the model is the base that it was before training."""
        switched: AbstractContextManager[None] = self.model.disable_adapter()
        return switched

    def likelihoods(self, texts: Sequence[str], style: str | None) -> list[Likelihood]:
        """How likely the base, as it was before training, finds each text."""
        with self.without_adapter():
            return likelihoods(self.transformer, self.language, texts, style)

    def save_pretrained(
        self, folder: str | Path, dtype: torch.dtype = torch.float32, extras: dict[str, bytes] | None = None
    ) -> None:
        """Write the checkpoint so that it appears whole or not at all; `extras` are further files by name."""
        with replaced(Path(folder)) as beside:
            settings = self.model.peft_config["default"]
            settings.base_model_name_or_path = self.config["base"]
            weights = _adapter_weights(self.model)
            with quiet():
                settings.save_pretrained(str(beside))
                _save({name: value.to(dtype).contiguous() for name, value in weights.items()}, beside)
            content = {"model_type": "pointer-causal", "pointer": self.config}
            files = {"config.json": (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()}
            for name, written in (files | self.files | (extras or {})).items():
                (beside / name).write_bytes(written)


def fluency(transformer: Any, language: Language, texts: Sequence[str]) -> list[float]:
    """How likely a language model finds each text: the log-probability of its tokens, on average."""
    return [total / size for total, size in likelihoods(transformer, language, texts)]


@torch.inference_mode()
def likelihoods(
    transformer: Any, language: Language, texts: Sequence[str], style: str | None = None
) -> list[Likelihood]:
    """How likely each text is as the answer to a request for one of that style; or, without a style, by itself."""
    before = language.request(style)
    rows = [[*before, *language.encode(text), language.end] for text in texts]
    batch = max(1, SCORED_TOKENS // max(map(len, rows), default=1))
    parts = [rows[start : start + batch] for start in range(0, len(rows), batch)]
    return [found for part in parts for found in _likelihoods(transformer, part, len(before))]


def _likelihoods(transformer: Any, rows: list[list[int]], before: int) -> list[Likelihood]:
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=transformer.device)  # B T
    hidden = transformer.base_model(input_ids=ids[:, :-1]).last_hidden_state  # B T H
    logits = transformer.get_output_embeddings()(hidden).float()  # B T V
    own = torch.log_softmax(logits, -1).gather(2, ids[:, 1:, None])[..., 0].cpu()  # B T
    places = torch.arange(1, width)
    real = (places >= before) & (places < torch.tensor([len(row) for row in rows])[:, None])
    return [Likelihood(*one) for one in zip((own * real).sum(1).tolist(), real.sum(1).tolist(), strict=True)]


def open_base(backbone: str | Path = SMOLLM2) -> tuple[Any, Language]:
    """A causal language model in float32, frozen, and its language."""
    from transformers import AutoModelForCausalLM

    folder = base_folder(backbone)
    language = Language.open(folder)
    try:
        with quiet():
            base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    except Exception as error:  # a file that is missing, of another shape, cut off, of an unknown architecture
        raise CheckpointError(
            f"Expected a causal language model in {folder}, found something else ({type(error).__name__}).",
            "Name the folder of one that Transformers opens with AutoModelForCausalLM.",
        ) from error
    if base.config.vocab_size < language.size:
        raise CheckpointError(
            f"Expected an embedding for each of the {language.size} tokens in {folder}, found "
            f"{base.config.vocab_size}.",
            "Tokenizer and weights are of different models; download the folder again.",
        )
    base.requires_grad_(False)
    return base, language


def _linear(base: Any) -> list[str]:
    """The names of all linear parts of a layer; `peft` wants them said where only some layers get an adapter."""
    from transformers.pytorch_utils import Conv1D

    parts = [name for name, part in base.named_modules() if isinstance(part, torch.nn.Linear | Conv1D)]
    return sorted({name.rsplit(".", 1)[-1] for name in parts if re.search(r"\.\d+\.", name)})


def _base_name(backbone: str | Path) -> str:
    """What a checkpoint calls its base: a name that means something elsewhere, or the folder."""
    return str(Path(backbone).resolve()) if Path(backbone).is_dir() else str(backbone)


def _save(weights: dict[str, torch.Tensor], folder: Path) -> None:
    from safetensors.torch import save_file

    save_file(weights, folder / ADAPTER, metadata={"format": "pt"})


def _adapter_weights(model: Any) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = _peft().get_peft_model_state_dict(model, save_embedding_layers=False)
    return found


def _check_adapter(folder: Path) -> None:
    """Refuse the description of an adapter that is not what we write, before `peft` makes room for it."""
    path = folder / "adapter_config.json"
    if not path.is_file():
        raise CheckpointError(f"Expected an adapter in {folder}, found no {path.name}.", AGAIN)
    content = read_json(path)
    rank = content.get("r")
    if content.get("peft_type") != "LORA" or type(rank) is not int or not 1 <= rank <= LARGEST_RANK:
        raise CheckpointError(
            f"Expected in {path} a LoRA adapter of a rank from 1 to {LARGEST_RANK}, found something else.", AGAIN
        )
    if not (folder / ADAPTER).is_file():  # peft would look for a pickle
        raise CheckpointError(f"Expected an adapter in {folder}, found no {ADAPTER}.", AGAIN)


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise missing_extra("A causal model", "peft", "writer") from error
    return peft
