"""Properties that hold for any text and any expression: no exception but CompileError, and bounded time and cost."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.cel import CompileError, SelectorDevice, SelectorResult, compile_expression
from shared.cel.costs import LIMIT
from shared.model.codec import convert
from shared.model.devices import Device, DeviceAttribute, DeviceCapacity
from shared.model.quantity import QuantityText

ATTRIBUTES = {"s": {"string": "ab"}, "i": {"int": 3}, "b": {"bool": True}, "v": {"version": "1.2.3"}}
DEVICE = SelectorDevice.of("d", convert(Device, {"attributes": ATTRIBUTES, "capacity": {"q": {"value": "40Gi"}}}))
TOKENS = (
    *(
        "device",
        ".",
        "driver",
        "attributes",
        '["d"]',
        "s",
        "i",
        "b",
        "v",
        "capacity",
        "q",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
    ),
    *(",", ":", "?", "!", "-", "+", "*", "/", "%", "&&", "||", "==", "!=", "<", ">=", "in", "true", "null", "1", "2u"),
    *(
        "1.5",
        '"a"',
        "'b'",
        'b"c"',
        "size",
        "has",
        "all",
        "exists",
        "map",
        "filter",
        "x",
        "y",
        "cel",
        "bind",
        "optional",
    ),
    *("of", "none", "orValue", "?.", "[?", "dyn", "int", "string", "timestamp", "duration", "type", "format", "lists"),
    *("range", "matches", "split", "join", "sort", "if", "`a`", "\\", "@", "=", '"', "'''", " ", "\n", "\t", "é", "0x"),
)
SECONDS = 5.0


def outcome(expression: str) -> SelectorResult | str:
    try:
        return compile_expression(expression).evaluate(DEVICE)
    except CompileError as error:
        return str(error)


@given(st.text(max_size=60))
def test_any_text_is_refused_or_evaluated(text: str) -> None:
    outcome(text)


@settings(max_examples=400)
@given(st.lists(st.sampled_from(TOKENS), max_size=25))
def test_any_tokens_are_refused_or_evaluated(tokens: list[str]) -> None:
    outcome("".join(tokens))


def expressions() -> st.SearchStrategy[str]:
    """Expressions that are well-formed, and rarely well-typed thanks to `dyn`."""
    leaves = st.sampled_from(
        [
            *("1", "-1", "0", "9223372036854775807", "2u", "1.5", "0.0", '"a"', '""', 'b"a"', "true", "false", "null"),
            *('timestamp("2024-01-01T00:00:00Z")', 'duration("1h")', "[]", "[1, 2]", '["b", "a"]', "{}", '{"a": 1}'),
            *('device.attributes["d"].s', 'device.attributes["d"].i', 'device.attributes["d"].b', "device.driver"),
            *(
                'device.attributes["d"].v',
                'device.attributes["d"].nope',
                'device.capacity["d"].q',
                'device.attributes["d"]',
            ),
            *('quantity("1.5Gi")', 'semver("1.0.0")', 'ip("::1")', 'cidr("10.0.0.0/8")', 'url("https://a/b")'),
            *("optional.none()", "optional.of(1)", "int", "type(1)", "format.uuid()"),
        ]
    )

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        operators = st.sampled_from(["+", "-", "*", "/", "%", "==", "!=", "<", ">=", "&&", "||", "in"])
        functions = st.sampled_from(["size", "int", "uint", "double", "string", "bool", "bytes", "type", "duration"])
        members = st.sampled_from(
            [
                *("size()", "contains(y)", "split(y)", "join()", "sort()", "distinct()", "flatten()", "max()", "sum()"),
                *(
                    "hasValue()",
                    "value()",
                    "orValue(y)",
                    "or(y)",
                    "isGreaterThan(y)",
                    "compareTo(y)",
                    "add(y)",
                    "trim()",
                ),
                *("replace(y, y)", "substring(y)", "charAt(y)", "format(y)", "matches(y)", "find(y)", "getHours()"),
                *(
                    "reverse()",
                    "indexOf(y)",
                    "last()",
                    "isSorted()",
                    "asInteger()",
                    "family()",
                    "masked()",
                    "getHost()",
                ),
                *("all(z, z == y)", "exists(z, y)", "map(z, y)", "filter(z, y)", "exists_one(z, y)", "sortBy(z, y)"),
                *("transformMap(k, v, y)", "transformList(k, v, k == y, v)", "transformMapEntry(k, v, {v: y})"),
                *(
                    "optMap(o, y)",
                    "slice(y, y)",
                    "lowerAscii()",
                    "startsWith(y)",
                    "major()",
                    "validate(y)",
                    "includes(y)",
                ),
            ]
        )
        return st.one_of(
            st.builds("({} {} {})".format, inner, operators, inner),
            st.builds("(dyn({}) {} dyn({}))".format, inner, operators, inner),
            st.builds("({} ? {} : {})".format, inner, inner, inner),
            st.builds("{}({})".format, functions, inner),
            st.builds("{}(dyn({}))".format, functions, inner),
            st.builds(
                lambda target, member, y: f"dyn({target}).{member.replace('y', f'dyn({y})')}", inner, members, inner
            ),
            st.builds(lambda target, member, y: f"{target}.{member.replace('y', y)}", inner, members, inner),
            st.builds("[dyn({}), dyn({})]".format, inner, inner),
            st.builds("{{dyn({}): dyn({})}}".format, inner, inner),
            st.builds("dyn({})[dyn({})]".format, inner, inner),
            st.builds("dyn({})[?dyn({})]".format, inner, inner),
            st.builds("dyn({}).?a".format, inner),
            st.builds("has(dyn({}).a)".format, inner),
            st.builds("cel.bind(w, {}, [w, w] == [w])".format, inner),
            st.builds('"%s %d %f %x".format([{}, {}])'.format, inner, inner),
        )

    return st.recursive(leaves, larger, max_leaves=8)


@settings(max_examples=800, deadline=None)
@given(expressions())
def test_evaluation_never_raises_and_can_be_repeated(expression: str) -> None:
    wrapped = f"[dyn({expression})] != []"
    try:
        program = compile_expression(wrapped)
    except CompileError:
        return
    result = program.evaluate(DEVICE)
    assert result.error is None or result.error
    assert result == program.evaluate(DEVICE)
    again = program.evaluate(DEVICE, limit=result.cost)
    assert again == result


def _nested(larger: str, first: str, result: str) -> str:
    """Two values, each of parts that double forty times, and what to do with them."""

    def bound(name: str, inner: str) -> str:
        for level in reversed(range(40)):
            inner = f"cel.bind({name}{level + 1}, {larger.format(f'{name}{level}')}, {inner})"
        return f"cel.bind({name}0, {first}, {inner})"

    return bound("a", bound("b", result.format("a40", "b40")))


@pytest.mark.parametrize(
    "expression",
    [
        '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!".matches("^(a+)+$")',
        f'"{"a" * 2000}".matches("(a?){{100}}a{{100}}b")',
        f'"{"a" * 50_000}!".matches("(.*)(.*)(.*)(.*)(.*)[b-z]")',
        f'"{"x," * 20_000}".split(",").size() == 1',
        "lists.range(99999999999).all(x, x >= 0)",
        "lists.range(1000000).map(x, [x, x]).flatten().size() == 0",
        "[1,2].map(a, [a, a]).map(b, [b, b]).map(c, [c, c]).flatten(9223372036854775807).size() == 0",
        '"ab".replace("", "xxxxxxxxxx").replace("", "xxxxxxxxxx").replace("", "xxxxxxxxxx").size() == 0',
        'quantity("1e2000000000").isGreaterThan(quantity("1e-2000000000"))',
        f'int("{"9" * 90_000}" + "") == 0',
        '"%.99999f".format([1.0]) == ""',
        "sets.contains(lists.range(400000), lists.range(400000))",
        "lists.range(900000).distinct().size() == 0",
        _nested("[{0}, {0}]", "[1, 2]", "{0} == {1}"),
        _nested("{{1: {0}, 2: {0}}}", "{1: 2}", "{0} != {1}"),
        _nested("{{{0}: {0}}}", "{1: 2}", "{0} != {1}"),
        _nested("[{0}, {0}]", "[1, 2]", "'%s'.format([{0}]) == ''"),
        _nested("[{0}, {0}]", "[1, 2]", "{0}.flatten(100).size() == 0"),
        _nested("[{0}, {0}]", "[1, 2]", "{0}.indexOf({1}) == 0"),
        "!" * 50_000 + "true",
        "(" * 40_000,
        "[" * 249 + "]" * 249 + " == []",
        "a." * 20_000 + "b",
        "1 + " * 20_000 + "1",
        "true && " * 9_000 + "true",
        "{" * 30_000,
        '"\\' * 30_000,
        "? : " * 20_000,
        "optional.of(1)" + ".optMap(x, x)" * 40 + ".hasValue()",
        "x" * 100_001,
    ],
)
def test_hostile_expressions_end_soon(expression: str) -> None:
    start = time.process_time()
    result = outcome(expression)
    assert time.process_time() - start < SECONDS
    assert isinstance(result, str) or result.cost <= LIMIT or result.error


@given(st.text(), st.text(), st.text())
def test_a_malformed_device_is_refused(name: str, version: str, amount: str) -> None:
    capacity = DeviceCapacity(value=QuantityText(amount))
    device = Device(attributes={name: DeviceAttribute(version=version)}, capacity={name: capacity})
    try:
        prepared = SelectorDevice.of("d", device)
    except ValueError:
        return
    compile_expression('device.attributes["d"].all(k, true)').evaluate(prepared)
