"""YAML as Kubernetes reads it: what words mean, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.document import DocumentFault, parse_document
from shared.config.kubernetes_yaml import write_yaml

WORDS: list[tuple[str, object]] = [
    ("y", True),
    ("Yes", True),
    ("on", True),
    ("TRUE", True),
    ("tRUE", "tRUE"),
    ("n", False),
    ("No", False),
    ("off", False),
    ("~", None),
    ("", None),
    ("null", None),
    ("nULL", "nULL"),
    ("010", 8),
    ("0o17", 15),
    ("09", 9),
    ("0x1F", 31),
    ("0b11", 3),
    ("-0b11", -3),
    ("1_6", 16),
    ("+5", 5),
    ("-0", 0),
    ("4.0", 4),
    ("1e2", 100),
    (".5", 0.5),
    ("1.", 1),
    ("1.5e-1", 0.15),
    ("9223372036854775808", 9223372036854775808),
    ("1e400", "1e400"),
    ("1:30", "1:30"),
    ("2001-01-01", "2001-01-01"),
    ("1.2.3", "1.2.3"),
    ("15s", "15s"),
    ("'010'", "010"),
    ('"yes"', "yes"),
    ("!!str 4", "4"),
    ("!!int 4", 4),
    ("!!float 4", 4),
    ("! 4", "4"),
    ("!own 4", "4"),
    ("!!binary aGk=", "hi"),
    ("|\n  a\n  b", "a\nb\n"),
]


@pytest.mark.parametrize(("word", "value"), WORDS)
def test_words(word: str, value: object) -> None:
    assert parse_document(f"key: {word}\n").value == {"key": value}
    assert type(parse_document(f"key: {word}\n").value["key"]) is type(value)  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# a comment\n", None),
        ("---\na: 1\n---\na: 2\n", {"a": 1}),
        ("a: 1\n...\n{{{ no yaml", {"a": 1}),
        ("a: 1\r\nb:\r\n- x\r\n", {"a": 1, "b": ["x"]}),
        ("\ufeffa: 1\n", {"a": 1}),
        ("%YAML 1.1\n---\na: 1\n", {"a": 1}),
        ("1: a\nyes: b\n1.5: c\n", {"1": "a", "true": "b", "1.5": "c"}),
        ("a: &x {b: 1}\nc: *x\n", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: &x {b: 1}\nc:\n  <<: *x\n  d: 2\n", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
        ("a:\n  <<: [{b: 1}, {c: 2}]\n", {"a": {"b": 1, "c": 2}}),
        ("a:\n  '<<': 1\n", {"a": {"<<": 1}}),
        ("[1, {a: b}]", [1, {"a": "b"}]),
    ],
)
def test_documents(text: str, value: object) -> None:
    document = parse_document(text)
    assert document.value == value
    assert document.repeated == ()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: key 'a' is in the same map twice"),
        ("a: 1\nb: {c: 1, c: 2}\n", "line 2: key 'c' is in the same map twice"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n  b: 2\n", "line 4: key 'b' is in the same map twice"),
        ("a:\n  <<: [{b: 1}, {b: 2}]\n", "line 2: key 'b' is in the same map twice"),
    ],
)
def test_repeated_keys_are_reported_with_lines(text: str, line: str) -> None:
    assert parse_document(text).repeated == (line,)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [1", "is not YAML: line 1"),
        ("a: b: c", "mapping values are not allowed"),
        ("a: *x", "line 1: there is no anchor 'x' before this"),
        ("a: &x [*x]", "the value of the anchor 'x' contains itself"),
        ("? [a]\n: b", "line 1: a key must be a text"),
        ("~: b", "line 1: a key must be a text"),
        ("a: .inf", "line 1: .inf is not a number in JSON"),
        ("a: !!int x", "!!int: cannot be 'x'"),
        ("a: !!binary x", "!!binary: must be base64"),
        ("a: {<<: 1}", "<< takes a map or a list of maps"),
        ("%YAML 1.2\n---\na: 1", "%YAML: must be 1.1"),
        ("a: \x00", "is not YAML"),
        ("a: \ud800", "is not YAML"),
        ("[" * 5000, "nested too deeply"),
        ("a: " + "[" * 101 + "]" * 101, "nested more than 100 levels deep"),
        ("{a: 1}", "is not JSON, as a text that begins with { must be: line 1, column 2"),
        (' \n{"a": 1,}', "is not JSON"),
        ('{"a": NaN}', "NaN is not a number in JSON"),
        ('{"a": ' + "1" * 5000 + "}", "a number has too many digits"),
        ('{"a": "\\ud800"}', "half a character"),
        ('{"a": 1} x', "Extra data"),
        ("a: " + "x" * 2**22, "is longer than"),
    ],
)
def test_unreadable_texts_are_refused_with_one_line(text: str, complaint: str) -> None:
    with pytest.raises(DocumentFault) as caught:
        parse_document(text)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_alias_expansion_is_limited() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(DocumentFault, match="has more than 200000 values"):
        parse_document("\n".join(lines))


def test_json_keeps_fractions() -> None:
    value = parse_document('{"a": 4.0, "b": 4}').value
    assert isinstance(value, dict)
    assert [type(item) for item in value.values()] == [float, int]


CHARACTERS = st.characters(codec="utf-8")
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(CHARACTERS, max_size=12)
    | st.sampled_from(
        ["yes", "010", "1e3", "a: b", "- a", "# no", "~", "", " a", "a ", "2001-01-01", "<<", "*a", "a:"]
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(CHARACTERS, max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["a", "on", "x y", "1", ""]), PLAIN, max_size=4))
def test_written_values_are_read_back(value: dict[str, object]) -> None:
    text = write_yaml(value) if value else "{}"
    assert parse_document(text).value == value


def test_written_yaml_is_idiomatic() -> None:
    value = {
        "a": [{"b": 1, "c": [True, None]}, []],
        "d": {},
        "e": "10m0s",
        "f": "no",
        "g": "https://x:1/y",
        "h": "a: b",
    }
    assert write_yaml(value).splitlines() == [
        "a:",
        "- b: 1",
        "  c:",
        "  - true",
        "  - null",
        "- []",
        "d: {}",
        "e: 10m0s",
        'f: "no"',
        "g: https://x:1/y",
        'h: "a: b"',
    ]
