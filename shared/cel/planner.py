"""Compiles a checked tree to closures, as cel-go plans it: it computes constant parts; each step counts its cost."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from shared.cel.activation import FoldScope, Scope, Step
from shared.cel.attributes import (
    ACCESS_COST,
    Attribute,
    Conditional,
    Qualifier,
    go_type_name,
    invalid_key,
)
from shared.cel.costs import LIST, MAP, STRUCT, CallCost, call_cost, needs_result
from shared.cel.declarations import Implementation
from shared.cel.environment import FUNCTIONS
from shared.cel.errors import CompileError
from shared.cel.library.conversions import CONVERSIONS
from shared.cel.library.regexes import CONSTANT_PATTERNS, compiled
from shared.cel.library.temporal import timestamp_from
from shared.cel.syntax import (
    CallNode,
    Comprehension,
    IdentNode,
    ListNode,
    LiteralNode,
    MapNode,
    SelectNode,
    StructNode,
    SyntaxNode,
)
from shared.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    NO_SUCH_OVERLOAD,
    SECOND,
    Accumulated,
    CelError,
    CelMap,
    DurationValue,
    OptionalValue,
    Semver,
    Uint,
    Value,
    equal,
    go_text,
)


@dataclass(slots=True)
class Plan:
    """A compiled part. Constants and attributes are told apart, because what contains them is planned differently."""

    run: Step
    constant: bool = False
    value: Value = None
    attribute: Attribute | None = None


def plan(root: SyntaxNode) -> Step:
    """The compiled expression; CompileError if a constant part fails."""
    return _plan(root).run


def _fail(message: str) -> CompileError:
    return CompileError(f"program instantiation failed: {message}")


def _plan(node: SyntaxNode) -> Plan:
    match node:
        case LiteralNode():
            return _constant(node.value)
        case IdentNode():
            return _ident(node)
        case SelectNode():
            return _select(node)
        case CallNode():
            return _call(node)
        case ListNode():
            return _list(node)
        case MapNode():
            return _map(node)
        case StructNode():
            return Plan(_struct(node))
        case Comprehension():
            return Plan(_comprehension(node))
    raise TypeError(f"unknown node {type(node).__name__}")


def _constant(value: Value) -> Plan:
    return Plan(lambda _: value, constant=True, value=value)


# Attributes.


def _ident(node: IdentNode) -> Plan:
    return _attribute(Attribute(node.name)) if node.constant is None else _constant(node.constant)


def _attribute(attribute: Attribute, cost: int = ACCESS_COST) -> Plan:
    def run(scope: Scope) -> Value:
        value = attribute.resolve(scope)
        scope.meter.charge(cost)
        return value

    return Plan(run, attribute=attribute)


def _as_attribute(operand: Plan) -> Attribute:
    return operand.attribute or Attribute(operand=operand.run)


def _qualified(operand: Plan, qualifier: Qualifier) -> Plan:
    """The operand with one more qualifier; it becomes an attribute if it was none."""
    qualified = operand if operand.attribute is not None else _attribute(Attribute(operand=operand.run))
    assert qualified.attribute is not None
    qualified.attribute.add(qualifier)
    return qualified


def _select(node: SelectNode) -> Plan:
    if node.resolved is not None:
        return _ident(node.resolved)
    operand = _plan(node.operand)
    if not node.test_only:
        return _qualified(operand, Qualifier(node.name))
    attribute = _as_attribute(operand)
    attribute.add(Qualifier(node.name, test_only=True))

    def present(scope: Scope) -> Value:
        value = attribute.resolve(scope)
        return value.present and value.value if isinstance(value, OptionalValue) else value

    return Plan(present)


def _index(node: CallNode, arguments: list[Plan]) -> Plan:
    target, index = arguments
    optional = node.function != "_[_]"
    if index.constant:
        invalid = invalid_key(index.value)
        if invalid:
            raise _fail(invalid)
        return _qualified(target, Qualifier(index.value, optional=optional))
    return _qualified(target, Qualifier(index=_as_attribute(index), optional=optional))


def _conditional(arguments: list[Plan]) -> Plan:
    condition, truthy, falsy = arguments
    choice = Conditional(condition=condition.run, truthy=_as_attribute(truthy), falsy=_as_attribute(falsy))
    return Plan(choice.resolve, attribute=choice)


# Calls.


def _call(node: CallNode) -> Plan:
    arguments = [_plan(each) for each in node.all_arguments]
    steps = [each.run for each in arguments]
    match node.function:
        case "_&&_":
            return Plan(_logical(steps, decisive=False))
        case "_||_":
            return Plan(_logical(steps, decisive=True))
        case "_?_:_":
            return _conditional(arguments)
        case "_==_":
            return Plan(_equality(node, steps, negated=False))
        case "_!=_":
            return Plan(_equality(node, steps, negated=True))
        case "_[_]" | "_[?_]" | "_?._":
            return _index(node, arguments)
        case "or":
            return Plan(_or(steps, unwrap=False))
        case "orValue":
            return Plan(_or(steps, unwrap=True))
        case "@in" if node.overloads == ("in_list",) and arguments[1].constant:
            membership = _membership(arguments[0], arguments[1].value)
            if membership is not None:
                return membership
    if node.function in CONVERSIONS and len(arguments) == 1 and arguments[0].constant:
        value = FUNCTIONS[node.function].bound(node.overloads)(arguments[0].value)
        if isinstance(value, CelError):
            raise _fail(value.message)
        return _constant(value)
    if node.function in CONSTANT_PATTERNS and arguments[1].constant:
        return Plan(_constant_pattern(node, steps, arguments[1].value))
    return Plan(_function(node, steps))


def _function(node: CallNode, steps: list[Step]) -> Step:
    declared = FUNCTIONS[node.function]
    implementation = declared.bound(node.overloads)
    lenient = node.function == "@not_strictly_false"
    several = sum(each.implementation is not None for each in declared.overloads) > 1 and len(node.overloads) != 1
    if len(steps) > 2 or node.function == "format" or (several and len(steps) == 2):
        return _in_turn(node, steps, implementation)
    charged = _charging(call_cost(node.function, node.overloads))
    call = implementation if lenient else partial(_strictly, implementation)

    def run(scope: Scope) -> Value:
        return charged(scope, [step(scope) for step in steps], call)

    return run


def _charging(cost: CallCost) -> Callable[[Scope, list[Value], Implementation], Value]:
    """Calls that are paid for before they are made, so that none takes longer than the limit allows."""

    def before(scope: Scope, arguments: list[Value], call: Implementation) -> Value:
        scope.meter.charge(cost(arguments, None))
        return call(*arguments)

    def after(scope: Scope, arguments: list[Value], call: Implementation) -> Value:
        result = call(*arguments)
        scope.meter.charge(cost(arguments, result))
        return result

    return after if needs_result(cost) else before


def _strictly(implementation: Implementation, *arguments: Value) -> Value:
    """Call a function, unless an argument is an error."""
    for each in arguments:
        if isinstance(each, CelError):
            return each
    return implementation(*arguments)


def _in_turn(node: CallNode, steps: list[Step], implementation: Implementation) -> Step:
    """A call whose arguments are computed up to the first error. If not all of them are, it costs nothing."""
    charged = _charging(call_cost(node.function, node.overloads))
    call = partial(_strictly, implementation)

    def run(scope: Scope) -> Value:
        arguments: list[Value] = []
        for step in steps:
            argument = step(scope)
            arguments.append(argument)
            if isinstance(argument, CelError) and len(arguments) < len(steps):
                return argument
        return charged(scope, arguments, call)

    return run


def _constant_pattern(node: CallNode, steps: list[Step], pattern: Value) -> Step:
    """A call with a constant regular expression, which is compiled only once."""
    regex = compiled(str(pattern))
    if isinstance(regex, CelError):
        raise _fail(regex.message)

    def call(text: Value, _: Value, most: Value = -1) -> Value:
        if not isinstance(text, str) or type(most) is not int:
            return NO_SUCH_OVERLOAD
        match node.function:
            case "matches":
                return regex.matches(text)
            case "find":
                return regex.first(text)
        return regex.all(text, most)

    return _in_turn(node, steps, call)


def _logical(steps: list[Step], decisive: bool) -> Step:
    """`&&` and `||`: an operand with the decisive value decides, even beside an error."""

    def run(scope: Scope) -> Value:
        error: CelError | None = None
        for step in steps:
            value = step(scope)
            if value is decisive:
                return decisive
            if not isinstance(value, bool) and error is None:
                error = value if isinstance(value, CelError) else NO_SUCH_OVERLOAD
        return not decisive if error is None else error

    return run


def _equality(node: CallNode, steps: list[Step], negated: bool) -> Step:
    left, right = steps
    cost = call_cost(node.function, ("not_equals",) if negated else ("equals",))

    def run(scope: Scope) -> Value:
        one, other = left(scope), right(scope)
        if isinstance(one, CelError):
            result: Value = one
        elif isinstance(other, CelError):
            result = other
        else:
            result = equal(one, other)
            if negated:
                result = result is not True
        scope.meter.charge(cost((one, other), None))
        return result

    return run


def _or(steps: list[Step], unwrap: bool) -> Step:
    """`a.or(b)` and `a.orValue(b)` of optional values."""
    first, second = steps

    def run(scope: Scope) -> Value:
        optional = first(scope)
        if not isinstance(optional, OptionalValue):
            return optional
        if not optional.present:
            return second(scope)
        return optional.value if unwrap else optional

    return run


def _membership(item: Plan, values: Value) -> Plan | None:
    """`x in [...]` with a constant list, as the look-up in a set; None if the list holds more than simple values."""
    assert isinstance(values, list)
    if not values:
        return _constant(False)
    if not all(isinstance(each, bool | int | float | str) for each in values):
        return None
    known = frozenset(key for each in values for key in _equal_keys(each))

    def run(scope: Scope) -> Value:
        value = item.run(scope)
        match value:
            case CelError():
                return value
            case bool() | int() | float() | str():
                return (type(value), value) in known
            case Semver():
                return CelError(f"internal error: runtime error: hash of unhashable type {go_type_name(value)}")
        return False

    return Plan(run)


def _equal_keys(value: Value) -> Iterator[tuple[type, Value]]:
    """Type and value of all simple values that equal this one: of a number, also those of other types."""
    yield type(value), value
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not isinstance(value, float):
            yield float, float(value)
        if value == value and abs(value) < 2**64 and value == int(value):
            whole = int(value)
            if MIN_INT <= whole <= MAX_INT:
                yield int, whole
            if 0 <= whole <= MAX_UINT:
                yield Uint, Uint(whole)


# Lists, maps, messages.


def _list(node: ListNode) -> Plan:
    elements = [_plan(each) for each in node.elements]
    if all(each.constant for each in elements):
        return _constant([each.value for each in elements])
    steps = [(each.run, index in node.optional) for index, each in enumerate(elements)]

    def build(scope: Scope) -> Value:
        values: list[Value] = []
        for step, optional in steps:
            value = step(scope)
            if isinstance(value, CelError):
                return value
            if optional:
                if not isinstance(value, OptionalValue):
                    text = go_text(value)
                    return CelError(f"cannot initialize optional list element from non-optional value {text}")
                if not value.present:
                    continue
                value = value.value
            values.append(list(value) if isinstance(value, Accumulated) else value)
        return values

    return Plan(_charged(build, LIST))


def _charged(build: Step, cost: int) -> Step:
    def run(scope: Scope) -> Value:
        value = build(scope)
        scope.meter.charge(cost)
        return value

    return run


def _map(node: MapNode) -> Plan:
    keys = [_plan(each.key) for each in node.entries]
    values = [_plan(each.value) for each in node.entries]
    if all(each.constant for each in (*keys, *values)):
        result = CelMap()
        for key, value in zip(keys, values, strict=True):
            result.insert(key.value, value.value)
        return _constant(result)
    steps = [(key.run, value.run, entry.optional) for key, value, entry in zip(keys, values, node.entries, strict=True)]
    return Plan(_charged(lambda scope: _build_map(scope, steps), MAP))


def _build_map(scope: Scope, steps: Iterable[tuple[Step, Step, bool]]) -> Value:
    result = CelMap()
    for key_step, value_step, optional in steps:
        key = key_step(scope)
        if isinstance(key, CelError):
            return key
        value = value_step(scope)
        if isinstance(value, CelError):
            return value
        if optional:
            if not isinstance(value, OptionalValue):
                entry = f"cannot initialize optional entry '{go_text(key)}'"
                return CelError(f"{entry} from non-optional value {go_text(value)}")
            if not value.present:
                result.remove(key)
                continue
            value = value.value
        result.insert(key, value)
    return result


def _struct(node: StructNode) -> Step:
    """A message: a timestamp, a duration, or a wrapper of a simple value."""
    steps = [(_constant(each.name).run, _plan(each.value).run, each.optional) for each in node.fields]
    make = _MESSAGES.get(node.name)
    if make is None:
        raise _fail(f"unknown type: {node.name}")

    def build(scope: Scope) -> Value:
        fields = _build_map(scope, steps)
        return make(fields) if isinstance(fields, CelMap) else fields

    return _charged(build, STRUCT)


def _nanoseconds(fields: CelMap) -> int:
    seconds, nanos = fields.find("seconds")[0] or 0, fields.find("nanos")[0] or 0
    assert isinstance(seconds, int) and isinstance(nanos, int)
    return seconds * SECOND + nanos


def _wrapper(default: Value) -> Callable[[CelMap], Value]:
    def unwrap(fields: CelMap) -> Value:
        value, found = fields.find("value")
        return value if found else default

    return unwrap


_MESSAGES: dict[str, Callable[[CelMap], Value]] = {
    "google.protobuf.Timestamp": lambda fields: timestamp_from(_nanoseconds(fields)),
    "google.protobuf.Duration": lambda fields: DurationValue(_nanoseconds(fields)),
    "google.protobuf.BoolValue": _wrapper(False),
    "google.protobuf.BytesValue": _wrapper(b""),
    "google.protobuf.DoubleValue": _wrapper(0.0),
    "google.protobuf.FloatValue": _wrapper(0.0),
    "google.protobuf.Int32Value": _wrapper(0),
    "google.protobuf.Int64Value": _wrapper(0),
    "google.protobuf.StringValue": _wrapper(""),
    "google.protobuf.UInt32Value": _wrapper(Uint(0)),
    "google.protobuf.UInt64Value": _wrapper(Uint(0)),
}


# Comprehensions.


def _comprehension(node: Comprehension) -> Step:
    initial, over = _plan(node.initial).run, _plan(node.range).run
    condition, step, result = _plan(node.condition).run, _plan(node.step).run, _plan(node.result).run
    two_variables = bool(node.variable2)

    def run(scope: Scope) -> Value:
        fold = FoldScope(scope, node.accumulator, initial, node.variable, node.variable2)
        values = over(scope)
        if isinstance(values, CelError):
            return values
        if not isinstance(values, list | CelMap):
            kind = go_type_name(values)
            if two_variables:
                return CelError(f"unsupported comprehension range type: {kind}")
            return CelError(f"got '{kind}', expected iterable type")
        for first, second in _iteration(values, two_variables):
            fold.iterate(first, second)
            if condition(fold) is False:
                break
            fold.accumulate(step(fold))
        fold.finish()
        value = result(fold)
        return list(value) if isinstance(value, Accumulated) else value

    return run


def _iteration(values: list[Value] | CelMap, two_variables: bool) -> Iterable[tuple[Value, Value]]:
    if isinstance(values, list):
        return enumerate(values) if two_variables else ((each, None) for each in values)
    return values.items()
