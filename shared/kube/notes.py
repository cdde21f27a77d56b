"""What is told to the owner of a pod: Events and the PodScheduled condition, in kube-scheduler's shape."""

import re
import uuid
from datetime import UTC, datetime

import msgspec

MOST_NOTE_BYTES = 1024
"""The API server refuses an Event with a longer note."""
NOTE_CUT = " ..."
MOST_INSTANCE_LENGTH = 128
MOST_NAME_LENGTH = 253

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class PodRef(msgspec.Struct, frozen=True, gc=False):
    """Which pod is meant. With a uid, a pod that was made anew under the same name is not."""

    namespace: str
    name: str
    uid: str


class PodEvent(msgspec.Struct, frozen=True, gc=False):
    """`type`: Normal or Warning. `controller`: the scheduler's name; `instance`: which process. `at`: Unix time."""

    pod: PodRef
    type: str
    reason: str
    action: str
    note: str
    controller: str
    instance: str
    at: float


class PodScheduled(msgspec.Struct, frozen=True, gc=False):
    """The PodScheduled condition is False, for this reason.

    `since`: when it became so (Unix time); None where it was False already, and the time that stands there is kept.
    `generation`: the pod's metadata.generation that was judged, 0 if unknown.
    """

    reason: str
    message: str
    since: float | None
    generation: int = 0


def event_path(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


def event_body(event: PodEvent) -> bytes:
    pod = event.pod
    return msgspec.json.encode(
        {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": event_name(pod.name, event.at), "namespace": pod.namespace},
            "eventTime": micro_time(event.at),
            "reportingController": event.controller,
            "reportingInstance": event.instance[:MOST_INSTANCE_LENGTH],
            "action": event.action,
            "reason": event.reason,
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
            "note": cut_note(event.note),
            "type": event.type,
        }
    )


def event_name(pod_name: str, at: float) -> str:
    """The pod's name and the time; where that would be no valid name, a random one."""
    name = f"{pod_name}.{int(at * 1e9):x}"
    return name if len(name) <= MOST_NAME_LENGTH and _SUBDOMAIN.fullmatch(name) else str(uuid.uuid4())


def cut_note(note: str) -> str:
    raw = note.encode()
    if len(raw) <= MOST_NOTE_BYTES:
        return note
    return raw[: MOST_NOTE_BYTES - len(NOTE_CUT)].decode(errors="ignore") + NOTE_CUT


def condition_body(uid: str, condition: PodScheduled) -> bytes:
    """A strategic merge patch of a pod's status. The uid makes it fail for a pod made anew under the same name."""
    fields: dict[str, object] = {
        "type": "PodScheduled",
        "status": "False",
        "reason": condition.reason,
        "message": condition.message,
    }
    if condition.since is not None:
        fields["lastTransitionTime"] = whole_seconds(condition.since)
    if condition.generation:
        fields["observedGeneration"] = condition.generation
    return msgspec.json.encode({"metadata": {"uid": uid}, "status": {"conditions": [fields]}})


def micro_time(at: float) -> str:
    """A MicroTime: RFC 3339 with microseconds."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def whole_seconds(at: float) -> str:
    """A Time: RFC 3339."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
