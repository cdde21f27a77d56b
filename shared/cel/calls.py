"""Steps that call functions and operators, once their arguments are compiled; each step counts its cost."""

from collections.abc import Callable, Iterator
from functools import partial

from shared.cel.attributes import Scope, Step, go_type_name
from shared.cel.costs import Price, call_price
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
    Semver,
    Uint,
    Value,
    equal,
)


def planning_error(message: str) -> CompileError:
    return CompileError(f"program instantiation failed: {message}")


def function_call(node: CallNode, steps: list[Step]) -> Step:
    declared = FUNCTIONS[node.function]
    implementation = bound(declared, node.overloads)
    lenient = node.function == "@not_strictly_false"
    several = (
        sum(each.guarded and each.implementation is not None for each in declared) > 1 and len(node.overloads) != 1
    )
    if len(steps) > 2 or node.function == "format" or (several and len(steps) == 2):
        return _in_turn(node, steps, implementation)
    charged = _charging(call_price(node.function, node.overloads))
    call = implementation if lenient else partial(_strictly, implementation)

    def run(scope: Scope) -> Value:
        return charged(scope, [step(scope) for step in steps], call)

    return run


def _charging(price: Price) -> Callable[[Scope, list[Value], Implementation], Value]:
    """Calls that are paid for before they are made where possible, so that none takes longer than the limit allows."""
    cost = price.cost

    def before(scope: Scope, arguments: list[Value], call: Implementation) -> Value:
        scope.meter.charge(cost(arguments))
        return call(*arguments)

    def after(scope: Scope, arguments: list[Value], call: Implementation) -> Value:
        result = call(*arguments)
        scope.meter.charge(cost([result]))
        return result

    return after if price.by_result else before


def _strictly(implementation: Implementation, *arguments: Value) -> Value:
    """Call a function, unless an argument is an error."""
    for each in arguments:
        if isinstance(each, CelError):
            return each
    return implementation(*arguments)


def _in_turn(node: CallNode, steps: list[Step], implementation: Implementation) -> Step:
    """A call whose arguments are computed up to the first error. If not all of them are, it costs nothing."""
    charged = _charging(call_price(node.function, node.overloads))
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

    return _in_turn(node, steps, call)


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
                return CelError(f"internal error: runtime error: hash of unhashable type {go_type_name(value)}")
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
