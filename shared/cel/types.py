"""CEL's types: what the checker infers, and what `type(x)` yields at run time."""

from dataclasses import dataclass, field
from enum import Enum


class TypeKind(Enum):
    ANY = "any"
    BOOL = "bool"
    BYTES = "bytes"
    DOUBLE = "double"
    DURATION = "duration"
    DYN = "dyn"
    ERROR = "error"
    INT = "int"
    LIST = "list"
    MAP = "map"
    NULL = "null"
    OPAQUE = "opaque"
    PARAMETER = "parameter"
    STRING = "string"
    STRUCT = "struct"
    TIMESTAMP = "timestamp"
    TYPE = "type"
    UINT = "uint"


@dataclass(frozen=True, slots=True)
class CelType:
    """A type with its parameters. `nullable` marks protobuf's wrapper types, which also accept null."""

    kind: TypeKind
    name: str
    parameters: "tuple[CelType, ...]" = ()
    nullable: bool = False
    weight: int = field(default=1, init=False, compare=False, repr=False)
    """How many types it is made of."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", 1 + sum(each.weight for each in self.parameters))

    def __str__(self) -> str:
        """The name as in the messages about an expression's result."""
        if self.kind is TypeKind.PARAMETER:
            return f"<{self.name}>"
        name = f"wrapper({self.name})" if self.nullable else self.name
        return f"{name}({', '.join(map(str, self.parameters))})" if self.parameters else name

    @property
    def dynamic(self) -> bool:
        return self.kind in (TypeKind.DYN, TypeKind.ANY)

    @property
    def dynamic_or_error(self) -> bool:
        return self.kind in (TypeKind.DYN, TypeKind.ANY, TypeKind.ERROR)


ANY = CelType(TypeKind.ANY, "google.protobuf.Any")
BOOL = CelType(TypeKind.BOOL, "bool")
BYTES = CelType(TypeKind.BYTES, "bytes")
DOUBLE = CelType(TypeKind.DOUBLE, "double")
DURATION = CelType(TypeKind.DURATION, "google.protobuf.Duration")
DYN = CelType(TypeKind.DYN, "dyn")
ERROR = CelType(TypeKind.ERROR, "!error!")
INT = CelType(TypeKind.INT, "int")
NULL = CelType(TypeKind.NULL, "null_type")
STRING = CelType(TypeKind.STRING, "string")
TIMESTAMP = CelType(TypeKind.TIMESTAMP, "google.protobuf.Timestamp")
TYPE = CelType(TypeKind.TYPE, "type")
UINT = CelType(TypeKind.UINT, "uint")

QUANTITY = CelType(TypeKind.STRUCT, "kubernetes.Quantity")
SEMVER = CelType(TypeKind.STRUCT, "kubernetes.Semver")
URL = CelType(TypeKind.STRUCT, "kubernetes.URL")
NAMED_FORMAT = CelType(TypeKind.STRUCT, "kubernetes.NamedFormat")
DEVICE = CelType(TypeKind.STRUCT, "kubernetes.DRADevice")
IP = CelType(TypeKind.OPAQUE, "net.IP")
CIDR = CelType(TypeKind.OPAQUE, "net.CIDR")
OPTIONAL_NAME = "optional_type"


def list_of(element: CelType) -> CelType:
    return CelType(TypeKind.LIST, "list", (element,))


def map_of(key: CelType, value: CelType) -> CelType:
    return CelType(TypeKind.MAP, "map", (key, value))


def optional_of(value: CelType) -> CelType:
    return CelType(TypeKind.OPAQUE, OPTIONAL_NAME, (value,))


def type_of(value: CelType) -> CelType:
    return CelType(TypeKind.TYPE, "type", (value,))


def parameter(name: str) -> CelType:
    return CelType(TypeKind.PARAMETER, name)


def nullable(wrapped: CelType) -> CelType:
    return CelType(wrapped.kind, wrapped.name, wrapped.parameters, nullable=True)


LIST = list_of(DYN)
MAP = map_of(DYN, DYN)
OPTIONAL = CelType(TypeKind.OPAQUE, OPTIONAL_NAME)
"""As a value: without the type of what it may hold."""


def is_optional(of: CelType) -> bool:
    return of.kind is TypeKind.OPAQUE and of.name == OPTIONAL_NAME


def unwrap_optional(of: CelType) -> tuple[CelType, bool]:
    return (of.parameters[0], True) if is_optional(of) else (of, False)


_SHORT_NAMES = {
    TypeKind.ANY: "any",
    TypeKind.DURATION: "duration",
    TypeKind.ERROR: "!error!",
    TypeKind.NULL: "null",
    TypeKind.TIMESTAMP: "timestamp",
}


def show(of: CelType) -> str:
    """The type as the checker's errors write it."""
    if of.kind in _SHORT_NAMES:
        return _SHORT_NAMES[of.kind]
    if of.parameters:
        return f"{of.name}({', '.join(map(show, of.parameters))})"
    return f"wrapper({of.name})" if of.nullable else of.name


def show_signature(arguments: list[CelType], member: bool) -> str:
    """The types of a call's arguments; of a member call, the receiver comes before the dot."""
    if member:
        receiver, *arguments = arguments
        return f"{show(receiver)}.({', '.join(map(show, arguments))})"
    return f"({', '.join(map(show, arguments))})"


def _alike(one: CelType, other: CelType) -> bool:
    """Whether two types are the same but for their parameters."""
    return one.kind is other.kind and one.name == other.name and len(one.parameters) == len(other.parameters)


def assignable_type(to: CelType, of: CelType) -> bool:
    """Whether a value of type `of` may stand where `to` is declared, type variables aside."""
    if (to.nullable and of.kind is TypeKind.NULL) or to.dynamic or to.kind is TypeKind.PARAMETER:
        return True
    return _alike(to, of) and all(map(assignable_type, to.parameters, of.parameters))


def equivalent(one: CelType, other: CelType) -> bool:
    """Whether two types are equal, the names of type variables aside."""
    if one.kind is TypeKind.PARAMETER:
        return other.kind is TypeKind.PARAMETER
    return _alike(one, other) and all(map(equivalent, one.parameters, other.parameters))


class Bindings:
    """What the type variables of an expression stand for."""

    __slots__ = ("_bound",)

    def __init__(self, bound: dict[str, CelType] | None = None) -> None:
        self._bound: dict[str, CelType] = {} if bound is None else bound

    def unify(self, actual: list[CelType], declared: list[CelType]) -> bool:
        """Whether each actual type may be passed as the declared one; remembers variables only if all may."""
        before = dict(self._bound)
        if len(actual) == len(declared) and all(map(self._assignable, actual, declared)):
            return True
        self._bound = before
        return False

    def substitute(self, of: CelType, unbound_to_dyn: bool = False) -> CelType:
        """The type with its variables replaced by what they stand for."""
        if of.kind is TypeKind.PARAMETER:
            found = self._bound.get(of.name)
            if found is not None:
                return self.substitute(found, unbound_to_dyn)
            return DYN if unbound_to_dyn else of
        if not of.parameters:
            return of
        replaced = tuple(self.substitute(each, unbound_to_dyn) for each in of.parameters)
        return of if replaced == of.parameters else CelType(of.kind, of.name, replaced, of.nullable)

    def _assignable(self, one: CelType, other: CelType) -> bool:
        if other.kind is TypeKind.PARAMETER:
            valid, has_binding = self._bind(one, other)
            if valid:
                return True
            if has_binding:
                return False
        if one.kind is TypeKind.PARAMETER:
            return self._bind(other, one)[0]
        if one.dynamic_or_error or other.dynamic_or_error:
            return True
        if one.kind is TypeKind.NULL:
            return _accepts_null(other)
        if other.kind is TypeKind.NULL:
            return _accepts_null(one)
        if one.kind is TypeKind.TYPE:
            return other.kind is TypeKind.TYPE
        if one.kind in (TypeKind.OPAQUE, TypeKind.LIST, TypeKind.MAP):
            return _alike(one, other) and all(map(self._assignable, one.parameters, other.parameters))
        return assignable_type(other, one)

    def _bind(self, to: CelType, variable: CelType) -> tuple[bool, bool]:
        """Bind a variable to a type: whether it may be, and whether it was bound before."""
        if to == variable:
            return True, True
        bound = self._bound.get(variable.name)
        if bound is not None:
            if to == bound:
                return True, True
            if not self._assignable(to, bound):
                return False, True
            general = to if _no_more_specific(to, bound) else bound
            if not self._occurs(variable, general):
                self._bound[variable.name] = general
            return True, True
        if self._occurs(variable, to):
            return False, False
        self._bound[variable.name] = to
        return True, False

    def _occurs(self, variable: CelType, within: CelType) -> bool:
        if variable == within:
            return True
        if within.kind is TypeKind.PARAMETER:
            bound = self._bound.get(within.name)
            return bound is not None and self._occurs(variable, bound)
        return any(self._occurs(variable, each) for each in within.parameters)


def most_general(one: CelType, other: CelType) -> CelType:
    """The more general of two types that unify."""
    return one if _no_more_specific(one, other) else other


def _no_more_specific(one: CelType, other: CelType) -> bool:
    if one.dynamic or one.kind is TypeKind.PARAMETER:
        return True
    if other.dynamic or other.kind is TypeKind.PARAMETER or one.kind is not other.kind:
        return False
    if one.kind is TypeKind.TYPE:
        return True
    if one.kind in (TypeKind.OPAQUE, TypeKind.LIST, TypeKind.MAP):
        return _alike(one, other) and all(map(_no_more_specific, one.parameters, other.parameters))
    return one == other


def _accepts_null(of: CelType) -> bool:
    if of.kind in (TypeKind.OPAQUE, TypeKind.STRUCT, TypeKind.ANY, TypeKind.DURATION, TypeKind.TIMESTAMP):
        return True
    return assignable_type(of, NULL)
