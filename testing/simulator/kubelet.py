"""The simulated kubelets, which say what happens to pods on nodes.

    bound --at once--> Running --"run-seconds" later--> Succeeded
    deleted --at once--> gone

A pod bound to a node that does not exist stays as it is until the node appears.
"""

import asyncio
import contextlib
import heapq
from enum import Enum, auto
from typing import NamedTuple

from testing.simulator.cluster import FINISHED, SimulatedCluster
from testing.simulator.metadata import timestamp
from testing.simulator.resources import NODES, PODS, Object
from testing.simulator.store import ADDED, DELETED, Change, Item

RUN_SECONDS = "simulator.flotilla.io/run-seconds"
ADDRESSES = 1 << 22
BATCH = 64
"""Pods handled before requests get their turn."""
MAX_SLEEP = 1.0
DEFAULT_ADDRESS = "127.0.0.1"
CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
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


class KubeletStep(NamedTuple):
    action: Action
    key: Key


class Kubelets:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._pods = cluster.store.bucket(PODS)
        self._nodes = cluster.store.bucket(NODES)
        self._wake = asyncio.Event()
        self._addresses = 0
        self._ready: dict[KubeletStep, None] = {}
        self._later: list[tuple[float, Key]] = []
        """When pods complete."""
        self._parked: dict[str, dict[KubeletStep, None]] = {}
        """By node that does not exist: the steps that wait for it."""

    async def run(self) -> None:
        self._pods.listeners.append(self._on_pod)
        self._nodes.listeners.append(self._on_node)
        try:
            while True:
                self._wake.clear()
                self._run_batch(self._cluster.clock())
                if self._ready:
                    await asyncio.sleep(0)
                else:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._pause()):
                            await self._wake.wait()
        finally:
            self._pods.listeners.remove(self._on_pod)
            self._nodes.listeners.remove(self._on_node)

    def _pause(self) -> float | None:
        """At most a second, because the cluster's clock may jump."""
        return min(max(0.0, self._later[0][0] - self._cluster.clock()), MAX_SLEEP) if self._later else None

    def _run_batch(self, now: float) -> None:
        """Carry out the steps that are due, oldest first."""
        while self._later and self._later[0][0] <= now:
            self._ready[KubeletStep(Action.COMPLETE, heapq.heappop(self._later)[1])] = None
        for step in list(self._ready)[:BATCH]:
            del self._ready[step]
            with contextlib.suppress(*MALFORMED):
                self._carry_out(step, now)

    def _on_pod(self, change: Change) -> None:
        item = change.item
        if change.type == DELETED or not item.fields[_NODE]:
            return
        key = (item.namespace, item.name, item.uid)
        if b'"deletionTimestamp"' in item.raw and "deletionTimestamp" in item.decode()["metadata"]:
            self._ready[KubeletStep(Action.REMOVE, key)] = None
        elif item.fields[_PHASE] == "Pending":
            self._ready[KubeletStep(Action.START, key)] = None
        if self._ready:
            self._wake.set()

    def _on_node(self, change: Change) -> None:
        """Release the steps that waited for a new node."""
        if change.type == ADDED and (steps := self._parked.pop(change.item.name, None)):
            self._ready.update(steps)
            self._wake.set()

    def _carry_out(self, step: KubeletStep, now: float) -> None:
        namespace, name, uid = step.key
        item = self._pods.get(namespace, name)
        if item is None or item.uid != uid:
            return
        node = self._nodes.get("", item.fields[_NODE])
        if node is None:
            self._parked.setdefault(item.fields[_NODE], {})[step] = None
            return
        pod = item.decode()
        phase = (pod.get("status") or {}).get("phase")
        if step.action is Action.REMOVE:
            self._cluster.delete(PODS, item, 0)
        elif step.action is Action.START and phase == "Pending":
            self._start(pod, _address(node), now)
            self._cluster.store.put(PODS, pod)
        elif step.action is Action.COMPLETE and phase not in FINISHED:
            _complete(pod, timestamp(now))
            self._cluster.store.put(PODS, pod)

    def _start(self, pod: Object, host: str, now: float) -> None:
        """Set the status of a pod that starts to run."""
        metadata, spec, status = pod["metadata"], pod["spec"], pod.setdefault("status", {})
        address = host
        if not spec.get("hostNetwork"):
            self._addresses = number = (self._addresses + 1) % ADDRESSES
            address = f"10.{128 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}"
        at = timestamp(now)
        status |= {"phase": "Running", "startTime": at}
        status |= {"hostIP": host, "hostIPs": [{"ip": host}], "podIP": address, "podIPs": [{"ip": address}]}
        _set_conditions(status, at, ready=True)
        _set_containers(pod, {"running": {"startedAt": at}}, running=True)
        text = (metadata.get("annotations") or {}).get(RUN_SECONDS)
        with contextlib.suppress(ValueError):
            if text is not None:
                key = (metadata.get("namespace", ""), metadata["name"], metadata.get("uid", ""))
                heapq.heappush(self._later, (now + max(0.0, float(text)), key))


def _complete(pod: Object, at: str) -> None:
    """Set the status of a pod whose containers have all succeeded."""
    status = pod["status"]
    status["phase"] = "Succeeded"
    _set_conditions(status, at, ready=False)
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": status.get("startTime"), "finishedAt": at}
    _set_containers(pod, {"terminated": ended}, running=False)


def _set_containers(pod: Object, state: Object, *, running: bool) -> None:
    statuses = []
    for container in pod["spec"].get("containers") or ():
        image = container.get("image", "")
        status = {"name": container.get("name", ""), "image": image, "imageID": image, "restartCount": 0}
        statuses.append({**status, "ready": running, "started": running, "state": state})
    pod["status"]["containerStatuses"] = statuses


def _set_conditions(status: Object, at: str, *, ready: bool) -> None:
    others = [condition for condition in status.get("conditions") or () if condition.get("type") not in CONDITIONS]
    conditions = []
    for type_ in CONDITIONS:
        condition = {"type": type_, "status": "True", "lastProbeTime": None, "lastTransitionTime": at}
        if not ready and type_ != "Initialized":
            condition |= {"status": "False", "reason": "PodCompleted"}
        conditions.append(condition)
    status["conditions"] = [*conditions, *others]


def _address(node: Item) -> str:
    if b'"InternalIP"' not in node.raw:
        return DEFAULT_ADDRESS
    addresses: list[Object] = (node.decode().get("status") or {}).get("addresses") or []
    return next((str(found["address"]) for found in addresses if found.get("type") == "InternalIP"), DEFAULT_ADDRESS)
