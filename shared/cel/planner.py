"""Compiles a checked tree to closures, as cel-go plans it: it computes constant parts; each step counts its cost."""

from collections.abc import Iterable
from dataclasses import dataclass

from shared.cel import types
from shared.cel.attributes import (
    ACCESS_COST,
    Attribute,
    Conditional,
    FoldScope,
    Qualifier,
    Scope,
    Step,
    invalid_key,
)
from shared.cel.calls import equality, function_call, logical, membership, optional_or, pattern_call, planning_error
from shared.cel.costs import LIST, MAP, STRUCT
from shared.cel.declarations import bound
from shared.cel.environment import FUNCTIONS, SCHEMA_TYPES, TYPE_VALUES, WRAPPERS
from shared.cel.library.conversions import CONVERSIONS
from shared.cel.library.strings import CONSTANT_PATTERNS
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
from shared.cel.types import TypeKind
from shared.cel.values import (
    SECOND,
    Accumulated,
    CelError,
    CelMap,
    DurationValue,
    OptionalValue,
    Value,
    go_text,
    go_type_name,
)


@dataclass(slots=True)
class Plan:
    """A compiled part. Constants and attributes differ, because what contains them is planned differently."""

    run: Step
    constant: bool = False
    value: Value = None
    attribute: Attribute | None = None


def plan(root: SyntaxNode) -> Step:
    """The compiled expression; CompileError if a constant part fails."""
    return _plan(root).run


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
    """A variable, or the name of a type; a variable that holds a type is taken for one, as in cel-go."""
    if node.type.kind is not TypeKind.TYPE:
        return _attribute(Attribute(node.name))
    if node.name not in TYPE_VALUES:
        raise planning_error(f"reference to undefined type: {node.name}")
    return _constant(TYPE_VALUES[node.name])


def _attribute(attribute: Attribute) -> Plan:
    def run(scope: Scope) -> Value:
        value = attribute.resolve(scope)
        scope.meter.charge(ACCESS_COST)
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
            raise planning_error(invalid)
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
            return Plan(logical(steps, decisive=False))
        case "_||_":
            return Plan(logical(steps, decisive=True))
        case "_?_:_":
            return _conditional(arguments)
        case "_==_":
            return Plan(equality(node, steps, negated=False))
        case "_!=_":
            return Plan(equality(node, steps, negated=True))
        case "_[_]" | "_[?_]" | "_?._":
            return _index(node, arguments)
        case "or":
            return Plan(optional_or(steps, unwrap=False))
        case "orValue":
            return Plan(optional_or(steps, unwrap=True))
        case "@in" if node.overloads == ("in_list",) and arguments[1].constant:
            found = _constant_membership(arguments[0], arguments[1].value)
            if found is not None:
                return found
    if node.function in CONVERSIONS and len(arguments) == 1 and arguments[0].constant:
        value = bound(FUNCTIONS[node.function], node.overloads)(arguments[0].value)
        if isinstance(value, CelError):
            raise planning_error(value.message)
        return _constant(value)
    if node.function in CONSTANT_PATTERNS and arguments[1].constant:
        return Plan(pattern_call(node, steps, arguments[1].value))
    return Plan(function_call(node, steps))


def _constant_membership(item: Plan, values: Value) -> Plan | None:
    assert isinstance(values, list)
    if not values:
        return _constant(False)
    step = membership(item.run, values)
    return None if step is None else Plan(step)


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
    if node.name not in (types.TIMESTAMP.name, types.DURATION.name, *WRAPPERS, *SCHEMA_TYPES):
        raise planning_error(f"unknown type: {node.name}")

    def build(scope: Scope) -> Value:
        fields = _build_map(scope, steps)
        if not isinstance(fields, CelMap):
            return fields
        if node.name in SCHEMA_TYPES:
            return CelError(f"unknown type '{node.name}'")
        if node.name == types.TIMESTAMP.name:
            return timestamp_from(_nanoseconds(fields))
        if node.name == types.DURATION.name:
            return DurationValue(_nanoseconds(fields))
        value, found = fields.find("value")
        return value if found else WRAPPERS[node.name][1]

    return _charged(build, STRUCT)


def _nanoseconds(fields: CelMap) -> int:
    seconds, nanos = fields.find("seconds")[0] or 0, fields.find("nanos")[0] or 0
    assert isinstance(seconds, int) and isinstance(nanos, int)
    return seconds * SECOND + nanos


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
            fold.values = (first, second)
            if condition(fold) is False:
                break
            fold.accumulate(step(fold))
        fold.values = None
        value = result(fold)
        return list(value) if isinstance(value, Accumulated) else value

    return run


def _iteration(values: list[Value] | CelMap, two_variables: bool) -> Iterable[tuple[Value, Value]]:
    if isinstance(values, list):
        return enumerate(values) if two_variables else ((each, None) for each in values)
    return values.items()
