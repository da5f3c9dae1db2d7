"""POINTER inside tools that people use already: the real `llm`, and the calls of a real Transformers pipeline."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llm
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, pipeline

from pointer.pipelines import Pipeline


def run_llm(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"LLM_USER_PATH": str(folder)}
    return subprocess.run([sys.executable, "-m", "llm", *arguments], capture_output=True, text=True, env=environment)


def test_the_command_llm_writes_with_pointer_and_logs_how(tmp_path: Path) -> None:
    done = run_llm(tmp_path, "-m", "pointer", "river; church", "-o", "decoding", "sample", "-o", "n", "2")
    lines = done.stdout.lower().strip().splitlines()
    assert done.returncode == 0 and len(lines) == 2, done.stderr
    assert all(line.index("river") < line.index("church") for line in lines)
    [logged] = json.loads(run_llm(tmp_path, "logs", "--json").stdout)
    assert logged["model"] == "pointer" and logged["prompt"] == "river; church"


def test_llm_says_in_a_sentence_what_is_wrong(tmp_path: Path) -> None:
    done = run_llm(tmp_path, "-m", "pointer", "river; ; church")
    assert done.returncode == 1 and done.stderr.startswith("Error: constraint 2") and "Traceback" not in done.stderr
    done = run_llm(tmp_path, "-m", "pointer", "river", "-o", "n", "many")
    assert done.returncode == 1 and "Traceback" not in done.stderr


def test_llm_in_python_takes_the_options_of_decoding() -> None:
    response = llm.get_model("pointer").prompt("river; church", model="reviews", length="8-12")
    assert 8 <= len(response.text().split()) <= 12
    assert response.response_json["texts"][0]["constraints"] == ("river", "church")


def test_llm_starts_without_waiting_for_a_model() -> None:
    program = (
        "import sys, pointer.llm_plugin; print({'torch', 'onnxruntime', 'tokenizers'} & set(sys.modules) or 'light')"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "light\n"


@pytest.fixture(scope="module")
def theirs() -> Any:
    """A real pipeline, whose model knows three words and nothing about them."""
    words = Tokenizer(WordLevel({"[UNK]": 0, "river": 1, "church": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[UNK]")
    model = GPT2LMHeadModel(GPT2Config(vocab_size=3, n_embd=8, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0))
    return pipeline("text-generation", model=model, tokenizer=tokenizer, max_new_tokens=2, do_sample=True)


@pytest.fixture(scope="module")
def ours() -> Pipeline:
    return Pipeline("wiki", decoding="sample")


def shape(answer: Any) -> Any:
    """An answer with every text replaced by its type."""
    if isinstance(answer, str):
        return str
    if isinstance(answer, dict):
        return {key: shape(value) for key, value in answer.items()}
    return [shape(one) for one in answer]


LISTS = ["river", "river; church"]


@pytest.mark.parametrize("texts", [1, 2])
@pytest.mark.parametrize("inputs", [LISTS[0], LISTS[:1], LISTS], ids=["string", "list of one", "list"])
def test_answers_have_the_shape_of_a_real_pipeline(theirs: Any, ours: Pipeline, inputs: Any, texts: int) -> None:
    wanted = shape(theirs(inputs, num_return_sequences=texts))
    answer = ours(inputs, num_return_sequences=texts)
    assert shape(answer) == wanted and isinstance(answer, list)


def test_an_iterator_is_read_as_far_as_it_is_asked_for(theirs: Any, ours: Pipeline) -> None:
    read: list[str] = []

    def inputs() -> Iterator[str]:
        for number in range(100):
            read.append(f"river; {number}")
            yield read[-1]

    first = next(iter(ours(inputs(), batch_size=2)))
    assert len(read) == 2 and shape(first) == shape(next(iter(theirs(one for one in LISTS))))
    assert isinstance(first, list) and "river" in first[0]["generated_text"].lower()


def test_a_pipeline_is_of_a_task_that_transformers_knows(theirs: Any, ours: Pipeline) -> None:
    assert ours.task == theirs.task
