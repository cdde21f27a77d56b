"""What plugins say in words for people: why a pod is pending, and what it waits for."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from shared.messages.inspection import DescribedPod

PREEMPTION = "DefaultPreemption"
GANG_PLUGINS = frozenset({"GangScheduling", "Coscheduling"})
ANY_EVENT = "*All"
IN_FLIGHT = frozenset({"in-flight", "binding"})
INSUFFICIENT = "Insufficient "
SHOWN_EVENTS = 3
"""Events of a pod that a sentence names; the rest is counted."""
_AVAILABLE = re.compile(r"0/\d+ nodes are available: ")
_NEXT_REASON = re.compile(r", (?=\d+ )")
_COUNTED = re.compile(r"(\d+) (.+)", re.DOTALL)

_CHANGES = {"Add": "is added", "Update": "changes", "Delete": "is deleted"}
_OBJECTS = {
    "PersistentVolume": "a persistent volume",
    "PersistentVolumeClaim": "a persistent volume claim",
    "storage.k8s.io/CSINode": "a CSINode",
    "storage.k8s.io/CSIDriver": "a CSI driver",
    "storage.k8s.io/CSIStorageCapacity": "a storage capacity",
    "storage.k8s.io/StorageClass": "a storage class",
    "storage.k8s.io/VolumeAttachment": "a volume attachment",
    "resource.k8s.io/ResourceClaim": "a resource claim",
    "resource.k8s.io/ResourceSlice": "a resource slice",
    "resource.k8s.io/DeviceClass": "a device class",
    "scheduling.k8s.io/PodGroup": "a pod group",
}
EVENTS: Mapping[str, str] = {
    "NodeAdd": "a node is added",
    "AssignedPodDelete": "a pod leaves",
    "NodeUpdateNodeAllocatable": "a node's capacity changes",
    "NodeUpdateNodeTaint": "a node's taints change",
    "NodeUpdateNodeLabel": "a node's labels change",
    "NodeUpdateNodeCondition": "a node's conditions change",
    "NodeUpdateNodeAnnotation": "a node's annotations change",
    "NodeUpdateNodeDeclaredFeature": "a node's features change",
    "NodeUpdate": "a node changes",
    "NodeDelete": "a node is deleted",
    "AssignedPodAdd": "a pod is placed",
    "AssignedPodUpdatePodLabel": "a placed pod's labels change",
    "AssignedPodUpdatePodScaleDown": "a placed pod asks for less",
    "AssignedPodUpdatePodToleration": "a placed pod's tolerations change",
    "AssignedPodUpdatePodSchedulingGatesEliminated": "a placed pod's gates are gone",
    "AssignedPodUpdatePodGeneratedResourceClaim": "a placed pod's claims are made",
    "AssignedPodUpdate": "a placed pod changes",
    "UnschedulablePodUpdatePodSchedulingGatesEliminated": "its scheduling gates are removed",
    "UnschedulablePodUpdatePodScaleDown": "it asks for less",
    "UnschedulablePodUpdatePodToleration": "its tolerations change",
    "UnschedulablePodUpdatePodLabel": "its labels change",
    "UnschedulablePodUpdatePodGeneratedResourceClaim": "its claims are made",
    "UnschedulablePodUpdate": "the pod changes",
    "UnschedulablePodAdd": "a pending pod is added",
    "UnschedulablePodDelete": "a pending pod is deleted",
    **{f"{kind}{change}": f"{what} {does}" for kind, what in _OBJECTS.items() for change, does in _CHANGES.items()},
    ANY_EVENT: "any event",
}
"""By kube-scheduler's labels, in the order in which they are named."""
_ORDER = {label: number for number, label in enumerate(EVENTS)}


class Reason(NamedTuple):
    """`nodes`: how many nodes reject the pod for it; 0 if it does not depend on nodes."""

    nodes: int
    text: str

    def __str__(self) -> str:
        return f"{self.nodes:,} {self.text}" if self.nodes else self.text


def events_in_words(labels: Iterable[str]) -> tuple[str, ...]:
    """The likeliest first. An event without words, of a later release, is named by its label."""
    ordered = sorted(labels, key=lambda label: _ORDER.get(label, len(_ORDER)))
    return tuple(dict.fromkeys(EVENTS.get(label, label) for label in ordered))


def reasons(message: str) -> list[Reason]:
    """The reasons in a message such as `0/3 nodes are available: 2 Insufficient cpu, 1 Too many pods. preemption: ...`.

    Any other message is one reason.
    """
    start = _AVAILABLE.match(message)
    if start is None:
        return [Reason(0, message)] if message else []
    told = message[start.end() :].partition(". ")[0].removesuffix(".")
    found = []
    for part in _NEXT_REASON.split(told):
        counted = _COUNTED.fullmatch(part)
        found.append(Reason(0, part) if counted is None else Reason(int(counted[1]), counted[2]))
    return found


def why_pending(pod: "DescribedPod") -> str:
    """Empty for a pod that nothing keeps. Of one that is tried again, why its last attempt failed."""
    parts = [f"gate {gate(pod)}"] if pod.gate else []
    if pod.failed_at is not None and not pod.gate and pod.state not in IN_FLIGHT:
        parts += [", ".join(map(str, reasons(pod.message)))]
    if pod.nominated:
        parts.append(f"nominated to {pod.nominated}")
    return "; ".join(part for part in parts if part)


def gate(pod: "DescribedPod") -> str:
    plugin = "a failing PreEnqueue plugin" if pod.gate == "-" else pod.gate
    return f"{plugin}: {pod.gate_reason}" if pod.gate_reason else plugin


def waits_for(pod: "DescribedPod", now: float) -> tuple[str, ...]:
    """Events, any of which may help, or one other thing. Empty for an active pod, which waits for its turn."""
    if pod.gate == PREEMPTION:
        return ("eviction of its victims",)
    if pod.gate in GANG_PLUGINS:
        return ("other pods of its group",)
    if pod.backoff_until is not None:
        return (f"end of its back-off, {max(0.0, pod.backoff_until - now):.1f} s",)
    if pod.deadline is not None:
        what = "decision" if pod.state == "in-flight" else f"binding{f' to {pod.node}' if pod.node else ''}"
        return (f"{what}, at most {max(0.0, pod.deadline - now):.0f} s",)
    return events_in_words(pod.requeue_events)


def first_events(events: Sequence[str]) -> str:
    """`a node is added, a pod leaves, a node's taints change and 5 more events`."""
    more = len(events) - SHOWN_EVENTS
    if more <= 0:
        return ", ".join(events)
    return f"{', '.join(events[:SHOWN_EVENTS])} and {more} more event{'' if more == 1 else 's'}"


def lacking(found: Sequence[str]) -> list[str]:
    """The resources that are insufficient, by the texts of these reasons."""
    return [text.removeprefix(INSUFFICIENT) for text in found if text.startswith(INSUFFICIENT)]
