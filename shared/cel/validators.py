"""What Kubernetes checks in an expression beyond types: literals that always fail, and lists of mixed types."""

from shared.cel.declarations import bound
from shared.cel.environment import FUNCTIONS
from shared.cel.errors import ExpressionSource
from shared.cel.library.formatting import FormatError, check_format
from shared.cel.library.strings import compiled
from shared.cel.syntax import CallNode, ListNode, LiteralNode, MapNode, SyntaxNode, walk
from shared.cel.types import STRING, CelType, equivalent, show, unwrap_optional
from shared.cel.values import CelError, Value


def validate(source: ExpressionSource, root: SyntaxNode) -> None:
    """Report what is wrong in a tree whose types are known; CompileError if anything is."""
    calls: list[CallNode] = []
    uniform: list[SyntaxNode] = []
    for node, ancestors in walk(root):
        if isinstance(node, CallNode):
            calls.append(node)
        elif not any(isinstance(each, CallNode) and each.function == "format" for each in ancestors):
            uniform.append(node)
    for function, fails in (("duration", _conversion_fails), ("timestamp", _conversion_fails), ("matches", _is_wrong)):
        for call in calls:
            if call.function == function and call.arguments:
                argument = call.arguments[0]
                if isinstance(argument, LiteralNode) and fails(call, argument.value):
                    source.report(argument.offset, f"invalid {function} argument")
    for node in uniform:
        if isinstance(node, ListNode) and node.elements:
            _check_list(source, node)
    for node in uniform:
        if isinstance(node, MapNode) and node.entries:
            _check_map(source, node)
    for call in calls:
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
    expected = _element_type(node.elements[0], 0 in node.optional)
    for index, each in enumerate(node.elements):
        if not _fits(source, each, expected, _element_type(each, index in node.optional)):
            return


def _check_map(source: ExpressionSource, node: MapNode) -> None:
    first = node.entries[0]
    for each in node.entries[1:]:
        _fits(source, each.key, first.key.type, each.key.type)
        expected = _element_type(first.value, first.optional)
        _fits(source, each.value, expected, _element_type(each.value, each.optional))


def _fits(source: ExpressionSource, node: SyntaxNode, expected: CelType, found: CelType) -> bool:
    """Whether the type is the expected one; another one is reported."""
    fits = equivalent(expected, found)
    if not fits:
        source.report(node.offset, f"expected type '{show(expected)}' but found '{show(found)}'")
    return fits


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
        source.report(call.offset if error.node is None else error.node.offset, str(error))
