"""Every error that POINTER raises on purpose; each says what was expected, what was found and what to do.

PointerError
├── UsageError           an option or argument that cannot be
├── CorpusError          a corpus that cannot be read or holds nothing usable
├── DataError            a prepared data folder, shard or manifest that is not what it should be
├── VocabularyError      a vocabulary or tokenizer that does not fit
├── CheckpointError      a checkpoint folder that cannot be opened, written or converted
├── TrainingError        a run that cannot start or go on
├── ConstraintError      a constraint that cannot be part of a text
├── ServerError          a server that does not answer
├── ClusterError         a cluster that cannot be reached or does not finish
├── StorageError         a disk that is full or a folder that cannot be written
└── MissingPartError     an optional part of the package that is not installed
"""


class PointerError(Exception):
    """Base class: `message` states what was expected and found, `hint` what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class UsageError(PointerError):
    """An option or argument has a value that makes no sense; the message names it."""


class CorpusError(PointerError):
    """A corpus cannot be read, or nothing in it can be used."""


class DataError(PointerError):
    """A prepared data folder is incomplete, damaged or not one at all."""


class VocabularyError(PointerError):
    """A vocabulary cannot be found, or is not the one that data or weights were made with."""


class CheckpointError(PointerError):
    """A checkpoint folder cannot be opened, written or converted."""


class TrainingError(PointerError):
    """A training run cannot start or cannot go on."""


class ConstraintError(PointerError):
    """A constraint cannot be part of a text."""


class StorageError(PointerError):
    """The disk is full or a folder cannot be written."""


class ServerError(PointerError):
    """A server cannot be reached, or answers what it should not."""


class ClusterError(PointerError):
    """A cluster cannot be reached, or does not finish its work."""


class MissingPartError(PointerError):
    """A feature needs an optional part of the package that is not installed."""


def missing_extra(feature: str, package: str, extra: str) -> MissingPartError:
    """The error for `feature` when `package` is absent, naming the extra that brings it."""
    return MissingPartError(
        f"{feature} needs the package {package}, which is not installed.",
        f'Install it with: pip install "pointer-text[{extra}]"',
    )
