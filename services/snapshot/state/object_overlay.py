"""Objects other than nodes and pods, as the watch shows them, overlaid with decisions that it does not show yet.

A decision may bind a claim to a volume, or have one provisioned. Until the watch shows that, no other decision may
contradict it: the volume counts as claimed, the claim as waiting for its volume at the node.

    decided --the watch shows it, or another change instead--> ends: the watch counts
       |----the pods are forgotten or gone------------------> ends: what the watch showed before counts
       +----the pod is seen on its node--> lingers: the watch may show pods before volumes

Several pods may need one such change; it ends with the last of them.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from shared.cluster.objects import ClusterObjects
from shared.cluster.volumes import CLAIM, VOLUME, Laid, Slot, VolumeDecision, changes_of
from shared.errors import InvariantBroken
from shared.messages.state import Change, ObjectRemoved, ObjectUpserted
from shared.model.objects import ClusterObject, ObjectKind, key_of, kind_of
from shared.model.storage import READ_WRITE_ONCE_POD
from shared.plugins.volumes.matching import misfit

LINGER_SECONDS = 30.0
"""A change lingers this long after its pod was seen on the node; the watch is never that far behind."""


@dataclass(slots=True)
class _Overlay:
    """`shown`: the object as the watch showed it last; None if it does not show it."""

    change: Laid
    shown: ClusterObject | None
    pods: set[str] = field(default_factory=set)


class ObjectOverlay:
    """Methods that change objects return the changes for the workers. `seq`: of the state with these changes."""

    def __init__(self) -> None:
        self._current = ClusterObjects()
        self._overlays: dict[Slot, _Overlay] = {}
        self._of_pod: dict[str, set[Slot]] = {}
        self._lingering: deque[tuple[float, str]] = deque()
        self._written: dict[ObjectKind, dict[str, int]] = {VOLUME: {}, CLAIM: {}}

    def __len__(self) -> int:
        return len(self._current)

    def all(self) -> Iterator[ClusterObject]:
        return self._current.all()

    @property
    def next_deadline(self) -> float | None:
        return self._lingering[0][0] if self._lingering else None

    # Watch events

    def upsert(self, obj: ClusterObject, seq: int) -> list[Change]:
        slot = kind_of(obj), key_of(obj)
        overlay = self._overlays.get(slot)
        if overlay is None:
            return self._put(obj, seq)
        overlay.shown = obj
        expected = overlay.change.over(obj)
        if expected is obj:
            self._end(slot)
        return self._put(expected, seq)

    def remove(self, kind: ObjectKind, key: str) -> list[Change]:
        overlay = self._overlays.get((kind, key))
        if overlay is not None:
            overlay.shown = None
        if kind in self._written:
            self._written[kind].pop(key, None)
        return [ObjectRemoved(kind, key)] if self._current.remove(kind, key) else []

    def is_for_one_pod(self, claim: str) -> bool:
        found = self._current.claims.get(claim)
        return found is not None and READ_WRITE_ONCE_POD in found.spec.access_modes

    def is_made_for(self, claim: str, uid: str) -> bool:
        """Whether a controller made the claim for the pod of this uid."""
        found = self._current.claims.get(claim)
        return found is not None and any(
            each.controller and each.uid == uid for each in found.metadata.owner_references
        )

    # Decisions

    def changed_since(self, volumes: VolumeDecision, seen: int) -> str | None:
        """Which claim or volume of a decision has changed since the state of `seen`."""
        for claim, volume in _decided(volumes):
            if claim not in self._current.claims:
                return f"claim {claim} is gone"
            if volume is not None and volume not in self._current.persistent_volumes:
                return f"volume {volume} is gone"
            if self._written[CLAIM].get(claim, 0) > seen:
                return f"claim {claim} has changed since the evaluation"
            if volume is not None and self._written[VOLUME].get(volume, 0) > seen:
                return f"volume {volume} has changed since the evaluation"
        return None

    def impossible(self, node: str, volumes: VolumeDecision) -> str | None:
        """Why a decision whose claims and volumes have not changed is impossible all the same."""
        for key, name in _decided(volumes):
            claim = self._current.claims[key]
            if claim.spec.volume_name not in ("", name):
                return f"claim {key} has volume {claim.spec.volume_name} already"
            if claim.selected_node is not None and (name is not None or claim.selected_node != node):
                return f"claim {key} will get a volume at node {claim.selected_node}"
            volume = None if name is None else self._current.persistent_volumes[name]
            if volume is not None and volume.spec.claim_ref is not None and not volume.is_bound_to(claim):
                return f"volume {name} is claimed by {volume.spec.claim_ref.key}"
            there = self._current.volumes_of_claim(key)
            other = next((each for each in there if (VOLUME, each) in self._overlays), None)  # by another decision
            if other not in (None, name):
                return f"claim {key} will get volume {other}"
        return None

    def misfit(self, volumes: VolumeDecision, labels: Mapping[str, str]) -> str | None:
        """Why a claim does not fit its volume on a node with these labels. All of them must be known."""
        known = self._current
        given = ((known.persistent_volumes[volume], known.claims[claim]) for claim, volume in volumes.bindings)
        return next((why for volume, claim in given if (why := misfit(volume, claim, labels)) is not None), None)

    def assume(self, uid: str, node: str, volumes: VolumeDecision, seq: int) -> tuple[VolumeDecision, list[Change]]:
        """Overlays a decision without a conflict. Returns the decision, with the claims' uids, to remember."""
        uids = {key: self._current.claims[key].uid for key, _ in _decided(volumes)}
        volumes = msgspec.structs.replace(volumes, uids=uids)
        return volumes, self._lay(uid, node, volumes, seq)

    def restore(self, uid: str, node: str, volumes: VolumeDecision) -> None:
        """Overlays a decision of an earlier term, before the watch has shown any object."""
        self._lay(uid, node, volumes, 0)

    def confirm(self, uid: str, now: float) -> None:
        """The pod is seen on its node."""
        if uid in self._of_pod:
            self._lingering.append((now + LINGER_SECONDS, uid))

    def release(self, uid: str, seq: int) -> list[Change]:
        """The pod is forgotten, or gone."""
        changes: list[Change] = []
        for slot in sorted(self._of_pod.pop(uid, ())):
            overlay = self._overlays[slot]
            overlay.pods.discard(uid)
            if not overlay.pods:
                del self._overlays[slot]
                if overlay.shown is not None:
                    changes += self._put(overlay.shown, seq)
        return changes

    def expire(self, now: float, seq: int) -> list[Change]:
        changes: list[Change] = []
        while self._lingering and self._lingering[0][0] <= now:
            changes += self.release(self._lingering.popleft()[1], seq)
        return changes

    # Overlays

    def _put(self, obj: ClusterObject, seq: int) -> list[Change]:
        if not self._current.upsert(obj):
            return []
        kind = kind_of(obj)
        if kind in self._written:
            self._written[kind][key_of(obj)] = seq
        return [ObjectUpserted(obj)]

    def _lay(self, uid: str, node: str, volumes: VolumeDecision, seq: int) -> list[Change]:
        changes: list[Change] = []
        for slot, change in changes_of(node, volumes):
            overlay = self._overlays.get(slot)
            if overlay is None:
                shown = self._current.of(slot[0]).get(slot[1])
                expected = None if shown is None else change.over(shown)
                if expected is not None and expected is shown:
                    continue  # it is so already
                overlay = self._overlays[slot] = _Overlay(change, shown)
                if expected is not None:
                    changes += self._put(expected, seq)
            overlay.pods.add(uid)
            self._of_pod.setdefault(uid, set()).add(slot)
        return changes

    def _end(self, slot: Slot) -> None:
        for uid in self._overlays.pop(slot).pods:
            slots = self._of_pod[uid]
            slots.discard(slot)
            if not slots:
                del self._of_pod[uid]

    def validate(self, pods: Iterable[str]) -> None:
        """`pods`: that are assumed."""
        self._current.validate()
        known = {*pods, *(uid for _, uid in self._lingering)}
        if not self._of_pod.keys() <= known:
            raise InvariantBroken(f"overlays of pods that are not assumed: {sorted(self._of_pod.keys() - known)}")
        resting = {(slot, uid) for slot, overlay in self._overlays.items() for uid in overlay.pods}
        if resting != {(slot, uid) for uid, slots in self._of_pod.items() for slot in slots}:
            raise InvariantBroken("overlays and the pods that need them do not agree")
        for (kind, key), overlay in self._overlays.items():
            now = self._current.of(kind).get(key)
            if now != (None if overlay.shown is None else overlay.change.over(overlay.shown)):
                raise InvariantBroken(f"{kind} {key} is not what the watch shows with its overlay")


def _decided(volumes: VolumeDecision) -> list[tuple[str, str | None]]:
    """The claims, each with the volume that it is bound to; None if one is to be provisioned."""
    return [*volumes.bindings, *((claim, None) for claim in volumes.provisions)]
