"""A cluster with its whole scheduler on virtual time, which is asked what if, and in which that then happens.

The services run their real `main` (see testing/simulation): who asks knows of them only what they say over the bus.
Controllers bind and provision volumes, and make and release claims, as those of Kubernetes do.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import ceil
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo
from shared.config.settings import Settings
from shared.messages.binding import Evict
from shared.messages.codec import Message
from shared.messages.queue import TAKE_PATIENCE
from shared.messages.watch import Kind
from shared.model.devices import ResourceClaim
from shared.model.objects import (
    GroupApi,
    ObjectKind,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    key_of,
    kind_of,
    object_from,
)
from shared.model.storage import BIND_COMPLETED
from testing.builders import node
from testing.simulation.actions import Actions
from testing.simulation.apiserver import Change
from testing.simulation.drawing import CALM
from testing.simulation.inventory import GPU, NET
from testing.simulation.loop import Gate
from testing.simulation.network import SimBus
from testing.simulation.processes import WALL_BEGINS, Process
from testing.simulation.schedule import Schedule
from tests.whatif.extender import CONFIG
from tools import live_state
from tools.cli.service_client import ServiceClient
from tools.live_state import LiveState
from tools.whatif import manifests
from tools.whatif.claims import owner_of, without_user
from tools.whatif.engine import Engine, stays
from tools.whatif.manifests import read

ZONE, HOSTNAME, GROUP = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "scheduling.x-k8s.io/pod-group"
PROCESSES = ("watcher", "queue", "snapshot", "cycle", "w1", "w2", "b1")
ROUND_SIZE = 1
"""What is decided in rounds of more pods depends on which of them arrive together."""
LATE, MADE = "late", "made"
"""Storage classes whose volumes wait for the first pod: volumes that are there, and volumes that are made then."""
GRACE, BEAT = 0.5, 1.0
"""Seconds that pods take to terminate at least, and after which those leave together that were evicted together."""
STEP = 0.25
QUIET = 1.5
"""Seconds in which nothing happens, after which everything is settled."""
LONGEST = 90.0
UNSETTLED = (PodState.ACTIVE, PodState.BACKOFF, PodState.ERROR_BACKOFF, PodState.IN_FLIGHT, PodState.BINDING)

Object = dict[str, Any]


class World(Actions):
    """`went`: the first preemptor of each victim, since what was asked about began."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        super().__init__(Schedule(seed, f"plain{CALM}", ROUND_SIZE, 0.0, ()))
        self.has_extender = draw.random() < 0.25
        self.around.validates = False  # tests/simulation does
        self.name = "asker"
        self.processes: dict[str, Process] = {}
        self.went: dict[str, str] = {}
        self.groups: list[tuple[str, str]] = []
        """Of gangs that are there: API and name."""
        self._made = 0
        self._changed_at = 0.0
        self.server.followers.append(self._on_change)
        self.server.grace = lambda uid: ceil((self.now + GRACE) / BEAT) * BEAT - self.now
        self.network.overhears.append(self._overhear)
        bus: Any = SimBus(self.network, self.name, Gate(self))
        self._client = ServiceClient(bus, Settings())

    # What there is

    async def begin(self) -> None:
        draw = self.draw
        for name, provisioner in ((LATE, "kubernetes.io/no-provisioner"), (MADE, "disk.example.com")):
            late = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
            self._put(ObjectKind.STORAGE_CLASS, name, late)
        for driver in (GPU, NET):
            spec = {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]}
            self._put(ObjectKind.DEVICE_CLASS, driver.partition(".")[0], {"spec": spec})
        for i in range(draw.randrange(3, 8)):
            self._add_node(f"n{i}", i)
        for i in range(draw.randrange(2, 6)):
            self._add_volume(f"volume-{i}", f"z{i % 2}")
        for name in PROCESSES:
            self.processes[name] = Process(name, self.around)
        await asyncio.sleep(3.0)
        for _ in range(draw.randrange(2, 9)):
            self.make(self.some(2))
        await self.settle()

    def _add_node(self, name: str, i: int) -> None:
        draw = self.draw
        made = node(name).label({ZONE: f"z{i % 2}", HOSTNAME: name, "disk": draw.choice(["ssd", "hdd"])})
        made = made.capacity(cpu=draw.choice([2, 4]), memory="8Gi", pods=draw.choice([3, 110]))
        self.server.put_node((made.taint("only", "few") if draw.random() < 0.15 else made).build())
        if draw.random() < 0.4:
            devices = [{"name": f"gpu-{number}"} for number in range(draw.choice([1, 2]))]
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": GPU, "pool": pool, "nodeName": name, "devices": devices}
            self._put(ObjectKind.RESOURCE_SLICE, f"{name}-gpu", {"spec": spec})

    def _add_volume(self, name: str, zone: str, claim: PersistentVolumeClaim | None = None) -> None:
        expression = {"key": ZONE, "operator": "In", "values": [zone]}
        spec: Object = {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "10Gi"},
            "csi": {"driver": "disk.example.com", "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
            "storageClassName": LATE if claim is None else MADE,
        }
        if claim is not None:
            spec["claimRef"] = {"namespace": claim.namespace, "name": claim.name, "uid": claim.metadata.uid}
        self._put(ObjectKind.PERSISTENT_VOLUME, name, {"spec": spec, "status": {"phase": "Available"}})

    def _put(self, kind: ObjectKind, name: str, fields: Object) -> None:
        self.server.put_object(object_from(kind, {"metadata": {"name": name, "uid": f"uid-{name}"}, **fields}))

    # What may be asked about

    def some(self, most: int) -> list[Object]:
        """Manifests of a pod of priority `most` or less, with what it needs; or of a gang."""
        draw = self.draw
        if draw.random() < 0.15:
            return self._gang(most)
        made = self._pod(most)
        spec, name = made["spec"], made["metadata"]["name"]
        if draw.random() < 0.3:
            return [made]
        app = made["metadata"]["labels"]["app"]
        alike = {"labelSelector": {"matchLabels": {"app": app}}}
        near = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": ZONE}
        spread = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **alike}
        extra: list[Callable[[], Sequence[Object]]] = [
            lambda: spec.update(nodeSelector={"disk": draw.choice(["ssd", "nvme"])}) or (),
            lambda: spec.update(tolerations=[{"key": "only", "operator": "Exists"}]) or (),
            lambda: spec.update(affinity=_affinity("podAntiAffinity", {**alike, "topologyKey": HOSTNAME})) or (),
            lambda: spec.update(affinity=_affinity("podAffinity", near)) or (),
            lambda: spec.update(topologySpreadConstraints=[spread]) or (),
            lambda: spec.update(schedulingGates=[{"name": "later"}]) or (),
            lambda: spec.update(preemptionPolicy="Never") or (),
            lambda: spec["containers"][0].update(ports=[{"containerPort": 80, "hostPort": 80}]) or (),
            lambda: self._volume(name, spec),
            lambda: self._volume(name, spec),
            lambda: self._ephemeral(spec),
            lambda: self._devices(name, spec),
            lambda: self._devices(name, spec),
        ]
        return [*draw.choice(extra)(), made]

    def _pod(self, most: int) -> Object:
        draw = self.draw
        self._made += 1
        app = draw.choice("ab")
        metadata: Object = {"name": f"p{self._made}", "labels": {"app": app}}
        if draw.random() < 0.7:
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": "rs", "controller": True}
            metadata["ownerReferences"] = [owner]
        requests = {"cpu": draw.choice(["500m", "1", "1500m", "2"]), "memory": "256Mi"}
        container = {"name": "c", "image": "image", "resources": {"requests": requests}}
        spec: Object = {"containers": [container], "priority": draw.randrange(most + 1)}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _gang(self, most: int) -> list[Object]:
        """A new one, perhaps with too few members; or more members of one that is there."""
        draw = self.draw
        if self.groups and draw.random() < 0.6:
            api, name = draw.choice(self.groups)
            found: list[Object] = []
            count = draw.choice([1, 2])
        else:
            api, name = draw.choice(list(GroupApi)), f"g{self._made}"
            least, count = draw.choice([2, 3]), draw.choice([2, 3])
            policy = {"schedulingPolicy": {"gang": {"minCount": least}}}
            spec = policy if api == GroupApi.SCHEDULING else {"minMember": least}
            found = [{"apiVersion": str(api), "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}]
            self.groups.append((api, name))
        priority = draw.randrange(most + 1)
        for _ in range(count):
            member = self._pod(most)
            member["spec"]["priority"] = priority
            if api == GroupApi.SCHEDULING:
                member["spec"]["schedulingGroup"] = {"podGroupName": name}
            else:
                member["metadata"]["labels"][GROUP] = name
            found.append(member)
        return found

    def _volume(self, name: str, spec: Object) -> list[Object]:
        """Of a claim of its own, or of one that other pods use, too."""
        claims = [each for each in self.server.objects.values() if isinstance(each, PersistentVolumeClaim)]
        if claims and self.draw.random() < 0.3:
            found, claim = [], self.draw.choice(claims).name
        else:
            claim = f"claim-{name}"
            metadata = {"name": claim, "namespace": "default"}
            found = [{"kind": "PersistentVolumeClaim", "metadata": metadata, **self._claim()}]
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
        return found

    def _ephemeral(self, spec: Object) -> list[Object]:
        spec["volumes"] = [{"name": "v", "ephemeral": {"volumeClaimTemplate": self._claim()}}]
        return []

    def _claim(self) -> Object:
        name = self.draw.choice([LATE, MADE])
        resources = {"requests": {"storage": "5Gi"}}
        return {"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": name, "resources": resources}}

    def _devices(self, name: str, spec: Object) -> list[Object]:
        """By a template, or by a claim that other pods use, too."""
        claims = [each for each in self.server.objects.values() if isinstance(each, ResourceClaim)]
        shared = [each.name for each in claims if not owner_of(each)]
        exactly = {"deviceClassName": "gpu", "count": self.draw.choice([1, 1, 2])}
        wanted = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        if self.draw.random() < 0.5:
            metadata = {"name": f"template-{name}", "namespace": "default"}
            spec["resourceClaims"] = [{"name": "d", "resourceClaimTemplateName": metadata["name"]}]
            return [{"kind": "ResourceClaimTemplate", "metadata": metadata, "spec": {"spec": wanted}}]
        if shared and self.draw.random() < 0.5:
            spec["resourceClaims"] = [{"name": "d", "resourceClaimName": self.draw.choice(shared)}]
            return []
        metadata = {"name": f"shared-{name}", "namespace": "default"}
        spec["resourceClaims"] = [{"name": "d", "resourceClaimName": metadata["name"]}]
        return [{"kind": "ResourceClaim", "metadata": metadata, "spec": wanted}]

    # What happens

    def make(self, given: Sequence[Object]) -> None:
        with self.other_uids():
            found = read("manifests", given)
        for each in found.objects:
            self.server.put_object(each)
        self._show_pods(found.pods)

    @contextmanager
    def other_uids(self) -> Iterator[None]:
        """Gives new objects uids that those of earlier questions do not have."""
        self._made += 1
        with self.same_uids():
            yield

    def same_uids(self) -> AbstractContextManager[object]:
        return patch.object(manifests, "UID", f"u{self._made}")

    def _show_pods(self, pods: Sequence[Pod]) -> None:
        for each in pods:
            self.server.put_pod(each)

    async def do(self, engine: Engine) -> None:
        """Makes what was asked about happen, all at once: the cycle asks for no pod meanwhile."""
        cycle = self.processes["cycle"]
        cycle.pause()
        await asyncio.sleep(TAKE_PATIENCE + STEP)
        self._change(engine)
        await asyncio.sleep(STEP)
        self._show_pods([each.pod for each in engine.asked() if not each.origin.startswith("pending")])
        await asyncio.sleep(STEP)
        cycle.resume()
        await self.settle()

    def _change(self, engine: Engine) -> None:
        question, server = engine.question, self.server
        self.went.clear()
        for added in engine.added:
            server.put_node(added)
        for name in (*question.drain, *question.remove):
            for pod in [each for each in server.pods.values() if each.spec.node_name == name]:
                if not stays(pod):
                    server.delete_pod(pod.uid)
        for name in question.drain:
            cordoned = server.nodes[name]
            server.put_node(replace(cordoned, spec=replace(cordoned.spec, unschedulable=True)))
        for name in question.remove:
            server.delete_node(name)
        for each in engine.objects:
            server.put_object(each)

    def churn(self) -> None:
        """Some pods are deleted, and drained nodes are open again, so that there is room for another question."""
        for pod in list(self.server.pods.values()):
            if self.draw.random() < 0.4:
                self.server.terminate(pod.uid)
        for each in list(self.server.nodes.values()):
            if each.spec.unschedulable:
                self.server.put_node(replace(each, spec=replace(each.spec, unschedulable=False)))

    async def settle(self) -> None:
        ends = self.now + LONGEST
        while self.now < ends:
            await asyncio.sleep(STEP)
            leaving = any(pod.metadata.deletion_timestamp for pod in self.server.pods.values())
            queue = self.processes["queue"].core
            counts = queue.counts()
            backs_off = any(
                info.backoff_until > self.processes["queue"].clock() for info in queue.pods_in(PodState.UNSCHEDULABLE)
            )
            is_quiet = self.now > self._changed_at + QUIET
            if is_quiet and not leaving and not backs_off and not any(counts[state] for state in UNSETTLED):
                assert not self.around.failures, self.around.failures
                return
        held = [info for state in UNSETTLED for info in queue.pods_in(state)]
        raise AssertionError(f"not settled: {[(info.pod.name, info.state.value, info.last_failure) for info in held]}")

    def queued(self, uid: str) -> QueuedPodInfo | None:
        found: QueuedPodInfo | None = self.processes["queue"].core.pod(uid)
        return found

    def _overhear(self, message: Message) -> None:
        if isinstance(message, Evict):
            for victim in message.victims:
                self.went.setdefault(f"{victim.namespace}/{victim.name}", message.uid)

    # Who asks

    async def live(self) -> LiveState:
        live = replace(await live_state.load(self._client), at=WALL_BEGINS + self.now)
        if self.has_extender:
            live = replace(live, configuration=replace(live.configuration, config=CONFIG))
        return live

    async def pods_on_all(self) -> dict[str, list[Pod]]:
        return await live_state.pods_on_all(self._client)

    async def pods_on(self, name: str) -> list[Pod]:
        return await live_state.pods_on(self._client, name)

    # Controllers

    def _on_change(self, change: Change) -> None:
        self._changed_at = self.now
        if change.kind is Kind.POD and change.type == "DELETED":
            self._release(change.key)
        elif change.kind in (Kind.PERSISTENT_VOLUME, Kind.PERSISTENT_VOLUME_CLAIM):
            self.later(0.05, self._bind_volumes)

    def _release(self, uid: str) -> None:
        for obj in list(self.server.objects.values()):
            if owner_of(obj) == uid:
                self.server.finalizers.pop(obj.metadata.uid, None)
                self.server.delete_object(kind_of(obj), key_of(obj))
            elif isinstance(obj, ResourceClaim) and any(each.uid == uid for each in obj.status.reserved_for):
                self.server.put_object(without_user(obj, uid))

    def _bind_volumes(self) -> None:
        """Completes what the binder began: claims with volumes reserved for them, and with a node selected for them."""
        objects = list(self.server.objects.values())
        claims = {each.metadata.uid: each for each in objects if isinstance(each, PersistentVolumeClaim)}
        volumes = [each for each in objects if isinstance(each, PersistentVolume)]
        taken = {ref.uid: each for each in volumes if (ref := each.spec.claim_ref) is not None}
        for uid, volume in taken.items():
            if uid not in claims:
                self.server.delete_object(ObjectKind.PERSISTENT_VOLUME, volume.name)
        for uid, claim in claims.items():
            if claim.fully_bound:
                continue
            if uid in taken:
                self._complete(claim, taken[uid])
            elif claim.selected_node is not None and claim.selected_node in self.server.nodes:
                zone = self.server.nodes[claim.selected_node].metadata.labels[ZONE]
                self._add_volume(f"volume-of-{uid.replace('/', '-')}", zone, claim)

    def _complete(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        metadata = replace(claim.metadata, annotations={**claim.metadata.annotations, BIND_COMPLETED: "yes"})
        spec, status = replace(claim.spec, volume_name=volume.name), replace(claim.status, phase="Bound")
        self.server.put_object(replace(claim, metadata=metadata, spec=spec, status=status))


def _affinity(kind: str, term: Object) -> Object:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
