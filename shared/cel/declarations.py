"""Declarations of functions: their overloads, which the checker resolves and the program calls."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from shared.cel import types
from shared.cel.types import CelType, TypeKind
from shared.cel.values import CelError, CelMap, Value, type_of

Implementation = Callable[..., Value]


@dataclass(frozen=True, slots=True)
class Overload:
    """One form of a function. Without an implementation, the function as a whole has one."""

    name: str
    arguments: tuple[CelType, ...]
    result: CelType
    implementation: Implementation | None = None
    member: bool = False

    def accepts(self, arguments: tuple[Value, ...]) -> bool:
        return len(arguments) == len(self.arguments) and all(map(_accepts, self.arguments, arguments))

    @property
    def parameters(self) -> set[str]:
        names: set[str] = set()
        for each in (self.result, *self.arguments):
            _collect_parameters(each, names)
        return names


@dataclass(slots=True)
class FunctionDeclaration:
    """A function and its overloads. `implementation` serves all overloads; `guarded` ones check types first."""

    name: str
    overloads: list[Overload] = field(default_factory=list)
    implementation: Implementation | None = None
    guarded: bool = True

    def bound(self, overloads: tuple[str, ...]) -> Implementation:
        """What to call, given the overloads that the checker found possible."""
        if self.implementation is not None:
            return self.implementation
        candidates = self.overloads
        if len(overloads) == 1:
            candidates = [each for each in candidates if each.name == overloads[0]]

        def dispatch(*arguments: Value) -> Value:
            for each in candidates:
                if each.implementation is not None and (not self.guarded or each.accepts(arguments)):
                    return each.implementation(*arguments)
            return no_such_overload(self.name, arguments)

        return dispatch


def function(
    name: str, *overloads: Overload, implementation: Implementation | None = None, guarded: bool = True
) -> FunctionDeclaration:
    return FunctionDeclaration(name, list(overloads), implementation, guarded)


def overload(
    name: str, arguments: Iterable[CelType], result: CelType, implementation: Implementation | None = None
) -> Overload:
    return Overload(name, tuple(arguments), result, implementation)


def member(
    name: str, arguments: Iterable[CelType], result: CelType, implementation: Implementation | None = None
) -> Overload:
    """An overload that is called on its first argument."""
    return Overload(name, tuple(arguments), result, implementation, member=True)


def merged(libraries: Iterable[Iterable[FunctionDeclaration]]) -> dict[str, FunctionDeclaration]:
    """The functions of all libraries by name; overloads of one name follow each other in the order of libraries."""
    functions: dict[str, FunctionDeclaration] = {}
    for library in libraries:
        for each in library:
            known = functions.setdefault(
                each.name, FunctionDeclaration(each.name, [], each.implementation, each.guarded)
            )
            known.overloads += each.overloads
    return functions


def no_such_overload(name: str, arguments: Iterable[Value]) -> CelError:
    arguments = list(arguments)
    for each in arguments:
        if isinstance(each, CelError):
            return each
    return CelError(f"no such overload: {name}({', '.join(type_of(each).name for each in arguments)})")


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
