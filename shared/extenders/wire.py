"""Requests and answers as they go over the wire: JSON in the names that extenders know from kube-scheduler.

Objects are handed in as the JSON that they are, and put into a request unread. Extenders are written in many
languages: in answers the case of field names does not matter, and null is as good as nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class BadAnswer(ValueError):
    """An answer that is not what the verb calls for."""


class ExtenderVictim(msgspec.Struct, frozen=True):
    """A pod to evict. `object`: its JSON, for extenders that do not watch pods."""

    uid: str
    object: bytes


class Victims(msgspec.Struct, frozen=True):
    """The victims on a node. `violations`: how many of them a disruption budget protects."""

    pods: tuple[ExtenderVictim, ...]
    violations: int = 0


class FilterAnswer(msgspec.Struct, frozen=True):
    """`passed` is None where the extender names no nodes at all."""

    passed: list[str] | None
    failed: dict[str, str]
    unresolvable: dict[str, str]
    error: str


class MetaVictims(msgspec.Struct, frozen=True):
    uids: list[str]
    violations: int


# Requests


def node_request(pod: bytes, names: Sequence[str]) -> bytes:
    """For filter and prioritize, to an extender that knows the nodes."""
    return b'{"Pod":%b,"Nodes":null,"NodeNames":%b}' % (pod, msgspec.json.encode(names))


def whole_node_request(pod: bytes, nodes: Iterable[bytes]) -> bytes:
    """For filter and prioritize, to an extender that needs the nodes as objects."""
    return b'{"Pod":%b,"Nodes":{"metadata":{},"items":[%b]},"NodeNames":null}' % (pod, b",".join(nodes))


def bind_request(namespace: str, name: str, uid: str, node: str) -> bytes:
    return msgspec.json.encode({"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node})


def preempt_request(pod: bytes, candidates: Mapping[str, Victims], *, by_uid: bool) -> bytes:
    of_node = _uids_of if by_uid else _pods_of
    victims = b",".join(b"%b:%b" % (msgspec.json.encode(name), of_node(each)) for name, each in candidates.items())
    whole, meta = (b"null", b"{%b}" % victims) if by_uid else (b"{%b}" % victims, b"null")
    return b'{"Pod":%b,"NodeNameToVictims":%b,"NodeNameToMetaVictims":%b}' % (pod, whole, meta)


def _uids_of(victims: Victims) -> bytes:
    uids = [{"UID": victim.uid} for victim in victims.pods]
    return msgspec.json.encode({"Pods": uids, "NumPDBViolations": victims.violations})


def _pods_of(victims: Victims) -> bytes:
    pods = b",".join(victim.object for victim in victims.pods)
    return b'{"Pods":[%b],"NumPDBViolations":%d}' % (pods, victims.violations)


# Answers


def filter_answer(raw: bytes, *, by_name: bool) -> FilterAnswer:
    """`by_name`: of an extender that was sent names; it may answer with either, any other with nodes."""
    fields = _fields(raw)
    named = _decoded(fields, "nodenames", _STRINGS) if by_name else None
    if named is None:
        nodes = _decoded(fields, "nodes", _NODES)
        named = None if nodes is None else [node.metadata.name for node in nodes.items or ()]
    return FilterAnswer(
        named,
        _decoded(fields, "failednodes", _TEXTS) or {},
        _decoded(fields, "failedandunresolvablenodes", _TEXTS) or {},
        _decoded(fields, "error", _TEXT) or "",
    )


def scores(raw: bytes) -> dict[str, int]:
    """What each host is worth; a host that is named twice is worth both."""
    found: dict[str, int] = {}
    for entry in _decode(raw, _PRIORITIES, "the list of priorities") or ():
        host = entry.host or entry.lower_host
        found[host] = found.get(host, 0) + (entry.score or entry.lower_score)
    return found


def bind_error(raw: bytes) -> str:
    """Why the pod is not bound; empty if it is."""
    return _decoded(_fields(raw), "error", _TEXT) or ""


def preempt_answer(raw: bytes) -> dict[str, MetaVictims]:
    victims = _decoded(_fields(raw), "nodenametometavictims", _VICTIMS)
    return {node: _meta_victims(each) for node, each in (victims or {}).items()}


def _meta_victims(victims: dict[str, Any] | None) -> MetaVictims:
    fields = {key.lower(): value for key, value in (victims or {}).items()}
    pods = _converted(fields.get("pods"), list[dict[str, Any]] | None, "pods")
    violations = _converted(fields.get("numpdbviolations"), int | None, "numPDBViolations")
    uids = [next((value for key, value in pod.items() if key.lower() == "uid"), "") for pod in pods or ()]
    return MetaVictims(_converted(uids, list[str], "pods.uid"), violations or 0)


class _Meta(msgspec.Struct):
    name: str = ""


class _Node(msgspec.Struct):
    metadata: _Meta


class _Nodes(msgspec.Struct):
    items: list[_Node] | None = None


class _Priority(msgspec.Struct):
    host: str = msgspec.field(default="", name="Host")
    score: int = msgspec.field(default=0, name="Score")
    lower_host: str = msgspec.field(default="", name="host")
    lower_score: int = msgspec.field(default=0, name="score")


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
_PRIORITIES = msgspec.json.Decoder(list[_Priority] | None)
_STRINGS = msgspec.json.Decoder(list[str] | None)
_TEXTS = msgspec.json.Decoder(dict[str, str] | None)
_TEXT = msgspec.json.Decoder(str | None)
_NODES = msgspec.json.Decoder(_Nodes | None)
_VICTIMS = msgspec.json.Decoder(dict[str, dict[str, Any] | None] | None)


def _fields(raw: bytes) -> dict[str, msgspec.Raw]:
    return {key.lower(): value for key, value in (_decode(raw, _FIELDS, "the answer") or {}).items()}


def _decoded(fields: Mapping[str, msgspec.Raw], name: str, decoder: msgspec.json.Decoder[T]) -> T | None:
    value = fields.get(name)
    return None if value is None else _decode(value, decoder, name)


def _decode(raw: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[T], what: str) -> T:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
        raise BadAnswer(f"{what}: {cause}") from cause


def _converted(value: object, type_: Any, what: str) -> Any:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as cause:
        raise BadAnswer(f"{what}: {cause}") from cause
