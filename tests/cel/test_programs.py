"""Programs as kube-scheduler evaluates them: results, errors with their texts, and costs, subject by subject."""

import re
from typing import Any

import pytest

from shared.cel import CompileError, SelectorDevice, SelectorResult, compile_expression
from shared.model.codec import convert
from shared.model.devices import Device

DRIVER = "gpu.example.com"
DECIMAL_OF_STRING = "error during formatting: decimal clause can only be used on integers, was given string"
START_OF_EXPRESSION = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
NOT_A_FIELD = "invalid argument to has() macro"
DEVICE: dict[str, Any] = {
    "attributes": {
        "model": {"string": "big"},
        "idx": {"int": 3},
        "ecc": {"bool": True},
        "driverVersion": {"version": "1.2.3"},
        "example.org/family": {"string": "A100"},
    },
    "capacity": {"memory": {"value": "40Gi"}, "frac": {"value": "1500m"}},
}


def evaluated(expression: str, device: dict[str, Any] = DEVICE) -> SelectorResult:
    return compile_expression(expression).evaluate(SelectorDevice.of(DRIVER, convert(Device, device)))


def error_of(expression: str) -> str | None:
    return evaluated(expression).error


def compile_error(expression: str) -> str:
    with pytest.raises(CompileError) as raised:
        compile_expression(expression)
    return str(raised.value)


@pytest.mark.parametrize(
    "expression",
    [
        # numbers
        "7 / -2 == -3 && -7 % 3 == -1",
        "dyn(1) == dyn(1.0) && dyn(1u) == dyn(1) && dyn(1) != dyn('1')",
        "1 < 2u && 2.5 > 2 && 3u >= 2.5",
        "0x1F == 31 && 1e3 == 1000.0 && .5 == 0.5",
        "-9223372036854775808 < 0",
        # text
        "'ab'.upperAscii() + 'É'.lowerAscii() == 'ABÉ'",
        "'a-b-c'.split('-', 2) == ['a', 'b-c']",
        "'%s %d %.1f %x %X %o %b %%'.format(['a', 5, 2.25, 255, 'hi', 8, 5]) == 'a 5 2.2 ff 6869 10 101 %'",
        "'%s'.format([[1, 'a', 2.5, null, {'k': true}]]) == '[1, \"a\", 2.500000, null, {\"k\":true}]'",
        "'%.2f'.format([1234567.891]) == '1,234,567.89'",
        "'%.0f %.0f'.format([-0.0, -0.4]) == '0 -0'",
        "quantity('1E').sub(-9223372036854775808).asInteger() < 0",
        r"strings.quote('a\"b') == '\"a\\\"b\"'",
        "'tacocat'.lastIndexOf('c') == 4 && 'tacocat'.lastIndexOf('c', 3) == 2",
        r"b'\xff\101é'.size() == 4 && '\U0001F600'.size() == 1",
        # lists and maps
        "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'aa'].sortBy(x, size(x)) == ['b', 'aa']",
        "[[1, 2], [3]].flatten() == [1, 2, 3] && lists.range(3).reverse() == [2, 1, 0]",
        "{'a': 1, 'b': 2}.transformMap(k, v, v * 2) == {'b': 4, 'a': 2}",
        "{'a': 1}.transformMapEntry(k, v, {v: k}) == {1: 'a'}",
        "[1, 2, 3].transformList(i, x, i > 0, x * i) == [2, 6]",
        "{1: 'a'}[dyn(1.0)] == 'a' && dyn(1u) in {1: 'a'}",
        "sets.equivalent([1, 2, 2], [2, 1]) && !sets.intersects([1], [2])",
        "[1.0, 2.5].sum() == 3.5 && [duration('1s'), duration('1m')].max() == duration('60s')",
        # optional values
        "device.attributes['gpu.example.com'].?nope.orValue('x') == 'x'",
        "[1, 2][?5].or(optional.of(7)).value() == 7",
        "{?'a': optional.none(), 'b': 1} == {'b': 1}",
        "optional.of(2).optFlatMap(x, x > 1 ? optional.of(x * 2) : optional.none()) == optional.of(4)",
        # time
        "timestamp('2024-02-29T23:59:59.5Z') + duration('1s') == timestamp('2024-03-01T00:00:00.500Z')",
        "timestamp('2024-05-06T07:08:09Z').getDayOfWeek() == 1",
        "string(duration('1h1ns')) == '3600.000000001s'",
        "timestamp('2024-01-01T00:00:00+02:00').getHours('-01:30') == 20",
        # doubles as text
        "string(1e10) == '1e+10' && string(123456.0) == '123456' && string(1234567.0) == '1.234567e+06'",
        "string(1e-5) == '1e-05' && string(0.0001) == '0.0001' && string(-0.0) == '-0'",
        # Kubernetes' types
        "quantity('1.5Gi').compareTo(quantity('1536Mi')) == 0 && sign(quantity('-1n')) == -1",
        "semver('1.0.0-alpha.2').isLessThan(semver('1.0.0-alpha.10'))",
        "ip('::ffff').family() == 6 && cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')",
        "url('https://u:p@h:8443/a%2Fb?x=1&x=2').getEscapedPath() == '/a%2Fb'",
        "format.named('uuid').value().validate('x') == optional.of(['does not match the UUID format'])",
        # absorbed errors
        "1 / 0 == 1 || true",
        "!(false && 1 / 0 == 1)",
        "[0, 1].exists(x, 1 / x == 1)",
        # names
        ".device.driver == device.driver",
        "cel.bind(device, 5, device == 5)",
        "google.protobuf.Duration{seconds: 90} == duration('90s')",
        "google.protobuf.Int64Value{value: 5} == 5",
    ],
)
def test_true(expression: str) -> None:
    assert evaluated(expression).error is None
    assert evaluated(expression).matches


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("9223372036854775807 + device.attributes['gpu.example.com'].idx == 0", "integer overflow"),
        ("0u - 1u == 0u", "unsigned integer overflow"),
        ("device.attributes['gpu.example.com'].idx + 'x' == ''", "no such overload"),
        ("dyn(null) < dyn(1)", "no such overload: _<_"),
        ("dyn([1])[1] == 1", "index out of bounds: 1"),
        ("'abc'.substring(2, 1) == ''", "invalid substring range. start: 2, end: 1"),
        ("'%d'.format([dyn('x')]) == ''", DECIMAL_OF_STRING),
        ("dyn(1).exists(x, x == 1)", "got 'types.Int', expected iterable type"),
        (
            "ip('1.2.3').family() == 4",
            'IP Address "1.2.3" parse error during conversion from string: ParseAddr("1.2.3"): IPv4 address too short',
        ),
        (
            "url('https://h:x/').getHost() == ''",
            'URL parse error during conversion from string: parse "https://h:x/": invalid port ":x" after host',
        ),
        (
            "quantity('1x').isInteger()",
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        ("quantity('2') == quantity('1').add(quantity('1'))", "no such overload"),
        ("optional.none().value() == 1", "optional.none() dereference"),
        (
            "device.attributes['gpu.example.com'].model",
            "CEL result of type string could not be converted to bool: "
            "unsupported native conversion from string to 'bool'",
        ),
        (
            "device.attributes['gpu.example.com'].driverVersion in ['1.2.3']",
            "internal error: runtime error: hash of unhashable type cel.Semver",
        ),
        ("timestamp('2024-01-01T00:00:00Z').getHours('Mars/Olympus') == 1", "unknown time zone Mars/Olympus"),
    ],
)
def test_errors_at_run_time(expression: str, error: str) -> None:
    assert error_of(expression) == error


@pytest.mark.parametrize(
    ("expression", "message", "column"),
    [
        ("device.nope == 1", "undefined field 'nope'", 7),
        ("1 + 'a' == 2", "found no matching overload for '_+_' applied to '(int, string)'", 3),
        ("[1, 'a'].size() == 2", "expected type 'int' but found 'string'", 5),
        ("has(device)", "invalid argument to has() macro", 5),
        ("[1].all(x.y, true)", "argument must be a simple name", 10),
        ("{'a': 1}.transformMap(k, k, 1) == {}", "duplicate variable name: k", 26),
        ("'a'.matches('(')", "invalid matches argument", 13),
        ("duration('1d') == duration('1h')", "invalid duration argument", 10),
        ("'%d'.format(['a']) == ''", DECIMAL_OF_STRING, 14),
        ("if == 1", "reserved identifier: if", 1),
        ("device.`a` == 1", "unsupported syntax: '`'", 8),
        ("1 == ", f"Syntax error: mismatched input '<EOF>' expecting {START_OF_EXPRESSION}", 6),
        ("'\\ud800' == ''", "invalid unicode code point", 1),
        ("1 ++ 2 == 3", f"Syntax error: extraneous input '+' expecting {START_OF_EXPRESSION}", 4),
        ("a.true", "Syntax error: mismatched input 'true' expecting IDENTIFIER", 3),
        ("'a'.matches('a(?=b)')", "invalid matches argument", 13),
        ("f(1,,2)", f"Syntax error: extraneous input ',' expecting {START_OF_EXPRESSION}", 5),
        ("(true", "Syntax error: missing ')' at '<EOF>'", 6),
        ("foo(1", "Syntax error: missing ')' at '<EOF>'", 6),
        ("duration == 1", "found no matching overload for '_==_' applied to '(type(duration), int)'", 10),
        ("optional_type == 1", "found no matching overload for '_==_' applied to '(type(optional_type), int)'", 15),
        ("double{value: 1.0} == 1", "undefined field 'value'", 13),
    ],
)
def test_errors_at_compile_time(expression: str, message: str, column: int) -> None:
    marks = "." * (column - 1)
    expected = f"ERROR: <input>:1:{column}: {message}\n | {expression}\n | {marks}^"
    assert expected in compile_error(expression)


@pytest.mark.parametrize(
    ("expression", "errors"),
    [
        ("has(1 +)", [f"7: {NOT_A_FIELD}", f"8: Syntax error: mismatched input ')' expecting {START_OF_EXPRESSION}"]),
        ("has(.) + 'a'", [f"0: {NOT_A_FIELD}", "6: Syntax error: no viable alternative at input '.)'"]),
        (
            "[x.all(1, 2) y]",
            ["8: argument must be a simple name", "14: Syntax error: extraneous input 'y' expecting {']', ','}"],
        ),
        (
            "x.all(y, y, == 2)",
            [
                "10: duplicate variable name: y",
                f"13: Syntax error: extraneous input '==' expecting {START_OF_EXPRESSION}",
            ],
        ),
        ("{has(1): 2, has(3)}", [f"6: {NOT_A_FIELD}", "19: Syntax error: mismatched input '}' expecting ':'"]),
        (
            "a.? + 'b'",
            [
                "5: Syntax error: mismatched input '+' expecting {IDENTIFIER, ESC_IDENTIFIER}",
                "5: unsupported ident kind",
            ],
        ),
        (
            "9223372036854775808 + if )",
            [
                "1: invalid int literal",
                "23: reserved identifier: if",
                "26: Syntax error: extraneous input ')' expecting <EOF>",
            ],
        ),
        ("a. ", ["4: Syntax error: no viable alternative at input '. '"]),
        (
            ".= 'a'",
            [
                "2: Syntax error: token recognition error at: '= '",
                "4: Syntax error: no viable alternative at input '.'a''",
            ],
        ),
        ("-9223372036854775808 - 1 (", ["26: Syntax error: extraneous input '(' expecting <EOF>"]),
        ("(true) 9223372036854775808", ["8: Syntax error: extraneous input '9223372036854775808' expecting <EOF>"]),
        ("has(1.all(dyn(1), 2))", ["14: argument must be a simple name", f"14: {NOT_A_FIELD}"]),
        ("f{a: 1, `b`: has(1)}", ["3: unsupported syntax: '`'"]),
    ],
)
def test_what_else_is_wrong_with_an_expression_of_wrong_syntax(expression: str, errors: list[str]) -> None:
    found = re.findall(r"ERROR: <input>:1:(\d+: .*)", compile_error(expression))
    assert found == errors


def test_an_empty_expression_has_no_line_to_show() -> None:
    assert compile_error("").endswith(
        f"<input>:1:0: Syntax error: mismatched input '<EOF>' expecting {START_OF_EXPRESSION}"
    )


def test_an_error_shows_the_line_and_wide_characters() -> None:
    error = compile_error("true &&\n'é' ==\t1")
    assert error.endswith("_==_' applied to '(string, int)'\n | 'é' == 1\n | .\uff0e..^")
    assert "ERROR: <input>:2:5: found no matching overload" in error


def test_errors_are_in_the_order_of_the_source() -> None:
    lines = compile_error("b == 1 &&\na == 2").splitlines()
    assert [line for line in lines if "ERROR" in line] == [
        "compilation failed: ERROR: <input>:1:1: undeclared reference to 'b' (in container '')",
        "ERROR: <input>:2:1: undeclared reference to 'a' (in container '')",
    ]


def test_at_most_a_hundred_errors_are_shown() -> None:
    errors = compile_error(" || ".join(f"x{index} == 1" for index in range(150)))
    assert errors.endswith("50 more errors were truncated")


def test_a_chain_of_optional_macros_is_bounded() -> None:
    """Each optMap repeats its receiver."""
    assert evaluated("optional.of(1)" + ".optMap(x, x + 1)" * 5 + ".orValue(0) == 6").matches
    error = compile_error("optional.of(1)" + ".optMap(x, x)" * 40 + ".hasValue()")
    assert "an optional of more than 5000 parts, macros expanded, is not supported" in error


def test_constant_conversions_fail_when_the_program_is_made() -> None:
    assert compile_error("true || int('x') == 1") == (
        "program instantiation failed: type conversion error from 'string' to 'int'"
    )


@pytest.mark.parametrize(
    ("expression", "name"), [("[int].exists(x, x == int)", "x"), ("type(duration) == type", "duration")]
)
def test_a_type_without_a_name_at_run_time(expression: str, name: str) -> None:
    """Also a variable that holds a type is taken for the name of one."""
    assert compile_error(expression) == f"program instantiation failed: reference to undefined type: {name}"


def test_a_recovery_from_an_error_of_syntax_skips_a_limited_number_of_tokens() -> None:
    limit = "error recovery token lookahead limit exceeded: 256"
    assert limit not in compile_error("1 " + "a " * 256)
    assert limit in compile_error("1 " + "a " * 257)


def test_only_a_bool_or_an_attribute_may_be_the_result() -> None:
    assert compile_error("1") == "must evaluate to bool or the unknown type, not int"
    assert compile_error("[1]") == "must evaluate to bool or the unknown type, not list(int)"
    assert evaluated("device.attributes['gpu.example.com'].ecc").matches


def test_includes_is_for_stored_objects_only() -> None:
    assert evaluated("['a'].includes('a')").matches
    with pytest.raises(CompileError, match="undeclared reference to 'includes'"):
        compile_expression("['a'].includes('a')", new_object=True)


# The device


def test_an_unknown_domain_selects_an_empty_map() -> None:
    assert evaluated("device.attributes['nope'] == {} && has(device.attributes.nope)").matches
    assert not evaluated("'nope' in device.attributes").matches
    assert error_of("device.attributes['nope'].model == 'big'") == "no such key: model"


def test_names_without_a_domain_belong_to_the_driver() -> None:
    assert evaluated("device.attributes['gpu.example.com'].model == 'big'").matches
    assert evaluated("device.attributes['example.org'].family == 'A100'").matches


def test_a_device_without_anything() -> None:
    result = evaluated("device.driver == 'gpu.example.com' && !device.allowMultipleAllocations", {})
    assert result.matches


@pytest.mark.parametrize(
    ("attribute", "problem"),
    [
        ({"version": "1.2"}, "attribute a: parse semantic version: No Major.Minor.Patch elements found"),
        ({}, "attribute a: unsupported attribute value"),
    ],
)
def test_a_malformed_attribute_is_refused(attribute: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        SelectorDevice.of(DRIVER, convert(Device, {"attributes": {"a": attribute}}))


# Costs


@pytest.mark.parametrize(
    ("expression", "cost", "estimate"),
    [
        ("true", 0, 0),
        ("device.driver == 'gpu.example.com'", 4, 4),
        ("device.attributes['gpu.example.com'].model == 'big'", 5, 5),
        ("has(device.attributes['gpu.example.com'].model)", 3, 3),
        ("device.attributes['gpu.example.com'].nope == 1", 5, 5),
        ("device.attributes['gpu.example.com'].idx in [1, 2, 3]", 4, 17),
        ("cel.bind(int, string, int == string)", 1, 1844674407370955277),
        ("lists.range(100).map(x, x + 1).size() == 100", 1514, 1524),
        ("type(1) == int", 1, 1844674407370955266),
        ("dyn([1])[?dyn(optional.none())] == 1", 4, 15),
        ("dyn([1])[dyn(optional.none())] == 1", 5, 15),
        ("has(dyn([[1]])[?0].c)", 1, 22),
        ("dyn('abcd').flatten(9223372036854775807) == []", 2**63 + 11, None),
        ("lists.range(device.attributes['gpu.example.com'].idx).size() == 3", 20, None),
    ],
)
def test_costs(expression: str, cost: int, estimate: int | None) -> None:
    assert evaluated(expression).cost == cost
    assert compile_expression(expression).estimate == estimate


def test_evaluation_stops_at_the_limit() -> None:
    device = SelectorDevice.of(DRIVER, convert(Device, DEVICE))
    program = compile_expression("lists.range(100).all(x, x >= 0)")
    assert program.evaluate(device, limit=2000).matches
    result = program.evaluate(device, limit=200)
    assert result == SelectorResult(False, "operation cancelled: actual cost limit exceeded", 201)


def test_a_bound_value_is_computed_when_it_is_used_and_only_once() -> None:
    unused = evaluated("cel.bind(x, lists.range(100000).sum(), true)")
    used = evaluated("cel.bind(x, lists.range(1000).sum(), x > 0 && x > 1 && x > 2)")
    assert unused.cost == 0
    assert 2000 < used.cost < 2100


# Values that cel-go turns into Go's own and back


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("quantity('1.5Gi')", "(*resource.Quantity)1536Mi"),
        ("quantity('0.1')", "(*resource.Quantity)100m"),
        ("quantity('1000E')", "(*resource.Quantity)1"),
        ("quantity('1e3').add(quantity('1k'))", "(*resource.Quantity)2e3"),
        ("quantity('2Ki').sub(quantity('1.5Ki'))", "(*resource.Quantity)512"),
        ("device.capacity['gpu.example.com'].frac", "(*resource.Quantity)1500m"),
        ("semver('2.0.0-rc.1+b5')", "(semver.Version)2.0.0-rc.1+b5"),
        ("ip('fe80::1')", "(netip.Addr)fe80::1"),
        ("cidr('10.0.0.0/8')", "(netip.Prefix)10.0.0.0/8"),
        ("url('https://a.b:80/p?x=1#f')", "(*url.URL)https://a.b:80/p?x=1#f"),
    ],
)
def test_a_variable_loses_the_content_of_an_optional_of_kubernetes_types(content: str, text: str) -> None:
    error = f"unsupported conversion to ref.Val: {text}"
    for expression in (
        f"cel.bind(o, optional.of({content}), o.value() == {content})",
        f"(true ? optional.of({content}) : optional.none()).value() == {content}",
        f"optional.of(1).optMap(x, {content}).orValue({content}) == {content}",
    ):
        assert error_of(expression) == error
    assert evaluated(f"cel.bind(o, optional.of({content}), o.hasValue())").matches
    nested = f"cel.bind(o, optional.of({content}), cel.bind(p, o, p.value() == {content}))"
    assert error_of(nested) == f"unsupported conversion to ref.Val: (*errors.errorString){error}"


def test_a_variable_flattens_an_optional_in_an_optional() -> None:
    assert not evaluated("cel.bind(o, optional.of(optional.of(1)), o.value() == optional.of(1))").matches
    assert evaluated("cel.bind(o, optional.of(dyn(int)), o.value() == 'int')").matches


@pytest.mark.parametrize(
    ("expression", "error", "cost"),
    [
        (
            "[1 / 0].sortBy(e, e) == [1] || true",
            "interface conversion: *types.Err is not traits.Lister: missing method Add",
            13,
        ),
        (
            "[1 / 0].distinct() == [1] || true",
            "interface conversion: *types.Err is not traits.Lister: missing method Add",
            11,
        ),
        (
            "device.attributes['gpu.example.com'].model.distinct() == ['big']",
            "interface conversion: types.String is not traits.Lister: missing method Contains",
            4,
        ),
        ("[[1]].flatten(1 / 0) == [1] || true", "interface conversion: ref.Val is *types.Err, not types.Int", 1),
        ("dyn(semver('1.0.0')) in [1] || true", "runtime error: hash of unhashable type cel.Semver", 2),
    ],
)
def test_where_kubernetes_panics_the_evaluation_ends(expression: str, error: str, cost: int) -> None:
    result = evaluated(expression)
    assert (result.error, result.cost) == (f"internal error: {error}", cost)


def test_an_optional_answer_counts_as_its_content() -> None:
    attribute = "device.attributes['gpu.example.com'].ecc"
    assert evaluated(f"true ? optional.of(true) : {attribute}").matches
    reason = "CEL result of type optional_type could not be converted to bool: "
    assert error_of(f"true ? optional.none() : {attribute}") == f"{reason}optional.none() dereference"
    number = f"{reason}unsupported type conversion from 'int' to bool"
    assert error_of(f"true ? optional.of(1) : {attribute}") == number


def test_a_leading_dot_names_what_a_local_variable_hides() -> None:
    assert evaluated("[1].exists(device, .device.driver == 'gpu.example.com' && device == 1)").matches
    assert "undeclared reference to '.d'" in compile_error("[1].exists(d, .d == 1)")
    assert "undefined type: .int" in compile_error("[1].all(int, type(1) == .int)")


def test_the_size_of_what_bind_yields_is_unknown_if_it_is_the_variable() -> None:
    assert compile_expression("cel.bind(v, 'a', v + 'b').contains('a')").estimate == 13
    assert compile_expression("cel.bind(v, 'a', v).contains('a')").estimate == 1844674407370955275
    assert compile_expression("cel.bind(v, [1, 2], v).all(x, x > 1)").estimate is None


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("[1, [][0] * dyn(1)].size() == 1", "expected type 'int' but found 'double'"),
        ("map.exists(x, true)", "expression of type 'type(map(dyn, dyn))' cannot be range of a comprehension"),
        ("'a\nb' == 'c'", "token recognition error at: ''a\n'"),
    ],
)
def test_types_and_texts_of_compile_errors(expression: str, error: str) -> None:
    assert error in compile_error(expression)


def test_a_version_is_normalised_by_its_bytes() -> None:
    assert error_of("semver('é', true).major() == 1") == 'Invalid character(s) found in major number "0é"'
