"""Why a pod is where it is or waits, node by node, and what groups of pods wait for: asked of the services."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from shared.bus.subjects import QUEUE_LIST
from shared.errors import ClusterError
from shared.messages.explaining import ExplainPod
from shared.messages.inspection import DescribedGroup, GroupsListed, ListGroups, ListQueue
from shared.model.codec import pod_from_msgpack
from tools.cli import gang
from tools.console.follower import Follower
from tools.explain.client import LiveSources, explain
from tools.explain.explanation import Explanation
from tools.explain.words import groups

MAX_AT_ONCE = 2
"""Explanations at the same time, of all pages: each makes the workers judge every node, some of them many times."""
MAX_WAITING = 8
MAX_GANGS = 1000

T = TypeVar("T")


class Reasons:
    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._waiting = 0

    async def explanation(self, namespace: str, name: str) -> Explanation:
        """As of `flotilla explain`. ClusterError if services do not answer, or too many are asked for."""
        return await self._in_turn(lambda: explain(LiveSources(self._follower.client), namespace, name))

    async def rejections(self, namespace: str, name: str) -> dict[str, Any]:
        """Why each node rejects a pending pod: `nodes` has the number of the reason by the number of the node."""
        return await self._in_turn(lambda: self._rejections(namespace, name))

    async def _rejections(self, namespace: str, name: str) -> dict[str, Any]:
        sources = LiveSources(self._follower.client)
        listed = await sources.queued(ListQueue(namespace=namespace, name=name, bodies=True))
        if not listed.pods:
            raise ClusterError(f"{namespace}/{name} does not wait: only a pod that waits can be judged")
        queued = listed.pods[-1]
        request = ExplainPod(queued.namespace, queued.name, queued.uid, queued.body, everywhere=True)
        explained = await sources.explain(request)
        if explained.findings is None:
            raise ClusterError(f"{namespace}/{name} cannot be judged: {explained.problem or 'it has no profile here'}")
        findings, known = explained.findings, self._follower.cluster.nodes
        everywhere = findings.failure or findings.pre_filter
        if everywhere is not None:
            reason = {"text": everywhere.message, "nodes": findings.nodes}
            return {"reasons": [reason], "feasible": 0, "nodes": {str(node.id): 0 for node in known.values()}}
        nodes = {
            str(known[each].id): number
            for number, rejected in enumerate(findings.rejected)
            for each in rejected.names
            if each in known
        }
        said = groups(findings, pod_from_msgpack(queued.body))
        return {
            "reasons": [{"text": each.text, "nodes": each.nodes} for each in said],
            "feasible": findings.feasible,
            "nodes": nodes,
        }

    async def gangs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        async for page in self._follower.client.pages("queue", QUEUE_LIST, ListGroups(), GroupsListed):
            found += [_shown(group, page.now) for group in page.groups]
            if len(found) >= MAX_GANGS:
                break
        return found

    async def _in_turn(self, work: Callable[[], Awaitable[T]]) -> T:
        if self._waiting >= MAX_WAITING:
            raise ClusterError("too many explanations are asked for: try again in a while")
        self._waiting += 1
        try:
            async with self._slots:
                return await work()
        finally:
            self._waiting -= 1


def _shown(group: DescribedGroup, now: float) -> dict[str, Any]:
    return {
        "group": f"{group.namespace}/{group.name}",
        "state": gang.state(group),
        "minimum": group.minimum,
        "counts": group.counts,
        "what": list(gang.what(group, now)),
    }
