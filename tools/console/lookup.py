"""Answers questions about single pods and nodes, and searches, from the model and from the queue."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from shared.bus.subjects import QUEUE_LIST
from shared.config.settings import Settings
from shared.messages.inspection import DescribedPod, EvictionsListed, ListEvictions, ListQueue, QueueListed
from shared.telemetry.tracing import Tracer
from tools.cli.words import waits_for
from tools.console.cluster import NodeEntry, PlacedPod
from tools.console.follower import REPLY_TIMEOUT, Follower
from tools.console.pending import matching

PLACED = "placed"
"""The state of pods that have a place, in searches."""
MAX_PODS_OF_NODE = 500
KEPT_SEARCHES = 4


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod in a list. `since`: Unix time. `message`: why its last attempt failed."""

    namespace: str
    name: str
    state: str
    node: str = ""
    since: float = 0.0
    attempts: int = 0
    priority: int = 0
    message: str = ""


class Lookup:
    def __init__(self, settings: Settings, follower: Follower) -> None:
        self._follower = follower
        self._tracer = Tracer("console", "console", ratio=settings.trace_ratio, ids=random.Random())
        self._traces = settings.trace_url

    # Pods

    def pods(self, text: str, state: str, offset: int, limit: int) -> dict[str, Any]:
        """Pending pods in the order of the queue, then placed ones by name."""
        rows: list[Row] = []
        total = 0
        for row in self._rows(text, state):
            if offset <= total < offset + limit:
                rows.append(row if isinstance(row, Row) else _placed_row(row))
            total += 1
        return {"total": total, "offset": offset, "pods": rows, "at": self._follower.pending.at}

    def _rows(self, text: str, state: str) -> Iterator[Row | PlacedPod]:
        cluster, pending = self._follower.cluster, self._follower.pending
        if state != PLACED:
            for pod in matching(pending.pods.values(), text, state):
                if pod.uid not in cluster.pods:
                    yield _pending_row(pod)
        if state in ("", PLACED):
            yield from (each for each in cluster.pods.values() if text in each.key or text in each.node.name)

    async def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Everything about one pod, or None."""
        page = await self._follower.client.request(
            "queue", QUEUE_LIST, ListQueue(namespace=namespace, name=name), QueueListed, REPLY_TIMEOUT
        )
        key = f"{namespace}/{name}"
        placed = next(((uid, pod) for uid, pod in self._follower.cluster.pods.items() if pod.key == key), None)
        preemptions = await self.preemptions()
        preempted_by = next((each for each in preemptions if key in (of["pod"] for of in each["victims"])), None)
        if not page.pods and placed is None and preempted_by is None:
            return None
        uid = page.pods[0].uid if page.pods else placed[0] if placed is not None else ""
        nomination = self._follower.cluster.nominations.get(uid)
        found: dict[str, Any] = {"uid": uid, "namespace": namespace, "name": name, "now": page.now}
        if page.pods:
            found["queued"] = _described(page.pods[0], page.now)
        if placed is not None:
            found["node"], found["requests"] = placed[1].node.name, dict(placed[1].load.requests)
        if nomination is not None:
            found["nominated"] = nomination.node
        if preempted_by is not None:
            found["preempted_by"] = preempted_by
        if took := next((each for each in preemptions if each["pod"] == key), None):
            found["preempted"] = took
        found["trace"] = self._trace(uid, failed=bool(page.pods and page.pods[0].message)) if uid else ""
        return found

    async def preemptions(self) -> list[dict[str, Any]]:
        """Who was evicted for whom, the newest first."""
        found = await self._follower.client.request(
            "queue", QUEUE_LIST, ListEvictions(), EvictionsListed, REPLY_TIMEOUT
        )
        return [
            {
                "at": each.at,
                "pod": f"{each.namespace}/{each.name}",
                "priority": each.priority,
                "node": each.node,
                "failure": each.failure,
                "victims": [
                    {"pod": f"{victim.namespace}/{victim.name}", "priority": victim.priority, "owner": victim.owner}
                    for victim in each.victims
                ],
            }
            for each in found.preemptions
        ]

    def _trace(self, uid: str, *, failed: bool) -> str:
        """A link to the pod's trace; empty if there is no place to look at it, or it is not sampled."""
        context = self._tracer.pod(uid)
        if not self._traces or not (context.sampled or failed):
            return ""
        return f"{self._traces.rstrip('/')}/trace/{context.trace_id:032x}"

    # Nodes

    def node(self, name: str) -> dict[str, Any] | None:
        cluster = self._follower.cluster
        entry = cluster.nodes.get(name)
        if entry is None:
            return None
        pods = sorted(cluster.pods_on(entry), key=lambda pod: pod.key)
        return {
            "name": name,
            "labels": dict(entry.labels),
            "unschedulable": entry.unschedulable,
            "resources": [
                [resource, used, entry.allocatable.get(resource, 0)]
                for resource, used in zip(cluster.resources, cluster.amounts(entry), strict=True)
                if used or entry.allocatable.get(resource)
            ],
            "pods": [pod.key for pod in pods[:MAX_PODS_OF_NODE]],
            "pod_count": len(pods),
            "nominated": [each.key for each in cluster.nominations.values() if each.node == name],
        }

    def labels(self, key: str) -> dict[str, str]:
        """The value of a label by the number of each node that has it."""
        return {str(entry.id): entry.labels[key] for entry in self._nodes() if key in entry.labels}

    def _nodes(self) -> Iterator[NodeEntry]:
        return iter(self._follower.cluster.nodes.values())


def _pending_row(pod: DescribedPod) -> Row:
    message = pod.gate_reason or (f"held back by {pod.gate}" if pod.gate else pod.message)
    return Row(
        pod.namespace, pod.name, pod.state, pod.node or pod.nominated, pod.since, pod.attempts, pod.priority, message
    )


def _placed_row(pod: PlacedPod) -> Row:
    namespace, _, name = pod.key.partition("/")
    return Row(namespace, name, PLACED, pod.node.name)


def _described(pod: DescribedPod, now: float) -> dict[str, Any]:
    """By the names of our own fields, not by those of the wire."""
    found = {name: getattr(pod, name) for name in pod.__struct_fields__ if name != "body"}
    found["waits_for"] = ", ".join(waits_for(pod, now))
    found["history"] = [[move.at, move.state, move.why] for move in pod.history]
    return found
