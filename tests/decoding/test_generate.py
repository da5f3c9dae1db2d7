"""`Pointer` on a real (if untrained) network, and `pointer generate` in a subprocess."""

import gzip
import json
import re
import shutil
import tracemalloc
from collections.abc import Iterator
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Run
from scripted import scripted, small_vocabulary, untrained

from pointer import Pointer
from pointer.decoding.bulk import Asked, generate_lines, read_lists
from pointer.decoding.options import Options
from pointer.engines import workers
from pointer.errors import ConstraintError, UsageError
from pointer.model import convert_released
from pointer.prepare.corpus import Skipped
from pointer.runtime import Floats, Ints

GOLDEN = Path(__file__).parents[1] / "golden" / "released-tiny"
LISTS = ["delicious; love; mole; rice; back", "new york; prime minister; tax cuts", "is; to; from"]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network with random weights that likes to insert, but not for ever."""
    return untrained(tmp_path_factory.mktemp("models") / "tiny", noi=8.0)


@pytest.fixture(scope="session")
def tiny(checkpoint: Path) -> Pointer:
    return Pointer.from_pretrained(checkpoint)


def test_the_same_tokens_come_from_every_batch_size(tiny: Pointer) -> None:
    lists = LISTS * 5
    for options in ({}, {"decoding": "sample", "seed": 3}, {"decoding": "beam"}):
        together = tiny.generate_many(lists, batch_size=15, max_length=40, **options)
        alone = tiny.generate_many(lists, batch_size=1, max_length=40, **options)
        assert [[g.tokens for g in found] for found in together] == [[g.tokens for g in found] for found in alone]


def test_length_is_bounded_by_the_positions_of_the_model(tiny: Pointer) -> None:
    found = tiny.generate("rice; back", preset="plain", noi_offset=-50, max_length=512, max_stages=20)
    assert len(found.tokens) + 2 == 64 and found.stopped == "max_length"


def saying(checkpoint: Path, copy: Path, **section: Any) -> Pointer:
    """The same checkpoint with more in the `pointer` section of its config."""
    shutil.copytree(checkpoint, copy)
    config = json.loads((copy / "config.json").read_text())
    config["pointer"] |= section
    (copy / "config.json").write_text(json.dumps(config))
    return Pointer.from_pretrained(copy)


def test_a_checkpoint_says_how_much_its_default_favours_noi(tiny: Pointer, checkpoint: Path, tmp_path: Path) -> None:
    found = saying(checkpoint, tmp_path / "mine", noi_offset=30.0)
    assert found.generate(LISTS[0]) == tiny.generate(LISTS[0], noi_offset=30.0) != tiny.generate(LISTS[0])
    assert found.generate(LISTS[0], preset="plain") == tiny.generate(LISTS[0], preset="plain")


def test_a_style_is_refused_by_a_model_that_knows_one(tiny: Pointer) -> None:
    for ask in (tiny.generate, lambda *a, **o: list(tiny.stream(*a, **o))):
        with pytest.raises(UsageError, match='style: expected for models that know several, found "news"'):
            ask("rice; back", style="news")


def test_a_checkpoint_says_in_how_many_rounds_it_fills_a_stage(tiny: Pointer, checkpoint: Path, tmp_path: Path) -> None:
    found = saying(checkpoint, tmp_path / "mine", rounds=2).generate(LISTS[0])
    assert found == tiny.generate(LISTS[0], rounds=2) != tiny.generate(LISTS[0])


def test_a_converted_release_keeps_the_invariants_with_other_presets(tmp_path: Path) -> None:
    convert_released(GOLDEN, tmp_path / "converted")
    pointer = Pointer.from_pretrained(tmp_path / "converted")
    assert pointer.end == "inserted"
    lists = [line.split() for line in (GOLDEN / "keys.txt").read_text().splitlines()[:10]]
    for preset in ("plain", "paper", "default"):
        for [found] in pointer.generate_many(lists, preset=preset, max_length=60):
            assert not found.missing and len(found.spans) == len(found.constraints)
            assert "[SEP]" not in found.tokens and "[CLS]" not in found.tokens


def test_the_released_preset_prints_the_golden_lines_and_warns_of_what_it_lost(tmp_path: Path, pointer: Run) -> None:
    convert_released(GOLDEN, tmp_path / "converted")
    done = pointer(
        "generate", "--model", "converted", "-f", GOLDEN / "phrases.txt", "--preset", "released", "--separator", ";"
    )
    assert done.stdout == (GOLDEN / "phrases.expected.txt").read_text()
    lost = [line for line in done.stderr.splitlines() if "lost" in line]
    model = Pointer.from_pretrained(tmp_path / "converted")
    found = model.generate_many((GOLDEN / "phrases.txt").read_text().splitlines(), preset="released")
    assert len(lost) == sum(bool(generation.missing) for [generation] in found)


def test_generate_takes_arguments_one_string_a_file_and_stdin(pointer: Run, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text("rice;back\n")
    (tmp_path / "keys.jsonl").write_text('["rice", "back"]\n')
    outputs = {
        pointer("generate", "--model", checkpoint, "rice", "back").stdout,
        pointer("generate", "--model", checkpoint, "rice; back").stdout,
        pointer("generate", "--model", checkpoint, "-f", "keys.txt").stdout,
        pointer("generate", "--model", checkpoint, "-f", "-", stdin='["rice", "back"]\n').stdout,
        pointer("generate", "--model", checkpoint, "-f", "-", "--separator", " ", stdin="rice back\n").stdout,
    }
    assert len(outputs) == 1
    text = outputs.pop().lower()
    assert text.index("rice") < text.index("back")


def test_one_string_without_a_separator_is_a_phrase_and_a_hint_says_so(pointer: Run, checkpoint: Path) -> None:
    done = pointer("generate", "--model", checkpoint, "new york city")
    assert "new york city" in done.stdout.lower()
    assert done.stderr.startswith("pointer: one phrase of 3 words")


def test_stages_are_shown_and_drawn(pointer: Run, checkpoint: Path, tmp_path: Path) -> None:
    done = pointer("generate", "--model", checkpoint, "rice", "back", "--show-stages", "--html", "stages.html")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["X0", "rice", "back"] and lines[1].startswith("X1")
    assert "rice" in (tmp_path / "stages.html").read_text()


def test_json_has_everything_about_a_text(pointer: Run, checkpoint: Path) -> None:
    done = pointer("generate", "--model", checkpoint, "rice; back", "--json", "--decoding", "sample", "-n", "2")
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["text"] != second["text"] and first["score"] >= second["score"]
    assert first["options"] == {"decoding": "sample", "n": 2} and first["seed"] == 0
    assert [first["text"][a:b].lower() for a, b in first["spans"]] == ["rice", "back"]


def test_a_bad_line_is_reported_by_number_and_the_rest_is_done(pointer: Run, checkpoint: Path) -> None:
    lines = "rice; back\nrice;; back\n" + "; ".join(["word"] * 100) + "\nlove; mole\n"
    done = pointer("generate", "--model", checkpoint, "-f", "-", stdin=lines)
    assert len(done.stdout.splitlines()) == 2 and done.returncode == 0
    assert "line 2: constraint 2 (' ') is empty" in done.stderr or "line 2: constraint 2" in done.stderr
    assert "line 3: Expected constraints of at most 64 tokens, found 102" in done.stderr


def test_texts_are_timed_if_they_should_be(pointer: Run, checkpoint: Path, tmp_path: Path) -> None:
    pointer("generate", "--model", checkpoint, "-o", "out.jsonl", "--timed", "rice", "back")
    assert json.loads((tmp_path / "out.jsonl").read_text())["seconds"] > 0


def test_a_half_done_output_file_is_finished(pointer: Run, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text("".join(f"{line}\n" for line in LISTS * 3))
    command = ["generate", "--model", checkpoint, "-f", "keys.txt", "-o", "out.jsonl"]
    assert pointer(*command).returncode == 0
    whole = (tmp_path / "out.jsonl").read_bytes()

    assert len(whole.splitlines()) == 9
    for cut, size in ((0, 64), (10, 1), (len(whole) // 2, 2), (len(whole) - 1, 3), (len(whole), 64)):
        (tmp_path / "out.jsonl").write_bytes(whole[:cut])
        assert pointer(*command, "--batch-size", str(size)).returncode == 0
        assert (tmp_path / "out.jsonl").read_bytes() == whole
    other = pointer(*command, "--preset", "plain")
    assert other.returncode == 1 and "the same model and options" in other.stderr
    assert (tmp_path / "out.jsonl").read_bytes() == whole


def test_results_come_after_four_batches_so_that_a_killed_run_loses_little(tiny: Pointer) -> None:
    taken: list[int] = []

    def asked() -> Iterator[Asked]:
        for line in range(1, 25):
            taken.append(line)
            yield Asked(line, ("rice",))

    with workers(lambda: tiny, 1) as pool:
        results = generate_lines(pool, asked(), Options(max_stages=1), 2, lambda skipped: None)
    assert next(results).asked.line == 1 and taken == [*range(1, 9)]
    assert [written.asked.line for written in results] == [*range(2, 25)]


def test_an_output_file_with_something_else_is_not_touched(pointer: Run, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("my notes\n")
    done = pointer("generate", "--model", checkpoint, "rice", "-o", "notes.txt")
    assert done.returncode == 1 and "found something else" in done.stderr
    assert (tmp_path / "notes.txt").read_text() == "my notes\n"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["rice", "--model", "missing-model"], 1, 'found "missing-model"'),
        ([], 2, "Expected constraints, --template or --file"),
        (["rice", "--decoding", "magic"], 2, "decoding: expected greedy, sample, beam"),
        (["rice", "--length", "much"], 2, "length: expected a number or a range"),
        (["rice;;back"], 1, "constraint 2 ('') is empty"),
    ],
)
def test_a_failure_is_one_sentence(
    pointer: Run, checkpoint: Path, arguments: list[str], code: int, sentence: str
) -> None:
    model = [] if "--model" in arguments else ["--model", str(checkpoint)]
    done = pointer("generate", *arguments, *model, HF_HUB_OFFLINE="1")
    assert done.returncode == code and sentence in done.stderr and done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_options_of_the_library_are_checked_by_name() -> None:
    assert Options.of({"decoding": "beam", "width": 2}).width == 2


@pytest.mark.parametrize(
    ("asked", "found", "hint"),
    [
        ([["river", "church"], ["king"]], r"found \['river', 'church'\] as constraint 1", "use generate_many"),
        ([1, 2], "found 1 as constraint 1", "a list of strings"),
        (["river", None], "found None as constraint 2", "a list of strings"),
        (None, "found None", "a list of strings"),
        (5, "found 5", "a list of strings"),
        (b"river", "found b'river'", "a list of strings"),
        ({"river": 1}, "found {'river': 1}", "a list of strings"),
    ],
)
def test_constraints_of_another_kind_say_what_was_expected(tiny: Pointer, asked: Any, found: str, hint: str) -> None:
    for ask in (tiny.generate, tiny, lambda asked: next(tiny.stream(asked))):
        with pytest.raises(ConstraintError, match=f"Expected a list of words and phrases, or one.*{found}.*{hint}"):
            ask(asked)


@pytest.mark.parametrize("lists", ["river; church", None, 5])
def test_generate_many_wants_lists(tiny: Pointer, lists: Any) -> None:
    with pytest.raises(UsageError, match=r"lists: expected a list of constraint lists, found .* use generate"):
        tiny.generate_many(lists)


def test_a_model_can_be_called_and_says_what_it_is(tiny: Pointer) -> None:
    assert tiny("rice; back") == tiny.generate("rice; back")
    assert re.fullmatch(r"<ParallelPointer .*tiny: 1\.\d million weights, 10,000 tokens>", repr(tiny))
    for method in (Pointer.generate, Pointer.generate_many, Pointer.stream):
        for field in fields(Options):
            assert f"\n    {field.name}: " in (method.__doc__ or "")


@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_run_that_goes_on_writes_the_same_bytes(tiny: Pointer, tmp_path: Path, batch_size: int) -> None:
    words = ["rice", "back", "love", "mole", "river", "church", "music"]
    (tmp_path / "keys").write_text("".join(f"{a}; {b}\n" for a in words for b in words if a != b))
    options = Options(max_length=30)

    def lines(done: int) -> list[bytes]:
        asked = read_lists(str(tmp_path / "keys"))
        with workers(lambda: tiny, 1) as pool:
            found = generate_lines(pool, asked, options, batch_size, lambda _: None, done)
            return [json.dumps(one.found[0].to_dict()).encode() for one in found]

    whole = lines(0)
    for done in (1, 5, 12, 13, 41):
        assert lines(done) == whole[done:]


# ---------------------------------------------------------------------------------------------------------------------
# The constraint language on the command line


def test_the_command_speaks_the_constraint_language(pointer: Run, checkpoint: Path) -> None:
    call = ["generate", "--model", str(checkpoint), "--json"]
    done = pointer(*call, "[~love; rice|beans]; ?very; !the; =6-9")
    [record] = map(json.loads, done.stdout.splitlines())
    assert record["asked"] == ["~love", "rice|beans", "?very"]
    assert len(record["order"]) == len(record["constraints"]) == len(record["spans"])
    assert "the" not in record["text"].lower().split()
    words = [word.lower() for word in record["constraints"]]
    assert words == [record["text"][a:b].lower() for a, b in record["spans"]]
    done = pointer(*call, "rice", "back", "--unordered", "--forbid", "of", "--forbid-forms", "-n", "2", "--length", "7")
    assert {json.loads(line)["rank"] for line in done.stdout.splitlines()} <= {0, 1} and not done.returncode


def test_a_template_and_a_sentence_come_back_with_more_in_them(pointer: Run, checkpoint: Path) -> None:
    done = pointer("generate", "--model", str(checkpoint), "--template", "Dear ___, thank you for ___.")
    assert done.stdout.startswith("Dear ") and ", thank you for " in done.stdout and done.stdout.endswith(".\n")
    assert "Dear , thank" not in done.stdout and "for .\n" not in done.stdout
    done = pointer("expand", "The food was good.", "--model", str(checkpoint), "--json")
    [record] = map(json.loads, done.stdout.splitlines())
    letters = iter(record["text"].split())
    assert all(word in letters for word in ["The", "food", "was"]) and record["text"].endswith(".")
    assert 5 <= len(record["text"].split()) <= 8


def test_a_mistake_in_the_language_has_a_caret_under_it(pointer: Run, checkpoint: Path) -> None:
    done = pointer("generate", "--model", str(checkpoint), "rice; {tea|coffee")
    assert done.returncode == 1 and not done.stdout
    message, line, caret, _ = done.stderr.splitlines()
    assert 'Expected a "}"' in message and line == "  rice; {tea|coffee" and caret.index("^") == line.index("{")
    done = pointer("generate", "--model", str(checkpoint), "rice; back", "--forbid", "rice")
    assert done.returncode == 1 and "forbid: expected nothing that the constraints need" in done.stderr


def test_a_length_that_cannot_be_reached_is_said(pointer: Run, checkpoint: Path) -> None:
    done = pointer("generate", "--model", str(checkpoint), "rice; back; love; =2")
    assert not done.returncode and "The length could not be reached; the nearest has" in done.stderr


def test_a_file_of_concept_sets_is_read(pointer: Run, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "sets.jsonl").write_text('{"concepts": ["love", "rice"], "texts": ["I love rice."]}\n')
    done = pointer("generate", "--model", str(checkpoint), "-f", str(tmp_path / "sets.jsonl"), "--json")
    assert json.loads(done.stdout)["asked"] == ["~love", "~rice"]


def test_without_a_name_the_best_model_that_is_here_is_opened() -> None:
    assert Pointer.from_pretrained().name == "everyday", "the tests have no base for the writer"


@pytest.mark.parametrize("name", ["lists.jsonl", "lists.txt", "lists.jsonl.gz"])
def test_a_line_of_a_file_may_be_json_whatever_the_file_is_called(tmp_path: Path, name: str) -> None:
    lines = [
        '["a;b", "~love"]', '{"concepts": ["dog", "new york"], "texts": []}', '{"text": "rice; back"}', '"rice; back"',
        "rice; back", "[rice; back]", "1984", '{"concepts": "dog"}', "{tea|coffee}", '["rice", 5]', "[rice",
    ]  # fmt: skip
    with (gzip.open if name.endswith(".gz") else open)(tmp_path / name, "wt") as file:
        file.write("\n".join(lines))
    found = list(read_lists(str(tmp_path / name)))
    ordered = ("rice", "back")
    asked = [('"a;b"', "~love"), ("~dog", "new york"), ordered, ordered, ordered, ordered, ("1984",)]
    assert [one.constraints.asked for one in found[:7] if isinstance(one, Asked)] == asked
    assert isinstance(one := found[7], Skipped) and (one.line, "concepts" in one.reason) == (8, True)
    assert isinstance(one := found[8], Asked) and one.constraints.asked == ("tea|coffee",)
    assert [one.line for one in found[9:] if isinstance(one, Skipped)] == [10, 11]


def test_lists_are_read_one_by_one(tmp_path: Path) -> None:
    count = 50_000
    (tmp_path / "sets.jsonl").write_text('{"concepts": ["love", "rice", "back"], "texts": []}\n' * count)
    lists = read_lists(str(tmp_path / "sets.jsonl"))
    next(lists)
    tracemalloc.start()
    for _ in islice(lists, count // 5):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000  # a list takes more than a kilobyte


def test_fewer_texts_than_asked_for_are_said(pointer: Run, tmp_path: Path, checkpoint: Path) -> None:
    vocabulary = small_vocabulary(tmp_path)

    def says_one_thing(ids: Ints, position: int) -> Floats:
        answer = np.zeros(len(vocabulary), np.float32)
        answer[vocabulary.id("[NOI]")] = 50
        return answer

    found = scripted(vocabulary, says_one_thing).generate_many(["rice; back"], n=3)[0]
    assert [one.remark for one in found] == ["Expected 3 texts that differ, found 1: the model has no others to give."]
    assert scripted(vocabulary, says_one_thing).generate("rice; back").remark == ""
    done = pointer("generate", "--model", str(checkpoint), "rice", "-n", "3", "--max-stages", "0")
    assert len(done.stdout.splitlines()) == 1 and not done.returncode
    assert "line 1: Expected 3 texts that differ, found 1" in done.stderr
