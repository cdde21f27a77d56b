"""Declarations of functions: their overloads, which the checker resolves and the program calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shared.cel import types
from shared.cel.types import CelType, TypeKind
from shared.cel.values import CelError, CelMap, Value, type_of

Implementation = Callable[..., Value]


@dataclass(frozen=True, slots=True)
class Overload:
    """One form of a function. Without an implementation, the planner has one.

    Guarded ones are called only with arguments of the declared types, and may raise ValueError in place of a CelError.
    """

    function: str
    name: str
    arguments: Sequence[CelType]
    result: CelType
    implementation: Implementation | None = None
    guarded: bool = True
    member: bool = False

    def accepts(self, arguments: tuple[Value, ...]) -> bool:
        return len(arguments) == len(self.arguments) and all(map(_accepts, self.arguments, arguments))

    @property
    def parameters(self) -> set[str]:
        names: set[str] = set()
        for each in (self.result, *self.arguments):
            _collect_parameters(each, names)
        return names


def member(
    function: str,
    name: str,
    arguments: Sequence[CelType],
    result: CelType,
    implementation: Implementation | None = None,
    guarded: bool = True,
) -> Overload:
    """An overload that is called on its first argument."""
    return Overload(function, name, arguments, result, implementation, guarded, member=True)


def unguarded(implementation: Implementation, *overloads: Overload) -> list[Overload]:
    """Overloads with one implementation, which checks the types of its arguments itself."""
    return [replace(each, implementation=implementation, guarded=False) for each in overloads]


def bound(overloads: Sequence[Overload], fitting: tuple[str, ...]) -> Implementation:
    """What to call of a function, given the overloads that the checker found possible."""
    if len(fitting) == 1:
        overloads = [each for each in overloads if each.name == fitting[0]]

    def dispatch(*arguments: Value) -> Value:
        for each in overloads:
            if each.implementation is not None and (not each.guarded or each.accepts(arguments)):
                try:
                    return each.implementation(*arguments)
                except ValueError as cause:
                    return CelError(str(cause))
        wrong = next((each for each in arguments if isinstance(each, CelError)), None)
        given = ", ".join(type_of(each).name for each in arguments)
        return wrong or CelError(f"no such overload: {overloads[0].function}({given})")

    first = overloads[0]
    return first.implementation if first.implementation is not None and not first.guarded else dispatch


def parsable(parse: Callable[..., Value]) -> Callable[..., Value]:
    """Whether a text can be parsed."""

    def is_parsable(*arguments: Value) -> Value:
        try:
            parse(*arguments)
        except ValueError:
            return False
        return True

    return is_parsable


def _accepts(declared: CelType, value: Value) -> bool:
    """Whether a value has the declared type; of lists and maps, the first element stands for all."""
    if declared.dynamic or declared.kind is TypeKind.PARAMETER:
        return not isinstance(value, CelError)
    if declared.name != type_of(value).name:
        return declared.nullable and value is None
    if isinstance(value, list):
        return not value or _accepts(declared.parameters[0], value[0])
    if isinstance(value, CelMap) and len(value):
        key, first = next(value.items())
        return _accepts(declared.parameters[0], key) and _accepts(declared.parameters[1], first)
    return True


def _collect_parameters(of: CelType, names: set[str]) -> None:
    if of.kind is TypeKind.PARAMETER:
        names.add(of.name)
    for each in of.parameters:
        _collect_parameters(each, names)


A, B = types.parameter("A"), types.parameter("B")
LIST_OF_A = types.list_of(A)
MAP_OF_A_B = types.map_of(A, B)
