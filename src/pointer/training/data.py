"""The texts of a run: those to train on, and those that are held out to validate on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pointer.checkpoint import TABLES, read_files
from pointer.errors import DataError, TrainingError
from pointer.prepare.shards import PreparedData, Rows, RowSource
from pointer.training.batches import BLOCK_ROWS
from pointer.training.settings import RunSettings
from pointer.vocabulary import Vocabulary


@dataclass(frozen=True)
class TrainingData:
    """What `pointer prepare` made, for a run."""

    texts: RowSource
    held_out: Rows
    vocabulary: Vocabulary
    manifest: dict[str, Any]
    tables: dict[str, bytes]
    """The casing table and the document frequencies, as files."""

    @classmethod
    def open(
        cls,
        folder: str | Path,
        validation: str | Path | None,
        settings: RunSettings,
        verify: bool = True,
        stream: bool = False,
    ) -> "TrainingData":
        """Read a folder; without validation data of its own, some of its texts are held out.

        To `stream` it is to read each shard when its turn comes.
        """
        prepared = PreparedData.open(folder, verify and not stream)  # a streamed shard is checked when it is read
        try:
            texts, held_out = _split(prepared, validation, settings, stream)
        except KeyError as error:  # what the reader says about a column that is not there
            raise DataError(
                f"Expected shards with ids, stage, importance and rank in {folder}, found some without {error}.",
                "Prepare the data again with this version.",
            ) from error
        return cls(texts, held_out, prepared.vocabulary, prepared.manifest, read_files(prepared.folder, TABLES))

    @property
    def identity(self) -> dict[str, Any]:
        """What tells these data from others."""
        return {"data": self.manifest["shards"], "vocabulary": self.vocabulary.fingerprint}

    @property
    def longest(self) -> int:
        """The tokens that no text has more of, `[CLS]` and `[SEP]` not counted."""
        return max(self.texts.longest, self.held_out.longest)

    def describe(self) -> str:
        """A sentence for the model card."""
        counts, vocabulary = self.manifest["counts"], self.manifest["vocabulary"]
        return (
            f"{counts['rows']:,} texts, {counts['tokens']:,} tokens; vocabulary {vocabulary['fingerprint']} of "
            f"{vocabulary['size']:,} entries. Preparation: "
            + ", ".join(f"{key} {value}" for key, value in self.manifest["settings"].items())
            + "."
        )

    def need_ranks(self) -> None:
        """Refuse data in which no word is ranked as a keyword."""
        some = self.texts.take(np.arange(min(len(self.texts), BLOCK_ROWS)))
        if not some.rank.any():
            raise DataError(
                f"Expected texts with ranked keywords, found no rank in any of the first {len(some):,}.",
                "Prepare the data again; keywords need texts in a language whose stop words are known (--language).",
            )


def _split(
    prepared: PreparedData, validation: str | Path | None, settings: RunSettings, stream: bool
) -> tuple[RowSource, Rows]:
    if validation is None:
        if stream:
            raise TrainingError(
                "stream: expected with validation data of its own, found none.",
                "Prepare some texts by themselves and name them with --validation.",
            )
        rows = prepared.load()
        kept, few = hold_out(len(rows), settings)
        return rows.take(kept), rows.take(np.sort(few))
    other = PreparedData.open(validation)
    if other.vocabulary.fingerprint != prepared.vocabulary.fingerprint:
        raise TrainingError(
            f"Expected validation data of the same vocabulary as {prepared.folder}, found another in {validation}.",
            "Prepare both with one --vocabulary.",
        )
    held_out = other.load()
    few = np.linspace(0, len(held_out), min(len(held_out), settings.validation_rows), endpoint=False).astype(np.int64)
    return prepared.stream() if stream else prepared.load(), held_out.take(few)


def hold_out(count: int, settings: RunSettings) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The numbers of the texts to train on, in order, and of some to validate on, at random; a tenth at most."""
    few = min(settings.validation_rows, count // 10)
    if few == 0:
        raise TrainingError(
            f"Expected at least 10 texts, so that some can be held out, found {count}.",
            "Give more texts, or prepare some to validate on (--validation).",
        )
    order = np.random.default_rng([settings.seed, count]).permutation(count)
    return np.sort(order[few:]), order[:few]
