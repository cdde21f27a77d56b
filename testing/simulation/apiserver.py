"""The API server's state: the truth, and the rules by which it changes. Every change gets a version and is remembered.

A pod on a node that is asked to go terminates for a while first; one without a node goes at once.
"""

import asyncio
from collections.abc import Callable, Container
from typing import Any, NamedTuple

from msgspec.structs import replace

from shared.messages.watch import Kind
from shared.model.objects import (
    ClusterObject,
    Node,
    ObjectKind,
    Pod,
    PodCondition,
    PodStatus,
    encode_json,
    key_of,
    kind_of,
)
from shared.model.resources import allocatable, filter_requests
from testing.simulation.dice import Dice
from testing.simulation.loop import NOBODY

FINISHED = "Succeeded"
What = Pod | Node | ClusterObject
GRACE = (0.2, 1.0, 3.0, 8.0)
"""Seconds that a pod takes to terminate."""
VERSION = "simulation/version"
"""A label of nodes: the version at which they are, also where an object is told without it."""
TERMINATING = "2026-01-01T00:00:00Z"


class Refusal(Exception):
    """An answer that is none of success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


NOT_FOUND = "not found"


class Change(NamedTuple):
    """`type`, `raw`: as a watch tells it."""

    version: int
    kind: Kind
    key: str
    type: str
    raw: bytes


class ApiServer:
    """`followers` hear of every change, in order. `broken`: what must never be, and was."""

    def __init__(self, dice: Dice) -> None:
        self.pods: dict[str, Pod] = {}
        """By uid."""
        self.nodes: dict[str, Node] = {}
        self.objects: dict[tuple[ObjectKind, str], ClusterObject] = {}
        self.leases: dict[str, dict[str, Any]] = {}
        self.bound: dict[str, str] = {}
        """Every pod that was ever bound, to which node."""
        self.priorities: dict[str, int] = {}
        """Of every pod that was ever there."""
        self.evicted: set[str] = set()
        """The uids of pods that a scheduler has asked to go."""
        self.broken: list[str] = []
        self.history: list[Change] = []
        self.version = 0
        self.followers: list[Callable[[Change], None]] = []
        self.on_bind: list[Callable[[Pod], None]] = []
        """Told of a pod that was bound just now."""
        self._dice = dice

    # Objects

    def put_pod(self, pod: Pod) -> None:
        known = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod = replace(pod, metadata=self._versioned(pod.metadata))
        self.priorities[pod.uid] = pod.priority
        if pod.status.phase == FINISHED:
            if known is not None and known.status.phase != FINISHED:
                self._tell(Kind.POD, pod.uid, "DELETED", pod)
        else:
            self._tell(Kind.POD, pod.uid, "ADDED" if known is None else "MODIFIED", pod)

    def put_node(self, node: Node) -> None:
        type_ = "MODIFIED" if node.name in self.nodes else "ADDED"
        metadata = self._versioned(node.metadata)
        metadata = replace(metadata, labels={**metadata.labels, VERSION: metadata.resource_version})
        self.nodes[node.name] = node = replace(node, metadata=metadata)
        self._tell(Kind.NODE, node.name, type_, node)

    def delete_pod(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None and pod.status.phase != FINISHED:
            self._tell(Kind.POD, uid, "DELETED", replace(pod, metadata=self._versioned(pod.metadata)))

    def delete_node(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is not None:
            self._tell(Kind.NODE, name, "DELETED", replace(node, metadata=self._versioned(node.metadata)))

    def put_object(self, obj: ClusterObject) -> None:
        key = kind_of(obj), key_of(obj)
        type_ = "MODIFIED" if key in self.objects else "ADDED"
        self.objects[key] = obj = replace(obj, metadata=self._versioned(obj.metadata))
        self._tell(Kind(key[0].value), key[1], type_, obj)

    def delete_object(self, kind: ObjectKind, key: str) -> None:
        obj = self.objects.pop((kind, key), None)
        if obj is not None:
            self._tell(Kind(kind.value), key, "DELETED", replace(obj, metadata=self._versioned(obj.metadata)))

    def terminate(self, uid: str) -> None:
        """It is asked to go, and does when its grace is over."""
        pod = self.pods.get(uid)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return
        if not pod.spec.node_name or pod.status.phase == FINISHED:
            self.delete_pod(uid)
            return
        self.put_pod(replace(pod, metadata=replace(pod.metadata, deletion_timestamp=TERMINATING)))
        grace = self._dice.of("grace", uid).choice(GRACE)
        asyncio.get_running_loop().call_later(grace, self.delete_pod, uid, context=NOBODY)

    def pod_named(self, name: str) -> Pod | None:
        return next((pod for pod in self.pods.values() if pod.name == name), None)

    # What schedulers ask for

    def found(self, name: str, uid: str = "", version: str = "") -> Pod:
        """Refusal if it is not there, or not this one, or not at this version."""
        pod = self.pod_named(name)
        if pod is None:
            raise Refusal(404, f'pods "{name}" not found')
        if uid not in ("", pod.uid):
            raise Refusal(409, f"Precondition failed: UID in precondition: {uid}, UID in object meta: {pod.uid}")
        if version not in ("", pod.metadata.resource_version):
            raise Refusal(409, "the object has been modified; please apply your changes to the latest version")
        return pod

    def bind(self, name: str, uid: str, node: str, version: str = "") -> None:
        pod = self.found(name, uid, version)
        if pod.metadata.deletion_timestamp is not None:
            raise Refusal(409, f"pod {name} is being deleted, cannot be assigned to a host")
        if pod.spec.node_name:
            raise Refusal(409, f"pod {name} is already assigned to node {pod.spec.node_name!r}")
        if uid in self.bound:
            self.broken.append(f"{name} is bound twice")
        self.bound[uid] = node
        conditions = with_condition(pod.status, PodCondition(type="PodScheduled", status="True"))
        status = replace(pod.status, nominated_node_name="", conditions=conditions)
        self.put_pod(replace(pod, spec=replace(pod.spec, node_name=node), status=status))
        for hear in self.on_bind:
            hear(self.pods[uid])

    def set_status(self, pod: Pod, condition: PodCondition | None, nominated: str | None) -> Pod:
        status = pod.status
        if condition is not None:
            status = replace(status, conditions=with_condition(status, condition))
        if nominated is not None:
            status = replace(status, nominated_node_name=nominated)
        if status != pod.status:
            self.put_pod(replace(pod, status=status))
        return self.pods[pod.uid]

    def evict(self, pod: Pod) -> None:
        self.evicted.add(pod.uid)
        self.terminate(pod.uid)

    def has_room(self, node: Node, *more: Pod, without: Container[str] = ()) -> bool:
        on_it = (pod for uid, pod in self.pods.items() if pod.spec.node_name == node.name and uid not in without)
        pods = [pod for pod in on_it if pod.status.phase != FINISHED]
        used: dict[str, int] = {"pods": len(pods) + len(more)}
        for pod in (*pods, *more):
            for name, amount in filter_requests(pod).items():
                used[name] = used.get(name, 0) + amount
        there = allocatable(node)
        return all(amount <= there.get(name, 0) for name, amount in used.items())

    # What was at a version

    def state_at(self, kind: Kind, version: int) -> list[bytes]:
        """All objects of the kind as they were then."""
        found: dict[str, bytes] = {}
        for change in self.history:
            if change.kind is kind and change.version <= version:
                if change.type == "DELETED":
                    found.pop(change.key, None)
                else:
                    found[change.key] = change.raw
        return list(found.values())

    def _tell(self, kind: Kind, key: str, type_: str, what: What) -> None:
        change = Change(self.version, kind, key, type_, encode_json(what))
        self.history.append(change)
        for follower in self.followers:
            follower(change)

    def _versioned(self, metadata: Any) -> Any:
        self.version += 1
        return replace(metadata, resource_version=str(self.version))


def with_condition(status: PodStatus, new: PodCondition) -> list[PodCondition]:
    return [*(condition for condition in status.conditions if condition.type != new.type), new]
