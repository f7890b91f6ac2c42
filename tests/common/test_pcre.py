"""Patterns as PCRE reads them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.pcre import TIMEOUT_S, PatternError, compile_pattern, literal_prefix, searcher


@pytest.mark.parametrize(
    ("pattern", "options", "string", "expected"),
    [
        ("abc", "", "xabcx", True),
        ("^abc", "", "xabc", False),
        ("abc$", "", "abc\n", True),
        (r"abc\z", "", "abc\n", False),
        (r"abc\Z", "", "abc\n", True),
        (r"^\w+$", "", "café", False),
        (r"(*UCP)^\w+$", "", "café", True),
        (r"^\d$", "", "٣", False),
        (r"\byster", "", "Öyster", True),
        ("(?i)a(?-i)b", "", "Ab", True),
        ("(?i)a(?-i)b", "", "AB", False),
        ("привет", "i", "Привет", True),
        ("istanbul", "i", "İstanbul", False),
        ("istanbul", "i", "ISTANBUL", True),
        ("straße", "i", "STRASSE", False),
        ("a b #c\nd", "x", "abd", True),
        ("a.b", "", "a\nb", False),
        ("a.b", "s", "a\nb", True),
        ("^b", "m", "a\nb", True),
        ("[[:alpha:]]+$", "", "é", False),
        ("[[]", "", "[", True),
        ("[a--]", "", "-", True),
        ("[^]]", "", "]", False),
        (r"[\W]", "", "é", True),
        (r"\Qa.b\E.c", "", "a.bxc", True),
        (r"\Qa.b\E", "", "axb", False),
        (r"\x{e9}", "", "é", True),
        (r"\h", "", "\u00a0", True),
        (r"(?<n>a)\k<n>", "", "aa", True),
        (r"(a)\g{1}", "", "aa", True),
        (r"(a)\g{-1}", "", "aa", True),
        (r"(?P<n>a)(?P=n)", "", "aa", True),
        ("a++b", "", "aaab", True),
        (r"foo\Kbar", "", "foobar", True),
        (r"\p{Lu}", "", "É", True),
        (r"\p{^Lu}$", "", "É", False),
        (r"^\N+$", "", "ab", True),
        (r"a\.b\\", "", "xa.b\\", True),
        (r"a\.b", "", "axb", False),
        ("b?" + "ab" * 100 + "+$", "", "xb" + "ab" * 100 + "bb", True),
        ("a" * 100 + r"\E*$", "", "b" + "a" * 99, True),
        ("x" * 47 + " y +", "x", "x" * 47 + "yyy", True),
        (r"\Q" + "a.b" * 40 + r"\E.", "", "a.b" * 40 + "c", True),
        ("[" + "ab" * 40 + "]*c", "", "c", True),
    ],
)
def test_matches(pattern: str, options: str, string: str, expected: bool) -> None:
    assert searcher(pattern, options)(string) is expected


@pytest.mark.parametrize("pattern", ["a" * 30000, "b?" + "a" * 30000, r"\Q" + "a" * 30000, "(" + "a" * 30000 + ")"])
@pytest.mark.parametrize("options", ["", "i"])
def test_long_runs_of_one_letter_are_found(pattern: str, options: str) -> None:
    # The regex package would prepare its search for hours, blind to its own timeout.
    match = compile_pattern(pattern, options).search("c" + "a" * 30000, timeout=TIMEOUT_S)
    assert match is not None
    assert (match.start(), match.end()) == (1, 30001)
    assert searcher(pattern, options)("a" * 29999) is False


@pytest.mark.parametrize("pattern", ["[a", "(", "a{2,1}", r"\p{Nope}", "*a", "(?<n>a", "a" * 40000, "\\", r"\U", "[\\"])
def test_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        searcher(pattern)


@given(st.text(max_size=12))
def test_any_pattern_compiles_or_is_refused(pattern: str) -> None:
    with contextlib.suppress(PatternError):
        searcher(pattern, "i")("some string")


@pytest.mark.parametrize(
    ("pattern", "options", "prefix"),
    [
        ("^abc", "", ("abc", True)),
        ("^ab*", "", ("a", False)),
        ("^ab+", "", ("ab", False)),
        ("^ab$", "", ("ab", False)),
        ("^", "", ("", False)),
        ("abc", "", ("", False)),
        ("^abc", "i", ("", False)),
        (r"^a\.b", "", ("a.b", True)),
        (r"^a\d", "", ("a", False)),
        ("^a|b", "", ("", False)),
    ],
)
def test_literal_prefix(pattern: str, options: str, prefix: tuple[str, bool]) -> None:
    assert literal_prefix(pattern, options) == prefix


@given(st.text(st.characters(codec="ascii"), max_size=4), st.text(st.characters(codec="ascii"), max_size=8))
def test_prefix_holds_for_every_match(pattern: str, string: str) -> None:
    try:
        matches = searcher("^" + pattern)(string)
    except PatternError:
        return
    prefix, whole = literal_prefix("^" + pattern)
    if matches:
        assert string.startswith(prefix)
    elif whole:
        assert not string.startswith(prefix)
