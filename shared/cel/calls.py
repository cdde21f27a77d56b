"""Steps that call functions and operators, once their arguments are compiled; each step counts its cost."""

from collections.abc import Iterator

from shared.cel.attributes import Scope, Step
from shared.cel.costs import call_price
from shared.cel.declarations import Implementation, bound
from shared.cel.environment import FUNCTIONS
from shared.cel.errors import CompileError
from shared.cel.library.strings import compiled
from shared.cel.syntax import CallNode
from shared.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    NO_SUCH_OVERLOAD,
    CelError,
    OptionalValue,
    PanickedError,
    Semver,
    Uint,
    Value,
    equal,
    go_type_name,
)


def planning_error(message: str) -> CompileError:
    return CompileError(f"program instantiation failed: {message}")


def function_call(node: CallNode, steps: list[Step]) -> Step:
    overloads = FUNCTIONS[node.function]
    several = sum(each.guarded and each.implementation is not None for each in overloads) > 1
    in_turn = len(steps) > 2 or node.function == "format"
    in_turn = in_turn or (several and len(node.overloads) != 1 and len(steps) == 2)
    return _call(node, steps, bound(overloads, node.overloads), in_turn)


def _call(node: CallNode, steps: list[Step], implementation: Implementation, in_turn: bool) -> Step:
    """A call, paid for before it is made where possible, so that none takes longer than the limit allows.

    `in_turn`: arguments are computed up to the first error; if that is not the last one, the call costs nothing.
    """
    price = call_price(node.function, node.overloads)
    cost, by_result = price.cost, price.by_result
    lenient = node.function == "@not_strictly_false"

    def run(scope: Scope) -> Value:
        arguments: list[Value] = []
        error: CelError | None = None
        for step in steps:
            argument = step(scope)
            arguments.append(argument)
            if isinstance(argument, CelError) and not lenient:
                if in_turn and len(arguments) < len(steps):
                    return argument
                error = error or argument
        if not by_result:
            scope.meter.charge(cost(arguments))
        result = implementation(*arguments) if error is None else error
        if by_result:
            scope.meter.charge(cost([result]))
        return result

    return run


def pattern_call(node: CallNode, steps: list[Step], pattern: Value) -> Step:
    """A call with a constant regular expression, which is compiled only once."""
    regex = compiled(str(pattern))
    if isinstance(regex, CelError):
        raise planning_error(regex.message)

    def call(text: Value, _: Value, most: Value = -1) -> Value:
        if not isinstance(text, str) or type(most) is not int:
            return NO_SUCH_OVERLOAD
        match node.function:
            case "matches":
                return regex.matches(text)
            case "find":
                return regex.first(text)
        return regex.all(text, most)

    return _call(node, steps, call, in_turn=True)


def logical(steps: list[Step], decisive: bool) -> Step:
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


def equality(node: CallNode, steps: list[Step], negated: bool) -> Step:
    left, right = steps
    cost = call_price(node.function, ("not_equals",) if negated else ("equals",)).cost

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
        scope.meter.charge(cost((one, other)))
        return result

    return run


def optional_or(steps: list[Step], unwrap: bool) -> Step:
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


def membership(item: Step, values: list[Value]) -> Step | None:
    """`x in [...]` with a constant list, as the look-up in a set; None if the list holds more than simple values."""
    if not all(isinstance(each, bool | int | float | str) for each in values):
        return None
    known = frozenset(key for each in values for key in _equal_keys(each))

    def run(scope: Scope) -> Value:
        value = item(scope)
        match value:
            case CelError():
                return value
            case bool() | int() | float() | str():
                return (type(value), value) in known
            case Semver():
                raise PanickedError(f"runtime error: hash of unhashable type {go_type_name(value)}")
        return False

    return run


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
