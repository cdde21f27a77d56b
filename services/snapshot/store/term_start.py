"""The start of a term: waits until what earlier terms have bound is known, and fences what they may still bind.

The write that takes the snapshot's Lease comes after everything that earlier terms did. A list of the version of that
write, or of a later one, shows all of it. An API server that lags, or one behind a load balancer that serves from an
old cache, lists an older version, in which bound pods look unbound.

    listed -+-> as new as the Lease: FRESH
            +-> older: LIST_AGAIN, at most MAX_LISTINGS times and for MAX_SECONDS, then UNKNOWN
            +-> a version that is no number: UNKNOWN

A standby that has followed the watch need not list pods again. What the last leader knew of bound pods is in the
ledger, or in the watcher's stream as far as it had read it, which it says in Redis. Once the standby has read that far,
it knows as much. Volumes and claims are listed again if there are any: what was decided about them is remembered until
the watch shows it, but not in Redis once the pod is seen on its node.

Versions of Leases and pods count the same writes, unless the API server keeps Leases in an etcd of their own
(`--etcd-servers-overrides`). If its versions are higher, no list is ever new enough. So UNKNOWN is no failure: the term
fences all pending pods instead (`fencing_barrier`), which compares nothing.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

from services.snapshot.store.fencing_barrier import FencingBarrier
from shared.messages.state import LedgerEntry
from shared.messages.watch import Kind
from shared.model.base import version_number
from shared.runtime import Context
from shared.store.schema import ReadPosition
from shared.watch import WatchReader

WRITTEN_KINDS = (Kind.POD, Kind.PERSISTENT_VOLUME, Kind.PERSISTENT_VOLUME_CLAIM, Kind.RESOURCE_CLAIM)
"""The kinds that binders write. Only pods must have a version: a server may not show the others."""
MAX_LISTINGS = 10
"""Listings that a new term requests."""
LIST_PAUSE = 1.0
"""Seconds between two listings, at least."""
LIST_TIMEOUT = 10.0
"""Seconds after which a requested listing counts as lost."""
MAX_SECONDS = 30.0
"""Seconds after which no further listing is requested."""
POLL = 0.05
CATCH_UP = 2.0
"""Seconds that a standby waits until it has read as far as the last leader; after that it lists everything."""
NOT_COMPARABLE = "whether the listing is as new as this term is unknown: its version or the Lease's is no number"


class StartStep(Enum):
    FRESH = auto()
    UNKNOWN = auto()
    LIST_AGAIN = auto()
    WAIT = auto()


class ListFreshness:
    def __init__(self, floor: str, log: logging.Logger, kinds: Sequence[Kind] = WRITTEN_KINDS) -> None:
        """`floor`: the version of the write that took the Lease. `kinds`: that must be as new."""
        self._version = floor
        self._kinds = kinds
        self._floor = version_number(floor)
        self._log = log
        self._asked = 0
        self._asked_at = -math.inf
        self._began_at: float | None = None
        self._listings = 0
        self.problem = ""
        """Why the listing is not fresh."""

    def of_kinds(self, kinds: Sequence[Kind]) -> "ListFreshness":
        return ListFreshness(self._version, self._log, kinds)

    async def run(
        self, reader: WatchReader, clock: Callable[[], float], relist: Callable[[], None], tell: Callable[[str], None]
    ) -> bool:
        """Waits for a fresh listing; False if there is none. `relist` requests a listing."""
        while (step := self.step(reader, clock())) not in (StartStep.FRESH, StartStep.UNKNOWN):
            if step is StartStep.LIST_AGAIN:
                self._log.warning("%s", self.problem)
                tell(self.problem)
                relist()
            await asyncio.sleep(POLL)
        if step is StartStep.UNKNOWN:
            self._log.warning("%s; fencing all pending pods instead", self.problem)
        elif self._asked:
            self._log.info("the listing is as new as this term")
        return step is StartStep.FRESH

    def step(self, reader: WatchReader, now: float) -> StartStep:
        if not reader.synced:
            return StartStep.WAIT
        shown = {kind: version_number(reader.version_of(kind)) for kind in self._kinds}
        if not (self._floor and shown.get(Kind.POD, 1)):
            self.problem = NOT_COMPARABLE
            return StartStep.UNKNOWN
        older = [kind for kind, version in shown.items() if 0 < version < self._floor]
        if not older:
            return StartStep.FRESH
        is_lost = now >= self._asked_at + LIST_TIMEOUT
        listings = reader.listings[older[0]]
        if now < self._asked_at + LIST_PAUSE or (listings == self._listings and not is_lost and self._asked):
            return StartStep.WAIT
        return self._list_again(older[0], shown[older[0]], listings, now)

    def _list_again(self, kind: Kind, version: int, listings: int, now: float) -> StartStep:
        if self._began_at is None:
            self._began_at = now
        state = f"the API server lists objects ({kind}) of version {version}, older than this term ({self._floor})"
        if self._asked == MAX_LISTINGS or now >= self._began_at + MAX_SECONDS:
            self.problem = f"{state}, also after {self._asked} more listings"
            return StartStep.UNKNOWN
        self._asked, self._asked_at, self._listings = self._asked + 1, now, listings
        self.problem = f"{state}: listing again, {self._asked} of {MAX_LISTINGS}"
        return StartStep.LIST_AGAIN


@dataclass(frozen=True, slots=True)
class TermStart:
    """`freshness`: None if there were no earlier terms. `lost`: the ledger, all but `doubtful`.

    `read`: how far the last leader had read the watcher's stream, if that is known. `continues`: whether the state in
    Redis can be continued, as all differences from the standby's own are known.
    """

    barrier: FencingBarrier
    freshness: ListFreshness | None
    lost: bool
    doubtful: Sequence[LedgerEntry]
    read: ReadPosition | None = None
    continues: bool = False

    async def is_known(self, reader: WatchReader, context: Context, relist: Callable[[Iterable[Kind]], None]) -> bool:
        """Whether what a standby has followed until now shows all bindings of earlier terms."""
        if self.lost or self.freshness is None or self.read is None:
            return False
        ends = context.clock() + CATCH_UP
        while not has_read(reader, self.read):
            if not reader.synced or context.clock() >= ends:
                return False
            await asyncio.sleep(POLL)
        kinds = [kind for kind in WRITTEN_KINDS if kind is not Kind.POD and reader.count(kind)]
        tell = partial(context.health.wait_for, "listing")
        return await self.freshness.of_kinds(kinds).run(reader, context.clock, lambda: relist(kinds), tell)

    async def run(self, reader: WatchReader, context: Context, relist: Callable[[], None]) -> Iterable[LedgerEntry]:
        """The cluster was listed. Returns when all bindings of earlier terms are known, or fenced.

        Returns those of `doubtful` that must still be assumed.
        """
        health = context.health
        is_fresh = self.freshness is None or await self.freshness.run(
            reader, context.clock, relist, partial(health.wait_for, "listing")
        )
        if is_fresh and not self.lost:
            return []
        await self.barrier.run(partial(health.wait_for, "ledger"))
        health.clear("ledger")
        return [entry for entry in self.doubtful if entry.uid in self.barrier.aside]


def has_read(reader: WatchReader, last: ReadPosition) -> bool:
    """Whether the reader knows all that a leader knew that had read this far."""
    epoch, seq = reader.position
    if not reader.synced or epoch < last.epoch:
        return False
    return seq >= last.seq if epoch == last.epoch else reader.versions.get(Kind.POD, 0) >= last.version
