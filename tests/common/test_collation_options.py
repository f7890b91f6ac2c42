"""Collation documents, and the orders of strings that they ask for."""

from typing import Any

import pytest

from bucketd.common.collation import Collation
from bucketd.common.errors import MongoError


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


def collated(locale: str = "en", **options: Any) -> Collation:
    collation = Collation.parse({"locale": locale, **options})
    assert collation is not None
    return collation


def ordered(strings: list[str], locale: str = "en", **options: Any) -> list[str]:
    return sorted(strings, key=collated(locale, **options).key)


def test_ascii_order() -> None:
    assert ordered(["b", "B", "a", "A", "1", "_", "$", " "]) == [" ", "_", "$", "1", "a", "A", "b", "B"]


@pytest.mark.parametrize(
    ("strength", "same", "different"),
    [(1, ("Cafe", "café"), ("cafe", "cafd")), (2, ("CAFÉ", "café"), ("cafe", "café")), (3, ("a", "a"), ("a", "A"))],
)
def test_strength(strength: int, same: tuple[str, str], different: tuple[str, str]) -> None:
    key = collated(strength=strength).key
    assert key(same[0]) == key(same[1])
    assert key(different[0]) != key(different[1])


def test_numbers_in_strings() -> None:
    assert ordered(["a10", "a9", "a010"], numericOrdering=True) == ["a9", "a10", "a010"]


def test_case_first_and_case_level() -> None:
    assert ordered(["a", "A"], caseFirst="upper") == ["A", "a"]
    key = collated(strength=1, caseLevel=True).key
    assert key("e") == key("é")
    assert key("e") != key("E")


def test_shifted_ignores_punctuation() -> None:
    key = collated(alternate="shifted").key
    assert key("a-b") == key("ab") == key("a b")
    spaces = collated(alternate="shifted", maxVariable="space").key
    assert spaces("a b") == spaces("ab")
    assert spaces("a-b") != spaces("ab")


def test_accents_from_behind() -> None:
    assert ordered(["coté", "côte"]) == ["coté", "côte"]
    assert ordered(["coté", "côte"], backwards=True) == ["côte", "coté"]
    assert ordered(["coté", "côte"], "fr_CA") == ["côte", "coté"]
    assert ordered(["coté", "côte"], "fr_CA", backwards=False) == ["coté", "côte"]
    with pytest.raises(MongoError) as caught:
        collated("sv", backwards=True)
    assert caught.value.number == 238


@pytest.mark.parametrize(
    ("locale", "strings"),
    [
        ("sv", ["z", "å", "ä", "ö"]),
        ("de@collation=phonebook", ["ad", "ä", "af"]),
        ("es@collation=traditional", ["cz", "ch", "d"]),
        ("ja", ["あ", "イ", "う"]),
        ("zh", ["阿", "北", "中"]),
        ("tr", ["h", "ı", "i", "j"]),
        ("th", ["กา", "เก", "ขา"]),
        ("en_US_POSIX", ["A", "B", "a", "b"]),
    ],
)
def test_languages_have_orders_of_their_own(locale: str, strings: list[str]) -> None:
    assert ordered(strings[::-1], locale) == strings


def test_defaults_of_languages() -> None:
    assert collated("da").case_first == "upper"
    assert collated("vi").normalization
    assert collated("th").alternate == "shifted"
