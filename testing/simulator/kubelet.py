"""The simulated kubelets: a core that says what happens to pods on nodes, and its runner on the event loop.

    bound --at once--> Running --"run-seconds" later--> Succeeded
    deleted --at once--> gone

A pod bound to a node that does not exist stays as it is until the node appears.
"""

import asyncio
import contextlib
import heapq
from enum import Enum, auto
from typing import NamedTuple

from testing.simulator.cluster import FINISHED, Cluster
from testing.simulator.metadata import timestamp
from testing.simulator.resources import NODES, PODS, Object
from testing.simulator.store import ADDED, DELETED, Change, Item

RUN_SECONDS = "simulator.flotilla.io/run-seconds"
ADDRESSES = 1 << 22
BATCH = 64
"""Pods handled before requests get their turn."""
MAX_SLEEP = 1.0
DEFAULT_ADDRESS = "127.0.0.1"
MALFORMED = (AttributeError, KeyError, TypeError)
"""What a pod raises that no kubelet could decode; it stays as it is."""
_NODE = PODS.field_index["spec.nodeName"]
_PHASE = PODS.field_index["status.phase"]
Key = tuple[str, str, str]
"""Namespace, name and uid."""


class Action(Enum):
    START = auto()
    COMPLETE = auto()
    REMOVE = auto()


class Step(NamedTuple):
    action: Action
    key: Key


class Kubelets:
    def __init__(self) -> None:
        self._ready: dict[Step, None] = {}
        self._later: list[tuple[float, Key]] = []
        self._addresses = 0
        self._parked: dict[str, dict[Step, None]] = {}
        """By node that does not exist: the steps that wait for it."""

    def on_change(self, change: Change) -> bool:
        """Returns whether any step is due now."""
        item = change.item
        node, phase = item.fields[_NODE], item.fields[_PHASE]
        if change.type == DELETED or not node:
            return False
        key = (item.namespace, item.name, item.uid)
        if b'"deletionTimestamp"' in item.raw and "deletionTimestamp" in item.decode()["metadata"]:
            self._ready[Step(Action.REMOVE, key)] = None
        elif phase == "Pending":
            self._ready[Step(Action.START, key)] = None
        return bool(self._ready)

    def park(self, step: Step, node: str) -> None:
        """Hold a step until its node exists."""
        self._parked.setdefault(node, {})[step] = None

    def on_node(self, name: str) -> bool:
        """Release the steps that waited for a new node; returns whether there were any."""
        steps = self._parked.pop(name, None)
        self._ready.update(steps or {})
        return steps is not None

    def due(self, now: float, limit: int) -> list[Step]:
        """Take the next steps, oldest first."""
        while self._later and self._later[0][0] <= now:
            self._ready[Step(Action.COMPLETE, heapq.heappop(self._later)[1])] = None
        steps = list(self._ready)[:limit]
        for step in steps:
            del self._ready[step]
        return steps

    @property
    def waiting(self) -> bool:
        return bool(self._ready)

    def next_time(self) -> float | None:
        return self._later[0][0] if self._later else None

    def run(self, pod: Object, host: str, now: float) -> None:
        """Set the status of a pod that starts to run."""
        metadata, spec, status = pod["metadata"], pod["spec"], pod.setdefault("status", {})
        at = timestamp(now)
        status["phase"] = "Running"
        status["startTime"] = at
        status["hostIP"] = host
        status["hostIPs"] = [{"ip": host}]
        if spec.get("hostNetwork"):
            address = host
        else:
            self._addresses = (self._addresses + 1) % ADDRESSES
            number = self._addresses
            address = f"10.{128 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}"
        status["podIP"] = address
        status["podIPs"] = [{"ip": address}]
        _set_conditions(status, at, ready=True)
        status["containerStatuses"] = [
            {**_container(container), "ready": True, "started": True, "state": {"running": {"startedAt": at}}}
            for container in spec.get("containers") or ()
        ]
        seconds = _run_seconds(metadata)
        if seconds is not None:
            key = (metadata.get("namespace", ""), metadata["name"], metadata.get("uid", ""))
            heapq.heappush(self._later, (now + seconds, key))

    def complete(self, pod: Object, now: float) -> None:
        """Set the status of a pod whose containers have all succeeded."""
        status = pod["status"]
        at = timestamp(now)
        status["phase"] = "Succeeded"
        _set_conditions(status, at, ready=False)
        ended = {"exitCode": 0, "reason": "Completed", "startedAt": status.get("startTime"), "finishedAt": at}
        status["containerStatuses"] = [
            {**_container(container), "ready": False, "started": False, "state": {"terminated": ended}}
            for container in pod["spec"].get("containers") or ()
        ]


def _run_seconds(metadata: Object) -> float | None:
    text = (metadata.get("annotations") or {}).get(RUN_SECONDS)
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None


def _container(container: Object) -> Object:
    name, image = container.get("name", ""), container.get("image", "")
    return {"name": name, "image": image, "imageID": image, "restartCount": 0}


def _set_conditions(status: Object, at: str, *, ready: bool) -> None:
    mine = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    kept = [condition for condition in status.get("conditions") or () if condition.get("type") not in mine]
    conditions = []
    for type_ in mine:
        condition = {"type": type_, "status": "True", "lastProbeTime": None, "lastTransitionTime": at}
        if not ready and type_ != "Initialized":
            condition |= {"status": "False", "reason": "PodCompleted"}
        conditions.append(condition)
    status["conditions"] = [*conditions, *kept]


class KubeletRunner:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kubelets = Kubelets()
        self._wake = asyncio.Event()
        self._bucket = cluster.store.bucket(PODS)
        self._nodes = cluster.store.bucket(NODES)

    async def run(self) -> None:
        self._bucket.listeners.append(self._on_change)
        self._nodes.listeners.append(self._on_node)
        try:
            while True:
                self._wake.clear()
                for step in self._kubelets.due(self._cluster.clock(), BATCH):
                    with contextlib.suppress(*MALFORMED):
                        self._carry_out(step)
                if self._kubelets.waiting:
                    await asyncio.sleep(0)
                else:
                    await self._sleep()
        finally:
            self._bucket.listeners.remove(self._on_change)
            self._nodes.listeners.remove(self._on_node)

    async def _sleep(self) -> None:
        due = self._kubelets.next_time()
        if due is None:
            await self._wake.wait()
            return
        seconds = min(max(0.0, due - self._cluster.clock()), MAX_SLEEP)
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    def _on_change(self, change: Change) -> None:
        if self._kubelets.on_change(change):
            self._wake.set()

    def _on_node(self, change: Change) -> None:
        if change.type == ADDED and self._kubelets.on_node(change.item.name):
            self._wake.set()

    def _carry_out(self, step: Step) -> None:
        namespace, name, uid = step.key
        item = self._bucket.get(namespace, name)
        if item is None or item.uid != uid:
            return
        pod = item.decode()
        node = self._nodes.get("", item.fields[_NODE])
        if node is None:
            self._kubelets.park(step, item.fields[_NODE])
            return
        phase = (pod.get("status") or {}).get("phase")
        now = self._cluster.clock()
        match step.action:
            case Action.REMOVE:
                self._cluster.delete(PODS, item, 0)
            case Action.START if phase == "Pending":
                self._kubelets.run(pod, _address(node), now)
                self._cluster.store.put(PODS, pod)
            case Action.COMPLETE if phase not in FINISHED:
                self._kubelets.complete(pod, now)
                self._cluster.store.put(PODS, pod)


def _address(node: Item) -> str:
    if b'"InternalIP"' not in node.raw:
        return DEFAULT_ADDRESS
    addresses: list[Object] = (node.decode().get("status") or {}).get("addresses") or []
    return next((str(found["address"]) for found in addresses if found.get("type") == "InternalIP"), DEFAULT_ADDRESS)
