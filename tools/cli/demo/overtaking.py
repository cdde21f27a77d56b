"""The demo's second scene: nodes without room, pods of high priority that come, and who makes way for them."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Any
from urllib.parse import quote

import msgspec

from shared.errors import ClusterError
from shared.kube.client import KubeClient
from tools.cli.demo.creating import Creator
from tools.cli.demo.report import SERVERS
from tools.cli.demo.screen import Screen, table
from tools.cli.demo.workload import NAMESPACE, URGENT, Object
from tools.supervisor.pipeline import Pipeline

SCENE = {"scene": "full"}
FILLING, LATE = {"role": "filler"}, {"role": "late"}
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
TOLD = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events?fieldSelector=reason%3DPreempted"
FILLERS_A_NODE = 4
"""Each asks for one CPU, and a node has as many."""
CPUS_WANTED = 2
"""By each pod that comes late, so that so many others make way for it."""
PRIORITIES = {"demo-idle": 1, "demo-low": 5, "demo-usual": 10}
"""Classes of those that fill the nodes; the least important are to make way."""
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
TELL_EVERY = 0.2
LOOK_EVERY = 0.1
"""Seconds; longer where there is much to look at."""
LOOK_LESS = 1e-3
"""Seconds more for each pod."""
PATIENCE = 60.0
MOST_SHOWN = 8

Pods = Sequence[Any]


@dataclass(slots=True)
class Late:
    """A pod of high priority. Seconds since it was created."""

    uid: str = ""
    nominated_after: float | None = None
    node: str = ""
    bound_after: float | None = None
    victims: list[str] = field(default_factory=list)
    freed: set[str] = field(default_factory=set)
    """The nodes that they left."""


@dataclass(frozen=True, slots=True)
class Overtaken:
    """How it went. `priorities`: of everybody who filled the nodes, by name; `places`: where they were."""

    late: Mapping[str, Late]
    priorities: Mapping[str, int]
    places: Mapping[str, str]
    seconds: float = 0.0
    cpu: float = 0.0
    """Seconds of all services together, from the first late pod created to the last one bound."""

    @property
    def victims(self) -> list[str]:
        return [name for each in self.late.values() for name in each.victims]

    @property
    def held(self) -> bool:
        return all(holds for _, holds in self.checks())

    def checks(self) -> list[tuple[str, bool]]:
        late = self.late.values()
        return [
            ("every pod of high priority is bound", all(each.node for each in late)),
            ("each got the node on which others made way for it", all(each.freed == {each.node} for each in late)),
            ("nobody made way in vain", all(len(each.victims) == CPUS_WANTED for each in late)),
            ("nobody made way for two", len(set(self.victims)) == len(self.victims)),
            ("on each node the least important made way", self._least_important_went()),
        ]

    def _least_important_went(self) -> bool:
        gone = set(self.victims)
        for node in set(self.places.values()):
            here = [name for name, place in self.places.items() if place == node]
            went = sorted(self.priorities[name] for name in here if name in gone)
            if went != sorted(self.priorities[name] for name in here)[: len(went)]:
                return False
        return True


class Overtaking:
    def __init__(self, pipeline: Pipeline, creator: Creator, screen: Screen, *, late: int, seed: int) -> None:
        """`late`: how many pods come; there are as many nodes."""
        self._pipeline = pipeline
        self._creator = creator
        self._screen = screen
        self._count = late
        self._random = Random(seed)

    async def play(self) -> Overtaken:
        """ClusterError if it does not come to an end."""
        client = await KubeClient.open(self._pipeline.api)
        try:
            return await self._play(client)
        finally:
            await client.close()

    async def _play(self, client: KubeClient) -> Overtaken:
        fillers = {filler["metadata"]["name"]: filler for filler in self._fillers()}
        classes = ({"metadata": {"name": name}, "value": value} for name, value in PRIORITIES.items())
        await self._creator.create(CLASSES, classes)
        await self._creator.create("/api/v1/nodes", self._nodes())
        await self._creator.create(PODS, fillers.values())
        places: dict[str, str] = {}

        def filled(pods: Pods) -> bool:
            places.update({pod["metadata"]["name"]: _node_of(pod) for pod in pods})
            return len(places) == len(fillers) and all(places.values())

        await self._until(client, filled, "of low priority are bound")
        self._screen.settle(f"  {self._count} nodes filled by {len(fillers)} pods of low priority")
        late = {f"late-{i:03}": Late() for i in range(self._count)}
        began, spent = time.monotonic(), self._cpu()
        following = asyncio.create_task(_follow_all(client, late, began))
        try:
            await self._creator.create(PODS, (_pod(name, CPUS_WANTED, URGENT, LATE) for name in late))
            await self._until_bound(late, following)
        finally:
            following.cancel()
            await asyncio.wait([following])
        seconds, cpu = time.monotonic() - began, self._cpu() - spent
        await self._learn_victims(client, late, places)
        priorities = {name: PRIORITIES[filler["spec"]["priorityClassName"]] for name, filler in fillers.items()}
        return Overtaken(late, priorities, places, seconds, cpu)

    def _cpu(self) -> float:
        """Of the services alone."""
        return sum(seconds for name, seconds in self._pipeline.cpu().items() if name not in SERVERS)

    async def _until_bound(self, late: Mapping[str, Late], following: "asyncio.Task[None]") -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            bound = sum(bool(each.node) for each in late.values())
            nominated = sum(each.nominated_after is not None for each in late.values())
            self._screen.passing(f"{len(late)} of high priority: {nominated} nominated, {bound} bound")
            if bound == len(late):
                return
            if following.done():
                following.result()
            self._check(deadline, f"of high priority are bound: {bound} of {len(late)}")
            await asyncio.sleep(TELL_EVERY)

    def _check(self, deadline: float, what: str) -> None:
        """ClusterError once the pipeline has failed, or it has taken too long."""
        if self._pipeline.failure.done():
            self._pipeline.failure.result()
        if time.monotonic() > deadline:
            raise ClusterError(f"after {PATIENCE:g} s not all pods {what}")

    async def _until(self, client: KubeClient, holds: Callable[[Pods], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            pods = _items(await client.get(_listing(FILLING)))
            if holds(pods):
                return
            self._check(deadline, what)
            await asyncio.sleep(LOOK_EVERY + LOOK_LESS * len(pods))

    async def _learn_victims(self, client: KubeClient, late: Mapping[str, Late], places: Mapping[str, str]) -> None:
        """Events are written beside the work: who made way is told a moment later."""
        by_uid = {each.uid: each for each in late.values()}
        deadline = time.monotonic() + PATIENCE / 4
        while True:
            for event in _items(await client.get(TOLD)):
                each = next((each for uid, each in by_uid.items() if uid in event["note"]), None)
                name = event["regarding"]["name"]
                if each is not None and name not in each.victims:
                    each.victims.append(name)
                    each.freed.add(places[name])
            if all(len(each.victims) >= CPUS_WANTED for each in late.values()) or time.monotonic() > deadline:
                return
            await asyncio.sleep(LOOK_EVERY)

    def _nodes(self) -> Iterator[Object]:
        amounts = {"cpu": str(FILLERS_A_NODE), "memory": "16Gi", "pods": "110"}
        for i in range(self._count):
            name = f"full-{i:03}"
            yield {
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **SCENE}},
                "spec": {"taints": [{"key": "scene", "value": "full", "effect": "NoSchedule"}]},
                "status": {
                    "capacity": amounts,
                    "allocatable": amounts,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }

    def _fillers(self) -> Iterator[Object]:
        for i in range(FILLERS_A_NODE * self._count):
            yield _pod(f"filler-{i:04}", 1, self._random.choice(list(PRIORITIES)), FILLING)


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


async def _follow_all(client: KubeClient, late: Mapping[str, Late], began: float) -> None:
    """Takes down when each is nominated and bound, until this is cancelled or the watch ends."""
    stream = await client.stream(f"{_listing(LATE)}&watch=1", PATIENCE)
    rest = b""
    try:
        while chunk := await stream.read():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in filter(None, lines):
                pod = msgspec.json.decode(line)["object"]
                if (each := late.get(pod["metadata"].get("name", ""))) is not None:
                    _follow(each, pod, time.monotonic() - began)
    finally:
        stream.close()


def _items(body: bytes | None) -> list[Any]:
    items: list[Any] = [] if body is None else msgspec.json.decode(body)["items"]
    return items


def _node_of(pod: Any) -> str:
    node: str = pod["spec"].get("nodeName", "")
    return node


def _follow(each: Late, pod: Any, after: float) -> None:
    each.uid = pod["metadata"]["uid"]
    node = _node_of(pod)
    if pod.get("status", {}).get("nominatedNodeName") and each.nominated_after is None:
        each.nominated_after = after
    if node and each.bound_after is None:
        each.node, each.bound_after = node, after


def overtaken_lines(overtaken: Overtaken) -> list[str]:
    late = overtaken.late
    nominated = [each.nominated_after for each in late.values() if each.nominated_after is not None]
    bound = [each.bound_after for each in late.values() if each.bound_after is not None]
    figures = [
        ("pods of high priority bound", f"{len(bound):,} of {len(late):,}"),
        ("pods that made way", f"{len(overtaken.victims):,}"),
        ("created to nominated, median", f"{median(nominated or [0.0]):.2f} s"),
        ("created to bound, median", f"{median(bound or [0.0]):.2f} s"),
        ("rate", f"{len(bound) / max(overtaken.seconds, 0.001):,.0f} pods/s"),
        ("CPU of all services, a pod", f"{1e6 * overtaken.cpu / max(1, len(bound)):,.0f} µs"),
    ]
    shown = [
        f"  {name}  on {each.node or 'no node'}{_when(each)}, instead of "
        f"{', '.join(_with_priority(overtaken, each)) or 'nobody'}"
        for name, each in list(late.items())[:MOST_SHOWN]
    ]
    more = [f"  and {len(late) - MOST_SHOWN} more"] if len(late) > MOST_SHOWN else []
    verdicts = [f"  {'✓' if holds else '✗'} {text}" for text, holds in overtaken.checks()]
    return ["", *shown, *more, "", *table(figures), "", *verdicts]


def _when(each: Late) -> str:
    told = (("nominated", each.nominated_after), ("bound", each.bound_after))
    times = [f"{what} after {after:.2f} s" for what, after in told if after is not None]
    return f": {', '.join(times)}" if times else ""


def _with_priority(overtaken: Overtaken, each: Late) -> list[str]:
    return [f"{name} (priority {overtaken.priorities.get(name, 0)})" for name in sorted(each.victims)]
