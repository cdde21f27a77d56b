"""Pods that wait for permits, for volumes that are bound along with them, or for a claim that only one pod may use.

An approver answers permits and a volume controller binds what the scheduler has prepared, both with delays. Another
scheduler and a user's claim compete for the same claims and volumes.
"""

from typing import Any

from msgspec.structs import replace

from flotilla.plugin import BindingState, PermitPlugin
from flotilla.results import Code, Permission, Status
from shared.bus.subjects import BINDER_PERMITS
from shared.messages.binding import PermitAnswer
from shared.messages.watch import Kind
from shared.model.objects import (
    ClaimReference,
    Node,
    ObjectKind,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    key_of,
    object_from,
)
from shared.model.storage import BIND_COMPLETED, READ_WRITE_ONCE_POD
from testing.builders import node, pod
from testing.simulation.actions import ELSEWHERE, ZONE
from testing.simulation.apiserver import FINISHED, Change
from testing.simulation.auditor import KNOWN_FOR
from testing.simulation.schedule import Schedule
from testing.simulation.world import World

LATE_CLASS = "late"
VOLUMES = 4
"""In each zone."""
SINGLE = ("single-0", "single-1")
"""Claims with access mode ReadWriteOncePod."""
PERMIT = "simulation/permit"
"""A label: the pod waits for a permit, at most this many seconds."""
APPROVER = "approver"
LOOK = 0.5
OVERDUE = 1.0
"""Seconds by which the end of a wait may be late."""
NUDGE = 5.0
"""Seconds between changes that requeue pods with a denied permit: the plugin registers no events."""


class ByHand(PermitPlugin):
    """Makes labelled pods wait until the approver allows them."""

    name = "ByHand"

    def permit(self, state: BindingState, node: str) -> Permission:
        seconds = state.pod.metadata.labels.get(PERMIT)
        return Permission() if seconds is None else Permission(Status(Code.WAIT), float(seconds))


class StorageWorld(World):
    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self._zones: dict[str, str] = {}
        """By volume."""
        self._kept_at: dict[str, float] = {}
        """When the controller binds it, by claim."""
        self._decided: dict[str, tuple[float, bool]] = {}
        """When the approver answers, and what, by pod."""
        self._made = 0
        self._looks_at = self._nudges_at = 0.0
        self._stranded: set[str] = set()
        """Pods whose node was deleted."""
        self._replaced_at: dict[str, float] = {}
        """When nodes were deleted, perhaps replaced, by name."""
        self._doubtful: set[str] = set()
        """Pods whose node may have been missing between decision and binding, so that their claims did not count."""
        self._holds: dict[str, str] = {}
        """By uid of the claim: its volume."""
        self._elsewhere: set[str] = set()
        """Pods bound by another scheduler."""
        self.quiet = False
        self.server.on_bind.append(self._on_bind)
        self.server.followers.append(self._on_change)

    # Actions

    def furnish(self) -> None:
        super().furnish()
        late = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
        self.server.put_object(object_from(ObjectKind.STORAGE_CLASS, {"metadata": {"name": LATE_CLASS}, **late}))
        for number in range(VOLUMES * 3):
            self._put_volume(f"z{number % 3}")
        for name in SINGLE:
            self._put_claim(name, name, READ_WRITE_ONCE_POD)

    def create(self, name: str = "") -> None:
        new, uid = self.next_name()
        built = pod(name or new).uid(uid).request(cpu=self.dice.choice(("500m", "1")), memory="100Mi")
        match self.dice.randrange(4):
            case 0:
                built = built.label({PERMIT: self.dice.choice(("2", "10", "40"))})
            case 1:
                built = built.claim(f"c-{uid}")
                self.later(self.dice.choice((0.0, 0.0, 1.0)), lambda: self._put_claim(f"c-{uid}", f"c-{uid}"))
                if self.dice.random() < 0.3:
                    built = built.label({PERMIT: "10"})
            case 2:
                built = built.claim(self.dice.choice(SINGLE))
        self.server.put_pod(built.build())

    def _put_claim(self, name: str, uid: str, mode: str = "ReadWriteOnce") -> None:
        spec = {"accessModes": [mode], "storageClassName": LATE_CLASS, "resources": {"requests": {"storage": "5Gi"}}}
        metadata = {"name": name, "namespace": "default", "uid": uid}
        claim = {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
        self.server.put_object(object_from(ObjectKind.PERSISTENT_VOLUME_CLAIM, claim))

    def _put_volume(self, zone: str) -> None:
        self._made += 1
        name = f"volume-{self._made}"
        self._zones[name] = zone
        expression = {"key": ZONE, "operator": "In", "values": [zone]}
        spec = {
            "accessModes": ["ReadWriteOnce", READ_WRITE_ONCE_POD],
            "capacity": {"storage": "10Gi"},
            "csi": {"driver": "disk.example.com", "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
            "storageClassName": LATE_CLASS,
        }
        volume = {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}
        self.server.put_object(object_from(ObjectKind.PERSISTENT_VOLUME, volume))

    def _delete(self) -> None:
        if (found := self._any_pod()) is not None:
            self.server.terminate(found.uid)

    def _recreate(self) -> None:
        if (found := self._any_pod()) is not None:
            self.server.delete_pod(found.uid)
            self.create(found.name)

    def _bind_elsewhere(self) -> None:
        """Bind a pod, if possible one that waits for a single-pod claim, and delete it after a while."""
        waiting = [each for each in self.server.pods.values() if not each.spec.node_name]
        wanted = [each for each in waiting if any(name in _claims_of(each) for name in SINGLE)]
        found = self._any_of(wanted or waiting, lambda each: each.uid)
        if found is not None:
            self._elsewhere.add(found.uid)
            self.server.put_pod(replace(found, spec=replace(found.spec, node_name=ELSEWHERE)))
            self.later(self.dice.uniform(0.5, 4.0), lambda: self.server.terminate(found.uid))

    def _take_volume(self) -> None:
        """Create a claim for the volume that the next pod would get. No pod uses the claim, so it is soon deleted."""
        free = [each for each in self._volumes() if each.spec.claim_ref is None]
        volume = min(free, key=lambda each: each.metadata.name, default=None)
        if volume is None:
            return
        name, uid = self.next_name("taken-")
        self._put_claim(name, uid)
        claim = self._claims()[name]
        reference = ClaimReference(namespace="default", name=name, uid=uid)
        self.server.put_object(replace(volume, spec=replace(volume.spec, claim_ref=reference)))
        self._complete(claim, volume)

    # The approver and the volume controller

    async def _wait_until(self, at: float) -> None:
        self._attend()
        await super()._wait_until(at)

    def _judge(self) -> None:
        self._attend()
        super()._judge()

    async def _settle(self) -> None:
        self.quiet = True
        await super()._settle()

    def _is_unsettled(self) -> bool:
        self._attend()
        return super()._is_unsettled()

    def _attend(self) -> None:
        if self.now < self._looks_at:
            return
        self._looks_at = self.now + LOOK
        self._give_permits()
        self._bind_volumes()
        if self.quiet and self.now >= self._nudges_at:
            self._nudges_at = self.now + NUDGE
            self.server.put_node(node(ELSEWHERE).capacity(cpu=1000, memory="1000Gi").unschedulable().build())

    def _give_permits(self) -> None:
        """Allow in time, deny, or leave the pod to its time-out; allow all once it is quiet."""
        for name in ("b1", "b2"):
            binder = self.processes[name]
            if binder.core is None or binder.paused:
                continue
            for waiting in binder.core.waiting(binder.clock())[0]:
                dice = self.around.dice.of("permit", waiting.uid)
                if waiting.uid not in self._decided:
                    answers = dice.choices(((0.5, True), (8.0, True), (1.0, False), (1e9, True)), (4, 2, 1, 1))[0]
                    self._decided[waiting.uid] = self.now + answers[0], answers[1]
                at, allow = (self.now, True) if self.quiet else self._decided[waiting.uid]
                if self.now >= at:
                    self._decided.pop(waiting.uid, None)
                    answer = PermitAnswer(waiting.uid, ByHand.name, allow, "" if allow else "denied")
                    self.network.post(APPROVER, BINDER_PERMITS, answer)

    def _bind_volumes(self) -> None:
        """Bind claims to the volumes reserved for them, replace volumes of deleted claims, delete unused claims."""
        volumes, claims = self._volumes(), self._claims()
        for name, claim in claims.items():
            if not any(name in _claims_of(each) for each in self.server.pods.values()) and name not in SINGLE:
                self.server.delete_object(ObjectKind.PERSISTENT_VOLUME_CLAIM, key_of(claim))
        for volume in volumes:
            reference = volume.spec.claim_ref
            if reference is None:
                continue
            holder = self._claims().get(reference.name)
            if holder is None or reference.uid not in ("", holder.uid):
                self.server.delete_object(ObjectKind.PERSISTENT_VOLUME, key_of(volume))
                self._put_volume(self._zones[volume.metadata.name])
            elif not holder.fully_bound:
                dice = self.around.dice.of("controller", holder.uid)
                at = self._kept_at.setdefault(holder.uid, self.now + dice.choice((0.0, 0.5, 3.0, 12.0)))
                if self.now >= at:
                    self._complete(holder, volume)

    def _complete(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        annotations = {**claim.metadata.annotations, BIND_COMPLETED: "yes"}
        spec = replace(claim.spec, volume_name=volume.metadata.name)
        metadata = replace(claim.metadata, annotations=annotations)
        self.server.put_object(
            replace(claim, metadata=metadata, spec=spec, status=replace(claim.status, phase="Bound"))
        )

    # What must hold

    def _broken(self) -> list[str]:
        """Waits for permits end in time by the binder's clock, unless the binder is paused."""
        wrong = super()._broken()
        for name in ("b1", "b2"):
            binder = self.processes[name]
            resumed = binder.resumed_at is not None and self.now < binder.resumed_at + OVERDUE
            if binder.core is None or binder.paused or resumed:
                continue
            for waiting in binder.core.waiting(binder.clock())[0]:
                waited = self.server.pods.get(waiting.uid)
                late = 0.0 if waited is None else waiting.waited - float(waited.metadata.labels[PERMIT])
                if late > OVERDUE:
                    wrong.append(f"{waiting.name} ({waiting.uid}) waits for a permit {late:.1f} s too long at {name}")
        return wrong

    def _on_bind(self, bound: Pod) -> None:
        """Its claims have volumes that its node reaches, and no other pod uses its single-pod claims."""
        where, claims = self.server.nodes.get(bound.spec.node_name), self._claims()
        if self.now < self._replaced_at.get(bound.spec.node_name, -KNOWN_FOR) + KNOWN_FOR:
            self._doubtful.add(bound.uid)
        for name in _claims_of(bound):
            claim = claims.get(name)
            if claim is None or not claim.fully_bound:
                self._report(f"{bound.name} ({bound.uid}) is bound, and its claim {name} is not")
            elif where is not None and self._zones[claim.spec.volume_name] != where.metadata.labels[ZONE]:
                self._report(f"{bound.name} ({bound.uid}) is bound to {where.name}, which does not reach {name}")
            others = self._users(name) - {bound.uid} - self._doubtful - self._elsewhere
            if name in SINGLE and others and bound.uid not in self._doubtful:
                self._report(f"{bound.name} ({bound.uid}) is bound, and ({min(others)}) uses {name} already")

    def _on_change(self, change: Change) -> None:
        """No two claims share a volume, and a claim keeps its volume."""
        if change.kind is Kind.NODE and change.type == "DELETED":
            self._replaced_at[change.key] = self.now
            self._stranded.update(uid for uid, pod in self.server.pods.items() if pod.spec.node_name == change.key)
        obj = self.server.objects.get((ObjectKind.PERSISTENT_VOLUME_CLAIM, change.key))
        if not isinstance(obj, PersistentVolumeClaim) or not obj.spec.volume_name:
            return
        if self._holds.setdefault(obj.uid, obj.spec.volume_name) != obj.spec.volume_name:
            self._report(f"claim {obj.metadata.name} had {self._holds[obj.uid]}, and now {obj.spec.volume_name}")
        sharing = [each for each in self._claims().values() if each.spec.volume_name == obj.spec.volume_name]
        if len(sharing) > 1:
            self._report(f"{obj.spec.volume_name} goes to {sorted(each.metadata.name for each in sharing)}")

    def _is_free(self, where: Node, pod: Pod) -> bool:
        return super()._is_free(where, pod) and all(self._reaches(where, pod, name) for name in _claims_of(pod))

    def _reaches(self, where: Node, pod: Pod, name: str) -> bool:
        """Whether its claim has a volume there, or finds one."""
        claim = self._claims().get(name)
        if claim is None or (name in SINGLE and self._users(name)):
            return False
        zone = where.metadata.labels.get(ZONE, "")
        if claim.fully_bound:
            return self._zones[claim.spec.volume_name] == zone
        kept = [each for each in self._volumes() if each.is_bound_to(claim)]
        free = kept or [each for each in self._volumes() if each.spec.claim_ref is None]
        return any(self._zones[each.metadata.name] == zone for each in free)

    def _users(self, name: str) -> set[str]:
        """The uids of pods on existing nodes that use this claim."""
        pods = [pod for pod in self.server.pods.values() if pod.spec.node_name and pod.status.phase != FINISHED]
        return {pod.uid for pod in pods if name in _claims_of(pod)} - self._stranded

    def _claims(self) -> dict[str, PersistentVolumeClaim]:
        found = self.server.objects.values()
        return {each.metadata.name: each for each in found if isinstance(each, PersistentVolumeClaim)}

    def _volumes(self) -> list[PersistentVolume]:
        return [
            each
            for each in self.server.objects.values()
            if isinstance(each, PersistentVolume) and each.metadata.name in self._zones
        ]


def _claims_of(pod: Pod) -> list[str]:
    sources: list[Any] = [volume.persistent_volume_claim for volume in pod.spec.volumes]
    return [source.claim_name for source in sources if source is not None]
