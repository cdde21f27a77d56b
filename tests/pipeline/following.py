"""What becomes of pods, from one moment to the next: what they were nominated to, and how they were when they went."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.pipeline.support import Cluster, Object


class Following:
    def __init__(self) -> None:
        self.nominated: dict[str, list[str]] = {}
        """By pod: each node that its status named, one after the other."""
        self.gone: dict[str, Object] = {}
        """By name: as they were last."""

    def see(self, happening: str, pod: Object) -> None:
        name = str(pod["metadata"]["name"])
        node = str(pod["status"].get("nominatedNodeName", ""))
        nodes = self.nominated.setdefault(name, [])
        if node and nodes[-1:] != [node]:
            nodes.append(node)
        if happening == "DELETED":
            self.gone[name] = pod

    def disruption_of(self, name: str) -> Object:
        """The condition that says of a pod that is gone why it had to go; empty if none does."""
        return disruption_of(self.gone[name])


def disruption_of(pod: Object) -> Object:
    conditions = (each for each in pod["status"].get("conditions", ()) if each["type"] == "DisruptionTarget")
    return next(conditions, {})


@asynccontextmanager
async def following(cluster: Cluster, namespace: str) -> AsyncIterator[Following]:
    """All pods of a namespace."""
    seen = Following()

    async def follow() -> None:
        async for happening, pod in cluster.watch(f"/api/v1/namespaces/{namespace}/pods"):
            seen.see(happening, pod)

    task = asyncio.create_task(follow())
    try:
        yield seen
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
