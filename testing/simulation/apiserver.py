"""The API server: the cluster's objects, the rules by which they change, and the paths of its REST interface.

Every change gets a version and is recorded. A bound pod terminates gracefully; an unbound one is deleted at once.
"""

import asyncio
import re
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote

import msgspec
from msgspec.structs import replace

from services.watcher.resources import RESOURCES
from shared.messages.watch import Kind
from shared.model.objects import (
    ClusterObject,
    Node,
    ObjectKind,
    Pod,
    PodCondition,
    PodStatus,
    decode_object,
    encode_json,
    key_of,
    kind_of,
)
from shared.model.resources import allocatable, filter_requests
from testing.simulation.loop import WORLD, Dice

FINISHED = "Succeeded"
GRACE = (0.2, 1.0, 3.0, 8.0)
"""Seconds that a pod takes to terminate."""
VERSION = "simulation/version"
"""A label of nodes with their resource version, for messages that omit it."""
TERMINATING = "2026-01-01T00:00:00Z"

JSON_PATCH = "application/json-patch+json"
PATHS: dict[str, Kind] = {resource.path: kind for kind, resource in RESOURCES.items()}
_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(/binding|/status)?")
_LEASES = re.compile(r"/apis/coordination\.k8s\.io/v1/namespaces/[^/]+/leases(?:/([^/]+))?")
_EVENTS = re.compile(r"/apis/events\.k8s\.io/v1/namespaces/[^/]+/events(/.*)?")
_OBJECT = re.compile(r"(/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/([^/]+))?/([^/]+)/([^/]+)")

SYSTEM = "/api/v1/namespaces/kube-system"
CLUSTER = "simulation"
"""The uid of the cluster."""

ON_NODE, ON_ANY_NODE = "spec.nodeName=", "spec.nodeName!="
"""Field selectors of lists. Others select unfinished pods, which are the only ones that are listed."""

Answer = tuple[int, bytes]
"""Status code and body."""


class Refusal(Exception):
    """An unsuccessful answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Change(NamedTuple):
    """`type`, `raw`: as in a watch event."""

    version: int
    kind: Kind
    key: str
    type: str
    raw: bytes


AnswerClaims = Callable[["ApiServer", str, str, bytes | None, Any], Answer | None]
"""The answer to a call about resource claims; None for other paths."""


class ApiServer:
    """`followers` are called with every change, in order. `broken`: violated invariants."""

    def __init__(self, dice: Dice) -> None:
        self.pods: dict[str, Pod] = {}
        """By uid."""
        self.nodes: dict[str, Node] = {}
        self.objects: dict[tuple[ObjectKind, str], ClusterObject] = {}
        self.leases: dict[str, dict[str, Any]] = {}
        self.bound: dict[str, str] = {}
        """The node of every pod that was ever bound, by uid."""
        self.priorities: dict[str, int] = {}
        """Of every pod that ever existed, by uid."""
        self.evicted: set[str] = set()
        """The uids of pods that a scheduler deleted."""
        self.finalizers: dict[str, tuple[str, ...]] = {}
        """Of resource claims, by uid."""
        self.annotations: dict[str, dict[str, str]] = {}
        """Of resource claims, by uid."""
        self.special_claims: dict[str, dict[str, Any]] = {}
        """The status fields that name the claims for the extended resources of pods, by uid of the pod."""
        self.served_by_devices: frozenset[str] = frozenset()
        """Extended resources that pods get as devices, so that nodes do not offer them."""
        self.broken: list[str] = []
        self.history: list[Change] = []
        self.version = 0
        self.followers: list[Callable[[Change], None]] = []
        self.on_bind: list[Callable[[Pod], None]] = []
        """Called with each pod as it is bound."""
        self.grace: Callable[[str], float] = lambda uid: dice.of("grace", uid).choice(GRACE)
        """Seconds that a pod takes to terminate, by uid."""

    # Objects

    def put_pod(self, pod: Pod) -> None:
        known = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod = replace(pod, metadata=self._versioned(pod.metadata))
        self.priorities[pod.uid] = pod.priority
        if pod.status.phase == FINISHED:
            if known is not None and known.status.phase != FINISHED:
                self._record(Kind.POD, pod.uid, "DELETED", pod)
        else:
            self._record(Kind.POD, pod.uid, "ADDED" if known is None else "MODIFIED", pod)

    def put_node(self, node: Node) -> None:
        type_ = "MODIFIED" if node.name in self.nodes else "ADDED"
        metadata = self._versioned(node.metadata)
        metadata = replace(metadata, labels={**metadata.labels, VERSION: metadata.resource_version})
        self.nodes[node.name] = node = replace(node, metadata=metadata)
        self._record(Kind.NODE, node.name, type_, node)

    def delete_pod(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None and pod.status.phase != FINISHED:
            self._record(Kind.POD, uid, "DELETED", replace(pod, metadata=self._versioned(pod.metadata)))

    def delete_node(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is not None:
            self._record(Kind.NODE, name, "DELETED", replace(node, metadata=self._versioned(node.metadata)))

    def put_object(self, obj: ClusterObject) -> None:
        key = kind_of(obj), key_of(obj)
        type_ = "MODIFIED" if key in self.objects else "ADDED"
        self.objects[key] = obj = replace(obj, metadata=self._versioned(obj.metadata))
        self._record(Kind(key[0].value), key[1], type_, obj)

    def delete_object(self, kind: ObjectKind, key: str) -> None:
        obj = self.objects.pop((kind, key), None)
        if obj is not None:
            self._record(Kind(kind.value), key, "DELETED", replace(obj, metadata=self._versioned(obj.metadata)))

    def terminate(self, uid: str) -> None:
        """Delete a pod gracefully: it is gone after its grace period."""
        pod = self.pods.get(uid)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return
        if not pod.spec.node_name or pod.status.phase == FINISHED:
            self.delete_pod(uid)
            return
        self.put_pod(replace(pod, metadata=replace(pod.metadata, deletion_timestamp=TERMINATING)))
        asyncio.get_running_loop().call_later(self.grace(uid), self.delete_pod, uid, context=WORLD)

    def pod_named(self, name: str) -> Pod | None:
        return next((pod for pod in self.pods.values() if pod.name == name), None)

    # Calls of schedulers

    def found(self, name: str, uid: str = "", version: str = "") -> Pod:
        """The pod; Refusal if it does not exist or a precondition fails."""
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
        for on_bind in self.on_bind:
            on_bind(self.pods[uid])

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
        used, room = self.requests([*(pod for pod in on_it if pod.status.phase != FINISHED), *more]), allocatable(node)
        return all(amount <= room.get(name, 0) for name, amount in used.items())

    def requests(self, pods: Sequence[Pod]) -> dict[str, int]:
        """What these pods take of their node together."""
        used: dict[str, int] = {"pods": len(pods)}
        for pod in pods:
            for name, amount in filter_requests(pod).items():
                if name not in self.served_by_devices:
                    used[name] = used.get(name, 0) + amount
        return used

    def state_at(self, kind: Kind, version: int) -> list[bytes]:
        """All objects of the kind, as of this version."""
        found: dict[str, bytes] = {}
        for change in self.history:
            if change.kind is kind and change.version <= version:
                if change.type == "DELETED":
                    found.pop(change.key, None)
                else:
                    found[change.key] = change.raw
        return list(found.values())

    def _record(self, kind: Kind, key: str, type_: str, what: Pod | Node | ClusterObject) -> None:
        change = Change(self.version, kind, key, type_, encode_json(what))
        self.history.append(change)
        for follower in self.followers:
            follower(change)

    def _versioned(self, metadata: Any) -> Any:
        self.version += 1
        return replace(metadata, resource_version=str(self.version))


def with_condition(status: PodStatus, new: PodCondition) -> list[PodCondition]:
    return [*(condition for condition in status.conditions if condition.type != new.type), new]


def _node_of(raw: bytes) -> str:
    return str(msgspec.json.decode(raw)["spec"].get("nodeName", ""))


def status(code: int, message: str) -> Answer:
    return code, msgspec.json.encode({"kind": "Status", "apiVersion": "v1", "code": code, "message": message})


class Requests:
    def __init__(self, server: ApiServer, shown: Callable[[], int], answer_claims: AnswerClaims) -> None:
        """`shown`: the version that lists show."""
        self._server = server
        self._shown = shown
        self._answer_claims = answer_claims

    def answer(self, method: str, path: str, body: bytes | None, content_type: str) -> Answer:
        try:
            return self._answer(method, path, body, content_type)
        except Refusal as refusal:
            return status(refusal.status, refusal.message)

    def _answer(self, method: str, path: str, body: bytes | None, content_type: str) -> Answer:
        folder, _, query = path.partition("?")
        folder = unquote(folder)
        given = msgspec.json.decode(body) if body else None
        if match := _POD.fullmatch(folder):
            return self._pod(method, match[2], match[3] or "", given, content_type)
        if match := _LEASES.fullmatch(folder):
            return self._lease(method, match[1], given)
        if _EVENTS.fullmatch(folder):
            return 201 if method == "POST" else 200, b"{}"
        if folder in PATHS and method == "GET":
            return self._list(PATHS[folder], parse_qs(query))
        if folder == SYSTEM and method == "GET":
            return 200, msgspec.json.encode({"metadata": {"name": "kube-system", "uid": CLUSTER}})
        found = self._answer_claims(self._server, method, folder, body, given)
        return self._object(method, folder, body, given) if found is None else found

    def pod_to_delete(self, path: str, body: bytes | None) -> str:
        """The uid that a deletion names as its precondition, else that of the pod that has this name now, if any.

        Empty for deletions of other objects.
        """
        match = _POD.fullmatch(unquote(path))
        if match is None:
            return ""
        there = self._server.pod_named(match[2])
        asked = msgspec.json.decode(body or b"{}").get("preconditions", {})
        return str(asked.get("uid", "" if there is None else there.uid))

    # Pods

    def _pod(self, method: str, name: str, part: str, given: Any, content_type: str) -> Answer:
        server = self._server
        match method, part:
            case "GET", "":
                return 200, self._with_special_claim(server.found(name))
            case "PUT", "/status":
                return self._put_status(name, given)
            case "POST", "/binding":
                asked = given["metadata"]
                version = asked.get("resourceVersion", "")
                server.bind(name, asked.get("uid", ""), given["target"]["name"], version)
                return status(201, "")
            case "PATCH", "/status" if content_type == JSON_PATCH:
                return self._json_patch(name, given)
            case "PATCH", "/status":
                return self._patch_status(name, given)
            case "DELETE", "":
                asked = (given or {}).get("preconditions", {})
                server.evict(server.found(name, asked.get("uid", ""), asked.get("resourceVersion", "")))
                return status(200, "")
        raise Refusal(405, f"{method} {part} is not simulated")

    def _patch_status(self, name: str, given: Any) -> Answer:
        asked, new = given.get("metadata", {}), given.get("status", {})
        pod = self._server.found(name, asked.get("uid", ""), asked.get("resourceVersion", ""))
        nominated = (new["nominatedNodeName"] or "") if "nominatedNodeName" in new else None
        for condition in new.get("conditions", ()) or [None]:
            read = None if condition is None else msgspec.convert(condition, PodCondition)
            pod = self._server.set_status(pod, read, nominated)
        return 200, encode_json(pod)

    def _put_status(self, name: str, given: Any) -> Answer:
        """Only the field that names the claim for the pod's extended resources is written."""
        pod = self._server.found(name, given["metadata"]["uid"], given["metadata"].get("resourceVersion", ""))
        self._server.special_claims[pod.uid] = given["status"]["extendedResourceClaimStatus"]
        self._server.put_pod(pod)
        return 200, self._with_special_claim(self._server.pods[pod.uid])

    def _with_special_claim(self, pod: Pod) -> bytes:
        if (named := self._server.special_claims.get(pod.uid)) is None:
            return encode_json(pod)
        plain = msgspec.json.decode(encode_json(pod))
        plain.setdefault("status", {})["extendedResourceClaimStatus"] = named
        return msgspec.json.encode(plain)

    def _json_patch(self, name: str, given: Any) -> Answer:
        """Only patches that clear a nomination."""
        pod = self._server.found(name)
        there = {"/metadata/uid": pod.uid, "/status/nominatedNodeName": pod.status.nominated_node_name}
        for step in given:
            if step["op"] == "test" and there.get(step["path"]) != step["value"]:
                raise Refusal(422, f"the server rejected our request: testing path {step['path']}")
            if step["op"] == "remove":
                pod = self._server.set_status(pod, None, "")
        return 200, encode_json(pod)

    # Leases

    def _lease(self, method: str, name: str | None, given: Any) -> Answer:
        leases = self._server.leases
        key = name or given["metadata"]["name"]
        if method in ("GET", "PUT") and key not in leases:
            raise Refusal(404, f'leases "{key}" not found')
        if method == "POST" and key in leases:
            raise Refusal(409, f'leases "{key}" already exists')
        if method == "PUT" and given["metadata"].get("resourceVersion") != leases[key]["metadata"]["resourceVersion"]:
            raise Refusal(409, "the object has been modified; please apply your changes to the latest version")
        if method in ("PUT", "POST"):
            self._server.version += 1
            given["metadata"]["resourceVersion"] = str(self._server.version)
            leases[key] = given
        return 201 if method == "POST" else 200, msgspec.json.encode(leases[key])

    # Other objects

    def _list(self, kind: Kind, query: dict[str, list[str]]) -> Answer:
        version = self._shown()
        selector = query.get("fieldSelector", [""])[0]
        there = self._server.state_at(kind, version)
        if selector.startswith(ON_NODE):
            there = [raw for raw in there if _node_of(raw) == selector.removeprefix(ON_NODE)]
        elif selector == ON_ANY_NODE:
            there = [raw for raw in there if _node_of(raw)]
        raws = [msgspec.Raw(raw) for raw in there]
        return 200, msgspec.json.encode({"metadata": {"resourceVersion": str(version)}, "items": raws})

    def _object(self, method: str, folder: str, body: bytes | None, given: Any) -> Answer:
        """Get or replace, as binders of volumes do."""
        match = _OBJECT.fullmatch(folder)
        if match is not None and method == "GET" and match[3] == "nodes" and match[4] in self._server.nodes:
            return 200, encode_json(self._server.nodes[match[4]])
        path = "" if match is None else f"{match[1]}/{match[3]}"
        if match is None or path not in PATHS or PATHS[path] in (Kind.POD, Kind.NODE):
            raise Refusal(404, f"{method} {folder} is not simulated")
        kind = ObjectKind(PATHS[path].value)
        key = f"{match[2]}/{match[4]}" if match[2] else match[4]
        there = self._server.objects.get((kind, key))
        if there is None:
            raise Refusal(404, f'{match[3]} "{match[4]}" not found')
        if method == "PUT":
            new, asked = decode_object(kind, msgspec.Raw(body or b"{}")), given["metadata"].get("resourceVersion", "")
            if asked not in ("", there.metadata.resource_version):
                raise Refusal(409, "the object has been modified; please apply your changes to the latest version")
            if key_of(new) != key:
                raise Refusal(400, "the name of the object does not match the path")
            self._server.put_object(new)
            there = self._server.objects[kind, key]
        return 200, encode_json(there)
