"""Past: what a term settles of earlier terms before it begins."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from services.snapshot.freshness import Freshness
from services.snapshot.store.fencing_barrier import Barrier
from shared.messages.state import LedgerEntry
from shared.runtime import Context
from shared.watch.reader import WatchReader


@dataclass(frozen=True, slots=True)
class Past:
    """`freshness`: None where there were no earlier terms. `lost`: what these have assumed is not known, but for
    `doubtful`."""

    barrier: Barrier
    freshness: Freshness | None
    lost: bool
    doubtful: Sequence[LedgerEntry]

    async def settle(self, reader: WatchReader, context: Context, ask: Callable[[], None]) -> Iterable[LedgerEntry]:
        """Wait until what earlier terms have bound is known, and no order of theirs that is not known can bind a pod.

        The cluster was listed; `ask`: for another listing. Returns what still has to be assumed of `doubtful`.
        """
        health = context.health
        is_fresh = self.freshness is None or await self.freshness.run(
            reader, context.clock, ask, partial(health.wait_for, "listing")
        )
        if is_fresh and not self.lost:
            return []
        await self.barrier.run(partial(health.wait_for, "ledger"))
        health.clear("ledger")
        return [entry for entry in self.doubtful if entry.uid in self.barrier.aside]
