"""Patterns match what Python's `re` says a whole name must match, and none of them can take long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.groups.topic_pattern import PatternError, TopicPattern

_ATOMS = st.sampled_from(["a", "b", "-", r"\.", ".", "[ab]", "[^b]", r"[a-c\d]", r"\d", r"\W", "^", "$", "(?i:A)"])
_REPEATS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?"])


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeated = st.builds(lambda part, repeat: f"({part}){repeat}", inner, _REPEATS)
    return st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda options: f"(?:{'|'.join(options)})"),
        repeated,
    )


PATTERNS = st.recursive(_ATOMS, _compound, max_leaves=6)


@given(pattern=PATTERNS, names=st.lists(st.text("abcA01.-", min_size=1, max_size=6), min_size=1, max_size=8))
def test_a_pattern_matches_what_re_matches(pattern: str, names: list[str]) -> None:
    ours, theirs = TopicPattern(pattern), re.compile(pattern)
    for name in names:
        assert ours.matches(name) == bool(theirs.fullmatch(name)), name


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (".*", ["a", "a.b-c_d"], []),
        ("^orders-.+", ["orders-eu"], ["orders-", "my-orders-eu"]),
        ("^orders", ["orders"], ["orders-eu"]),  # the whole name, as Kafka does
        ("orders|payments$", ["orders", "payments"], ["orderspayments"]),
        ("", [], ["a"]),
        (r"\Aa\z", ["a"], ["aa"]),
        (r"\Qa.b*\E|x", ["x"], ["a.b", "aab"]),
        (r"\Qa.b", ["a.b"], ["aab"]),
        ("(?P<region>eu|us)-x", ["eu-x", "us-x"], ["-x"]),
        ("(?<region>eu)-x", ["eu-x"], []),
        ("(?i)Orders", ["ORDERS", "orders"], ["order"]),
        ("a(?i)b(?-i)c", ["aBc", "abc"], ["ABc", "abC"]),
        ("(?i:a)b", ["Ab"], ["aB"]),
        ("(?i)[a-c]x", ["Bx", "bX"], ["dx"]),
        ("[[:digit:]]+[[:^alpha:]]", ["1-", "12"], ["1", "1a"]),
        ("[]a]b", ["ab"], ["]b"]),
        ("[a-]+", ["a-a"], ["b"]),
        (r"[\w.]+", ["a_b.c"], ["a-b"]),
        (r"\x61\x{62}", ["ab"], ["x61"]),
        ("a{,3}", [], ["a", "aaa"]),  # no repetition, but five characters that no name can be
        ("a{2,3}", ["aa", "aaa"], ["a", "aaaa"]),
        ("é|a", ["a"], []),
        ("(|a)b", ["b", "ab"], ["a"]),
    ],
)
def test_the_syntax_is_that_of_re2(pattern: str, matching: list[str], other: list[str]) -> None:
    compiled = TopicPattern(pattern)
    assert [name for name in matching + other if compiled.matches(name)] == matching


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("(", "missing"),
        (")", "without"),
        ("[a", "ends in the middle"),
        ("[[:nonsense:]]", "not a class"),
        ("[b-a]", "backwards"),
        ("*a", "nothing"),
        ("a**", "follows another"),
        ("a{3,2}", "number of times"),
        ("a{1001}", "number of times"),
        ("a\\", "ends in the middle"),
        (r"(a)\1", "not supported"),
        (r"\bword", "not supported"),
        (r"\pL", "not supported"),
        ("(?=a)", "not supported"),
        ("(?<!a)b", "not supported"),
        (r"\x{110000}", "not a character"),
        (r"\xg1", "not a character"),
        ("(?P<x", "missing"),
        ("a" * 1025, "1025 characters"),
        ("(" * 40 + ")" * 40, "nested"),
        ("((a{30}){30}){30}", "too large"),
        ("(((){1000}){1000}){1000}", "too large"),
        ("(.?){1000}", "too many ways"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(pattern: str, complaint: str) -> None:
    with pytest.raises(PatternError, match=re.escape(complaint)):
        TopicPattern(pattern)


@pytest.mark.parametrize("pattern", ["(x+x+)+y", "(x|x)*y", "(.*)*(.*)*(.*)*y", ".*.*.*.*.*.*.*.*y", "(x?){60}x{60}y"])
def test_patterns_that_stall_a_backtracking_matcher_do_not_stall_us(pattern: str) -> None:
    compiled = TopicPattern(pattern)
    assert not compiled.matches("x" * 249)
    assert compiled.matches("x" * 100 + "y")


def test_more_steps_than_are_remembered_change_nothing() -> None:
    compiled = TopicPattern(".*a.{12}")
    for number in range(2**13):
        name = f"{number:013b}".replace("0", "a").replace("1", "b")
        assert compiled.matches(name) == (name[0] == "a")


@given(st.text("ab()[]{}|*+?\\^$.-,0123:iQE<>P=!xdz", max_size=24))
def test_any_text_is_a_pattern_or_is_refused(text: str) -> None:
    try:
        compiled = TopicPattern(text)
    except PatternError:
        return
    compiled.matches("ab-0.1")
