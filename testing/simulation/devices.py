"""Pods that claim devices: by templates, by claims that they share, or as extended resources. Gangs share a claim.

A claim controller makes claims from templates and releases those of pods that are gone; a driver prepares devices that
have binding conditions, and changes its slices. Both act with delays.
"""

import random
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from shared.cluster.objects import ClusterObjects
from shared.devices.errors import AllocationError
from shared.devices.pod_claims import pre_filter
from shared.messages.state import Committed
from shared.messages.watch import OBJECT_KINDS
from shared.model.affinity import NodeSelector
from shared.model.base import ObjectMeta, OwnerReference
from shared.model.devices import (
    AllocatedDevice,
    AllocatedDeviceStatus,
    AllocationResult,
    ConsumerReference,
    DeviceCondition,
    ResourceClaim,
    ResourceClaimStatus,
)
from shared.model.kinds import DEVICE_KINDS
from shared.model.objects import GroupApi, Node, ObjectKind, Pod, PodGroup, PodGroupSpec, object_from
from shared.model.pod import PodResourceClaim, PodResourceClaimStatus
from shared.model.resources import filter_requests
from shared.model.selectors import node_selector_matches
from shared.plugins.devices.class_devices import ClassDevices
from testing.builders import pod
from testing.simulation.apiserver import FINISHED, Change
from testing.simulation.claims import claims, create_claim, delete_claim, put_finalizers
from testing.simulation.gangs import GangWorld
from testing.simulation.inventory import ATTACHED, BROKEN, PART, REQUESTS, RESOURCE, Inventory, classes
from testing.simulation.schedule import Schedule

SHARED = {"shared-gpu": "one", "shared-net": "net"}
"""Claims that several pods name, and what they ask for."""
COMBINED = (
    ("one", "net"),
    ("one", "one"),
    ("one", "one", "net"),
    ("half", "half"),
    ("either", "net"),
    ("thin", "thin"),
)
"""Several claims of one pod, by their templates."""
OF_GANG = ("one", "net", "half", "thin")
"""What the claim asks for that the members of a gang share."""
HELPED = 0.7
"""The share of gangs whose claim a pod outside of the gang names, too."""
LOOK = 0.25
MADE = (0.0, 0.0, 0.0, 1.0)
"""Seconds until the controller makes a claim from a template."""
RELEASED = (0.0, 0.5, 2.0)
PREPARED = (0.0, 1.0, 5.0, 12.0)
"""Seconds until the driver reports about a device."""
FAILING = 0.2
"""The share of devices with binding conditions whose preparation fails."""
BINDING_TIMEOUT = 600.0


class DeviceWorld(GangWorld):
    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self._inventory = Inventory()
        self._generations = dict.fromkeys(self._inventory.devices, 1)
        self._table = ClusterObjects()
        """The objects of the API server, to find out what fits."""
        self._due: dict[tuple[str, ...], float] = {}
        """When controller and driver do something, by what it is."""
        self._held: dict[str, dict[str, AllocationResult]] = {}
        """By bound pod: its claims as they were when it was bound."""
        self._looks_at = 0.0
        self.server.served_by_devices = frozenset({RESOURCE})
        self.server.on_bind.append(self._on_bind)
        self.server.followers.append(self._on_change)

    # Actions

    def furnish(self) -> None:
        super().furnish()
        for each in classes():
            self.server.put_object(each)
        for driver, pool in self._inventory.devices:
            for each_slice in self._inventory.slices(driver, pool, 1):
                self.server.put_object(each_slice)
        self._restore_shared()

    def create(self, name: str = "") -> None:
        new, uid = self.next_name()
        built = pod(name or new).uid(uid)
        resources = {"cpu": self.dice.choice(("100m", "500m")), "memory": "100Mi"}
        one = (*REQUESTS, *REQUESTS, *SHARED, *SHARED, "shared-gpu", "extended", "extended", "none")
        uses = self.dice.choice([*((use,) for use in one), *COMBINED, *COMBINED, ("half", "shared-net")])
        if uses == ("extended",):
            resources[RESOURCE] = self.dice.choice("112")
        self.server.put_pod(claiming(built.request(resources).build(), uses))

    def _create_gang(self) -> None:
        """Create a group, its members, of one class or of two, and a claim that they share.

        Mostly another pod names it, too, which may get it devices before.
        """
        name, _ = self.next_name("g")
        api, least = self.dice.choice(list(GroupApi)), self.dice.choice((2, 3))
        create_claim(self.server, _claim(name, self.dice.choice(OF_GANG)))
        self._put_group(name, api, least, self._reserving(name) if api is GroupApi.SCHEDULING else PodGroupSpec())
        for _ in range(least):
            self._put_member(name, self.next_name(f"{name}-"), api, self.dice.choice(("100m", "100m", "500m")))
        if self.dice.random() < HELPED:
            other, uid = self.next_name()
            helper = claiming(pod(other).uid(uid).request(cpu="100m", memory="100Mi").build(), [name])
            self.later(self.dice.choice((0.0, 0.3, 2.0)), lambda: self.server.put_pod(helper))

    def _reserving(self, name: str) -> PodGroupSpec:
        """Of every second group the claim is its own, and reserved for it instead of for each pod."""
        is_own = random.Random(f"{self.schedule.seed} {name} reserves").random() < 0.5
        return PodGroupSpec(
            resource_claims=list(claiming(pod(name).build(), [name]).spec.resource_claims) if is_own else []
        )

    def _put(self, new: Pod, cpu: str) -> None:
        super()._put(claiming(new, [self._gang_of[new.uid]]), cpu)

    def _drop_claim(self) -> None:
        """Delete a claim that pods share; another one takes its name once it is gone."""
        if (claim := claims(self.server).get(self.dice.choice(sorted(SHARED)))) is not None:
            delete_claim(self.server, claim)

    def _change_slice(self) -> None:
        """A device is missing, or all of a pool are tainted, for a while.

        Counters of an allocated device that is missing would be free, so devices with counters are only tainted.
        """
        driver, pool = self.dice.choice(sorted(self._inventory.devices))
        missing = self.dice.choice([each["name"] for each in self._inventory.devices[driver, pool]])
        tainted = driver == PART or self.dice.random() < 0.3
        self._publish(driver, pool, missing="" if tainted else missing, tainted=tainted)
        self.later(self.dice.uniform(0.5, 4.0), lambda: self._publish(driver, pool))

    def _publish(self, driver: str, pool: str, *, missing: str = "", tainted: bool = False) -> None:
        self._generations[driver, pool] += 1
        generation = self._generations[driver, pool]
        for each in self._inventory.slices(driver, pool, generation, without=missing, tainted=tainted):
            self.server.put_object(each)

    # The claim controller and the driver

    async def _wait_until(self, at: float) -> None:
        self._attend()
        await super()._wait_until(at)

    def _judge(self) -> None:
        self._attend()
        super()._judge()

    def _is_unsettled(self) -> bool:
        self._attend()
        return super()._is_unsettled()

    def _attend(self) -> None:
        if self.now < self._looks_at:
            return
        self._looks_at = self.now + LOOK
        self._restore_shared()
        for each in list(self.server.pods.values()):
            self._name_claims(each)
        for claim in claims(self.server).values():
            self._release(claim)
        for claim in claims(self.server).values():
            self._prepare(claim)

    def _is_time(self, *what: str, waits: tuple[float, ...]) -> bool:
        at = self._due.setdefault(what, self.now + self.around.dice.of(*what).choice(waits))
        return self.now >= at

    def _restore_shared(self) -> None:
        there = claims(self.server)
        for name, requests in SHARED.items():
            if name not in there:
                create_claim(self.server, _claim(name, requests))

    def _name_claims(self, of: Pod) -> None:
        """Make claims from the pod's templates, and name them in the pod's status."""
        templates = {use.name: use.resource_claim_template_name for use in of.spec.resource_claims}
        if not any(templates.values()) or of.status.resource_claim_statuses or of.status.phase == FINISHED:
            return
        if not self._is_time("make", of.uid, waits=MADE):
            return
        named = []
        for use, template in templates.items():
            if template is None:
                continue
            name = f"{of.uid}-{use}"
            if name not in claims(self.server):
                owner = OwnerReference(api_version="v1", kind="Pod", name=of.name, uid=of.uid, controller=True)
                create_claim(self.server, _claim(name, template, owner))
            named.append(PodResourceClaimStatus(name=use, resource_claim_name=name))
        self.server.put_pod(replace(of, status=replace(of.status, resource_claim_statuses=named)))

    def _release(self, claim: ResourceClaim) -> None:
        """Take back the reservations of pods that are gone, and devices that are not reserved; delete what they own."""
        reserved = claim.status.reserved_for
        left = [each for each in reserved if self._is_user(each)]
        members = [uid for uid, gang in self._gang_of.items() if gang == claim.name]
        owners = members if claim.owner_uid is None else [claim.owner_uid]
        is_left = not left and bool(owners) and not any(map(self._may_run, owners))
        is_ending = not left and claim.metadata.deletion_timestamp is not None
        if len(left) == len(reserved) and not is_left and not is_ending:
            return
        users = ",".join(each.uid for each in reserved)
        if not self._is_time("release", claim.uid, users, waits=RELEASED):
            return
        if len(left) < len(reserved) or is_ending:
            status = replace(claim.status, reserved_for=left) if left else ResourceClaimStatus()
            self.server.put_object(replace(claim, status=status))
            claim = claims(self.server)[claim.name]
            if not left:
                put_finalizers(self.server, claim, ())
        if is_left and claim.name in claims(self.server):
            delete_claim(self.server, claims(self.server)[claim.name])

    def _is_user(self, consumer: ConsumerReference) -> bool:
        """Whether it may use a claim: groups stay until their last pod is gone."""
        if consumer.resource != "podgroups":
            return self._may_run(consumer.uid)
        of_group = (uid for uid, gang in self._gang_of.items() if gang == consumer.name)
        return consumer.name in self.groups or any(map(self._may_run, of_group))

    def _may_run(self, uid: str) -> bool:
        there = self.server.pods.get(uid)
        if there is None or there.status.phase == FINISHED:
            return False
        return bool(there.spec.node_name) or there.metadata.deletion_timestamp is None

    def _prepare(self, claim: ResourceClaim) -> None:
        """Report that devices with binding conditions are attached, or broken."""
        allocation = claim.status.allocation
        if allocation is None:
            return
        waiting = [each for each in allocation.devices.results if each.binding_conditions]
        known = {(each.pool, each.device) for each in claim.status.devices}
        if not waiting or all((each.pool, each.device) in known for each in waiting):
            return
        devices = ",".join(each.device for each in waiting)
        attempt = claim.uid, devices, allocation.allocation_timestamp or ""
        if self._is_time("prepare", *attempt, waits=PREPARED):
            broken = self.around.dice.of("broken", *attempt).random() < FAILING
            reports = [_report_on(each, BROKEN if broken else ATTACHED) for each in waiting]
            self.server.put_object(replace(claim, status=replace(claim.status, devices=reports)))

    # What must hold

    def _on_committed(self, committed: Committed) -> None:
        """No two decisions of a commit allocate one claim, but for members of a gang that agree on its devices."""
        super()._on_committed(committed)
        if (commit := self._commits.get((committed.epoch, committed.number))) is None:
            return
        conflicts = {conflict.uid for conflict in committed.conflicts}
        given = dict[str, tuple[str, AllocationResult]]()
        for each in commit.decisions:
            decided = each.assignment.devices if each.uid not in conflicts else None
            for claim in {} if decided is None else {claim.key: claim for claim in reversed(decided.claims)}.values():
                if claim.allocation is None:
                    continue
                mine = each.gang or each.uid, claim.allocation
                if given.setdefault(claim.key, mine) != mine:
                    self._report(
                        f"claim {claim.key} is allocated for {given[claim.key][0]} and otherwise for ({each.uid})"
                    )

    def _may_be_on(self, group: PodGroup, where: Node) -> bool:
        waiting = (each for each in self.members(group) if not each.spec.node_name)
        return all(self._has_devices(where, each) for each in waiting)

    def _on_change(self, change: Change) -> None:
        kind = OBJECT_KINDS.get(change.kind)
        if kind not in DEVICE_KINDS:
            return
        obj = self.server.objects.get((kind, change.key))
        if obj is None:
            self._table.remove(kind, change.key)
        else:
            self._table.upsert(obj)
        if kind is ObjectKind.RESOURCE_CLAIM:
            there = claims(self.server)
            for text in self._inventory.wrong(there.values()):
                self._report(text)
            self._check_users(there)

    def _check_users(self, there: dict[str, ResourceClaim]) -> None:
        """Bound pods keep their claims as long as they run."""
        for uid, held in self._held.items():
            using = self.server.pods.get(uid)
            if using is None or using.status.phase == FINISHED:
                continue
            for name, allocation in held.items():
                claim = there.get(name)
                if claim is None or claim.status.allocation != allocation:
                    self._report(f"{using.name} ({uid}) runs, and its claim {name} has other devices, or none")
                elif not self._is_reserved(claim, uid):
                    self._report(f"{using.name} ({uid}) runs, and its claim {name} is not reserved for it")

    def _on_bind(self, bound: Pod) -> None:
        """Its claims are allocated, reserved for it, ready, and fit the node; extended resources have a claim."""
        label, there = f"{bound.name} ({bound.uid})", claims(self.server)
        held = self._held.setdefault(bound.uid, {})
        names = self._claims_of(bound)
        if len(names) < len(bound.spec.resource_claims) + bool(_extended(bound)):
            self._report(f"{label} is bound, and a claim of it does not exist")
        for name in names:
            claim = there.get(name)
            if claim is None or claim.status.allocation is None:
                self._report(f"{label} is bound, and its claim {name} is not allocated")
                continue
            held[name] = claim.status.allocation
            if wrong := self._why_not(bound, claim, claim.status.allocation):
                self._report(f"{label} is bound to {bound.spec.node_name}, and its claim {name} {wrong}")

    def _is_reserved(self, claim: ResourceClaim, uid: str) -> bool:
        """For the pod, or for its group."""
        group = self._gang_of.get(uid)
        return any(each.uid == uid or (group and each.is_group(group)) for each in claim.status.reserved_for)

    def _why_not(self, bound: Pod, claim: ResourceClaim, allocation: AllocationResult) -> str:
        results, where = allocation.devices.results, self.server.nodes.get(bound.spec.node_name)
        selector = allocation.node_selector
        if not self._is_reserved(claim, bound.uid):
            return "is not reserved for it"
        if selector is not None and where is not None and not _selects(selector, where):
            return "has devices of another node"
        ready = {(each.pool, each.device) for each in claim.status.devices if _is_attached(each)}
        if any(each.binding_conditions and (each.pool, each.device) not in ready for each in results):
            return "has devices that are not ready"
        if claim.name == self._special_claim_of(bound):
            if claim.owner_uid != bound.uid or not claim.is_special:
                return "is not its own"
            if len(results) != _extended(bound):
                return f"has {len(results)} devices instead of {_extended(bound)}"
        return ""

    def _claims_of(self, of: Pod) -> list[str]:
        made = {each.name: each.resource_claim_name for each in of.status.resource_claim_statuses}
        names = [use.resource_claim_name or made.get(use.name) for use in of.spec.resource_claims]
        return [name for name in (*names, self._special_claim_of(of)) if name]

    def _special_claim_of(self, of: Pod) -> str:
        return str(self.server.special_claims.get(of.uid, {}).get("resourceClaimName", ""))

    def checks(self) -> tuple[Callable[[], list[str]], ...]:
        return *super().checks(), self._reserved_in_vain

    def _reserved_in_vain(self) -> list[str]:
        return [
            f"claim {claim.name} is reserved for {each.name} ({each.uid}), which is gone"
            for claim in claims(self.server).values()
            for each in claim.status.reserved_for
            if not self._is_user(each)
        ]

    def _is_free(self, where: Node, pod: Pod) -> bool:
        return super()._is_free(where, pod) and self._has_devices(where, pod)

    def _has_devices(self, where: Node, pod: Pod) -> bool:
        devices = self._table.devices
        found = pre_filter(pod, devices.claims, devices.special_claims_of(pod.uid), devices.allocator)
        if found is None or isinstance(found, str):
            return found is None
        try:
            return ClassDevices(found, devices, BINDING_TIMEOUT).reason(where, 0) is None
        except AllocationError:
            return False


def _claim(name: str, template: str, *owners: OwnerReference) -> ResourceClaim:
    spec = {"devices": {"requests": REQUESTS[template]}}
    metadata = ObjectMeta(name=name, namespace="default", owner_references=list(owners))
    made = object_from(ObjectKind.RESOURCE_CLAIM, {"metadata": {"name": name}, "spec": spec})
    assert isinstance(made, ResourceClaim)
    return replace(made, metadata=metadata)


def claiming(of: Pod, uses: Iterable[str]) -> Pod:
    """With a claim for each use, which names a template or a claim."""
    found = []
    for number, use in enumerate(uses):
        if use in REQUESTS:
            found.append(PodResourceClaim(name=f"use{number}", resource_claim_template_name=use))
        elif use not in ("extended", "none"):
            found.append(PodResourceClaim(name=f"use{number}", resource_claim_name=use))
    return replace(of, spec=replace(of.spec, resource_claims=found))


def _extended(of: Pod) -> int:
    return filter_requests(of).get(RESOURCE, 0)


def _selects(selector: NodeSelector, where: Node) -> bool:
    return node_selector_matches(selector, where.metadata.labels, where.name)


def _is_attached(status: AllocatedDeviceStatus) -> bool:
    return any(each.type == ATTACHED and each.status == "True" for each in status.conditions)


def _report_on(device: AllocatedDevice, condition: str) -> AllocatedDeviceStatus:
    conditions = [DeviceCondition(type=condition, status="True")]
    return AllocatedDeviceStatus(driver=device.driver, pool=device.pool, device=device.device, conditions=conditions)
