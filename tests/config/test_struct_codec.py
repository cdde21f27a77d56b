"""The walker over configuration structs: absent values, null, Go's names, and what is written."""

from typing import Any

import msgspec
import pytest

from shared.config.document import parse_document
from shared.config.struct_codec import (
    CoreSection,
    Decoder,
    Filled,
    Float32,
    Int32,
    OmitEmpty,
    Path,
    Seconds,
    Section,
    TypedSection,
    encode,
)


class Item(Section, frozen=True):
    name: str = ""
    weight: OmitEmpty[Filled[Int32]] = 1
    path: Path = ""


class Core(CoreSection, frozen=True):
    match_labels: OmitEmpty[dict[str, str]] = msgspec.field(default_factory=dict)


class Example(TypedSection, frozen=True):
    text: str = "default"
    filled: Filled[str] = "default"
    count: OmitEmpty[Int32 | None] = 7
    rate: Float32 = 0.0
    timeout: Seconds = 15.0
    wait: OmitEmpty[Seconds | None] = None
    key: OmitEmpty[bytes] = b""
    items: OmitEmpty[tuple[Item, ...]] = ()
    core: OmitEmpty[Core | None] = None
    raw: object = None


def decoded(value: Any, internal: bool = False) -> tuple[Example, list[tuple[str, Any]]]:
    decoder = Decoder(internal)
    return decoder.section(Example, value, ""), [(problem.path, problem.value) for problem in decoder.problems]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Example()),
        ({"text": None, "filled": None, "count": None, "items": None, "wait": None}, Example()),
        ({"text": "", "filled": "", "count": 0}, Example(text="", count=0)),
        ({"apiVersion": "any", "kind": "Any", "raw": {"a": 4.0}}, Example(raw={"a": 4.0})),
        ({"rate": 0.1, "timeout": "1m", "wait": "0s", "key": "YQ=="}, Example(rate=0.1, timeout=60, wait=0, key=b"a")),
        (
            {"items": [None, {"name": "a", "weight": 0}]},
            Example(items=(Item(path="items[0]"), Item("a", path="items[1]"))),
        ),
        ({"core": {"matchLabels": {"a": None, "b": "c"}}}, Example(core=Core(match_labels={"a": "", "b": "c"}))),
    ],
)
def test_v1_values_and_defaults(given: dict[str, Any], expected: Example) -> None:
    assert decoded(given) == (expected, [])


def test_the_internal_version_has_go_names_and_zeros() -> None:
    found, problems = decoded({"Text": "t", "Core": {"matchLabels": {}}, "Items": [{"Name": "n"}]}, internal=True)
    assert problems == []
    zeros = Example(text="t", filled="", count=None, timeout=0.0, core=Core())
    assert found == msgspec.structs.replace(zeros, items=(Item("n", 0, path="Items[0]"),))
    assert decoded({"text": "t", "Raw": 1}, internal=True)[1] == [("text", "text"), ("Raw", 1)]


def test_all_problems_are_collected() -> None:
    given = {
        "text": 1,
        "count": 2**31,
        "rate": 1e40,
        "timeout": None,
        "wait": 5,
        "key": "secret!",
        "items": [{"nme": 1}, 3],
        "core": [],
        "core2": 1,
    }
    assert decoded(given)[1] == [
        ("text", 1),
        ("count", 2**31),
        ("rate", 1e40),
        ("timeout", None),
        ("wait", 5),
        ("key", "(hidden)"),
        ("items[0].nme", "nme"),
        ("items[1]", 3),
        ("core", []),
        ("core2", "core2"),
    ]


def test_repeated_json_keys_are_problems_but_in_raw_values() -> None:
    document = parse_document('{"text": "a", "text": "b", "raw": {"x": 1, "x": 2}}')
    assert decoded(document.value) == (Example(text="b", raw={"x": 2}), [("text", "text")])


def test_encoding_leaves_out_what_go_does() -> None:
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "Example"}
    always = {"text": "", "filled": "", "rate": 50, "timeout": "1.5s", "raw": None}
    assert encode(Example(text="", filled="", rate=50.0, timeout=1.5, count=None)) == head | always
    some = Example(count=0, wait=0.0, key=b"a", items=(Item("n"),), core=Core())
    assert encode(some) == encode(Example()) | {
        "count": 0,
        "wait": "0s",
        "key": "YQ==",
        "items": [{"name": "n", "weight": 1}],
        "core": {},
    }


def test_go_encoding_has_all_fields() -> None:
    assert encode((Item("n", 0),), go=True) == [{"Name": "n", "Weight": 0}]
    assert encode(Example(core=Core()), go=True)["Core"] == {}
    assert encode(Example(), go=True)["Items"] is None
