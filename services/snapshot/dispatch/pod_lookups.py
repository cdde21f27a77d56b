"""Looks pods up at the API server until it answers, and fences their bindings."""

import asyncio
import logging
from collections.abc import Callable

from services.snapshot.event_handlers import FINISHED_PHASES
from services.snapshot.events import Fence, LookedUp
from shared.errors import ClusterError, FlotillaError
from shared.kube.client import KubeClient
from shared.kube.events_and_conditions import ObservedPod, PodRef
from shared.kube.fencing import fence
from shared.telemetry.fault import Fault
from shared.telemetry.logs import Repeated

PAUSE = 1.0
"""Seconds between two look-ups of one pod."""
MAX_LOOK_UPS = 16
"""At the same time."""


class PodLookUps:
    def __init__(self, client: KubeClient, tell: Callable[[LookedUp], None], log: logging.Logger, fault: Fault) -> None:
        self._client = client
        self._tell = tell
        self._repeated = Repeated(log)
        self._fault = fault
        self._room = asyncio.Semaphore(MAX_LOOK_UPS)
        self._under_way: dict[Fence, asyncio.Task[None]] = {}

    def begin(self, wanted: Fence) -> None:
        """Does nothing if the same is under way."""
        if wanted not in self._under_way:
            task = self._under_way[wanted] = asyncio.create_task(self._run(wanted))
            task.add_done_callback(lambda _: self._under_way.pop(wanted, None))
            self._fault.watch(task)

    def close(self) -> None:
        for task in self._under_way.values():
            task.cancel()

    async def _run(self, wanted: Fence) -> None:
        while True:
            try:
                async with self._room:
                    standing = await self._look_up(wanted)
            except ClusterError as cause:
                self._repeated.warning("look-up", "%s", cause)
            except FlotillaError as cause:
                self._repeated.warning(wanted.uid, "%s", cause)
                return
            else:
                self._tell(outcome(wanted, standing))
                return
            await asyncio.sleep(PAUSE)

    async def _look_up(self, wanted: Fence) -> ObservedPod | None:
        pod = PodRef(wanted.namespace, wanted.name, wanted.uid)
        return (await fence(self._client, pod, wanted.version, f"attempt {wanted.attempt}")).observed


def outcome(wanted: Fence, pod: ObservedPod | None) -> LookedUp:
    """`pod`: the one that has the name now."""
    if pod is None or pod.uid != wanted.uid or pod.phase in FINISHED_PHASES:
        return LookedUp(wanted.uid, wanted.attempt, None, gone=True, version=wanted.version)
    return LookedUp(wanted.uid, wanted.attempt, pod.node or None, nominated=pod.nominated, version=wanted.version)
