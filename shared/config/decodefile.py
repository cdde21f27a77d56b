"""From a document to the tree of a configuration: which version it has, its fields, and its plugins' arguments."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from shared.config.document import Document
from shared.config.kinds import Reading, child
from shared.config.problems import Fault, InvalidConfigFile, Problem, Stage, invalid, required, shown
from shared.config.schema import (
    API_VERSION,
    ARGS,
    CONFIGURATION,
    GROUP,
    INTERNAL_VERSION,
    KIND,
    VERSION,
    Tree,
    TypedArgs,
    args_kind,
)


class Head(NamedTuple):
    """What a map says that it is."""

    group: str
    version: str
    kind: str

    @property
    def internal(self) -> bool:
        return self.version == INTERNAL_VERSION


def decode_file(document: Document) -> tuple[Tree, bool]:
    """The tree, and whether it is of kube-scheduler's internal version, which has no defaults.

    Raises InvalidConfigFile with everything that is wrong at this stage.
    """
    problems = [Problem("", Fault.DUPLICATE, line, line) for line in document.repeated]
    head = _head_of_file(document.value, problems)
    if head is None or not isinstance(document.value, dict):
        raise InvalidConfigFile(Stage.DECODE, problems)
    tree, found = decode_tree(document.value, head.internal)
    problems += found
    if problems:
        raise InvalidConfigFile(Stage.DECODE, problems)
    return tree, head.internal


def decode_tree(value: Mapping[str, Any], internal: bool) -> tuple[Tree, list[Problem]]:
    """The fields of a configuration whose version is known, and everything that is wrong with them."""
    reading = Reading(internal)
    tree: Tree = CONFIGURATION.read(value, "", reading)
    for i, profile in enumerate(tree["profiles"] or ()):
        for j, entry in enumerate(profile["pluginConfig"] or ()):
            if entry["name"] in ARGS and not internal:
                at = f"profiles[{i}].pluginConfig[{j}].args"
                entry["args"] = _decode_args(entry["name"], entry["args"], at, reading.problems)
    return tree, reading.problems


def _decode_args(plugin: str, value: object, path: str, problems: list[Problem]) -> TypedArgs:
    given = {} if value is None else value
    if not isinstance(given, dict):
        problems.append(invalid(path, value, f"the arguments of {plugin} must be a map"))
        return TypedArgs(plugin, {})
    head = _head(given, path, problems, Head(GROUP, VERSION, args_kind(plugin)))
    if head is None:
        return TypedArgs(plugin, {})
    wrong = len(problems)
    if head.kind != args_kind(plugin):
        problems.append(invalid(child(path, "kind"), head.kind, f"must be {args_kind(plugin)}"))
    if head.group != GROUP or head.version not in (VERSION, INTERNAL_VERSION):
        problems.append(invalid(child(path, "apiVersion"), given.get("apiVersion"), f"must be {API_VERSION}"))
    if len(problems) > wrong:
        return TypedArgs(plugin, {})
    reading = Reading(head.internal)
    tree = ARGS[plugin].read(given, path, reading)
    problems += reading.problems
    return TypedArgs(plugin, tree, filled_in=not head.internal)


def _head_of_file(value: object, problems: list[Problem]) -> Head | None:
    if value is None:
        problems.append(required("", f"the file says nothing; it must be a {KIND} of {API_VERSION}"))
        return None
    if not isinstance(value, dict):
        problems.append(invalid("", value, "the file must be a map"))
        return None
    head = _head(value, "", problems, Head("", "", ""))
    if head is None:
        return None
    if head.kind and head.kind != KIND:
        hint = "; `flotilla config convert` makes one of a Policy" if head.kind == "Policy" else ""
        problems.append(Problem("kind", Fault.INVALID, head.kind, f"must be {KIND}, not {shown(head.kind)}{hint}"))
    if not head.kind:
        problems.append(required("kind", f"is missing; it must be {KIND}"))
    if not head.version:
        problems.append(required("apiVersion", f"is missing; it must be {API_VERSION}"))
    elif head.group != GROUP or head.version not in (VERSION, INTERNAL_VERSION):
        problems.append(invalid("apiVersion", value.get("apiVersion"), f"must be {API_VERSION}"))
    fits = head.kind == KIND and head.group == GROUP and head.version in (VERSION, INTERNAL_VERSION)
    return head if fits else None


def _head(value: Mapping[str, Any], path: str, problems: list[Problem], default: Head) -> Head | None:
    texts = {}
    for key in ("apiVersion", "kind"):
        text = value.get(key)
        if text is not None and not isinstance(text, str):
            problems.append(invalid(child(path, key), text, "must be a text"))
            return None
        texts[key] = text or ""
    group, slash, version = texts["apiVersion"].partition("/")
    if "/" in version:
        problems.append(invalid(child(path, "apiVersion"), texts["apiVersion"], f"must be {API_VERSION}"))
        return None
    if not slash:
        group, version = "", group
    if not version and group in ("", default.group):
        group, version = default.group, default.version
    return Head(group, version, texts["kind"] or default.kind)
