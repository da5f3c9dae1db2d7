"""Do int8 models say the same on a processor without VNNI? Such a one is emulated: qemu-user, Haswell (AVX2).

    apt install qemu-user
    python benchmarks/vnni.py

It says how far log-probabilities after some words are from those of this processor, once as models are opened there
(`session.x64quantprecision`), and once without that option, when sums of two products of 8 bits are clipped.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import pointer.runtime.onnx
from pointer import Pointer
from pointer.decoding.writer import Writer
from pointer.runtime import Floats, log_softmax

EMULATED = ("qemu-x86_64", "-cpu", "Haswell")
LISTS = [["dog", "frisbee", "park"], ["soup", "New York"], ["train", "late", "morning", "rain"]]
MODELS = ("wiki", "writer")


def said(name: str) -> Floats:
    """The log-probabilities that a model gives for what comes next to some words."""
    model = Pointer.from_pretrained(name, backend="onnx", threads=1)
    if isinstance(model, Writer):
        found: Floats = model.predict([tuple(model.language.prompt(words, "everyday")) for words in LISTS])
        return found
    ids = np.random.default_rng(0).integers(1000, 5000, (4, 12))
    rows, positions = np.indices(ids.shape)
    return log_softmax(model.predict(ids, None, rows.ravel(), positions.ravel()))


def main() -> None:
    """Print a row for every model."""
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            here, differences = said(name), []
            for option in ("exact", "clipped"):
                path = Path(folder) / f"{name}-{option}.npy"
                command = [*EMULATED, sys.executable, __file__, name, option, str(path)]
                subprocess.run(command, check=True, stderr=subprocess.DEVNULL)  # features that are not emulated
                differences.append(np.abs(np.load(path) - here).max())
            print(f"{name}: differs by at most {differences[0]:.2g} nats, without the option by {differences[1]:.2g}")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        model, option, out = sys.argv[1:]
        # Linux says which processor this is, not which one is emulated.
        pointer.runtime.onnx._adds_exactly = lambda: option == "clipped"  # type: ignore[assignment]
        np.save(out, said(model))
