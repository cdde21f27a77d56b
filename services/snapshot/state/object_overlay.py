"""Objects other than nodes and pods: as the watch shows them, with what is decided and not yet seen laid over.

A decision may give a claim a volume, or have one made for it. Until the watch shows that this was done, nobody is to
decide otherwise: the volume counts as claimed, the claim as waiting for its volume at the node.

    decided --the watch shows it, or something else in its place--> over: what the watch shows counts
       |----the pods are forgotten or gone-----------------------> over: what the watch showed before counts
       +----the pod is seen on its node--> lingers, for the watch tells of pods before or after volumes

Several pods may rest on one such change; it is over with the last of them.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from shared.cluster.objects import ClusterObjects
from shared.cluster.overlay import CLAIM, VOLUME, Laid, Slot, changes_of
from shared.cluster.volumes import VolumeDecision
from shared.errors import InvariantBroken
from shared.messages.state import Change, ObjectRemoved, ObjectUpserted
from shared.model.objects import ClusterObject, ObjectKind, key_of, kind_of
from shared.model.storage import READ_WRITE_ONCE_POD
from shared.plugins.volumes.volumebinding.fitting import misfit

LINGER = 30.0
"""Seconds that a change outlasts the sight of its pod on the node; the watch is never that far behind itself."""


@dataclass(slots=True)
class _Laid:
    """What is laid over an object. `shown`: as the watch showed it last; None where it did not, or not yet."""

    change: Laid
    shown: ClusterObject | None
    pods: set[str] = field(default_factory=set)


class Objects:
    """The methods that take something answer with what the workers are to be told."""

    def __init__(self) -> None:
        self._current = ClusterObjects()
        self._laid: dict[Slot, _Laid] = {}
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

    # What the watch says. `seq`: the number of the state that this becomes part of.

    def see(self, obj: ClusterObject, seq: int) -> list[Change]:
        slot = kind_of(obj), key_of(obj)
        laid = self._laid.get(slot)
        if laid is None:
            return self._put(obj, seq)
        laid.shown = obj
        expected = laid.change.over(obj)
        if expected is obj:
            self._end(slot)
        return self._put(expected, seq)

    def lose(self, kind: ObjectKind, key: str) -> list[Change]:
        laid = self._laid.get((kind, key))
        if laid is not None:
            laid.shown = None
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
        """What a decision rests on that is not any more what it was in the state of `seen`."""
        wanted = [*volumes.bindings, *((claim, None) for claim in volumes.provisions)]
        return next((why for claim, volume in wanted if (why := self._changed(claim, volume, seen)) is not None), None)

    def cannot_stand(self, node: str, volumes: VolumeDecision) -> str | None:
        """Why a decision that rests on nothing that has changed is impossible all the same."""
        for claim, volume in volumes.bindings:
            reason = self._cannot_bind(claim, volume)
            if reason is not None:
                return reason
        for claim in volumes.provisions:
            reason = self._cannot_provision(claim, node)
            if reason is not None:
                return reason
        return None

    def misfit(self, volumes: VolumeDecision, labels: Mapping[str, str]) -> str | None:
        """Why a claim would not get the volume that it is given on a node with these labels. All of them are known."""
        known = self._current
        given = ((known.persistent_volumes[volume], known.claims[claim]) for claim, volume in volumes.bindings)
        return next((why for volume, claim in given if (why := misfit(volume, claim, labels)) is not None), None)

    def assume(self, uid: str, node: str, volumes: VolumeDecision, seq: int) -> tuple[VolumeDecision, list[Change]]:
        """A decision that does not conflict is taken. Answers also with the decision as it is to be remembered."""
        claims = [*(claim for claim, _ in volumes.bindings), *volumes.provisions]
        volumes = msgspec.structs.replace(volumes, uids={key: self._current.claims[key].uid for key in claims})
        return volumes, self._lay(uid, node, volumes, seq)

    def restore(self, uid: str, node: str, volumes: VolumeDecision) -> None:
        """A decision of an earlier leader, before the watch has shown anything."""
        self._lay(uid, node, volumes, 0)

    def confirm(self, uid: str, now: float) -> None:
        """The pod is seen on its node."""
        if uid in self._of_pod:
            self._lingering.append((now + LINGER, uid))

    def release(self, uid: str, seq: int) -> list[Change]:
        """The pod is forgotten, or gone."""
        changes: list[Change] = []
        for slot in sorted(self._of_pod.pop(uid, ())):
            laid = self._laid[slot]
            laid.pods.discard(uid)
            if not laid.pods:
                del self._laid[slot]
                if laid.shown is not None:
                    changes += self._put(laid.shown, seq)
        return changes

    def expire(self, now: float, seq: int) -> list[Change]:
        changes: list[Change] = []
        while self._lingering and self._lingering[0][0] <= now:
            changes += self.release(self._lingering.popleft()[1], seq)
        return changes

    # Inside

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
            laid = self._laid.get(slot)
            if laid is None:
                shown = self._current.of(slot[0]).get(slot[1])
                expected = None if shown is None else change.over(shown)
                if expected is not None and expected is shown:
                    continue  # it is so already
                laid = self._laid[slot] = _Laid(change, shown)
                if expected is not None:
                    changes += self._put(expected, seq)
            laid.pods.add(uid)
            self._of_pod.setdefault(uid, set()).add(slot)
        return changes

    def _end(self, slot: Slot) -> None:
        for uid in self._laid.pop(slot).pods:
            slots = self._of_pod[uid]
            slots.discard(slot)
            if not slots:
                del self._of_pod[uid]

    def _changed(self, claim: str, volume: str | None, seen: int) -> str | None:
        if claim not in self._current.claims:
            return f"claim {claim} is gone"
        if volume is not None and volume not in self._current.persistent_volumes:
            return f"volume {volume} is gone"
        if self._written[CLAIM].get(claim, 0) > seen:
            return f"claim {claim} has changed since it was judged"
        if volume is not None and self._written[VOLUME].get(volume, 0) > seen:
            return f"volume {volume} has changed since it was judged"
        return None

    def _cannot_bind(self, key: str, name: str) -> str | None:
        claim, volume = self._current.claims[key], self._current.persistent_volumes[name]
        if claim.spec.volume_name not in ("", name):
            return f"claim {key} has volume {claim.spec.volume_name} already"
        if claim.selected_node is not None:
            return f"claim {key} is to get a volume at node {claim.selected_node}"
        if volume.spec.claim_ref is not None and not volume.is_bound_to(claim):
            return f"volume {name} is claimed by {volume.spec.claim_ref.key}"
        other = self._laid_for(key)
        return None if other in (None, name) else f"claim {key} is to have volume {other}"

    def _cannot_provision(self, key: str, node: str) -> str | None:
        claim = self._current.claims[key]
        if claim.spec.volume_name:
            return f"claim {key} has volume {claim.spec.volume_name} already"
        if claim.selected_node not in (None, node):
            return f"claim {key} is to get a volume at node {claim.selected_node}"
        volume = self._laid_for(key)
        return None if volume is None else f"claim {key} is to have volume {volume}"

    def _laid_for(self, claim: str) -> str | None:
        """The volume that a claim has by a decision."""
        return next((name for name in self._current.volumes_of_claim(claim) if (VOLUME, name) in self._laid), None)

    def validate(self, pods: Iterable[str]) -> None:
        """What is laid over rests on these pods, or on some that linger; every index agrees."""
        self._current.validate()
        known = {*pods, *(uid for _, uid in self._lingering)}
        if not self._of_pod.keys() <= known:
            raise InvariantBroken(f"decided for pods that are not assumed: {sorted(self._of_pod.keys() - known)}")
        resting = {(slot, uid) for slot, laid in self._laid.items() for uid in laid.pods}
        if resting != {(slot, uid) for uid, slots in self._of_pod.items() for slot in slots}:
            raise InvariantBroken("what is laid over objects and the pods that it is for do not agree")
        for (kind, key), laid in self._laid.items():
            now = self._current.of(kind).get(key)
            if now != (None if laid.shown is None else laid.change.over(laid.shown)):
                raise InvariantBroken(f"{kind} {key} is not what the watch shows with the decision laid over")
