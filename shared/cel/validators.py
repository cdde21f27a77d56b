"""What Kubernetes checks in an expression beyond types: literals that always fail, and lists of mixed types."""

from collections.abc import Callable
from dataclasses import dataclass

from shared.cel.declarations import bound
from shared.cel.environment import FUNCTIONS
from shared.cel.errors import ExpressionSource
from shared.cel.library.formatting import FormatError, check_format
from shared.cel.library.strings import compiled
from shared.cel.syntax import CallNode, ListNode, LiteralNode, MapNode, SyntaxNode, visit
from shared.cel.types import STRING, CelType, equivalent, show, unwrap_optional
from shared.cel.values import CelError, Value


@dataclass(slots=True)
class _Found:
    calls: list[CallNode]
    lists: list[ListNode]
    maps: list[MapNode]


def validate(source: ExpressionSource, root: SyntaxNode) -> None:
    """Report what is wrong in a tree whose types are known; CompileError if anything is."""
    found = _Found([], [], [])

    def collect(node: SyntaxNode, ancestors: list[SyntaxNode]) -> None:
        mixed_allowed = any(isinstance(each, CallNode) and each.function == "format" for each in ancestors)
        if isinstance(node, CallNode):
            found.calls.append(node)
        elif isinstance(node, ListNode) and not mixed_allowed:
            found.lists.append(node)
        elif isinstance(node, MapNode) and not mixed_allowed:
            found.maps.append(node)

    visit(root, collect)
    for function, fails in (("duration", _conversion_fails), ("timestamp", _conversion_fails), ("matches", _is_wrong)):
        for call in found.calls:
            if call.function == function and call.arguments:
                argument = call.arguments[0]
                if isinstance(argument, LiteralNode) and fails(call, argument.value):
                    source.report(argument.offset, f"invalid {function} argument")
    for each in found.lists:
        _check_list(source, each)
    for entries in found.maps:
        _check_map(source, entries)
    for call in found.calls:
        if call.function == "format":
            _check_format(source, call)
    source.raise_errors()


def _conversion_fails(call: CallNode, value: Value) -> bool:
    return isinstance(bound(FUNCTIONS[call.function], call.overloads)(value), CelError)


def _is_wrong(_: CallNode, pattern: Value) -> bool:
    return isinstance(pattern, str) and isinstance(compiled(pattern), CelError)


def _element_type(node: SyntaxNode, optional: bool) -> CelType:
    return unwrap_optional(node.type)[0] if optional else node.type


def _check_list(source: ExpressionSource, node: ListNode) -> None:
    """Report the first element of another type."""
    expected: CelType | None = None
    for index, each in enumerate(node.elements):
        found = _element_type(each, index in node.optional)
        if expected is None:
            expected = found
        elif not equivalent(expected, found):
            _mismatch(source, each, expected, found)
            return


def _check_map(source: ExpressionSource, node: MapNode) -> None:
    parts: tuple[Callable[[int], tuple[SyntaxNode, CelType]], ...] = (
        lambda index: (node.entries[index].key, node.entries[index].key.type),
        lambda index: (
            node.entries[index].value,
            _element_type(node.entries[index].value, node.entries[index].optional),
        ),
    )
    for index in range(1, len(node.entries)):
        for part in parts:
            _, expected = part(0)
            each, found = part(index)
            if not equivalent(expected, found):
                _mismatch(source, each, expected, found)


def _mismatch(source: ExpressionSource, node: SyntaxNode, expected: CelType, found: CelType) -> None:
    source.report(node.offset, f"expected type '{show(expected)}' but found '{show(found)}'")


def _check_format(source: ExpressionSource, call: CallNode) -> None:
    """Check a constant format string with a list of arguments."""
    text = call.target
    if not isinstance(text, LiteralNode) or text.type != STRING or len(call.arguments) != 1:
        return
    arguments = call.arguments[0]
    if not isinstance(arguments, ListNode):
        return
    try:
        check_format(str(text.value), arguments.elements)
    except FormatError as error:
        source.report(call.offset if error.node is None else error.node.offset, error.message)
