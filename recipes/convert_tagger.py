"""Turn the pickled weights of textblob-aptagger 0.2.0 into the data file of `pointer.prepare.tagging`.

    python recipes/convert_tagger.py textblob_aptagger-0.2.0-py2.py3-none-any.whl src/pointer/prepare/tagger

The result is what NLTK's `PerceptronTagger.decode_json_params` takes, [weights, tagdict, classes], as gzipped
JSON. The same wheel always gives the same bytes.
"""

import argparse
import gzip
import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

PICKLE = "textblob_aptagger/trontagger-0.1.0.pickle"
OUTPUT = "english.json.gz"


class DataUnpickler(pickle.Unpickler):
    """Reads plain data and sets; any other global in a pickle is a way to run code, and is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """The built-in `set` under its Python 2 name, and nothing else."""
        if (module, name) == ("__builtin__", "set"):
            return set
        raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}. Expected only plain data.")


def read_pickle(blob: bytes) -> tuple[dict[str, dict[str, float]], dict[str, str], list[str]]:
    """Weights, tagdict and classes of a pickled tagger, sorted and without what adds nothing to a score."""
    # Python 2 wrote its strings as bytes; all of them are ASCII, and a file where they are not fails here.
    weights, tagdict, classes = DataUnpickler(io.BytesIO(blob), encoding="ascii").load()
    if not set(tagdict.values()) <= set(classes):
        raise ValueError("the tagdict holds tags that are not among the classes. Expected a trained tagger.")
    # The package keeps weights as whole thousandths, so finer ones would be changed without a word.
    values = (weight for by_tag in weights.values() for weight in by_tag.values())
    if any(round(weight * 1000) / 1000 != weight for weight in values):
        raise ValueError("a weight has more than three decimals. Expected the rounded weights of the tagger.")
    by_feature = {
        feature: {tag: by_tag[tag] for tag in sorted(classes) if by_tag.get(tag)}
        for feature, by_tag in sorted(weights.items())
    }
    useful = {feature: by_tag for feature, by_tag in by_feature.items() if by_tag}
    return useful, dict(sorted(tagdict.items())), sorted(classes)


def convert(wheel: Path, folder: Path) -> Path:
    """Write the tagger that `wheel` holds into `folder` and return the file."""
    with zipfile.ZipFile(wheel) as archive:
        tagger = read_pickle(archive.read(PICKLE))
    text = json.dumps(tagger, separators=(",", ":"))
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / OUTPUT
    output.write_bytes(gzip.compress(text.encode(), mtime=0))
    return output


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Convert the weights of textblob-aptagger 0.2.0.")
    parser.add_argument("wheel", type=Path, help="textblob_aptagger-0.2.0-py2.py3-none-any.whl, from PyPI")
    parser.add_argument("folder", type=Path, help="where to write " + OUTPUT)
    arguments = parser.parse_args()
    print(convert(arguments.wheel, arguments.folder))
