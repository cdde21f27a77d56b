"""VolumeRestrictions keeps pods apart that must not share a volume: a disk of a node, or a claim for one pod only.

Summary: for each of the pod's claims with the access mode ReadWriteOncePod, whether a pod on some node uses it.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import msgspec

from flotilla.objects import ClusterObjects, ObjectKind, Volume
from flotilla.plugin import (
    SKIP,
    Action,
    ClassState,
    FilterPlugin,
    Ints,
    NodeDomains,
    NodeView,
    Pod,
    PodColumn,
    PodLoad,
    PodParts,
    PreFilterPlugin,
    PreFilterResult,
    Range,
    Registration,
    Resource,
    StateKey,
    SummaryPlugin,
    Topology,
    Tracker,
    unresolvable,
    unschedulable,
)
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import table_of
from shared.model.storage import READ_WRITE_ONCE_POD
from shared.plugins.volumes.podvolumes import (
    after_named_claim,
    can_clash,
    claim_not_found,
    claim_of,
    clash,
    named_claims,
    volume_signature,
)

NOTHING_SEEN = -1
DISK_TAKEN = unschedulable("node(s) had no available disk")
CLAIM_TAKEN = unschedulable(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)

InUse = dict[str, bool]
"""By the name of the claim."""


EXCLUSIVE = StateKey[list[str]]("claims with access mode ReadWriteOncePod")
DISKS = StateKey[list["DiskUsers"]]("disks that cannot be shared")


class VolumeRestrictions(PreFilterPlugin, FilterPlugin, SummaryPlugin[InUse, None]):
    name = "VolumeRestrictions"
    reads_of_pod = PodParts.TEMPLATE

    def signature(self, pod: Pod) -> Hashable:
        return volume_signature(pod)

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.POD, Action.DELETE, after_pod_deletion),
            Registration(Resource.NODE, Action.ADD),
            Registration(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, after_named_claim),
        )

    def reads_objects(self, state: ClassState) -> Sequence[ObjectKind]:
        return (ObjectKind.PERSISTENT_VOLUME_CLAIM,) if named_claims(state.pod) else ()

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        exclusive: list[str] = []
        for name in named_claims(state.pod):
            claim = claim_of(state.objects, state.pod, name)
            if claim is None:
                return PreFilterResult(unresolvable(claim_not_found(name)))
            if READ_WRITE_ONCE_POD in claim.spec.access_modes and name not in exclusive:
                exclusive.append(name)
        disks = [DiskUsers(_KEY(disk), disk) for disk in map(_unnamed, state.pod.spec.volumes) if can_clash(disk)]
        state[EXCLUSIVE] = sorted(exclusive)
        state[DISKS] = disks
        return PreFilterResult() if exclusive or disks else PreFilterResult(SKIP)

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        in_use, disks = self.summary(state), state.get(DISKS) or []
        for disk in disks:
            nodes.reject(nodes.of_pods(disk) > 0, DISK_TAKEN)
        if in_use:
            nodes.reject(_users(state, nodes, in_use, bool(disks)) > 0, CLAIM_TAKEN)

    # The claims that are for one pod only

    def topology(self, state: ClassState, nodes: NodeView) -> Topology | None:
        return Topology() if state.get(EXCLUSIVE) else None

    def summarize(self, state: ClassState, nodes: NodeView) -> InUse:
        exclusive = state.get(EXCLUSIVE)
        if not exclusive:
            return {}
        users = claim_users(table_of(nodes))
        return {name: users.is_used(f"{state.pod.namespace}/{name}") for name in exclusive}

    def merge(self, one: InUse, other: InUse) -> InUse:
        return {name: one.get(name, False) or other.get(name, False) for name in sorted({*one, *other})}

    def tracker(self, pod: Pod, summary: InUse | None, feasible: None, scores: Range | None) -> Tracker | None:
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
class DiskUsers(PodColumn):
    """How many disks of pods on a node are the wanted one, or cannot be had beside it."""

    key: bytes
    wanted: Volume = field(compare=False)

    def amount(self, pod: PodLoad) -> int:
        return sum(clash(self.wanted, disk) for disk in pod.disks)


@dataclass(frozen=True, slots=True)
class ClaimReferences(PodColumn):
    """How often the pods on a node use the claims."""

    namespace: str
    claims: tuple[str, ...]

    def amount(self, pod: PodLoad) -> int:
        return sum(map(pod.claims.count, self.claims)) if pod.claims and pod.namespace == self.namespace else 0


def _users(state: ClassState, nodes: NodeView, in_use: InUse, has_disks: bool) -> Ints:
    """How often the pods of each node, hypothetical ones included, and all other nodes' pods use the claims.

    If nobody uses the claims and the pod has no disks, kube-scheduler skips the plugin, so pods that are nominated or
    removed do not count. A pod that was decided does.
    """
    before = sum(in_use.values())
    references = ClaimReferences(state.pod.namespace, tuple(in_use))
    return before + nodes.change_of(references, planned=None if before or has_disks else True)


def _unnamed(volume: Volume) -> Volume:
    return msgspec.structs.replace(volume, name="")


_KEY = msgspec.msgpack.Encoder().encode


class ClaimUsers:
    def __init__(self) -> None:
        self._position = NOTHING_SEEN
        self._rows: dict[str, int] = {}
        """On how many rows each claim is used."""
        self._on_row: dict[int, frozenset[str]] = {}

    def refresh(self, table: NodeTable) -> None:
        rows = None if self._position == NOTHING_SEEN else table.load_log.since(self._position)
        if rows is None:
            self._rows.clear()
            self._on_row.clear()
        for row in range(table.size) if rows is None else rows.tolist():
            self._recount(table, row)
        self._position = table.load_log.position

    def is_used(self, claim: str) -> bool:
        """Whether a pod on any row uses the claim of this key."""
        return claim in self._rows

    def _recount(self, table: NodeTable, row: int) -> None:
        before = self._on_row.pop(row, _NO_CLAIMS)
        now = frozenset(f"{load.namespace}/{name}" for load in table.loads_at(row) for name in load.claims)
        if now:
            self._on_row[row] = now
        for claim in before - now:
            self._rows[claim] -= 1
            if not self._rows[claim]:
                del self._rows[claim]
        for claim in now - before:
            self._rows[claim] = self._rows.get(claim, 0) + 1


def claim_users(table: NodeTable) -> ClaimUsers:
    """Up to date."""
    users = _USERS.get(table)
    if users is None:
        users = _USERS[table] = ClaimUsers()
    users.refresh(table)
    return users


_NO_CLAIMS: frozenset[str] = frozenset()
_USERS: WeakKeyDictionary[NodeTable, ClaimUsers] = WeakKeyDictionary()


def after_pod_deletion(pod: Pod, before: Pod, now: None, objects: ClusterObjects) -> bool:
    """The deleted pod, wherever it was, had a disk or a claim that this one wants."""
    wanted, freed = pod.spec.volumes, before.spec.volumes
    if not wanted or not freed or before.namespace != pod.namespace:
        return False
    if any(can_clash(volume) and clash(volume, other) for volume in wanted for other in freed):
        return True
    return not set(named_claims(pod)).isdisjoint(named_claims(before))
