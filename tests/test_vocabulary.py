"""The vocabulary: `[NOI]` has its place, a smaller one still spells everything."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from pointer.errors import VocabularyError
from pointer.vocabulary import NOI, SPECIAL, Vocabulary, shrink, word_counts

ENGLISH = Vocabulary.open("english")
COUNTS = Counter({"harbour": 50, "boats": 40, "bread": 30, "unfathomable": 20, "gate": 1})
SIZE = 117


def write_vocab(folder: Path, tokens: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    return folder


def test_no_insertion_takes_the_place_of_an_unused_entry(tmp_path: Path) -> None:
    vocabulary = Vocabulary.open(
        write_vocab(tmp_path, ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    )
    assert vocabulary.noi == 1 and len(vocabulary) == 7


def test_no_insertion_is_added_where_nothing_is_unused(tmp_path: Path) -> None:
    vocabulary = Vocabulary.open(write_vocab(tmp_path, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]))
    assert vocabulary.noi == 6 and len(vocabulary) == 7


def test_a_vocabulary_without_the_entries_of_bert_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=r"found one without .*\[MASK\]"):
        Vocabulary.open(write_vocab(tmp_path, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"]))


def test_shrinking_keeps_the_most_frequent_words_whole_and_tells_their_old_ids() -> None:
    small, kept = shrink(ENGLISH, COUNTS, SIZE)
    assert len(small) == len(kept) == SIZE
    assert [ENGLISH.tokens[i] for i in kept] == small.tokens
    assert {"boats", "bread"} <= set(small.tokens) and "because" not in small.tokens


@given(st.text(alphabet=[chr(i) for i in range(33, 127)], min_size=1, max_size=40))
def test_a_shrunken_vocabulary_spells_every_ascii_word(word: str) -> None:
    small, _ = shrink(ENGLISH, COUNTS, SIZE)
    if word not in SPECIAL:
        assert small.id("[UNK]") not in small.encode([word])[0].ids


def test_a_vocabulary_too_small_to_spell_is_refused() -> None:
    with pytest.raises(VocabularyError, match="Expected a size of at least"):
        shrink(ENGLISH, COUNTS, 50)


def test_a_shrunken_vocabulary_is_a_normal_tokenizer(tmp_path: Path) -> None:
    small, _ = shrink(ENGLISH, COUNTS, SIZE)
    small.save(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.tokenize("Boats, bread") == ["boats", ",", "bread"]
    assert tokenizer("boats").input_ids == [small.id("[CLS]"), small.id("boats"), small.id("[SEP]")]
    assert tokenizer.convert_tokens_to_ids(NOI) == small.noi
    assert Vocabulary.open(tmp_path).fingerprint == small.fingerprint


def test_words_are_counted_as_the_vocabulary_writes_them() -> None:
    assert word_counts(["The gate, the Gate."], ENGLISH) == Counter({"the": 2, "gate": 2, ",": 1, ".": 1})


def test_noi_takes_the_first_unused_entry_whatever_its_number(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]))
    vocabulary = Vocabulary.open(tmp_path)
    assert vocabulary.noi == 1 and len(vocabulary) == 7
