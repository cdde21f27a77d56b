"""The demo's second scene: high-priority pods arrive at full nodes and preempt low-priority ones."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Any
from urllib.parse import quote

import msgspec

from shared.errors import ClusterError
from shared.kube.client import KubeClient
from testing.inprocess.workloads import Object, make_node
from tools.api_objects import ObjectWriter
from tools.cli.output import Screen
from tools.demo.progress import verdict
from tools.demo.workload import NAMESPACE, URGENT
from tools.supervisor.pipeline import Pipeline

SCENE = {"scene": "full"}
FILLER, LATE = {"role": "filler"}, {"role": "late"}
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
EVENTS = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events?fieldSelector=reason%3DPreempted"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
FILLERS_PER_NODE = 4
"""Each requests one CPU; a node has as many CPUs."""
VICTIMS = 2
"""CPUs that each preemptor requests, and so the number of its victims."""
PRIORITIES = {"demo-idle": 1, "demo-low": 5, "demo-usual": 10}
"""Priority classes of the fillers."""
REPAINT_INTERVAL = 0.2
POLL_INTERVAL = 0.1
POLL_INTERVAL_PER_POD = 1e-3
TIMEOUT = 60.0


@dataclass(slots=True)
class Preemptor:
    """Times are in seconds since the creation of the preemptors."""

    uid: str = ""
    nominated_after: float | None = None
    node: str = ""
    bound_after: float | None = None
    victims: list[str] = field(default_factory=list)
    freed: set[str] = field(default_factory=set)
    """The nodes of the victims."""


@dataclass(frozen=True, slots=True)
class PreemptionResult:
    """`priorities` and `nodes`: of each filler, by name."""

    preemptors: Mapping[str, Preemptor]
    priorities: Mapping[str, int]
    nodes: Mapping[str, str]

    @property
    def victims(self) -> list[str]:
        return [name for each in self.preemptors.values() for name in each.victims]

    @property
    def passed(self) -> bool:
        return all(passed for _, passed in self.checks())

    def checks(self) -> list[tuple[str, bool]]:
        all_ = self.preemptors.values()
        return [
            (
                "every high-priority pod is bound to the node that its victims left",
                all(each.node and each.freed == {each.node} for each in all_),
            ),
            (
                "no pod was evicted in vain, or for two preemptors",
                all(len(each.victims) == VICTIMS for each in all_) and len(set(self.victims)) == len(self.victims),
            ),
            ("the victims are the lowest-priority pods of their nodes", self._victims_are_lowest()),
        ]

    def report(self) -> list[str]:
        all_ = self.preemptors.values()
        nominated = [each.nominated_after for each in all_ if each.nominated_after is not None]
        bound = [each.bound_after for each in all_ if each.bound_after is not None]
        return [
            f"  {len(bound):,} of {len(all_):,} pods bound, {len(self.victims):,} victims evicted; "
            f"nominated after {median(nominated or [0.0]):.2f} s, bound after {median(bound or [0.0]):.2f} s (median)",
            "",
            *(verdict(text, passed) for text, passed in self.checks()),
        ]

    def _victims_are_lowest(self) -> bool:
        victims = set(self.victims)
        for place in set(self.nodes.values()):
            here = [name for name, found in self.nodes.items() if found == place]
            evicted = sorted(self.priorities[name] for name in here if name in victims)
            if evicted != sorted(self.priorities[name] for name in here)[: len(evicted)]:
                return False
        return True


class PreemptionScene:
    def __init__(self, pipeline: Pipeline, writer: ObjectWriter, screen: Screen, *, late: int, seed: int) -> None:
        """`late`: the number of preemptors, and of nodes."""
        self._pipeline = pipeline
        self._writer = writer
        self._screen = screen
        self._count = late
        self._random = Random(seed)

    async def play(self) -> PreemptionResult:
        """ClusterError if it does not finish in time."""
        client = await KubeClient.open(self._pipeline.api)
        try:
            return await self._play(client)
        finally:
            await client.close()

    async def _play(self, client: KubeClient) -> PreemptionResult:
        priorities = {
            f"filler-{i:04}": self._random.choice(list(PRIORITIES)) for i in range(FILLERS_PER_NODE * self._count)
        }
        classes = ({"metadata": {"name": name}, "value": value} for name, value in PRIORITIES.items())
        taint = {"key": "scene", "value": "full", "effect": "NoSchedule"}
        full = (make_node(f"full-{i:03}", str(FILLERS_PER_NODE), "16Gi", SCENE, [taint]) for i in range(self._count))
        await self._writer.create(PRIORITY_CLASSES, classes)
        await self._writer.create("/api/v1/nodes", full)
        await self._writer.create(PODS, (_pod(name, 1, priority, FILLER) for name, priority in priorities.items()))
        nodes = await self._nodes_of_fillers(client, len(priorities))
        preemptors = {f"late-{i:03}": Preemptor() for i in range(self._count)}
        watching = asyncio.create_task(_watch(client, preemptors, time.monotonic()))
        try:
            await self._writer.create(PODS, (_pod(name, VICTIMS, URGENT, LATE) for name in preemptors))
            await self._until_bound(preemptors, watching)
        finally:
            watching.cancel()
            await asyncio.wait([watching])
        await _find_victims(client, preemptors, nodes)
        return PreemptionResult(preemptors, {name: PRIORITIES[each] for name, each in priorities.items()}, nodes)

    async def _nodes_of_fillers(self, client: KubeClient, count: int) -> dict[str, str]:
        """Wait until all fillers are bound; returns their nodes by name."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            pods = _items(await client.get(_listing(FILLER)))
            nodes = {pod["metadata"]["name"]: _node_of(pod) for pod in pods}
            if len(nodes) == count and all(nodes.values()):
                return nodes
            self._check(deadline, "low-priority pods are bound")
            await asyncio.sleep(POLL_INTERVAL + POLL_INTERVAL_PER_POD * len(pods))

    async def _until_bound(self, preemptors: Mapping[str, Preemptor], watching: "asyncio.Task[None]") -> None:
        deadline = time.monotonic() + TIMEOUT
        while (bound := sum(bool(each.node) for each in preemptors.values())) < len(preemptors):
            nominated = sum(each.nominated_after is not None for each in preemptors.values())
            line = f"  {nominated} of {len(preemptors)} nominated, {bound} bound"
            self._screen.progress([line], line)
            if watching.done():
                watching.result()
            self._check(deadline, f"high-priority pods are bound: {bound} of {len(preemptors)}")
            await asyncio.sleep(REPAINT_INTERVAL)

    def _check(self, deadline: float, what: str) -> None:
        """ClusterError once the pipeline has failed, or after the time-out."""
        if self._pipeline.failure.done():
            self._pipeline.failure.result()
        if time.monotonic() > deadline:
            raise ClusterError(f"after {TIMEOUT:g} s not all {what}")


async def _find_victims(client: KubeClient, preemptors: Mapping[str, Preemptor], nodes: Mapping[str, str]) -> None:
    """Read the Preempted Events, which may be written a little later."""
    deadline = time.monotonic() + TIMEOUT / 4
    while True:
        for event in _items(await client.get(EVENTS)):
            each = next((each for each in preemptors.values() if each.uid in event["note"]), None)
            name = event["regarding"]["name"]
            if each is not None and name not in each.victims:
                each.victims.append(name)
                each.freed.add(nodes[name])
        if all(len(each.victims) >= VICTIMS for each in preemptors.values()) or time.monotonic() > deadline:
            return
        await asyncio.sleep(POLL_INTERVAL)


def _pod(name: str, cpus: int, priority_class: str, labels: dict[str, str]) -> Object:
    container = {"name": "app", "image": "registry.example/app:1", "resources": {"requests": {"cpu": str(cpus)}}}
    spec: Object = {
        "containers": [container],
        "nodeSelector": SCENE,
        "tolerations": [{"key": "scene", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "priorityClassName": priority_class,
    }
    return {"metadata": {"name": name, "namespace": NAMESPACE, "labels": SCENE | labels}, "spec": spec}


def _listing(labels: dict[str, str]) -> str:
    return f"{PODS}?labelSelector=" + quote(",".join(f"{key}={value}" for key, value in (SCENE | labels).items()))


async def _watch(client: KubeClient, preemptors: Mapping[str, Preemptor], began: float) -> None:
    """Record when each preemptor is nominated and bound, until cancelled or the watch ends."""
    stream = await client.stream(f"{_listing(LATE)}&watch=1", TIMEOUT)
    rest = b""
    try:
        while chunk := await stream.read():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in filter(None, lines):
                pod = msgspec.json.decode(line)["object"]
                each, after = preemptors.get(pod["metadata"].get("name", "")), time.monotonic() - began
                if each is None:
                    continue
                each.uid = pod["metadata"]["uid"]
                if pod.get("status", {}).get("nominatedNodeName") and each.nominated_after is None:
                    each.nominated_after = after
                if _node_of(pod) and each.bound_after is None:
                    each.node, each.bound_after = _node_of(pod), after
    finally:
        stream.close()


def _items(body: bytes | None) -> list[Any]:
    items: list[Any] = [] if body is None else msgspec.json.decode(body)["items"]
    return items


def _node_of(pod: Any) -> str:
    node: str = pod["spec"].get("nodeName", "")
    return node
