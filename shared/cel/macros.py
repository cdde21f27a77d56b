"""Macros: calls that the parser replaces by comprehensions and presence tests."""

from collections.abc import Callable
from copy import deepcopy

from shared.cel.syntax import (
    CallNode,
    Comprehension,
    IdentNode,
    ListNode,
    LiteralNode,
    MapNode,
    SelectNode,
    SyntaxNode,
    walk,
)

ACCUMULATOR = "__result__"
UNUSED = "#unused"
SORT_INPUT = "@__sortBy_input__"
MAX_COPIED = 5000
"""Parts of an optional that `optMap` may repeat: a chain of optMaps doubles them with each."""


class MacroError(Exception):
    """A macro whose arguments are of the wrong form, at an offset of the source."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message


Expander = Callable[[int, SyntaxNode | None, list[SyntaxNode]], SyntaxNode | None]
"""From the offset of the call, its receiver and its arguments; None if the call is no macro after all."""


def expand(offset: int, function: str, target: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode | None:
    """What the macro of this name and form expands to; None if there is none. MacroError on wrong arguments."""
    expander, counts = _EXPANDERS.get(function, (None, ()))
    if expander is None or len(arguments) not in counts or (target is None) is not (function == "has"):
        return None
    return expander(offset, target, arguments)


def _call(at: int, function: str, *arguments: SyntaxNode) -> CallNode:
    return CallNode(at, function, None, list(arguments))


def _accumulator(at: int) -> IdentNode:
    return IdentNode(at, ACCUMULATOR)


def _simple_name(node: SyntaxNode, message: str) -> str:
    if not isinstance(node, IdentNode):
        raise MacroError(node.offset, message)
    return node.name


def _variable(node: SyntaxNode, message: str) -> str:
    name = _simple_name(node, message)
    if name == ACCUMULATOR:
        raise MacroError(node.offset, "iteration variable overwrites accumulator variable")
    return name


def _variables(
    arguments: list[SyntaxNode], two: bool, message: str = "argument must be a simple name"
) -> tuple[str, str]:
    """The names of the iteration variables; the second is empty if there is one only."""
    if not two:
        return _variable(arguments[0], message), ""
    first, second = (_simple_name(each, message) for each in arguments[:2])
    if first == second:
        raise MacroError(arguments[1].offset, f"duplicate variable name: {first}")
    return _variable(arguments[0], message), _variable(arguments[1], message)


def _fold(
    at: int, over: SyntaxNode | None, variables: tuple[str, str], initial: SyntaxNode, step: SyntaxNode
) -> Comprehension:
    """A comprehension over the whole range, whose result is the accumulator."""
    assert over is not None
    return Comprehension(at, over, *variables, ACCUMULATOR, initial, LiteralNode(at, True), step, _accumulator(at))


def _has(at: int, _: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode:
    selection = arguments[0]
    if not isinstance(selection, SelectNode):
        raise MacroError(selection.offset, "invalid argument to has() macro")
    return SelectNode(at, selection.operand, selection.name, test_only=True)


def _all(at: int, target: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode:
    variables = _variables(arguments, len(arguments) == 3)
    fold = _fold(at, target, variables, LiteralNode(at, True), _call(at, "_&&_", _accumulator(at), arguments[-1]))
    fold.condition = _call(at, "@not_strictly_false", _accumulator(at))
    return fold


def _exists(at: int, target: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode:
    variables = _variables(arguments, len(arguments) == 3)
    fold = _fold(at, target, variables, LiteralNode(at, False), _call(at, "_||_", _accumulator(at), arguments[-1]))
    fold.condition = _call(at, "@not_strictly_false", _call(at, "!_", _accumulator(at)))
    return fold


def _exists_one(at: int, target: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode:
    variables = _variables(arguments, len(arguments) == 3)
    one_more = _call(at, "_+_", _accumulator(at), LiteralNode(at, 1))
    step = _call(at, "_?_:_", arguments[-1], one_more, _accumulator(at))
    fold = _fold(at, target, variables, LiteralNode(at, 0), step)
    fold.result = _call(at, "_==_", _accumulator(at), LiteralNode(at, 1))
    return fold


def _when(at: int, conditions: list[SyntaxNode], step: SyntaxNode) -> SyntaxNode:
    """The step, only if the condition holds (there is one at most)."""
    return _call(at, "_?_:_", conditions[0], step, _accumulator(at)) if conditions else step


def _building(
    start: type[ListNode] | type[MapNode], two: bool, add: Callable[[int, str, SyntaxNode], CallNode]
) -> Expander:
    """A macro that builds a list or map of what its last argument yields, where the condition before that holds.

    `add`: how the accumulator grows, given the first variable and what the last argument yields.
    """
    message = "argument must be a simple name" if two else "argument is not an identifier"

    def expander(at: int, target: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode:
        variables = _variables(arguments, two, message)
        *conditions, element = arguments[2 if two else 1 :]
        step = add(at, variables[0], element)
        return _fold(at, target, variables, start(at, []), _when(at, conditions, step))

    return expander


def _append(at: int, _: str, element: SyntaxNode) -> CallNode:
    return _call(at, "_+_", _accumulator(at), ListNode(at, [element]))


def _insert(at: int, key: str, value: SyntaxNode) -> CallNode:
    return _call(at, "cel.@mapInsert", _accumulator(at), IdentNode(at, key), value)


def _insert_all(at: int, _: str, entries: SyntaxNode) -> CallNode:
    return _call(at, "cel.@mapInsert", _accumulator(at), entries)


_map = _building(ListNode, two=False, add=_append)


def _filter(at: int, target: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode | None:
    return _map(at, target, [*arguments, arguments[0]])


def _bound(at: int, name: str, value: SyntaxNode, result: SyntaxNode) -> Comprehension:
    """A name for a value, evaluated when first used: a comprehension over nothing."""
    return Comprehension(
        at, ListNode(at, []), UNUSED, "", name, value, LiteralNode(at, False), IdentNode(at, name), result
    )


def _bind(at: int, target: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode | None:
    if not isinstance(target, IdentNode) or target.name != "cel":
        return None
    name = _simple_name(arguments[0], "cel.bind() variable names must be simple identifiers")
    return _bound(at, name, arguments[1], arguments[2])


def _optional(macro: str, wrap: bool) -> Expander:
    """What applies to the value of an optional if there is one; `wrap`: the result is no optional yet."""

    def expander(at: int, target: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode:
        assert target is not None
        name = _simple_name(arguments[0], f"{macro}() variable name must be a simple identifier")
        if sum(1 for _ in walk(target)) > MAX_COPIED:
            message = f"an optional of more than {MAX_COPIED} parts, macros expanded, is not supported"
            raise MacroError(target.offset, message)
        present = CallNode(at, "hasValue", target, [])
        computed: SyntaxNode = _bound(at, name, CallNode(at, "value", deepcopy(target), []), arguments[1])
        if wrap:
            computed = _call(at, "optional.of", computed)
        return _call(at, "_?_:_", present, computed, _call(at, "optional.none"))

    return expander


def _sort_by(at: int, target: SyntaxNode | None, arguments: list[SyntaxNode]) -> SyntaxNode:
    assert target is not None
    if not isinstance(target, ListNode | SelectNode | IdentNode | Comprehension | CallNode):
        message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        raise MacroError(target.offset, message)
    keys = _map(at, IdentNode(at, SORT_INPUT), arguments)
    assert keys is not None
    sorted_input = CallNode(at, "@sortByAssociatedKeys", IdentNode(at, SORT_INPUT), [keys])
    return _bound(at, SORT_INPUT, target, sorted_input)


_EXPANDERS: dict[str, tuple[Expander, tuple[int, ...]]] = {
    "has": (_has, (1,)),
    "all": (_all, (2, 3)),
    "exists": (_exists, (2, 3)),
    "exists_one": (_exists_one, (2, 3)),
    "existsOne": (_exists_one, (2, 3)),
    "map": (_map, (2, 3)),
    "filter": (_filter, (2,)),
    "transformList": (_building(ListNode, two=True, add=_append), (3, 4)),
    "transformMap": (_building(MapNode, two=True, add=_insert), (3, 4)),
    "transformMapEntry": (_building(MapNode, two=True, add=_insert_all), (3, 4)),
    "bind": (_bind, (3,)),
    "optMap": (_optional("optMap", wrap=True), (2,)),
    "optFlatMap": (_optional("optFlatMap", wrap=False), (2,)),
    "sortBy": (_sort_by, (2,)),
}
"""By name, with the numbers of arguments. All but `has` are called on a receiver."""
