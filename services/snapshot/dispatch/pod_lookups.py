"""Asking the API server about pods, one question a pod at a time, until it answers; and fencing their bindings."""

import asyncio
import logging
from collections.abc import Callable

from services.snapshot.core import FINISHED_PHASES
from services.snapshot.events import Fence, LookedUp, LookUp
from shared.errors import ClusterError, FlotillaError
from shared.kube.client import KubeClient
from shared.kube.events_and_conditions import ObservedPod, PodRef
from shared.kube.fencing import fence
from shared.telemetry.fault import Fault
from shared.telemetry.logs import Repeated

PAUSE = 1.0
"""Seconds between two questions about the same pod."""
MOST_AT_ONCE = 16


class LookUps:
    def __init__(self, client: KubeClient, tell: Callable[[LookedUp], None], log: logging.Logger, fault: Fault) -> None:
        self._client = client
        self._tell = tell
        self._sparingly = Repeated(log)
        self._fault = fault
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self._under_way: dict[LookUp | Fence, asyncio.Task[None]] = {}

    def begin(self, wanted: LookUp | Fence) -> None:
        """Nothing more, if the same is asked already."""
        if wanted not in self._under_way:
            task = self._under_way[wanted] = asyncio.create_task(self._ask_until_answered(wanted))
            task.add_done_callback(lambda _: self._under_way.pop(wanted, None))
            self._fault.watch(task)

    def close(self) -> None:
        for task in self._under_way.values():
            task.cancel()

    async def _ask_until_answered(self, wanted: LookUp | Fence) -> None:
        while True:
            try:
                async with self._room:
                    standing = await self._ask(wanted)
            except ClusterError as cause:
                self._sparingly.warning("look-up", "%s", cause)
            except FlotillaError as cause:
                self._sparingly.warning(wanted.uid, "%s", cause)
                return
            else:
                self._tell(outcome(wanted, standing))
                return
            await asyncio.sleep(PAUSE)

    async def _ask(self, wanted: LookUp | Fence) -> ObservedPod | None:
        if isinstance(wanted, LookUp):
            return await self._client.observe_pod(wanted.namespace, wanted.name)
        pod = PodRef(wanted.namespace, wanted.name, wanted.uid)
        return (await fence(self._client, pod, wanted.version, f"attempt {wanted.attempt}")).observed


def outcome(wanted: LookUp | Fence, pod: ObservedPod | None) -> LookedUp:
    """What the pod that has the name now says about the one that was assumed."""
    version = wanted.version if isinstance(wanted, Fence) else ""
    if pod is None or pod.uid != wanted.uid or pod.phase in FINISHED_PHASES:
        return LookedUp(wanted.uid, wanted.attempt, None, gone=True, version=version)
    return LookedUp(wanted.uid, wanted.attempt, pod.node or None, nominated=pod.nominated, version=version)
