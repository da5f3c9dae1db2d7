"""The language of a causal model: what its tokens write, and how a task is put to it."""

import json
import shutil
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_causal import CHAT, HARBOUR, byte_level, chat_language, llama_folder, metaspace, plain_language

from pointer.errors import CheckpointError
from pointer.language import STYLES, Kinds, Language, task


def sentencepiece(prepend: str = "always", folder: Path | None = None) -> Language:
    tokenizer = metaspace(prepend)
    if folder is None:
        return Language(tokenizer, tokenizer.token_to_id("</s>"))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text("{}")
    return Language.open(folder)


LANGUAGES = {"chat": chat_language(), "plain": plain_language(), "sentencepiece": sentencepiece("never")}
printable = st.text(string.ascii_letters + string.digits + string.punctuation + " ", max_size=40)


def written(language: Language, ids: list[int]) -> str:
    return "".join(language.writes[token] for token in ids)


@pytest.mark.parametrize("name", LANGUAGES)
@given(text=printable)
def test_what_the_tokens_of_a_text_write_is_the_text(name: str, text: str) -> None:
    text = " ".join(text.split())  # two spaces in a row are a token that nobody should read
    assert written(LANGUAGES[name], LANGUAGES[name].encode(text)) == text


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_sample_texts_come_back(name: str) -> None:
    for line in HARBOUR.read_text("utf-8").splitlines():
        if line.isascii():
            assert written(LANGUAGES[name], LANGUAGES[name].encode(line)) == line


@pytest.mark.parametrize("prepend", ["always", "first", "never"])
def test_a_sentencepiece_vocabulary_adds_no_space_of_its_own(prepend: str, tmp_path: Path) -> None:
    language = sentencepiece(prepend, tmp_path)
    for text in ("The dog.", " dog", ", and the dog", "."):
        assert written(language, language.encode(text)) == text


@pytest.mark.parametrize("name", LANGUAGES)
def test_kinds_are_disjoint_and_every_kind_is_what_it_says(name: str) -> None:
    language = LANGUAGES[name]
    starts, continues, marks = language.kinds.starts, language.kinds.continues, language.kinds.marks
    assert len(starts) == len(continues) == len(marks) == language.size == len(language.writes)
    assert (starts.astype(int) + continues + marks).max() == 1
    for token, text in enumerate(language.writes):
        assert text.isprintable() and "\ufffd" not in text and " " not in text[1:]
        assert not starts[token] or (text[0] == " " and len(text) > 1)
        assert not continues[token] or all(c.isalnum() or c in "'\u2019" for c in text)
        assert not marks[token] or (text and not any(c.isalnum() or c.isspace() for c in text))


def test_kinds_of_some_tokens() -> None:
    writes = [" dog", "dog", "3", "'s", "'", ".", " (", "", " ", "a.b", " a.b", "\u00e9", "''"]
    kinds = Kinds.of(writes)
    found = [[text for text, is_one in zip(writes, kind, strict=True) if is_one] for kind in
             (kinds.starts, kinds.continues, kinds.marks)]  # fmt: skip
    assert found == [[" dog", " ("], ["dog", "3", "'s", "'", "\u00e9"], [".", "''"]]


@pytest.mark.parametrize("name", LANGUAGES)
def test_what_nobody_should_read_writes_nothing(name: str) -> None:
    language = LANGUAGES[name]
    special = (*CHAT, "<s>", "</s>", "<unk>", "<0x0A>", "<0xF0>")
    known = [i for token in special if (i := language.tokenizer.token_to_id(token)) is not None]
    assert known and not any(language.writes[token] for token in (*known, language.end))
    assert not any(language.writes[token] for token in language.encode("\n"))
    assert not written(language, language.encode("🎉")), "a part of a character is not one"


def test_a_special_token_that_somebody_wrote_is_text() -> None:
    language = LANGUAGES["chat"]
    assert written(language, language.encode("a <|im_end|> b<|im_start|>")) == "a <|im_end|> b<|im_start|>"
    asked = language.prompt(["<|im_end|>", "dog"], "everyday")
    assert asked.count(language.end) == 1 and language.turn is not None and asked.count(language.turn) == 2


def test_a_task_is_put_as_a_conversation_to_a_model_that_holds_one() -> None:
    language = LANGUAGES["chat"]
    assert language.tokenizer.decode(language.prompt(["dog", "New York"], "reviews"), skip_special_tokens=False) == (
        "<|im_start|>user\nWrite a review with the words: dog, New York<|im_end|>\n<|im_start|>assistant\n"
    )
    assert language.lead == ""


def test_a_task_is_put_as_a_text_to_a_model_that_only_goes_on() -> None:
    language = LANGUAGES["plain"]
    assert language.tokenizer.decode(language.prompt(["dog"], "news")) == (
        "Write a news sentence with the words: dog\nNews sentence:"
    )
    assert language.lead == " "


def test_every_style_has_words_of_its_own() -> None:
    assert len({task(["dog"], style) for style in STYLES}) == len(STYLES)


# ---------------------------------------------------------------------------------------------------------------------
# Folders


def test_a_folder_opens_with_the_end_that_its_vocabulary_names(tmp_path: Path) -> None:
    language = Language.open(llama_folder(tmp_path))
    assert language.end == language.tokenizer.token_to_id("<|im_end|>")
    assert language.turn == language.tokenizer.token_to_id("<|im_start|>")


def test_an_end_of_another_name_is_that_of_the_config(tmp_path: Path) -> None:
    tokenizer = byte_level(("<stop>",))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 0}))
    language = Language.open(tmp_path)
    assert language.end == 0 and language.turn is None
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [0, 7]}))
    assert Language.open(tmp_path).end == 0, "models that hold conversations may have several"
    (tmp_path / "config.json").write_text(json.dumps({}))
    with pytest.raises(CheckpointError, match="Expected a token that ends a text"):
        Language.open(tmp_path)


@pytest.mark.parametrize("broken", [None, b"", b"{", b"\xff\xfe", b"[]"])
@pytest.mark.parametrize("name", ["tokenizer.json", "config.json"])
def test_a_damaged_folder_is_one_sentence(name: str, broken: bytes | None, tmp_path: Path) -> None:
    if broken == b"[]" and name == "config.json":
        # Its vocabulary has no end of a known name, so that the config has to tell.
        byte_level(("<stop>",)).save(str(tmp_path / "tokenizer.json"))
    else:
        byte_level().save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "config.json").write_text("{}")
    if broken is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(broken)
    with pytest.raises(CheckpointError, match="Expected") as error:
        Language.open(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_a_model_of_another_vocabulary_is_one_sentence(tmp_path: Path) -> None:
    from pointer.causal import open_base

    folder = llama_folder(tmp_path / "llama")
    byte_level(size=900).save(str(folder / "tokenizer.json"))
    with pytest.raises(CheckpointError, match="Expected an embedding for each of the"):
        open_base(folder)
    shutil.copy(folder / "tokenizer.json", tmp_path / "tokenizer.json")
    (folder / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(CheckpointError, match="Expected a causal language model in"):
        open_base(folder)
