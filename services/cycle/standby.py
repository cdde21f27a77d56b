"""A cycle that stands by: it hears the workers, so that it knows at once which of them holds which shards."""

import asyncio

from services.cycle.membership import WORKER_PATIENCE
from shared.bus import Subscription, subjects
from shared.messages.workers import WorkerBeat
from shared.runtime import Context
from shared.runtime.last_beats import LastBeats


class Standby:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._beats = LastBeats[WorkerBeat]()
        self._subscription: Subscription[WorkerBeat] | None = None

    async def run(self) -> None:
        """Hear the workers, until cancelled."""
        self._subscription = await self._context.bus.subscribe(
            subjects.WORKER_BEATS,
            WorkerBeat,
            lambda beat, _: self._beats.heard(beat.worker, beat, self._context.clock()),
        )
        await asyncio.Event().wait()

    async def end(self) -> list[tuple[WorkerBeat, float]]:
        """The last beats of workers that are not lost, and when they came."""
        if self._subscription is not None:
            await self._subscription.close()
        return self._beats.since(self._context.clock() - WORKER_PATIENCE)
