"""What an expression costs at most, estimated before it runs, as the API server does for new objects."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from shared.cel import types
from shared.cel.costs import (
    LIST,
    MAP,
    ONE,
    STRUCT,
    UNBOUNDED,
    UNKNOWN,
    ZERO,
    Argument,
    CallEstimate,
    Range,
    price,
)
from shared.cel.environment import DEVICE
from shared.cel.macros import ACCUMULATOR
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
from shared.cel.types import CelType, TypeKind

_MAX_ATTRIBUTES = 32
_DECLARED: Mapping[tuple[str, ...], int] = {
    (): 0,
    ("driver",): 63,
    ("allowMultipleAllocations",): 1,
    ("attributes",): _MAX_ATTRIBUTES,
    ("attributes", "@keys"): 63,
    ("attributes", "*"): _MAX_ATTRIBUTES,
    ("attributes", "*", "@keys"): 32,
    ("attributes", "*", "*"): 64,
    ("capacity",): _MAX_ATTRIBUTES,
    ("capacity", "@keys"): 63,
    ("capacity", "*"): _MAX_ATTRIBUTES,
    ("capacity", "*", "@keys"): 32,
    ("capacity", "*", "*"): 0,
}
"""The limits of the resource API on parts of `device`: the most elements, characters or bytes. `*` is any element."""


def declared_size(path: list[str]) -> Range | None:
    """The size of a part of the device by the limits of the resource API; None for other parts."""
    if path[:1] != [DEVICE]:
        return None
    parts = ["*" if name in ("@items", "@values") else name for name in path[1:]]
    if parts[:2] == ["attributes", "*"] and parts[2:] not in ([], ["@keys"]):
        parts[2] = "*"  # an attribute of any name
    most = _DECLARED.get(tuple(parts))
    return None if most is None else Range(0, most)


class SlicePath:
    """The way from a variable to a part of it, with the sharing of Go's slices.

    cel-go appends to paths that other parts use as well. Where there is room in the array behind them, the second of
    two parts overwrites the last step of the first one, so that for example the keys of a map take the size of its
    values. Estimates depend on it.
    """

    __slots__ = ("_cells", "_length", "_room")

    def __init__(self, *names: str) -> None:
        self._cells = list(names)
        self._length = len(names)
        self._room = len(names)

    def to(self, name: str) -> "SlicePath":
        """The path to a part of this one."""
        longer = SlicePath()
        longer._length = self._length + 1
        if self._length < self._room:
            self._cells[self._length :] = [name]
            longer._cells, longer._room = self._cells, self._room
        else:
            longer._cells = [*self._cells[: self._length], name]
            longer._room = max(1, 2 * self._room)
        return longer

    @property
    def names(self) -> list[str]:
        return self._cells[: self._length]


@dataclass(frozen=True, slots=True)
class Entries:
    """Sizes of the elements of a list, or of the keys and values of a map."""

    kind: TypeKind
    key: Range
    value: Range

    def union(self, other: "Entries | None") -> "Entries | None":
        if other is None:
            return None
        return Entries(self.kind, self.key.union(other.key), self.value.union(other.value))


@dataclass(frozen=True, slots=True)
class _Local:
    path: SlicePath
    size: Range | None
    entries: Entries | None


def estimated_cost(root: SyntaxNode) -> int | None:
    """The most that the expression may cost; None if that is unbounded."""
    most = _Estimator().cost(root).most
    return None if most == UNBOUNDED else most


class _Estimator:
    def __init__(self) -> None:
        self._paths: dict[int, SlicePath] = {}
        self._sizes: dict[int, Range] = {}
        self._entries: dict[int, Entries] = {}
        self._locals: defaultdict[str, list[_Local]] = defaultdict(list)

    def cost(self, node: SyntaxNode) -> Range:
        match node:
            case LiteralNode():
                return ZERO
            case IdentNode():
                local = self._local(node.name)
                self._paths[id(node)] = SlicePath(node.name) if local is None else local.path
                return ONE
            case SelectNode():
                return self._select(node)
            case CallNode():
                return self._call(node)
            case ListNode():
                return self._list(node)
            case MapNode():
                return self._map(node)
            case StructNode():
                return sum((self.cost(each.value) for each in node.fields), start=Range(STRUCT, STRUCT))
            case Comprehension():
                return self._bind(node) if _is_bind(node) else self._fold(node)
        raise TypeError(f"unknown node {type(node).__name__}")

    def _select(self, node: SelectNode) -> Range:
        if node.resolved is not None:
            return self.cost(node.resolved)
        cost = self.cost(node.operand)
        if node.test_only:
            return cost
        if node.operand.type.kind in (TypeKind.MAP, TypeKind.STRUCT, TypeKind.PARAMETER):
            cost += ONE
        self._paths[id(node)] = self._path(node.operand).to(node.name)
        return cost

    def _list(self, node: ListNode) -> Range:
        cost = Range(LIST, LIST)
        element = Range(UNBOUNDED if node.elements else 0, 0)
        for each in node.elements:
            cost += self.cost(each)
            element = element.union(self._size_or_unknown(each))
        self._entries[id(node)] = Entries(TypeKind.LIST, ONE, element)
        return cost

    def _map(self, node: MapNode) -> Range:
        cost = Range(MAP, MAP)
        key = value = Range(UNBOUNDED if node.entries else 0, 0)
        for each in node.entries:
            cost += self.cost(each.key)
            cost += self.cost(each.value)
            key = key.union(self._size_or_unknown(each.key))
            value = value.union(self._size_or_unknown(each.value))
        self._entries[id(node)] = Entries(TypeKind.MAP, key, value)
        return cost

    # Comprehensions.

    def _fold(self, node: Comprehension) -> Range:
        cost = self.cost(node.range) + self.cost(node.initial)
        self._push_value(node.accumulator, node.initial)
        variables = self._push_iteration(node)
        iteration = self.cost(node.condition) + self.cost(node.step)
        for name in variables:
            self._locals[name].pop()
        cost += self.cost(node.result)
        self._locals[node.accumulator].pop()
        count = self._size_or_unknown(node.range)
        cost += count * iteration
        if isinstance(node.initial, LiteralNode):
            self._remember(node, self._size(node.initial), None)
        elif isinstance(node.initial, ListNode | MapNode):
            self._remember(node, count, self._entry_sizes(node.step))
        return cost

    def _bind(self, node: Comprehension) -> Range:
        cost = self.cost(node.range) + self.cost(node.initial)
        self._push_value(node.accumulator, node.initial)
        cost += self.cost(node.result)
        self._locals[node.accumulator].pop()  # so the size of a result that is the variable itself is unknown
        self._remember(node, self._size(node.result), self._entry_sizes(node.result))
        return cost

    def _push_value(self, name: str, value: SyntaxNode) -> None:
        self._locals[name].append(_Local(self._path(value), self._size(value), self._entry_sizes(value)))

    def _push_iteration(self, node: Comprehension) -> list[str]:
        """Declare the iteration variables; their names are to be dropped again."""
        entries = self._entry_sizes(node.range)
        is_list = (node.range.type.kind if entries is None else entries.kind) is TypeKind.LIST
        path = self._path(node.range)
        key_size = None if entries is None else entries.key
        value_size = None if entries is None else entries.value
        if not node.variable2:
            part, size = ("@items", value_size) if is_list else ("@keys", key_size)
            self._locals[node.variable].append(_Local(path.to(part), size, None))
            return [node.variable]
        self._locals[node.variable].append(_Local(path.to("@indices" if is_list else "@keys"), key_size, None))
        self._locals[node.variable2].append(_Local(path.to("@items" if is_list else "@values"), value_size, None))
        return [node.variable, node.variable2]

    # Calls.

    def _call(self, node: CallNode) -> Range:
        if node.function == "dyn":
            cost = ONE + self.cost(node.arguments[0])
            self._remember(node, self._size(node.arguments[0]), self._entry_sizes(node.arguments[0]))
            return cost
        costs = [self.cost(each) for each in node.arguments]
        if not node.overloads:
            return ZERO
        total = ZERO if node.target is None else self.cost(node.target)
        arguments = [self._argument(each) for each in node.all_arguments]
        call = Range(UNBOUNDED, 0)
        result: Range | None = None
        for overload in node.overloads:
            estimate = self._overload(node, overload, arguments, costs)
            call = call.union(estimate.cost)
            if estimate.result is not None:
                result = estimate.result if result is None else result.union(estimate.result)
            if overload in ("index_list", "index_map"):
                entries = self._entry_sizes(node.arguments[0])
                result = None if entries is None else entries.value
                part = "@items" if overload == "index_list" else "@values"
                self._paths[id(node)] = self._path(node.arguments[0]).to(part)
            if result is None:
                result = self._size(node)
        self._remember(node, result, None)
        return total + call

    def _argument(self, node: SyntaxNode) -> Argument:
        path = self._path(node).names
        element = None if path[:1] == [ACCUMULATOR] else declared_size([*path, "@items"])
        return Argument(node, node.type, self._size(node), element or UNKNOWN)

    def _overload(self, node: CallNode, overload: str, arguments: list[Argument], costs: list[Range]) -> CallEstimate:
        if overload in ("logical_or", "logical_and"):
            return CallEstimate(Range(costs[0].least, (costs[0] + costs[1]).most))
        if overload in ("conditional", "add_string", "add_bytes", "add_list"):
            *_, first, second = node.arguments
            entries = self._entry_sizes(first)
            self._remember(node, None, None if entries is None else entries.union(self._entry_sizes(second)))
            if overload == "conditional":
                size = self._size_or_unknown(first).union(self._size_or_unknown(second))
                return CallEstimate(costs[0] + costs[1].union(costs[2]), size)
        estimate = price(node.function, overload).estimate(arguments)
        return CallEstimate(sum(costs, start=estimate.cost), estimate.result)

    # Sizes.

    def _local(self, name: str) -> _Local | None:
        stack = self._locals[name]
        return stack[-1] if stack else None

    def _path(self, node: SyntaxNode) -> SlicePath:
        if isinstance(node, IdentNode):
            local = self._local(node.name)
            if local is not None:
                return local.path
        return self._paths.get(id(node)) or SlicePath()

    def _remember(self, node: SyntaxNode, size: Range | None, entries: Entries | None) -> None:
        if size is not None:
            self._sizes[id(node)] = size
        if entries is not None:
            self._entries[id(node)] = entries

    def _size_or_unknown(self, node: SyntaxNode) -> Range:
        size = self._size(node)
        return UNKNOWN if size is None else size

    def _size(self, node: SyntaxNode) -> Range | None:
        known = self._sizes.get(id(node)) or _literal_size(node)
        if known is not None:
            return known
        declared = declared_size(self._path(node).names)
        if declared is not None:
            self._sizes[id(node)] = declared
            return declared
        if _is_scalar(node.type):
            return ONE
        if isinstance(node, IdentNode):
            local = self._local(node.name)
            return None if local is None else local.size
        return None

    def _entry_sizes(self, node: SyntaxNode) -> Entries | None:
        known = self._entries.get(id(node))
        if known is None and isinstance(node, IdentNode):
            local = self._local(node.name)
            return None if local is None else local.entries
        return known


def _is_bind(node: Comprehension) -> bool:
    return (
        isinstance(node.range, ListNode)
        and not node.range.elements
        and isinstance(node.condition, LiteralNode)
        and node.condition.value is False
        and node.accumulator != ACCUMULATOR
    )


def _literal_size(node: SyntaxNode) -> Range | None:
    match node:
        case LiteralNode(value=str(text)):
            return Range(len(text), len(text))
        case LiteralNode(value=bytes(octets)):
            return Range(len(octets), len(octets))
        case LiteralNode():
            return ONE
        case ListNode():
            return Range(len(node.elements), len(node.elements))
        case MapNode():
            return Range(len(node.entries), len(node.entries))
    return None


def _is_scalar(of: CelType) -> bool:
    if of.kind in (TypeKind.BOOL, TypeKind.DOUBLE, TypeKind.DURATION, TypeKind.INT, TypeKind.TIMESTAMP, TypeKind.UINT):
        return True
    return types.is_optional(of) and _is_scalar(of.parameters[0])
