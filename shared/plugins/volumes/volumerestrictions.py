"""VolumeRestrictions keeps pods apart that must not share a volume: a disk of a node, or a claim for one pod only.

Summary: for each of the pod's claims with the access mode ReadWriteOncePod, whether a pod on some node uses it.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.results import SKIP, NodeDomains, PreFilterResult, Range, Status, Topology, unresolvable, unschedulable
from shared.cluster.columns import IntColumn, LoadColumn
from shared.cluster.nodetable import NodeTable
from shared.framework.cyclestate import CycleState
from shared.framework.plugin import FilterPlugin, PodParts, PreFilterPlugin, SummaryPlugin, Tracker, Verdicts
from shared.framework.view import NodeView, Own
from shared.model.kinds import ObjectKind
from shared.model.load import PodLoad
from shared.model.objects import Pod, Volume
from shared.model.storage import READ_WRITE_ONCE_POD
from shared.plugins.hints import volumes as hints
from shared.plugins.volumes.claimusers import claim_users
from shared.plugins.volumes.clashes import can_clash, clash
from shared.plugins.volumes.podvolumes import claim_not_found, claim_of, named_claims, volume_signature

DISK_TAKEN, CLAIM_TAKEN = 1, 2

InUse = dict[str, bool]
"""By the name of the claim."""


class VolumeRestrictions(PreFilterPlugin, FilterPlugin, SummaryPlugin):
    name = "VolumeRestrictions"
    reads_of_pod = PodParts.TEMPLATE

    def signature(self, pod: Pod) -> Hashable:
        return volume_signature(pod)

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.POD, Action.DELETE, hints.after_pod_gone),
            Registration(Resource.NODE, Action.ADD),
            Registration(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, hints.after_named_claim),
        )

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        return (ObjectKind.PERSISTENT_VOLUME_CLAIM,) if named_claims(state.pod) else ()

    def pre_filter(self, state: CycleState) -> PreFilterResult:
        exclusive: list[str] = []
        for name in named_claims(state.pod):
            claim = claim_of(state.objects, state.pod, name)
            if claim is None:
                return PreFilterResult(unresolvable(claim_not_found(name)))
            if READ_WRITE_ONCE_POD in claim.spec.access_modes and name not in exclusive:
                exclusive.append(name)
        disks = [DiskUsers(_KEY(disk), disk) for disk in map(_unnamed, state.pod.spec.volumes) if can_clash(disk)]
        state.write(self.name, "exclusive", sorted(exclusive))
        state.write(self.name, "disks", disks)
        return PreFilterResult() if exclusive or disks else PreFilterResult(SKIP)

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        verdicts = np.zeros(len(view), dtype=np.int64)
        in_use: InUse = state.summaries.get(self.name) or {}
        disks: list[DiskUsers] = state.read(self.name, "disks") or []
        if in_use:
            verdicts[_users(state, view, in_use, bool(disks)) > 0] = CLAIM_TAKEN
        for disk in disks:
            verdicts[view.of_loads(disk) > 0] = DISK_TAKEN
        return verdicts

    def explain(self, state: CycleState, verdict: int) -> Status:
        if verdict == DISK_TAKEN:
            return unschedulable("node(s) had no available disk")
        return unschedulable(
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
            "another pod"
        )

    # The claims that are for one pod only

    def topology(self, state: CycleState, table: NodeTable) -> Topology | None:
        return Topology() if state.read(self.name, "exclusive") else None

    def summarize(self, state: CycleState, table: NodeTable) -> InUse:
        exclusive: list[str] | None = state.read(self.name, "exclusive")
        if not exclusive:
            return {}
        users = claim_users(table)
        return {name: users.is_used(f"{state.pod.namespace}/{name}") for name in exclusive}

    def merge(self, one: InUse, other: InUse) -> InUse:
        return {name: one.get(name, False) or other.get(name, False) for name in sorted({*one, *other})}

    def tracker(self, pod: Pod, summary: Any, late: Any, scores: Range | None) -> Tracker | None:
        return ClaimTracker(pod.namespace, summary) if summary else None


class ClaimTracker(Tracker):
    """Closes every node once a pod that was decided uses one of the claims."""

    def __init__(self, namespace: str, in_use: InUse) -> None:
        self._namespace = namespace
        self._in_use = dict(in_use)
        self._of_class: dict[str, list[str]] = {}

    def admits(self, place: NodeDomains) -> bool:
        return not any(self._in_use.values())

    def placed(self, class_id: str, load: PodLoad, place: NodeDomains) -> None:
        used = self._of_class.get(class_id)
        if used is None:
            mine = self._in_use if load.namespace == self._namespace else ()
            used = self._of_class[class_id] = [name for name in mine if name in load.claims]
        for name in used:
            if not self._in_use[name]:
                self._in_use[name] = self.touched = True

    def summary(self) -> InUse:
        return dict(self._in_use)


@dataclass(frozen=True, slots=True)
class DiskUsers(LoadColumn):
    """How many disks of pods on a node are the wanted one, or cannot be had beside it."""

    key: bytes
    wanted: Volume = field(compare=False)

    def fill(self, table: NodeTable, column: IntColumn) -> None:
        for _, node, load in table.placed():
            if load.disks:
                row = table.row_of(node)
                if row is not None:
                    column[row] += self.amount(load)

    def amount(self, load: PodLoad) -> int:
        return sum(clash(self.wanted, disk) for disk in load.disks)


def _users(state: CycleState, view: NodeView, in_use: InUse, looked_at_anyway: bool) -> IntColumn:
    """How often each node's pods, with those supposed there, and all others use the claims.

    Claims that nobody uses, in a pod without disks, make kube-scheduler skip the plugin: whatever is then supposed to
    be nominated or gone does not count. A pod that is decided does.
    """
    before = sum(in_use.values())
    users = np.full(len(view), before, dtype=np.int64)
    supposed = view.supposed
    if supposed is not None and (before or looked_at_anyway or isinstance(supposed, Own)):
        namespace = state.pod.namespace
        users += supposed.spread(
            np.array([_references(kind.load, namespace, in_use) for kind in supposed.kinds], dtype=np.int64)
        )
    return users


def _references(load: PodLoad, namespace: str, claims: Iterable[str]) -> int:
    return sum(map(load.claims.count, claims)) if load.claims and load.namespace == namespace else 0


def _unnamed(volume: Volume) -> Volume:
    return msgspec.structs.replace(volume, name="")


_KEY = msgspec.msgpack.Encoder().encode
