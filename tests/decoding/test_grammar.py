"""The constraint language: what strings mean, that they come back, and where a mistake is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointer.decoding.grammar import (
    AnyForm,
    AnyOf,
    AnyOrder,
    Constraints,
    Forbid,
    InOrder,
    Joined,
    Length,
    Maybe,
    Phrase,
    Template,
    concept_set,
    parse,
    quote,
)
from pointer.errors import ConstraintError

A, B, C = Phrase("a"), Phrase("b"), Phrase("c")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("new york; tax cuts", (Phrase("new york"), Phrase("tax cuts"))),
        ("~buy", (AnyForm("buy"),)),
        ("a|b", (AnyOf((A, B)),)),
        ("{new york|a}", (AnyOf((Phrase("new york"), A)),)),
        ("the {a|~buy} c", (Joined((Phrase("the"), AnyOf((A, AnyForm("buy"))), C)),)),
        ("?a|b; !c", (Maybe(AnyOf((A, B))), Forbid(C))),
        ("?~buy; a", (Maybe(AnyForm("buy")), A)),
        ("[a; b; c]", (AnyOrder((A, B, C)),)),
        ("[a > b; c]", (AnyOrder((InOrder((A, B)), C)),)),
        ("a > b; c", (InOrder((A, B)), C)),
        ("a; =12; =2-3 sentences", (A, Length(12, 12), Length(2, 3, "sentences"))),
        ('"a;b"; "?c"', (Phrase("a;b"), Phrase("?c"))),
        ("a\\|b", (Phrase("a|b"),)),
        ("[SEP]; !; ?; ~5; :); C++; 12\"", tuple(map(Phrase, ["[SEP]", "!", "?", "~5", ":)", "C++", '12"']))),
        ("Dear ___, hi!", (Template("Dear ___, hi!"),)),
    ],
)  # fmt: skip
def test_a_string_means(text: str, parts: tuple[object, ...]) -> None:
    found = parse(text)
    assert found.parts == parts
    assert parse(str(found)) == found


def test_in_a_list_every_string_is_one_entry() -> None:
    assert parse(["a;b", "[c; a]", Phrase("?x")]).parts == (Phrase("a;b"), AnyOrder((C, A)), Phrase("?x"))
    assert parse("new york|a c", " ").parts == (Phrase("new"), AnyOf((Phrase("york"), A)), C)
    assert parse('"new york" a', " ").parts == (Phrase("new york"), A)


def test_what_is_asked_is_named_without_what_is_forbidden_or_a_length() -> None:
    assert parse("[a; ?b]; !c; =5").asked == ("a", "?b")
    assert parse("a; b").phrases == ("a", "b") and parse("a; ?b").phrases is None
    assert str(concept_set(["dog", "catch"])) == "[~dog; ~catch]"


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("colour|", "Expected a word, found the end", 7),
        ("big; |red", "Expected a word, found '|'", 5),
        ("a; {b|c", 'Expected a "}" for this brace', 3),
        ("[a; b", 'Expected a "]" for this bracket', 0),
        ('a; "b', 'Expected words and a closing "', 3),
        ("~new-~", "expected one word", 1),
    ],
)
def test_an_error_has_a_caret_under_the_place(text: str, message: str, column: int) -> None:
    with pytest.raises(ConstraintError) as error:
        parse(text)
    sentence, line, caret = error.value.message.rstrip("\n").split("\n")
    assert message in sentence and line == f"  {text}" and caret == " " * (column + 2) + "^"
    assert error.value.hint


@pytest.mark.parametrize(
    "text", ["a;;b", "", "a;", "!a", "=5", "=0", "=5-3; a", "a; =401", "~go ~run ~see ~take ~give"]
)
def test_what_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ConstraintError):
        parse(text)


words = st.text(st.sampled_from([*"abc 1?!~|{}[]=;>\"'\\_-.,"]), min_size=1, max_size=8).filter(
    lambda text: text.strip()
)
phrases = words.map(Phrase)
simple = st.one_of(phrases, st.sampled_from(["buy", "go"]).map(AnyForm))
several = st.lists(simple, min_size=2, max_size=3, unique=True).map(lambda some: AnyOf(tuple(some)))
joined = st.tuples(several, phrases, st.just(AnyForm("go"))).map(Joined)
terms = st.one_of(simple, several, joined)
items = st.one_of(terms, terms.map(Maybe), terms.map(Forbid), st.just(Length(2, 9)), st.just(Length(1, 1, "sentences")))
parts = st.recursive(
    items,
    lambda inner: st.lists(inner, min_size=2, max_size=3).flatmap(
        lambda some: st.sampled_from([InOrder(tuple(some)), AnyOrder(tuple(some))])
    ),
    max_leaves=5,
)


@settings(max_examples=1500, deadline=None)
@given(st.lists(parts, min_size=1, max_size=4))
def test_what_is_written_parses_to_the_same(some: list[object]) -> None:
    whole = Constraints((Phrase("x"), *some))  # type: ignore[arg-type]
    assert parse(str(whole)) == whole


@settings(max_examples=500, deadline=None)
@given(words)
def test_a_quoted_text_parses_to_itself(text: str) -> None:
    expected = Phrase(text)
    assert parse(quote(text)).parts == (expected,) and parse([quote(text)]).parts == (expected,)


@settings(max_examples=500, deadline=None)
@given(st.text(max_size=20))
def test_any_string_is_read_or_refused_in_a_sentence(text: str) -> None:
    try:
        found = parse(text)
    except ConstraintError as error:
        assert error.message
    else:
        assert parse(str(found)) == found


def test_more_forms_than_anybody_meant_are_refused_in_strings_and_in_objects() -> None:
    with pytest.raises(ConstraintError, match=r"at most 256 ways to write a constraint, found [\d,]+:\n  ~buy ~take"):
        parse("~buy ~take ~give ~go ~eat ~see")
    with pytest.raises(ConstraintError, match="at most 256 ways"):
        Joined(tuple(AnyForm(word) for word in ("buy", "take", "give", "go", "eat", "see")))
