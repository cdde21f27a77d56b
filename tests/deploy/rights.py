"""Rights at the API server: those that manifests grant, those that the docs name, and what the code has paths for."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import yaml  # type: ignore[import-untyped]

from tests.deploy.rendering import K8S, ROOT, SERVICES, Object

RBAC = K8S / "base" / "rbac.yaml"
METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
PATH = re.compile(r"/api/v1/\w|/apis/[^/]+/[^/]+/\w")
REVIEWS = ROOT / "shared" / "kube" / "reviews.py"
ROLES = frozenset({"Role", "ClusterRole"})
LEASES = "coordination.k8s.io/leases"


class Right(NamedTuple):
    """`resource`: with its group before it and its subresource behind it, as `apps/replicasets` and `pods/status`."""

    service: str
    resource: str
    verb: str


def resource_of(path: str) -> tuple[str, bool]:
    """Which resource a path is about, and whether one object of it is named."""
    parts = path.partition("?")[0].strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource = "/".join([rest[0], *rest[2:3]])
    return f"{group}/{resource}" if group else resource, len(rest) > 1


def rights_of(service: str, method: str, path: str) -> set[Right]:
    """What a request needs. A watch that begins with what there is becomes a list where the server cannot do that."""
    resource, one = resource_of(path)
    if method != "GET":
        verbs = {made: verb for verb, made in METHODS.items()}
        return {Right(service, resource, verbs[method] if one or method == "POST" else "deletecollection")}
    if one:
        return {Right(service, resource, "get")}
    asked = parse_qs(urlsplit(path).query)
    verbs_of_list = {"watch"} if "watch" in asked else {"list"}
    if "sendInitialEvents" in asked:
        verbs_of_list.add("list")
    return {Right(service, resource, verb) for verb in verbs_of_list}


# The manifests


@cache
def granted(by: Path = RBAC) -> frozenset[Right]:
    return frozenset(granted_by([*yaml.safe_load_all(by.read_text())]))


def granted_by(found: Sequence[Object]) -> Iterator[Right]:
    """By the accounts of the bindings among these objects."""
    roles = {(each["kind"], each["metadata"]["name"]): each["rules"] for each in found if each["kind"] in ROLES}
    for binding in found:
        if "roleRef" in binding:
            for rule in roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]:
                for subject in binding["subjects"]:
                    yield from _of_rule(subject["name"].removeprefix("flotilla-"), rule)


def _of_rule(service: str, rule: Object) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                yield Right(service, f"{group}/{resource}" if group else resource, verb)


def rules_of_accounts(by: Path = RBAC) -> dict[str, list[str]]:
    """By service, as a simulated API server takes them: verb, resource, and the name of the object if there is one."""
    found: dict[str, list[str]] = defaultdict(list)
    objects: list[Object] = [*yaml.safe_load_all(by.read_text())]
    roles = {(each["kind"], each["metadata"]["name"]): each["rules"] for each in objects if "rules" in each}
    for binding in (each for each in objects if "roleRef" in each):
        for rule in roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]:
            for subject in binding["subjects"]:
                for right in _of_rule(subject["name"].removeprefix("flotilla-"), rule):
                    names = rule.get("resourceNames", [""])
                    found[right.service] += (f"{right.verb} {right.resource} {name}".strip() for name in names)
    return found


# The docs


def documented() -> set[Right]:
    """By the table in docs/running.md: names in code are resources, what follows `of` is their group."""
    _, _, rest = (ROOT / "docs" / "running.md").read_text().partition("\n## Rights in the cluster\n")
    table = rest.partition("\n## ")[0]
    found: set[Right] = set()
    for resources, verbs, who in re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \|$", table, re.MULTILINE):
        names, _, groups = resources.partition(", in ")[0].partition(" of ")
        for service in set(re.findall(r"\w+", who)) & set(SERVICES):
            for name in re.findall(r"`(.*?)`", names):
                for group in re.findall(r"`(.*?)`", groups) or [""]:
                    for verb in verbs.split(", "):
                        found.add(Right(service, f"{group}/{name}" if group else name, verb))
    return found


# The code


class Named(NamedTuple):
    """What the code of a service names, itself and by way of what it calls."""

    resources: frozenset[str]
    methods: frozenset[str]


class Piece(NamedTuple):
    """Of the code, and the file in which it stands."""

    path: Path
    tree: ast.AST


@cache
def named_by(service: str) -> Named:
    """Follows names, not types, from each file into those of shared/ that it imports and that talk to the API server.

    The binder makes the calls of all plugins. The host of every service asks for reviews.
    """
    folders = [ROOT / "services" / service]
    if service == "binder":
        folders.append(ROOT / "shared" / "plugins")
    files = [path for folder in folders for path in folder.rglob("*.py")]
    waiting = [Piece(path, ast.parse(path.read_text())) for path in (*files, REVIEWS)]
    seen: set[int] = set()
    texts: set[str] = set()
    while waiting:
        here = waiting.pop()
        for node in _walk(here.tree):
            texts.add(_text(node))
            name = _name(node)
            for found in _definitions().get(name, ()):
                if id(found.tree) not in seen and found.path in _seen_from(here.path):
                    seen.add(id(found.tree))
                    waiting.append(found)
    paths = filter(PATH.match, texts)
    return Named(frozenset(resource_of(path)[0] for path in paths), frozenset(texts & set(METHODS.values())))


@cache
def _seen_from(path: Path) -> frozenset[Path]:
    """This file and those that it imports from, directly or from a package that hands on."""
    found = {path}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = ROOT.joinpath(*node.module.split("."))
            if (module / "__init__.py").exists():
                found |= _seen_from(module / "__init__.py")
                found |= {module / f"{alias.name}.py" for alias in node.names}
            found.add(module.with_suffix(".py"))
    return frozenset(found)


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """All of it, but the pieces of a text that is put together, and what something is only compared with."""
    yield tree
    if not isinstance(tree, ast.JoinedStr):
        for child in ast.iter_child_nodes(tree):
            if not (isinstance(tree, ast.Compare) and isinstance(child, ast.Constant | ast.Name)):
                yield from _walk(child)
    else:
        for part in tree.values:
            if isinstance(part, ast.FormattedValue):
                yield from _walk(part.value)


@cache
def _definitions() -> dict[str, list[Piece]]:
    """Functions, methods and constants by name; what a class is made with, by that of the class."""
    found: dict[str, list[Piece]] = defaultdict(list)
    for path in [*(ROOT / "shared" / "kube").rglob("*.py"), *(ROOT / "shared" / "runtime").rglob("*.py")]:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[node.name].append(Piece(path, node))
            elif isinstance(node, ast.ClassDef):
                made = [each for each in node.body if getattr(each, "name", "") == "__init__"]
                found[node.name] += [Piece(path, each) for each in made]
        for statement in tree.body:
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    found[_name(target)].append(Piece(path, statement.value))
    found.pop("", None)
    return found


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _text(node: ast.AST) -> str:
    """Of a string, with `x` for what is not known of it; a path that another function makes is known."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if not isinstance(node, ast.FormattedValue):
        return ""
    if isinstance(node.value, ast.Call):
        for made in _definitions().get(_name(node.value.func), ()):
            returned = made.tree.body[-1] if isinstance(made.tree, ast.FunctionDef) else None
            if isinstance(returned, ast.Return) and returned.value is not None:
                return _text(returned.value) or "x"
    return "x"
