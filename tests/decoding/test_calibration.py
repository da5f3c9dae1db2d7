"""`pointer calibrate`: words and length come nearer to people's, and what was measured travels with the weights."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import Run
from scripted import Answer, scripted, small_vocabulary, untrained

from pointer import InsertionTransformer, Pointer, Vocabulary
from pointer.decoding.calibration import GLUE, MOST, SMOOTHING, Calibration, Usage, calibrate
from pointer.decoding.generator import Generation
from pointer.decoding.schedule import Preset
from pointer.errors import CheckpointError, CorpusError, UsageError
from pointer.picture import Token

TEXTS = [
    f"{how} {first} {link} {second}"
    for how in ("great", "friendly", "clean")
    for first in ("food", "drinks", "music", "staff")
    for link in ("and", "to", "from")
    for second in ("rice", "place")
] * 4


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return small_vocabulary(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network with random weights and favourites."""
    return untrained(tmp_path_factory.mktemp("models") / "tiny", noi=4.0)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


def with_a_favourite(vocabulary: Vocabulary) -> Answer:
    """A model that knows what fits beside a word, but puts `very` into every gap, if by a narrow margin."""

    def answer(ids: list[int], position: int) -> np.ndarray:
        beside = sum(ids[max(0, position - 1) : position + 3])
        logits = np.full(len(vocabulary), -9.0)
        logits[[vocabulary.id(word) for word in ("and", "to", "from", "is")]] = np.roll([3.9, 3.0, 2.5, 2.0], beside)
        logits[[vocabulary.id("very"), vocabulary.noi]] = 4.0, 3.5
        return logits

    return answer


def test_passes_bring_words_nearer_to_those_of_people(vocabulary: Vocabulary) -> None:
    pointer = scripted(vocabulary, with_a_favourite(vocabulary), calibrated=Preset(calibration=True))
    found = list(calibrate(pointer, TEXTS, most=2, lists=200, passes=4))
    assert found[0][0].overused(1) == ["very"]
    distances = [usage.distance for usage, _ in found]
    assert distances[-1] < distances[0] - 0.1
    assert pointer.calibration is found[-1][1] and pointer.calibration.words["very"] > 0
    assert pointer.calibration.made["passes"] == 4


@pytest.mark.parametrize(("noi", "better"), [(0.0, "longer"), (7.5, "shorter")])
def test_passes_bring_texts_nearer_to_the_length_of_those_of_people(
    vocabulary: Vocabulary, noi: float, better: str
) -> None:
    """Whether texts are too short or too long: these words have gaps that close one by one as `[NOI]` gets likelier."""

    def answer(ids: list[int], position: int) -> np.ndarray:
        logits = np.full(len(vocabulary), -90.0)
        logits[vocabulary.id("is")] = noi - 0.7 * (ids[position] % 7) - 2.0 * len(ids)
        logits[vocabulary.noi] = -8.0
        return logits

    pointer = scripted(vocabulary, answer, calibrated=Preset(calibration=True))
    lengths = [usage.length for usage, _ in calibrate(pointer, TEXTS, most=2, lists=100, passes=6)]
    assert (lengths[0] < 0.9) if better == "longer" else (lengths[0] > 1.1)
    assert abs(lengths[-1] - 1) < abs(lengths[0] - 1) / 2


def test_a_word_is_held_back_by_how_much_it_is_used_too_often_and_no_more() -> None:
    def text(*tokens: str) -> Generation:
        stages = ((Token("rice", False),), tuple(Token(token, token != "rice") for token in tokens))
        return Generation(" ".join(tokens), tokens, ((0, 4),), stages, 0.0, "converged", ("rice",))

    english = Vocabulary.open("english")
    usage = Usage.of(["the rice and rice"] * 100, [text("the", "rice", "the", "'")] * 100, english)
    assert usage.length == 1.0 and usage.distance == pytest.approx(2 / 3)
    excess = usage.excess()
    assert excess["the"] == pytest.approx(np.log((200 + SMOOTHING) / (100 + SMOOTHING)))
    assert excess["rice"] < -1, "the text has it once more than was asked for"
    calibration = Calibration()
    for _ in range(20):
        calibration = calibration.after(usage, 1.0)
    assert calibration.words["the"] == MOST and calibration.words["and"] == -MOST and calibration.noi == 0
    assert "rice" not in calibration.words, "content words are held back, but not pushed"
    assert not GLUE & calibration.words.keys(), "rules decide where an apostrophe goes"


def test_only_presets_that_have_it_apply_a_calibration(vocabulary: Vocabulary) -> None:
    model = with_a_favourite(vocabulary)
    held_back = Calibration(noi=-1.0, words={"very": 3.0})
    pointer = scripted(vocabulary, model, calibration=held_back)
    plain = pointer.generate("rice; place", preset="plain", max_stages=1)
    assert plain == scripted(vocabulary, model).generate("rice; place", preset="plain", max_stages=1)
    assert "very" in plain.tokens
    assert "very" not in pointer.generate("rice; place", max_stages=1).tokens


def test_the_command_leaves_a_file_that_opening_reads_and_saving_keeps(
    pointer: Run, checkpoint: Path, corpus: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(checkpoint, folder)
    few = ("--lists", "20", "--keywords", "2", "--passes")
    first = pointer("calibrate", folder, corpus, *few, "2")
    assert first.returncode == 0, first.stderr
    assert first.stdout.count("of the length") == 2
    made = json.loads(gzip.decompress((folder / "calibration.json.gz").read_bytes()))["made"]
    assert made["passes"] == 2 and made["lists"] == 20 and made["version"]
    assert pointer("calibrate", folder, corpus, *few, "1").returncode == 0
    opened = Pointer.from_pretrained(folder)
    assert opened.calibration is not None and opened.calibration.made["passes"] == 3, "it went on from what was there"
    assert opened.calibration.to_bytes() == (folder / "calibration.json.gz").read_bytes()
    assert opened.model is not None
    opened.model.save_pretrained(tmp_path / "copy")
    assert (tmp_path / "copy" / "calibration.json.gz").read_bytes() == (folder / "calibration.json.gz").read_bytes()
    begun = InsertionTransformer.start(folder, Vocabulary.open("english"))
    assert "calibration.json.gz" not in begun.files, "it belongs to these weights, and training changes them"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"no gzip", "found something else"),
        (gzip.compress(b'{"noi": "x"}', mtime=0), "found something else"),
        (gzip.compress(b'{"noi": NaN}', mtime=0), "found something else"),
        (gzip.compress(b'{"words": {"zzzz": 1.0}}', mtime=0), r"found one of another vocabulary \(it has zzzz\)"),
    ],
    ids=["no gzip", "no number", "not finite", "another vocabulary"],
)
def test_a_calibration_that_is_none_is_one_sentence(
    checkpoint: Path, tmp_path: Path, content: bytes, sentence: str
) -> None:
    shutil.copytree(checkpoint, tmp_path / "model")
    (tmp_path / "model" / "calibration.json.gz").write_bytes(content)
    with pytest.raises(CheckpointError, match=sentence):
        Pointer.from_pretrained(tmp_path / "model")


def test_what_makes_no_sense_is_one_sentence(checkpoint: Path) -> None:
    tiny = Pointer.from_pretrained(checkpoint)
    for wrong in ({"most": 0}, {"lists": 0}, {"passes": 0}, {"length": 0.0}, {"length": float("nan")}):
        with pytest.raises(UsageError, match="expected"):
            next(calibrate(tiny, TEXTS, **wrong))  # type: ignore[arg-type]
    with pytest.raises(CorpusError, match="Expected texts to draw keywords from, found none"):
        next(calibrate(tiny, ["!!", "the of"]))
