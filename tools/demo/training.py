"""The demo's scene of a training: a gang pushes smaller jobs out of one block of nodes, and lands there whole."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
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

BLOCKS = ("block-a", "block-b", "block-c")
LOW_BLOCK = "block-b"
"""The block whose jobs have the lowest priority, so that these are the victims."""
BLOCK = "example.com/block"
SCENE = {"scene": "training"}
JOB, MEMBER = {"role": "job"}, {"role": "member"}
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
GROUPS = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{NAMESPACE}/podgroups"
CPUS, MEMBER_CPUS = 4, 2
"""Of a node, and of a member; a job has one."""
PRIORITIES = {"training-job-low": 3, "training-job": 7}
POLL_INTERVAL = 0.2
TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """`members`: by block, how many are bound. `evicted`: jobs by the block that they left.

    `condition`: whether the group says that it is placed.
    """

    wanted: int
    seconds: float
    members: Mapping[str, int]
    evicted: Mapping[str, int]
    condition: str

    @property
    def passed(self) -> bool:
        return all(passed for _, passed in self.checks())

    def checks(self) -> list[tuple[str, bool]]:
        needed = self.wanted * MEMBER_CPUS
        return [
            ("the whole training is in one block", list(self.members.values()) == [self.wanted]),
            ("the jobs of least priority were evicted", list(self.members) == [LOW_BLOCK]),
            ("no job was evicted in vain", dict(self.evicted) == {LOW_BLOCK: needed}),
            ("the group says that it is placed", self.condition == "True"),
        ]

    def report(self) -> list[str]:
        return [
            f"  {sum(self.members.values()):,} of {self.wanted:,} members bound after {self.seconds:.2f} s, "
            f"{sum(self.evicted.values()):,} jobs evicted",
            "",
            *(verdict(text, passed) for text, passed in self.checks()),
        ]


class TrainingScene:
    def __init__(self, pipeline: Pipeline, writer: ObjectWriter, screen: Screen, *, members: int) -> None:
        """`members`: an even number; each block has room for them, once no job is there."""
        self._pipeline = pipeline
        self._writer = writer
        self._screen = screen
        self._members = members

    async def play(self) -> TrainingResult:
        """ClusterError if it does not finish in time."""
        client = await KubeClient.open(self._pipeline.api)
        try:
            return await self._play(client)
        finally:
            await client.close()

    async def _play(self, client: KubeClient) -> TrainingResult:
        blocks = self._nodes()
        taint = {"key": "scene", "value": "training", "effect": "NoSchedule"}
        nodes = (make_node(name, str(CPUS), "16Gi", SCENE | {BLOCK: block}, [taint]) for name, block in blocks.items())
        classes = ({"metadata": {"name": name}, "value": value} for name, value in PRIORITIES.items())
        await self._writer.create("/apis/scheduling.k8s.io/v1/priorityclasses", classes)
        await self._writer.create("/api/v1/nodes", nodes)
        jobs = {f"{name}-job-{i}": block for name, block in blocks.items() for i in range(CPUS)}
        await self._writer.create(PODS, (_job(name, block) for name, block in jobs.items()))
        await self._until_bound(client, JOB, len(jobs), "jobs")
        began = time.monotonic()
        await self._writer.create(GROUPS, [_group(self._members)])
        await self._writer.create(PODS, (_member(i) for i in range(self._members)))
        bound = await self._until_bound(client, MEMBER, self._members, "members")
        seconds = time.monotonic() - began
        members = Counter(blocks[_node_of(pod)] for pod in bound)
        left = {pod["metadata"]["name"] for pod in await _list(client, JOB)}
        evicted = Counter(block for name, block in jobs.items() if name not in left)
        return TrainingResult(self._members, seconds, members, evicted, await self._condition(client))

    def _nodes(self) -> dict[str, str]:
        """The block of each node."""
        each = self._members * MEMBER_CPUS // CPUS
        return {f"{block}-{i:02}": block for block in BLOCKS for i in range(each)}

    async def _until_bound(self, client: KubeClient, labels: dict[str, str], count: int, what: str) -> list[Any]:
        deadline = time.monotonic() + TIMEOUT
        while True:
            pods = await _list(client, labels)
            bound = [pod for pod in pods if _node_of(pod)]
            if len(bound) == count:
                return bound
            line = f"  {len(bound)} of {count} {what} bound"
            self._screen.progress([line], line)
            if self._pipeline.failure.done():
                self._pipeline.failure.result()
            if time.monotonic() > deadline:
                raise ClusterError(f"after {TIMEOUT:g} s not all {what} are bound: {len(bound)} of {count}")
            await asyncio.sleep(POLL_INTERVAL)

    async def _condition(self, client: KubeClient) -> str:
        """The status of the group's condition, which may be written a little later."""
        deadline = time.monotonic() + TIMEOUT / 4
        while True:
            group = msgspec.json.decode(await client.get(f"{GROUPS}/training") or b"{}")
            conditions = group.get("status", {}).get("conditions") or [{"status": ""}]
            if conditions[0]["status"] == "True" or time.monotonic() > deadline:
                return str(conditions[0]["status"])
            await asyncio.sleep(POLL_INTERVAL)


def _group(members: int) -> Object:
    spec = {
        "schedulingPolicy": {"gang": {"minCount": members}},
        "schedulingConstraints": {"topology": [{"key": BLOCK}]},
        "priorityClassName": URGENT,
    }
    return {"metadata": {"name": "training", "namespace": NAMESPACE}, "spec": spec}


def _member(number: int) -> Object:
    spec = {"schedulingGroup": {"podGroupName": "training"}, "priorityClassName": URGENT, "nodeSelector": SCENE}
    return _pod(f"training-{number:03}", MEMBER_CPUS, MEMBER, spec)


def _job(name: str, block: str) -> Object:
    """On the nodes of its block."""
    priority = "training-job-low" if block == LOW_BLOCK else "training-job"
    return _pod(name, 1, JOB, {"priorityClassName": priority, "nodeSelector": SCENE | {BLOCK: block}})


def _pod(name: str, cpus: int, labels: dict[str, str], spec: Object) -> Object:
    container = {"name": "app", "image": "registry.example/app:1", "resources": {"requests": {"cpu": str(cpus)}}}
    common = {
        "containers": [container],
        "tolerations": [{"key": "scene", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
    }
    return {"metadata": {"name": name, "namespace": NAMESPACE, "labels": SCENE | labels}, "spec": common | spec}


async def _list(client: KubeClient, labels: dict[str, str]) -> list[Any]:
    selector = quote(",".join(f"{key}={value}" for key, value in (SCENE | labels).items()))
    items: list[Any] = msgspec.json.decode(await client.get(f"{PODS}?labelSelector={selector}") or b"{}")["items"]
    return items


def _node_of(pod: Any) -> str:
    node: str = pod["spec"].get("nodeName", "")
    return node
