"""CommonGen's figures: against the field's own scorer, on texts whose answer is known, and by the command."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from pointer.errors import DataError, UsageError
from pointer.evaluation.benchmark import Benchmark, ConceptSet, cider, read_concept_sets, rouge_l
from pointer.evaluation.meteor import meteor_by_jar
from pointer.evaluation.outputs import System

GOLDEN = Path(__file__).parents[1] / "golden" / "captions.json"
SETS = [
    ConceptSet(("dog", "catch", "park"), ("A dog catches a ball in the park.", "The dogs caught it in the park.")),
    ConceptSet(("paint", "wall"), ("She painted the wall.", "A man is painting walls.")),
]


def test_cider_and_rouge_l_are_those_of_the_fields_own_scorer() -> None:
    golden = json.loads(GOLDEN.read_text("utf-8"))
    texts = [text.split() for text in golden["texts"]]
    references = [[text.split() for text in some] for some in golden["references"]]
    assert 10 * cider(texts, references) == pytest.approx(golden["cider"], abs=1e-9)
    assert rouge_l(texts, references) == pytest.approx(golden["rouge_l"], abs=1e-9)


JAR = os.environ.get("POINTER_METEOR_JAR", "")
"""Where METEOR 1.5 is: `pip download --no-deps pycocoevalcap` has it, with its data, in the folder `meteor`."""


@pytest.mark.skipif(not shutil.which("java") or not JAR, reason="Java and POINTER_METEOR_JAR=.../meteor-1.5.jar needed")
def test_meteor_is_that_of_the_fields_own_scorer() -> None:
    golden = json.loads(GOLDEN.read_text("utf-8"))
    texts = [text.split() for text in golden["texts"]]
    references = [[text.split() for text in some] for some in golden["references"]]
    assert meteor_by_jar(texts, references, Path(JAR)) == pytest.approx(golden["meteor"], abs=1e-9)
    bars = [[*words, "|||"] for words in texts]  # what separates texts for the program
    assert meteor_by_jar(bars, references, Path(JAR)) == pytest.approx(golden["meteor"], abs=1e-9)


@pytest.mark.skipif(not shutil.which("java"), reason="Java needed")
def test_a_jar_that_is_not_meteor_is_named(tmp_path: Path) -> None:
    (tmp_path / "other.jar").write_bytes(b"no jar at all")
    with pytest.raises(UsageError, match=r"expected METEOR 1\.5 in .*other\.jar"):
        meteor_by_jar([["a", "dog"]], [[["the", "dog"]]], tmp_path / "other.jar")


def figures(*texts: str) -> dict[str, float]:
    return {one.name: one.value for one in Benchmark(System("mine", texts), SETS).figures()}


def test_every_form_of_a_concept_covers_it_and_a_word_that_holds_one_does_not() -> None:
    found = figures("Dogs were catching it in the parks.", "The wallpaper was painted.")
    assert found["Coverage"] == 80 and found["Covered whole"] == 50


def test_a_reference_itself_scores_highest_and_a_word_beside_itself_is_counted() -> None:
    best = figures(*(one.references[0] for one in SETS))
    assert best["BLEU-4"] == pytest.approx(100) and best["ROUGE-L"] == pytest.approx(100)
    assert best["Length"] == 6 and best["Repeated word"] == 0
    worse = figures("A dog dog catches a park.", SETS[1].references[0])
    assert worse["Repeated word"] == 50 and worse["CIDEr"] < best["CIDEr"]


def test_every_figure_has_a_signature() -> None:
    found = Benchmark(System("mine", ("a", "b")), SETS).figures()
    assert all(one.signature for one in found) and "nrefs:2" in next(o for o in found if o.name == "BLEU-4").signature


def test_what_is_no_concept_set_and_texts_that_are_too_few_are_named(tmp_path: Path) -> None:
    (tmp_path / "sets.jsonl").write_text('{"concepts": ["dog"], "texts": ["A dog."]}\n{"concepts": "dog"}\n')
    with pytest.raises(DataError, match=r"sets\.jsonl, line 2: expected"):
        read_concept_sets(str(tmp_path / "sets.jsonl"))
    with pytest.raises(DataError, match="a text for each of 2 sets, found 1"):
        Benchmark(System("mine", ("one",)), SETS)


def test_the_command_prints_the_figures(pointer: Callable[..., CompletedProcess[str]], tmp_path: Path) -> None:
    lines = [json.dumps({"concepts": one.concepts, "texts": one.references}) for one in SETS]
    (tmp_path / "sets.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "mine.txt").write_text("A dog caught it in the park.\nShe paints a wall.\n")
    call = ["evaluate", str(tmp_path / "mine.txt"), "--benchmark", "commongen", "--sets", str(tmp_path / "sets.jsonl")]
    done = pointer(*call, "--json")
    found = {one["name"]: one["value"] for one in json.loads(done.stdout)["figures"]}
    assert found["Coverage"] == 100 and 0 < found["BLEU-4"] < 100
    assert "CIDEr" in pointer(*call).stdout
    wrong = pointer("evaluate", str(tmp_path / "mine.txt"), "--benchmark", "magic")
    assert wrong.returncode == 2 and "expected commongen" in wrong.stderr
    assert "--references, or --benchmark" in pointer("evaluate", str(tmp_path / "mine.txt")).stderr
