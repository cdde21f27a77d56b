"""Objects other than nodes and pods, as the watch shows them, overlaid with decisions that it does not show yet.

A decision may bind a claim to a volume, or have one provisioned. Until the watch shows that, no other decision may
contradict it: the volume counts as claimed, the claim as waiting for its volume at the node. A resource claim that is
given devices counts as allocated; the claim for a pod's extended resources as if it existed.

    decided --the watch shows it, or another change instead--> ends: the watch counts
       |----the pods are forgotten or gone------------------> ends: what the watch showed before counts
       +----the pod is seen on its node--> lingers: the watch may show pods before volumes

Devices are held longer: when an attempt is over, a binder may still write its allocations, or the watch may not show
them yet. The overlay of a claim then ends when the watch shows what was decided, or a version from which on the attempt
cannot allocate the claim any more.

Several pods may need one such change; it ends with the last of them.
"""

import hashlib
import itertools
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import msgspec

from shared.cluster.devices import Allocated, Created, DeviceDecision, Devices, changes_of_claims, pools_in
from shared.cluster.objects import ClusterObjects
from shared.cluster.volumes import CLAIM, VOLUME, Laid, Slot, VolumeDecision, changes_of
from shared.devices.offers import PoolId, device_id
from shared.errors import InvariantBroken
from shared.messages.state import Assignment, Change, ObjectRemoved, ObjectUpserted, pod_uid_of
from shared.model.base import version_number
from shared.model.devices import ResourceClaim
from shared.model.objects import ClusterObject, ObjectKind, PodGroup, key_of, kind_of
from shared.model.storage import READ_WRITE_ONCE_POD
from shared.plugins.volumes.matching import misfit
from shared.plugins.volumes.own_claims import content_of_claims

LONGEST_PREFIX = 58
"""Characters of a generated name before its suffix, as in the API server."""
FOLLOWED = (VOLUME, CLAIM, ObjectKind.RESOURCE_CLAIM, ObjectKind.DEVICE_CLASS)
"""Of each object of these kinds it is known since which state it is as it is."""
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
LINGER_SECONDS = 30.0
"""A change lingers this long after its pod was seen on the node; the watch is never that far behind."""


@dataclass(slots=True)
class _Overlay:
    """`shown`: the object as the watch showed it last; None if it does not show it. `was_shown`: at any time.

    `pods`: uids of pods and of held entries. `fenced`: the version from which on no held entry needs it.
    """

    change: Laid | Allocated | Created
    shown: ClusterObject | None
    was_shown: bool
    pods: set[str] = field(default_factory=set)
    fenced: int = 0

    @property
    def expected(self) -> ClusterObject | None:
        """The object as it will be."""
        if self.shown is not None:
            return self.change.over(self.shown)
        return self.change.claim if isinstance(self.change, Created) and not self.was_shown else None


class ObjectOverlay:
    """Methods that change objects return the changes for the workers. `seq`: of the state with these changes."""

    def __init__(self) -> None:
        self.current = ClusterObjects()
        """The objects with the overlay, which this alone changes."""
        self._overlays: dict[Slot, _Overlay] = {}
        self._of_pod: dict[str, set[Slot]] = {}
        self._lingering: deque[tuple[float, str]] = deque()
        self._held: dict[str, bool] = {}
        """Uids of held entries with an overlay, and whether any of their devices became free."""
        self._ended: dict[str, bool] = {}
        """Those without one, until they are taken."""
        self._versions: dict[str, str] = {}
        """Of resource claims, as the watch shows them."""
        self._written: dict[ObjectKind, dict[str, int]] = {kind: {} for kind in FOLLOWED}
        self._pools_written: dict[PoolId, int] = {}

    def __len__(self) -> int:
        return len(self.current)

    def all(self) -> Iterator[ClusterObject]:
        return self.current.all()

    def get(self, kind: ObjectKind, key: str) -> ClusterObject | None:
        found: ClusterObject | None = self.current.of(kind).get(key)
        return found

    @property
    def pod_groups(self) -> Mapping[str, PodGroup]:
        return self.current.pod_groups

    @property
    def next_deadline(self) -> float | None:
        return next((at for at, _ in itertools.islice(self._lingering, 1)), None)

    # Watch events

    def upsert(self, obj: ClusterObject, seq: int, version: str = "") -> list[Change]:
        """`version`: of a resource claim."""
        slot = kind_of(obj), key_of(obj)
        if slot[0] is ObjectKind.RESOURCE_CLAIM:
            self._versions[slot[1]] = version
        overlay = self._overlays.get(slot)
        if overlay is None:
            return self._put(obj, seq)
        overlay.shown, overlay.was_shown = obj, True
        expected = overlay.change.over(obj)
        if expected is obj:
            self._end(slot)
        elif 0 < overlay.fenced <= version_number(version) and self._let_go(slot, self._held.keys()):
            expected = obj
        return self._put(expected, seq)

    def remove(self, kind: ObjectKind, key: str, seq: int) -> list[Change]:
        overlay, is_resource_claim = self._overlays.get((kind, key)), kind is ObjectKind.RESOURCE_CLAIM
        if is_resource_claim:
            self._versions.pop(key, None)
        if overlay is not None:
            overlay.shown = None
            if overlay.expected is not None:
                return []
            if is_resource_claim:  # gone for good: another claim of this name has another uid
                self._end((kind, key))
        return self._drop(kind, key, seq)

    def is_for_one_pod(self, claim: str) -> bool:
        found = self.current.claims.get(claim)
        return found is not None and READ_WRITE_ONCE_POD in found.spec.access_modes

    def is_made_for(self, claim: str, uid: str) -> bool:
        """Whether a controller made the claim for the pod of this uid."""
        found = self.current.claims.get(claim)
        return found is not None and any(
            each.controller and each.uid == uid for each in found.metadata.owner_references
        )

    def content_of_claims(self, namespace: str, uid: str, names: Sequence[str]) -> bytes | None:
        """As of volume plugins; None if the claims' names matter."""
        return content_of_claims(namespace, uid, names, self.current)

    # Decisions

    @property
    def devices(self) -> Devices:
        return self.current.devices

    def claim_written(self, key: str) -> int:
        """The state since which the resource claim is as it is."""
        return self._written[ObjectKind.RESOURCE_CLAIM].get(key, 0)

    def pools_written(self, pools: Iterable[PoolId]) -> int:
        """The state since which these pools and the use of their devices are as they are."""
        return max((self._pools_written.get(pool, 0) for pool in pools), default=0)

    def classes_written(self, names: Iterable[str]) -> int:
        """The state since which these device classes are as they are; the newest if one is gone."""
        written = self._written[ObjectKind.DEVICE_CLASS]
        return max((written.get(name, sys.maxsize) for name in names), default=0)

    def changed_since(self, volumes: VolumeDecision, seen: int) -> str | None:
        """Which claim or volume of a decision has changed since the state of `seen`."""
        for claim, volume in _decided(volumes):
            if claim not in self.current.claims:
                return f"claim {claim} is gone"
            if volume is not None and volume not in self.current.persistent_volumes:
                return f"volume {volume} is gone"
            if self._written[CLAIM].get(claim, 0) > seen:
                return f"claim {claim} has changed since the evaluation"
            if volume is not None and self._written[VOLUME].get(volume, 0) > seen:
                return f"volume {volume} has changed since the evaluation"
        return None

    def impossible(self, node: str, volumes: VolumeDecision) -> str | None:
        """Why a decision whose claims and volumes have not changed is impossible all the same."""
        for key, name in _decided(volumes):
            claim = self.current.claims[key]
            if claim.spec.volume_name not in ("", name):
                return f"claim {key} has volume {claim.spec.volume_name} already"
            if claim.selected_node is not None and (name is not None or claim.selected_node != node):
                return f"claim {key} will get a volume at node {claim.selected_node}"
            volume = None if name is None else self.current.persistent_volumes[name]
            if volume is not None and volume.spec.claim_ref is not None and not volume.is_bound_to(claim):
                return f"volume {name} is claimed by {volume.spec.claim_ref.key}"
            there = self.current.volumes_of_claim(key)
            other = next((each for each in there if (VOLUME, each) in self._overlays), None)  # by another decision
            if other not in (None, name):
                return f"claim {key} will get volume {other}"
        return None

    def misfit(self, volumes: VolumeDecision, labels: Mapping[str, str]) -> str | None:
        """Why a claim does not fit its volume on a node with these labels. All of them must be known."""
        known = self.current
        given = ((known.persistent_volumes[volume], known.claims[claim]) for claim, volume in volumes.bindings)
        return next((why for volume, claim in given if (why := misfit(volume, claim, labels)) is not None), None)

    def assume(self, of: Assignment, seq: int) -> tuple[Assignment, list[Change]]:
        """Overlays a decision without a conflict. Returns it, with the claims' uids and names, to remember."""
        if of.volumes is not None:
            uids = {key: self.current.claims[key].uid for key, _ in _decided(of.volumes)}
            of = msgspec.structs.replace(of, volumes=msgspec.structs.replace(of.volumes, uids=uids))
        if of.devices is not None:
            of = msgspec.structs.replace(of, devices=self._completed(of.devices, of, seq))
        for slot, change in _changes_of(of):
            if (overlay := self._overlays.get(slot)) is not None and overlay.change != change:
                raise InvariantBroken(f"{' '.join(slot)} is decided in two ways")
        return of, self._lay(of, seq)

    def _completed(self, devices: DeviceDecision, of: Assignment, seq: int) -> DeviceDecision:
        """With the versions of the claims to allocate, the devices of others, and the name of the claim to create."""
        claims = [
            msgspec.structs.replace(each, version=self._versions.get(each.key, ""))
            if each.allocation is not None
            else msgspec.structs.replace(each, devices=_device_names(self.devices.claims[each.key]))
            for each in devices.claims
        ]
        special = devices.special
        if special is not None and not special.requests:
            special = None  # a device plugin serves all resources, and the API server refuses a claim for none
        if special is not None:
            special = msgspec.structs.replace(special, name=self._free_name(of, seq))
        return DeviceDecision(claims, special)

    def _free_name(self, of: Assignment, attempt: int) -> str:
        names = (special_claim_name(of.name, f"{of.uid}{'+' * more}", attempt) for more in itertools.count())
        known = self.current.of(ObjectKind.RESOURCE_CLAIM)
        return next(name for name in names if f"{of.namespace}/{name}" not in known)

    def restore(self, of: Assignment) -> None:
        """Overlays a decision of an earlier term, unless the watch has shown it already."""
        self._lay(of, 0)

    def confirm(self, uid: str, now: float) -> None:
        """The pod is seen on its node."""
        if uid in self._of_pod:
            self._lingering.append((now + LINGER_SECONDS, uid))

    def release(self, uid: str, seq: int) -> list[Change]:
        """The pod is forgotten, or gone."""
        return [change for slot in sorted(self._of_pod.get(uid, ())) for change in self._release(slot, uid, seq)]

    def _release(self, slot: Slot, uid: str, seq: int) -> list[Change]:
        shown = self._overlays[slot].shown
        if not self._let_go(slot, {uid}):
            return []
        return self._drop(*slot, seq) if shown is None else self._put(shown, seq)

    def expire(self, now: float, seq: int) -> list[Change]:
        changes: list[Change] = []
        while self._lingering and self._lingering[0][0] <= now:
            changes += self.release(self._lingering.popleft()[1], seq)
        return changes

    # Held devices

    def hold(self, uid: str, held: str) -> bool:
        """Allocations that the watch does not show go from the pod to the held entry; False if there are none."""
        slots = {slot for slot in self._of_pod.get(uid, ()) if slot[0] is ObjectKind.RESOURCE_CLAIM}
        for slot in slots:
            self._overlays[slot].pods.add(held)
            self._let_go(slot, {uid})
        if slots:
            self._of_pod[held] = slots
            self._held[held] = False
        return bool(slots)

    def restore_held(self, of: Assignment) -> None:
        """As `restore`, for a held entry."""
        self._held[of.uid] = False
        self._lay(of, 0)
        if of.uid not in self._of_pod:  # the watch has shown it all
            self._ended[of.uid] = self._held.pop(of.uid)

    def fenced(self, held: str, versions: Mapping[str, str], seq: int) -> list[Change]:
        """From these versions on, the held entry cannot allocate its claims. Without a version the claim is gone."""
        changes: list[Change] = []
        for slot in sorted(self._of_pod.get(held, ())):
            version, shown = versions.get(slot[1], ""), self._versions.get(slot[1], "")
            if version in ("", shown) or 0 < version_number(version) <= version_number(shown):
                changes += self._release(slot, held, seq)
            else:
                overlay = self._overlays[slot]
                overlay.fenced = max(overlay.fenced, version_number(version))
        return changes

    def take_ended(self) -> dict[str, bool]:
        """The held entries that have ended, and whether that freed devices."""
        ended, self._ended = self._ended, {}
        return ended

    # Overlays

    def _put(self, obj: ClusterObject, seq: int) -> list[Change]:
        kind, key = kind_of(obj), key_of(obj)
        before = self.current.of(kind).get(key)
        if not self.current.upsert(obj):
            return []
        if kind in self._written:
            self._written[kind][key] = seq
        self._note_pools(before, obj, seq)
        return [ObjectUpserted(obj)]

    def _drop(self, kind: ObjectKind, key: str, seq: int) -> list[Change]:
        if kind in self._written:
            self._written[kind].pop(key, None)
        before = self.current.of(kind).get(key)
        if not self.current.remove(kind, key):
            return []
        self._note_pools(before, None, seq)
        return [ObjectRemoved(kind, key)]

    def _note_pools(self, before: ClusterObject | None, now: ClusterObject | None, seq: int) -> None:
        """Note for which pools the devices, or their use, have changed."""
        for obj in (before, now):
            for pool in pools_in(obj) if obj is not None else ():
                self._pools_written[pool] = seq

    def _lay(self, of: Assignment, seq: int) -> list[Change]:
        changes: list[Change] = []
        for slot, change in _changes_of(of):
            overlay = self._overlays.get(slot)
            if overlay is None:
                shown = self.current.of(slot[0]).get(slot[1])
                overlay = _Overlay(change, shown, shown is not None)
                expected = overlay.expected
                if expected is not None and expected is shown:
                    continue  # it is so already
                self._overlays[slot] = overlay
                if expected is not None:
                    changes += self._put(expected, seq)
            overlay.pods.add(of.uid)
            self._of_pod.setdefault(of.uid, set()).add(slot)
        return changes

    def _end(self, slot: Slot) -> None:
        """The watch shows what was decided, or what can no longer be."""
        for uid in self._overlays.pop(slot).pods:
            self._detach(uid, slot, frees=False)

    def _let_go(self, slot: Slot, uids: Set[str]) -> bool:
        """These do not need the overlay any more; whether it has ended with that."""
        overlay = self._overlays[slot]
        for uid in overlay.pods & uids:
            overlay.pods.remove(uid)
            self._detach(uid, slot, frees=True)
        if overlay.pods:
            return False
        del self._overlays[slot]
        return True

    def _detach(self, uid: str, slot: Slot, *, frees: bool) -> None:
        slots = self._of_pod[uid]
        slots.discard(slot)
        if uid in self._held:
            self._held[uid] |= frees
        if not slots:
            del self._of_pod[uid]
            if uid in self._held:
                self._ended[uid] = self._held.pop(uid)

    def validate(self, pods: Iterable[str]) -> None:
        """`pods`: that are assumed."""
        self.current.validate()
        known = {*pods, *self._held, *(uid for _, uid in self._lingering)}
        if not self._held.keys() <= self._of_pod.keys():
            raise InvariantBroken(f"held entries hold nothing: {sorted(self._held.keys() - self._of_pod.keys())}")
        if not self._of_pod.keys() <= known:
            raise InvariantBroken(f"overlays of pods that are not assumed: {sorted(self._of_pod.keys() - known)}")
        resting = {(slot, uid) for slot, overlay in self._overlays.items() for uid in overlay.pods}
        if resting != {(slot, uid) for uid, slots in self._of_pod.items() for slot in slots}:
            raise InvariantBroken("overlays and the pods that need them do not agree")
        for (kind, key), overlay in self._overlays.items():
            now = self.current.of(kind).get(key)
            if now != overlay.expected:
                raise InvariantBroken(f"{kind} {key} is not what the watch shows with its overlay")


def special_claim_name(pod: str, uid: str, attempt: int) -> str:
    """Of the claim for a pod's extended resources: as kube-scheduler names it, and the same each time in an attempt."""
    digest = hashlib.blake2b(f"{uid}/{attempt}".encode(), digest_size=8).digest()
    number, suffix = int.from_bytes(digest, "big"), ""
    for _ in range(5):
        number, at = divmod(number, len(_SUFFIX_LETTERS))
        suffix += _SUFFIX_LETTERS[at]
    return f"{pod}-extended-resources-"[:LONGEST_PREFIX] + suffix


def _device_names(claim: ResourceClaim) -> list[str]:
    allocation = claim.status.allocation
    return [] if allocation is None else [str(device_id(each)) for each in allocation.devices.results]


def _changes_of(of: Assignment) -> Iterator[tuple[Slot, Laid | Allocated | Created]]:
    if of.volumes is not None:
        yield from changes_of(of.node, of.volumes)
    if of.devices is not None:
        yield from changes_of_claims(of.namespace, of.name, pod_uid_of(of.uid), of.devices)


def _decided(volumes: VolumeDecision) -> list[tuple[str, str | None]]:
    """The claims, each with the volume that it is bound to; None if one is to be provisioned."""
    return [*volumes.bindings, *((claim, None) for claim in volumes.provisions)]
