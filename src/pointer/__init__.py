"""POINTER: a few words in, a fluent text that contains every one of them out.

The public names are imported when they are first used, so that `import pointer` is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Corpus",
    "Explanation",
    "Generation",
    "InsertionTransformer",
    "Options",
    "Pointer",
    "PointerError",
    "Preparation",
    "PreparedData",
    "RowSettings",
    "TrainingSettings",
    "Vocabulary",
    "explain",
    "keywords",
    "train",
]

_HOME = {
    "Corpus": "pointer.prepare.corpus",
    "Explanation": "pointer.prepare.explain",
    "Generation": "pointer.decoding.generator",
    "InsertionTransformer": "pointer.model",
    "Options": "pointer.decoding.options",
    "Pointer": "pointer.decoding.generator",
    "PointerError": "pointer.errors",
    "Preparation": "pointer.prepare.shards",
    "PreparedData": "pointer.prepare.shards",
    "RowSettings": "pointer.prepare.rows",
    "TrainingSettings": "pointer.training.settings",
    "Vocabulary": "pointer.vocabulary",
    "explain": "pointer.prepare.explain",
    "keywords": "pointer.prepare.keywords",
    "train": "pointer.runs",
}

if TYPE_CHECKING:
    from pointer.decoding.generator import Generation, Pointer
    from pointer.decoding.options import Options
    from pointer.errors import PointerError
    from pointer.model import InsertionTransformer
    from pointer.prepare.corpus import Corpus
    from pointer.prepare.explain import Explanation, explain
    from pointer.prepare.keywords import keywords
    from pointer.prepare.rows import RowSettings
    from pointer.prepare.shards import Preparation, PreparedData
    from pointer.runs import train
    from pointer.training.settings import TrainingSettings
    from pointer.vocabulary import Vocabulary


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pointer' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
