"""What a test of a running pipeline has: an empty cluster, a namespace of its own, and an auditor that watches."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from testing.auditor.service import Auditor
from testing.builders import NodeBuilder, PodBuilder
from tests.pipeline.support import (
    SOON,
    Cluster,
    Object,
    a_cluster,
    an_auditor,
    cache_is_empty,
    cached,
    until,
    value_of,
    web,
)
from tools.supervisor.pipeline import Pipeline

PENDING = "scheduler_pending_pods"


class Corner:
    def __init__(self, pipeline: Pipeline, namespace: str, cluster: Cluster, auditor: Auditor) -> None:
        self._pipeline = pipeline
        self.namespace = namespace
        self.cluster = cluster
        self.auditor = auditor
        self.left: set[str] = set()
        """Pods that are expected to be on no node in the end."""

    def pod(self, name: str) -> PodBuilder:
        return web(name, self.namespace)

    async def has_nodes(self, *made: NodeBuilder) -> None:
        """Creates all there are, and waits until the pipeline knows them: the watch tells of pods apart from nodes."""
        await self.cluster.create(*made)
        await self.knows(nodes=len(made))

    async def knows(self, **counts: int) -> None:
        async def known() -> bool:
            return all([await cached(self._pipeline, kind, count) for kind, count in counts.items()])

        await until(known, f"the cache does not hold {counts}")

    async def node_of(self, name: str) -> str:
        """Empty while it is on none."""
        return await self.cluster.node_of(self.namespace, name)

    async def lands(self, name: str, *nodes: str, patience: float = SOON) -> str:
        """Waits until the pod is bound, to one of these nodes if any are named, and tells which."""
        await until(lambda: self._is_bound(name), f"{name} is not bound", patience)
        node = await self.node_of(name)
        assert not nodes or node in nodes, f"{name} is on {node}"
        return node

    async def is_unschedulable(self, name: str, message: str) -> None:
        """The pod's condition and an Event say so."""

        async def told() -> bool:
            return condition_of(await self.cluster.pod(self.namespace, name), "Unschedulable") == message

        await until(told, f"{name} is not called unschedulable: {message}")
        await self.is_said(name, "FailedScheduling", message)
        assert await self.node_of(name) == ""

    async def is_said(self, name: str, reason: str, note: str) -> None:
        notes: list[str] = []

        async def said() -> bool:
            notes[:] = await self.cluster.events_of(self.namespace, name, reason)
            return note in notes

        try:
            await until(said, f"{name}: no event {reason}: {note}")
        except AssertionError as cause:
            cause.add_note(f"its events: {notes}")
            raise

    async def _is_bound(self, name: str) -> bool:
        return bool(await self.node_of(name))


def unfit(nodes: int, reasons: str, *, victimless: int = 0) -> str:
    """The message: on some nodes there are no victims, and on the rest preemption would not help."""
    helpless = {
        "No preemption victims found for incoming pod": victimless,
        "Preemption is not helpful for scheduling": nodes - victimless,
    }
    why = ", ".join(f"{count} {reason}" for reason, count in helpless.items() if count)
    none = f"0/{nodes} nodes are available:"
    return f"{none} {reasons}. no new claims to deallocate, preemption: {none} {why}."


def condition_of(pod: Object, reason: str) -> str:
    """The message of its condition that it is not scheduled, if that is for this reason."""
    for condition in pod["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False" and condition["reason"] == reason:
            return str(condition["message"])
    return ""


@asynccontextmanager
async def a_corner(pipeline: Pipeline, namespace: str) -> AsyncIterator[Corner]:
    """When it is left, everything that the auditor judges held, and the cluster is empty again."""
    async with an_auditor(pipeline) as auditor, a_cluster(pipeline) as cluster:
        await cluster.create_namespace(namespace)
        corner = Corner(pipeline, namespace, cluster, auditor)
        try:
            yield corner
            assert await auditor.finish(lambda pod: pod.key in {f"{namespace}/{name}" for name in corner.left}) == []
        finally:
            await cluster.delete_all(namespace)
            await until(lambda: cache_is_empty(pipeline), "the cache is not empty")


async def waiting(pipeline: Pipeline, pods: int) -> bool:
    """The number of pods in the queue, gated ones included."""
    answer = await pipeline.ask("queue", "/metrics")
    queues = ("active", "backoff", "unschedulable", "gated")
    return answer is not None and pods == sum(value_of(answer.body, PENDING, queue=queue) for queue in queues)
