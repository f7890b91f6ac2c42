"""Collation documents, and the order of strings without ICU."""

from typing import Any

import pytest

from bucketd.common.collation import Collation
from bucketd.common.errors import MongoError
from bucketd.common.root_collation import RootOrder


def test_every_option_is_spelled_out() -> None:
    collation = Collation.parse({"locale": "en", "strength": 2})
    assert collation is not None
    assert collation.to_document() == {
        "locale": "en",
        "caseLevel": False,
        "caseFirst": "off",
        "strength": 2,
        "numericOrdering": False,
        "alternate": "non-ignorable",
        "maxVariable": "punct",
        "normalization": False,
        "backwards": False,
        "version": "57.1",
    }
    assert Collation.parse(collation.to_document()) == collation


def test_simple_is_none() -> None:
    assert Collation.parse({"locale": "simple"}) is None
    assert Collation.parse({"locale": "simple", "strength": 1, "caseFirst": "upper"}) is None


@pytest.mark.parametrize(
    ("document", "number"),
    [
        ("en", 14),
        ({}, 40414),
        ({"locale": 1}, 14),
        ({"locale": "xx_nope"}, 2),
        ({"locale": "en", "strength": 0}, 2),
        ({"locale": "en", "strength": 6}, 2),
        ({"locale": "en", "strength": "3"}, 14),
        ({"locale": "en", "caseLevel": 1}, 14),
        ({"locale": "en", "backwards": None}, 14),
        ({"locale": "en", "caseFirst": "x"}, 2),
        ({"locale": "en", "strength": 2, "caseFirst": "upper"}, 2),
        ({"locale": "en", "version": "99"}, 161),
        ({"locale": "en", "Strength": 3}, 40415),
    ],
)
def test_refused(document: Any, number: int) -> None:
    with pytest.raises(MongoError) as caught:
        Collation.parse(document)
    assert caught.value.number == number


def ordered(strings: list[str], **options: Any) -> list[str]:
    return sorted(strings, key=RootOrder(**options).key)


def test_ascii_order() -> None:
    assert ordered(["b", "B", "a", "A", "1", "_", "$", " "]) == [" ", "_", "$", "1", "a", "A", "b", "B"]


@pytest.mark.parametrize(
    ("strength", "same", "different"),
    [(1, ("Cafe", "café"), ("cafe", "cafd")), (2, ("CAFÉ", "café"), ("cafe", "café")), (3, ("a", "a"), ("a", "A"))],
)
def test_strength(strength: int, same: tuple[str, str], different: tuple[str, str]) -> None:
    key = RootOrder(strength=strength).key
    assert key(same[0]) == key(same[1])
    assert key(different[0]) != key(different[1])


def test_numbers_in_strings() -> None:
    assert ordered(["a10", "a9", "a010"], numeric=True) == ["a9", "a10", "a010"]


def test_case_first_and_case_level() -> None:
    assert ordered(["a", "A"], case_first="upper") == ["A", "a"]
    key = RootOrder(strength=1, case_level=True).key
    assert key("e") == key("é")
    assert key("e") != key("E")


def test_shifted_ignores_punctuation() -> None:
    key = RootOrder(shifted=True).key
    assert key("a-b") == key("ab") == key("a b")
    spaces = RootOrder(shifted=True, shifts_punctuation=False).key
    assert spaces("a b") == spaces("ab")
    assert spaces("a-b") != spaces("ab")


def test_accents_from_behind() -> None:
    assert ordered(["coté", "côte"]) == ["coté", "côte"]
    assert ordered(["coté", "côte"], backwards=True) == ["côte", "coté"]
