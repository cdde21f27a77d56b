"""Looking pods up at the API server, one question a pod at a time, until it answers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from services.snapshot.core import FINISHED_PHASES
from services.snapshot.events import LookedUp, LookUp
from shared.errors import ClusterError, FlotillaError
from shared.model.objects import Pod
from shared.telemetry.fault import Fault
from shared.telemetry.logs import Repeated

PAUSE = 1.0
"""Seconds between two questions about the same pod."""
MOST_AT_ONCE = 16


class LookUps:
    def __init__(
        self,
        get_pod: Callable[[str, str], Awaitable[Pod | None]],
        tell: Callable[[LookedUp], None],
        log: logging.Logger,
        fault: Fault,
    ) -> None:
        self._get_pod = get_pod
        self._tell = tell
        self._sparingly = Repeated(log)
        self._fault = fault
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self._under_way: dict[tuple[str, int], asyncio.Task[None]] = {}

    def begin(self, wanted: LookUp) -> None:
        """Nothing more, if the same is being looked up already."""
        key = (wanted.uid, wanted.attempt)
        if key not in self._under_way:
            task = self._under_way[key] = asyncio.create_task(self._look_up(wanted))
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
            self._fault.watch(task)

    def close(self) -> None:
        for task in self._under_way.values():
            task.cancel()

    async def _look_up(self, wanted: LookUp) -> None:
        while True:
            try:
                async with self._room:
                    pod = await self._get_pod(wanted.namespace, wanted.name)
            except ClusterError as cause:
                self._sparingly.warning("look-up", "%s", cause)
            except FlotillaError as cause:
                self._sparingly.warning(wanted.uid, "%s", cause)
                return
            else:
                self._tell(outcome(wanted, pod))
                return
            await asyncio.sleep(PAUSE)


def outcome(wanted: LookUp, pod: Pod | None) -> LookedUp:
    """What the pod that has the name now says about the one that was assumed."""
    if pod is None or pod.uid != wanted.uid or pod.status.phase in FINISHED_PHASES:
        return LookedUp(wanted.uid, wanted.attempt, None, gone=True)
    node, nominated = pod.spec.node_name or None, pod.status.nominated_node_name
    return LookedUp(wanted.uid, wanted.attempt, node, nominated=nominated)
