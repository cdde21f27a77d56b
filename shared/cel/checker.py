"""Infers the type of every part of an expression, and resolves names and overloads."""

from collections.abc import Sequence

from shared.cel import types
from shared.cel.declarations import Overload
from shared.cel.environment import (
    DEVICE,
    FUNCTIONS,
    MESSAGES,
    NAMED_TYPES,
    NOT_FOR_NEW_OBJECTS,
)
from shared.cel.errors import CompileError, ExpressionSource
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
    qualified_name,
)
from shared.cel.types import Bindings, CelType, TypeKind, show, show_signature, unwrap_optional
from shared.cel.values import type_of


def check(source: ExpressionSource, root: SyntaxNode, new_object: bool = False) -> None:
    """Annotate the tree with types; CompileError if they do not fit."""
    checker = _Checker(source, NOT_FOR_NEW_OBJECTS if new_object else frozenset())
    checker.check(root)
    checker.finish()
    source.raise_errors()


MAX_TYPES = 1000
"""Types in the type of a part. Maps of maps could have any number of them."""


class _Checker:
    def __init__(self, source: ExpressionSource, hidden: frozenset[str]) -> None:
        self._source = source
        self._hidden = hidden
        self._bindings = Bindings()
        self._scopes: list[dict[str, CelType]] = [{DEVICE: types.DEVICE}]
        self._variables = 0
        self._checked: list[SyntaxNode] = []

    def check(self, node: SyntaxNode) -> CelType:
        node.type = self._infer(node)
        if node.type.weight > MAX_TYPES:
            raise CompileError(f"compilation failed: the type of a part is made of more than {MAX_TYPES} types")
        self._checked.append(node)
        return node.type

    def finish(self) -> None:
        """Replace the type variables of all nodes by what they turned out to be."""
        for node in self._checked:
            node.type = self._bindings.substitute(node.type, unbound_to_dyn=True)

    def _infer(self, node: SyntaxNode) -> CelType:
        match node:
            case LiteralNode():
                return type_of(node.value)
            case IdentNode():
                return self._ident(node)
            case SelectNode():
                return self._select(node)
            case CallNode():
                return self._call(node)
            case ListNode():
                return self._list(node)
            case MapNode():
                return self._map(node)
            case StructNode():
                return self._struct(node)
            case Comprehension():
                return self._comprehension(node)
        raise TypeError(f"unknown node {type(node).__name__}")

    # Names.

    def _local(self, name: str) -> CelType | None:
        return next((scope[name] for scope in reversed(self._scopes[1:]) if name in scope), None)

    def _resolve(self, ident: IdentNode) -> CelType | None:
        """The type of a variable, or of the name of a type.

        A name with a leading dot means no local variable; it keeps the dot only if a local one hides what it means.
        """
        name = ident.name.removeprefix(".")
        local = self._local(name.partition(".")[0])
        if local is not None and name == ident.name:
            return local if "." not in name else None
        ident.name = name if local is None else f".{name}"
        variable = self._scopes[0].get(name)
        if variable is not None:
            return variable
        named = NAMED_TYPES.get(name)
        return None if named is None else types.type_of(named)

    def _function(self, name: str) -> Sequence[Overload] | None:
        name = name.removeprefix(".")
        return None if name in self._hidden else FUNCTIONS.get(name)

    def _ident(self, node: IdentNode) -> CelType:
        name = node.name
        found = self._resolve(node)
        if found is None:
            self._undeclared(node, name)
            return types.ERROR
        return found

    def _undeclared(self, node: SyntaxNode, name: str) -> None:
        self._report(node, f"undeclared reference to '{name}' (in container '')")

    # Fields.

    def _select(self, node: SelectNode) -> CelType:
        name = qualified_name(node)
        if name is not None:
            ident = IdentNode(node.offset, name)
            found = self._resolve(ident)
            if found is not None:
                ident.type = found
                node.resolved = ident
                return found
        field = self._field(node, node.operand, node.name)
        return types.BOOL if node.test_only else self._bindings.substitute(field)

    def _field(self, node: SyntaxNode, operand: SyntaxNode, name: str, optional: bool = False) -> CelType:
        target, wrapped = unwrap_optional(self._bindings.substitute(self.check(operand)))
        field = types.ERROR
        match target.kind:
            case TypeKind.MAP:
                field = target.parameters[1]
            case TypeKind.STRUCT:
                field = self._message_field(node.offset, target.name, name)
            case TypeKind.PARAMETER:
                self._bindings.unify([types.DYN], [target])
                field = types.DYN
            case _:
                if not target.dynamic_or_error:
                    self._report(node, f"type '{show(target)}' does not support field selection")
                field = types.DYN
        return types.optional_of(field) if wrapped or optional else field

    def _message_field(self, at: int, message: str, name: str) -> CelType:
        if message == types.MAP.name:
            return types.DYN  # as if a map could be written as a message with any fields
        fields = MESSAGES.get(message)
        if fields is None:
            self._source.report(at, f"unexpected failed resolution of '{message}'")
            return types.ERROR
        if name not in fields:
            self._source.report(at, f"undefined field '{name}'")
            return types.ERROR
        return fields[name]

    # Calls.

    def _call(self, node: CallNode) -> CelType:
        if node.function == "_?._":
            node.overloads = ("select_optional_field",)
            operand, name = node.arguments
            assert isinstance(name, LiteralNode)
            name.type = types.STRING
            return self._bindings.substitute(self._field(node, operand, str(name.value), optional=True))
        for argument in node.arguments:
            self.check(argument)
        if node.target is not None:
            qualified = qualified_name(node.target)
            function = None if qualified is None else self._function(f"{qualified}.{node.function}")
            if function is None:
                self.check(node.target)
            else:
                node.target, node.function = None, function[0].function
                return self._overloaded(node, function)
        function = self._function(node.function)
        if function is None:
            self._undeclared(node, node.function)
            return types.ERROR
        node.function = function[0].function
        return self._overloaded(node, function)

    def _overloaded(self, node: CallNode, function: Sequence[Overload]) -> CelType:
        """The result of the overloads that fit; of several, the type that they share."""
        arguments = [each.type for each in node.all_arguments]
        if node.function in ("_&&_", "_||_"):
            return self._logical(node, function)
        result: CelType | None = None
        fitting: list[str] = []
        for each in function:
            if each.member is not (node.target is not None):
                continue
            fresh = Bindings({name: self._new_variable() for name in sorted(each.parameters)})
            declared = [fresh.substitute(argument) for argument in each.arguments]
            if not self._bindings.unify(arguments, declared):
                continue
            fitting.append(each.name)
            found = self._bindings.substitute(fresh.substitute(each.result))
            if result is None:
                result = found
            elif not result.dynamic and found != result:
                result = types.DYN
        if result is None:
            shown = [self._bindings.substitute(each, unbound_to_dyn=True) for each in arguments]
            signature = show_signature(shown, node.target is not None)
            self._report(node, f"found no matching overload for '{node.function}' applied to '{signature}'")
            return types.ERROR
        node.overloads = tuple(fitting)
        return result

    def _logical(self, node: CallNode, function: Sequence[Overload]) -> CelType:
        fits = True
        for each in node.arguments:
            if not self._bindings.unify([each.type], [types.BOOL]):
                self._mismatch(each, types.BOOL, each.type)
                fits = False
        node.overloads = (function[0].name,)
        return types.BOOL if fits else types.ERROR

    # Lists, maps, messages.

    def _list(self, node: ListNode) -> CelType:
        joined: CelType | None = None
        for index, each in enumerate(node.elements):
            joined = self._join(joined, self._element(each, index in node.optional))
        return types.list_of(joined or self._new_variable())

    def _element(self, node: SyntaxNode, optional: bool) -> CelType:
        """The type that a part adds; of `[?x]`, what x may hold."""
        found = self.check(node)
        if optional:
            found, wrapped = unwrap_optional(found)
            if not wrapped and not found.dynamic:
                self._mismatch(node, types.optional_of(found), found)
        return found

    def _map(self, node: MapNode) -> CelType:
        key: CelType | None = None
        value: CelType | None = None
        for each in node.entries:
            key = self._join(key, self.check(each.key))
            value = self._join(value, self._element(each.value, each.optional))
        if key is None or value is None:
            return types.map_of(self._new_variable(), self._new_variable())
        return types.map_of(key, value)

    def _join(self, one: CelType | None, other: CelType) -> CelType:
        if one is None:
            return other
        return types.most_general(one, other) if self._bindings.unify([one], [other]) else types.DYN

    def _struct(self, node: StructNode) -> CelType:
        ident = IdentNode(node.offset, node.name)
        found = self._resolve(ident)
        if found is None:
            self._undeclared(node, node.name)
            return types.ERROR
        node.name = looked_up = ident.name
        message = types.ERROR
        if found.kind is TypeKind.TYPE:
            message = found.parameters[0]
            if message.kind in (TypeKind.DURATION, TypeKind.TIMESTAMP, TypeKind.STRUCT):
                looked_up = message.name
            elif not looked_up.startswith("google.protobuf."):
                self._report(node, f"'{message.name}' is not a message type")
                message = types.ERROR
        elif found != types.ERROR:
            self._report(node, f"'{found.name}' is not a type")
        for each in node.fields:
            value = self._element(each.value, each.optional)
            field = self._message_field(each.offset, looked_up, each.name)
            if not self._bindings.unify([field], [value]):
                expected = f"expected type of field '{each.name}' is '{show(field)}'"
                self._source.report(each.offset, f"{expected} but provided type is '{show(value)}'")
        return message

    # Comprehensions.

    def _comprehension(self, node: Comprehension) -> CelType:
        range_type = self._bindings.substitute(self.check(node.range))
        accumulator = self.check(node.initial)
        self._scopes.append({node.accumulator: accumulator})
        self._scopes.append(self._iteration(node, range_type))
        self.check(node.condition)
        self._expect(node.condition, types.BOOL)
        self.check(node.step)
        self._expect(node.step, accumulator)
        self._scopes.pop()
        result = self.check(node.result)
        self._scopes.pop()
        return self._bindings.substitute(result)

    def _iteration(self, node: Comprehension, over: CelType) -> dict[str, CelType]:
        """The iteration variables with their types."""
        first = second = types.ERROR
        match over.kind:
            case TypeKind.LIST:
                first, second = over.parameters[0], over.parameters[0]
                if node.variable2:
                    first = types.INT
            case TypeKind.MAP:
                first, second = over.parameters
            case TypeKind.DYN | TypeKind.ERROR | TypeKind.PARAMETER:
                self._bindings.unify([types.DYN], [over])
                first = second = types.DYN
            case _:
                problem = "cannot be range of a comprehension (must be list, map, or dynamic)"
                self._report(node.range, f"expression of type '{show(over)}' {problem}")
        return {node.variable: first} | ({node.variable2: second} if node.variable2 else {})

    def _expect(self, node: SyntaxNode, expected: CelType) -> None:
        if not self._bindings.unify([expected], [node.type]):
            self._mismatch(node, expected, node.type)

    # Errors.

    def _mismatch(self, node: SyntaxNode, expected: CelType, found: CelType) -> None:
        self._report(node, f"expected type '{show(expected)}' but found '{show(found)}'")

    def _report(self, node: SyntaxNode, message: str) -> None:
        self._source.report(node.offset, message)

    def _new_variable(self) -> CelType:
        self._variables += 1
        return types.parameter(f"_var{self._variables - 1}")
