"""POINTER: a few words in, a fluent text that contains every one of them out.

The public names are imported when they are first used, so that `import pointer` is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Corpus": "pointer.prepare.corpus",
    "Explanation": "pointer.prepare.explain",
    "PointerError": "pointer.errors",
    "Preparation": "pointer.prepare.shards",
    "PreparedData": "pointer.prepare.shards",
    "RowSettings": "pointer.prepare.rows",
    "Vocabulary": "pointer.vocabulary",
    "explain": "pointer.prepare.explain",
    "keywords": "pointer.prepare.keywords",
}

__all__ = ["Corpus", "Explanation", "PointerError", "Preparation", "PreparedData", "RowSettings", "Vocabulary"]
__all__ += ["explain", "keywords"]

if TYPE_CHECKING:
    from pointer.errors import PointerError
    from pointer.prepare.corpus import Corpus
    from pointer.prepare.explain import Explanation, explain
    from pointer.prepare.keywords import keywords
    from pointer.prepare.rows import RowSettings
    from pointer.prepare.shards import Preparation, PreparedData
    from pointer.vocabulary import Vocabulary


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pointer' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
