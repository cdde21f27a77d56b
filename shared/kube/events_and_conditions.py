"""Events and pod conditions, in kube-scheduler's form, and pods as the API server has them."""

import re
import uuid
from datetime import UTC, datetime

import msgspec

MAX_NOTE_BYTES = 1024
"""The API server refuses Events with longer notes."""
NOTE_CUT = " ..."
MAX_INSTANCE_LENGTH = 128
MAX_NAME_LENGTH = 253

POD_SCHEDULED = "PodScheduled"
DISRUPTION_TARGET = "DisruptionTarget"
BINDING_FENCED = "flotilla.io/BindingFenced"
TRUE, FALSE = "True", "False"
PREEMPTED = "PreemptionByScheduler"
NOMINATED = "/status/nominatedNodeName"

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class PodRef(msgspec.Struct, frozen=True, gc=False):
    """A reference to a pod. The uid excludes a pod recreated under the same name.

    `kind`: of an Event's object, which may be a Node; that has no namespace, so its Events are in `default`.
    """

    namespace: str
    name: str
    uid: str
    kind: str = "Pod"

    @property
    def event_namespace(self) -> str:
        return self.namespace or "default"


class PodEvent(msgspec.Struct, frozen=True, gc=False):
    """`type`: Normal or Warning. `controller`: the scheduler's name; `instance`: the process. `at`: Unix time.

    `related`: another pod that it concerns. `count`: occurrences; `last`: the time of the last one if there are
    several.
    """

    pod: PodRef
    type: str
    reason: str
    action: str
    note: str
    controller: str
    instance: str
    at: float
    related: PodRef | None = None
    count: int = 1
    last: float = 0.0


class PodScheduled(msgspec.Struct, frozen=True, gc=False):
    """The PodScheduled condition is False, for this reason.

    `since`: when it became False (Unix time); None if it was False already, which keeps its time. `generation`: the
    metadata.generation that was judged, 0 if unknown.
    """

    reason: str
    message: str
    since: float | None
    generation: int = 0

    def fields(self) -> dict[str, object]:
        return condition_fields(POD_SCHEDULED, FALSE, self.reason, self.message, self.since, self.generation)


class DisruptionTarget(msgspec.Struct, frozen=True, gc=False):
    """The DisruptionTarget condition: the scheduler preempts the pod, or (`cancelled`) no longer does.

    `since` and `generation` as above.
    """

    message: str
    since: float | None
    generation: int = 0
    cancelled: bool = False

    def fields(self) -> dict[str, object]:
        status = FALSE if self.cancelled else TRUE
        return condition_fields(DISRUPTION_TARGET, status, PREEMPTED, self.message, self.since, self.generation)


class BindingFenced(msgspec.Struct, frozen=True, gc=False):
    """Bindings that name this version of the pod were given up. Written only to give the pod another version."""

    version: str
    by: str

    def fields(self) -> dict[str, object]:
        message = f"{self.by} gave up bindings that name resourceVersion {self.version or 'none'}"
        return condition_fields(BINDING_FENCED, TRUE, "VersionChanged", message, None, 0)


Condition = PodScheduled | DisruptionTarget | BindingFenced


class ObservedCondition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A condition as the API server has it."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0


class ObservedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod as the API server has it. `node`: empty if it is not bound.

    `version`: metadata.resourceVersion. `phase`: status.phase. `priority`, `policy`: spec.priority, 0 if unset, and
    spec.preemptionPolicy. `owner`: its controller, as `ReplicaSet/web`. `group`: the name of its PodGroup.
    """

    uid: str
    node: str
    terminating: bool
    generation: int
    conditions: list[ObservedCondition]
    version: str = ""
    nominated: str = ""
    phase: str = ""
    priority: int = 0
    policy: str = ""
    owner: str = ""
    group: str = ""


def event_path(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


def event_body(event: PodEvent) -> bytes:
    """Encoded from structs, because half of a binder's calls create Events."""
    body = _EventBody(
        "events.k8s.io/v1",
        "Event",
        _EventMeta(event_name(event.pod.name, event.at), event.pod.event_namespace),
        micro_time(event.at),
        event.controller,
        event.instance[:MAX_INSTANCE_LENGTH],
        event.action,
        event.reason,
        _reference(event.pod),
        cut_note(event.note),
        event.type,
        None if event.related is None else _reference(event.related),
        _series(event) if event.count > 1 else None,
    )
    return _ENCODER.encode(body)


def series_path(event: PodEvent) -> str:
    """The path of an Event that was written before."""
    return f"{event_path(event.pod.event_namespace)}/{event_name(event.pod.name, event.at)}"


def series_body(event: PodEvent) -> bytes:
    """A strategic merge patch with the number of occurrences and the last time: all of an Event that may change."""
    return _ENCODER.encode({"series": _series(event)})


def _series(event: PodEvent) -> "_EventSeries":
    return _EventSeries(event.count, micro_time(event.last))


def _reference(pod: PodRef) -> "_Reference":
    return _Reference("v1", pod.kind, pod.name, pod.uid, pod.namespace)


def event_name(pod_name: str, at: float) -> str:
    """The pod's name and the time; if that is no valid name, a UUID made from both."""
    name = f"{pod_name}.{int(at * 1e9):x}"
    valid = len(name) <= MAX_NAME_LENGTH and _SUBDOMAIN.fullmatch(name)
    return name if valid else str(uuid.uuid5(uuid.NAMESPACE_OID, name))


def cut_note(note: str) -> str:
    raw = note.encode()
    if len(raw) <= MAX_NOTE_BYTES:
        return note
    return raw[: MAX_NOTE_BYTES - len(NOTE_CUT)].decode(errors="ignore") + NOTE_CUT


def status_body(uid: str, condition: Condition | None, nominated: str | None = None, version: str = "") -> bytes:
    """A strategic merge patch of a pod's status; the uid makes it fail for a recreated pod.

    `nominated`: the nominated node, empty for none, None to leave it unchanged. With `version`
    (metadata.resourceVersion) the patch fails if the pod has changed since.
    """
    metadata = {"uid": uid, "resourceVersion": version} if version else {"uid": uid}
    status: dict[str, object] = {}
    if condition is not None:
        status["conditions"] = [condition.fields()]
    if nominated is not None:
        status["nominatedNodeName"] = nominated or None
    return msgspec.json.encode({"metadata": metadata, "status": status})


def clear_nomination_body(uid: str, node: str) -> bytes:
    """A JSON patch that removes this nomination, and fails if the pod has another one or none."""
    tests = [("/metadata/uid", uid), (NOMINATED, node)]
    steps: list[dict[str, str]] = [{"op": "test", "path": path, "value": value} for path, value in tests]
    return msgspec.json.encode([*steps, {"op": "remove", "path": NOMINATED}])


def delete_body(uid: str, version: str) -> bytes:
    """Options that make the deletion fail for a recreated pod, and for one that has changed since this version."""
    preconditions = {"uid": uid, "resourceVersion": version}
    return msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions})


def observed_pod(raw: bytes) -> ObservedPod:
    """Read from a pod's JSON; raises msgspec.DecodeError if it is none."""
    read = _POD.decode(raw)
    meta, spec, status = read.metadata, read.spec, read.status
    return ObservedPod(
        uid=meta.uid,
        node=spec.node_name or "",
        terminating=meta.deletion_timestamp is not None,
        generation=meta.generation,
        conditions=status.conditions or [],
        version=meta.resource_version,
        nominated=status.nominated_node_name or "",
        phase=status.phase or "",
        priority=spec.priority or 0,
        policy=spec.preemption_policy or "",
        owner=next((f"{each.kind}/{each.name}" for each in meta.owner_references or () if each.controller), ""),
        group="" if spec.scheduling_group is None else spec.scheduling_group.pod_group_name or "",
    )


def preemption_condition(pod: ObservedPod, message: str, now: float) -> DisruptionTarget | None:
    """The condition that marks this pod as preempted; None if it is there already."""
    condition = next((c for c in pod.conditions if c.type == DISRUPTION_TARGET), None)
    if condition is None or condition.status != TRUE:
        return DisruptionTarget(message, now, pod.generation)
    if (condition.reason, condition.message) == (PREEMPTED, message):
        return None
    return DisruptionTarget(message, None, pod.generation)


def condition_fields(
    type_: str, status: str, reason: str, message: str, since: float | None, generation: int
) -> dict[str, object]:
    """`since` and `generation` as in PodScheduled."""
    fields: dict[str, object] = {"type": type_, "status": status, "reason": reason, "message": message}
    if since is not None:
        fields["lastTransitionTime"] = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if generation:
        fields["observedGeneration"] = generation
    return fields


def micro_time(at: float) -> str:
    """A MicroTime: RFC 3339 with microseconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


class _EventMeta(msgspec.Struct, frozen=True, gc=False):
    name: str
    namespace: str


class _Reference(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""


class _EventSeries(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    count: int
    last_observed_time: str


class _EventBody(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """An Event of events.k8s.io/v1."""

    api_version: str
    kind: str
    metadata: _EventMeta
    event_time: str
    reporting_controller: str
    reporting_instance: str
    action: str
    reason: str
    regarding: _Reference
    note: str
    type: str
    related: _Reference | None = None
    series: _EventSeries | None = None


_ENCODER = msgspec.json.Encoder()


class _Owner(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    owner_references: list[_Owner] | None = None
    generation: int = 0
    resource_version: str = ""
    deletion_timestamp: str | None = None


class _SchedulingGroup(msgspec.Struct, frozen=True, rename="camel"):
    pod_group_name: str | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    scheduling_group: _SchedulingGroup | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    conditions: list[ObservedCondition] | None = None
    nominated_node_name: str | None = None
    phase: str | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


_POD = msgspec.json.Decoder(_Pod)
