"""The syntax tree of an expression, which the parser builds and the checker annotates."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shared.cel.types import DYN, CelType


@dataclass(slots=True, eq=False)
class SyntaxNode:
    """A node at an offset of the source. The checker fills in `type` and, for calls, `overloads`."""

    offset: int
    type: CelType = field(default=DYN, init=False)
    height: int = field(default=0, init=False)
    """Levels of operators, selections and calls of members below and including this node, as the parser counts them."""


@dataclass(slots=True, eq=False)
class LiteralNode(SyntaxNode):
    value: object


@dataclass(slots=True, eq=False)
class IdentNode(SyntaxNode):
    name: str


@dataclass(slots=True, eq=False)
class SelectNode(SyntaxNode):
    operand: SyntaxNode
    name: str
    test_only: bool = False
    resolved: IdentNode | None = field(default=None, init=False)
    """The variable or type that the qualified name denotes as a whole."""


@dataclass(slots=True, eq=False)
class CallNode(SyntaxNode):
    function: str
    target: SyntaxNode | None
    arguments: list[SyntaxNode]
    overloads: tuple[str, ...] = field(default=(), init=False)

    @property
    def all_arguments(self) -> list[SyntaxNode]:
        """The receiver, if any, and the arguments."""
        return self.arguments if self.target is None else [self.target, *self.arguments]


@dataclass(slots=True, eq=False)
class ListNode(SyntaxNode):
    elements: list[SyntaxNode]
    optional: frozenset[int] = frozenset()
    """Indices of `[?x]` elements."""


@dataclass(slots=True, eq=False)
class MapEntry:
    offset: int
    key: SyntaxNode
    value: SyntaxNode
    optional: bool


@dataclass(slots=True, eq=False)
class MapNode(SyntaxNode):
    entries: list[MapEntry]


@dataclass(slots=True, eq=False)
class MessageField:
    offset: int
    name: str
    value: SyntaxNode
    optional: bool


@dataclass(slots=True, eq=False)
class StructNode(SyntaxNode):
    name: str
    fields: list[MessageField]


@dataclass(slots=True, eq=False)
class Comprehension(SyntaxNode):
    """A fold over a range: what macros expand to."""

    range: SyntaxNode
    variable: str
    variable2: str
    """The second variable of a two-variable comprehension; else empty."""
    accumulator: str
    initial: SyntaxNode
    condition: SyntaxNode
    step: SyntaxNode
    result: SyntaxNode


def children(node: SyntaxNode) -> list[SyntaxNode]:
    match node:
        case SelectNode():
            return [node.operand]
        case CallNode():
            return node.all_arguments
        case ListNode():
            return node.elements
        case MapNode():
            return [part for entry in node.entries for part in (entry.key, entry.value)]
        case StructNode():
            return [each.value for each in node.fields]
        case Comprehension():
            return [node.range, node.initial, node.condition, node.step, node.result]
    return []


def walk(root: SyntaxNode) -> Iterator[tuple[SyntaxNode, Sequence[SyntaxNode]]]:
    """The nodes below and including this one, children first, each with its present ancestors."""
    ancestors: list[SyntaxNode] = []
    pending: list[tuple[SyntaxNode, bool]] = [(root, False)]
    while pending:
        current, done = pending.pop()
        if done:
            ancestors.pop()
            yield current, ancestors
            continue
        pending.append((current, True))
        ancestors.append(current)
        pending += [(child, False) for child in reversed(children(current))]


def qualified_name(node: SyntaxNode) -> str | None:
    """`a.b.c` as a name; None if the node is more than idents and selections."""
    parts: list[str] = []
    while isinstance(node, SelectNode) and not node.test_only:
        parts.append(node.name)
        node = node.operand
    if not isinstance(node, IdentNode):
        return None
    return ".".join([node.name, *reversed(parts)])
