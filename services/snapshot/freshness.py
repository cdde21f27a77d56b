"""Freshness: tells whether the first listing of a term shows all that earlier terms have done.

The write that takes the snapshot's Lease comes after everything that earlier terms did while they had it. A list of the
version of that write, or of a later one, shows all of it: an API server that lags, or one behind a load balancer that
serves from an old cache, gives an older one, in which bound pods look unbound.

    listed -+-> as new as the term: FRESH
            +-> older: ASK, at most MOST_LISTINGS times or for LONGEST seconds, then UNKNOWN
            +-> a version that is no number: UNKNOWN

Versions of Leases and pods count the same writes, unless the API server keeps Leases in an etcd of their own
(`--etcd-servers-overrides`). Where their versions are higher, no list ever counts as new enough. So UNKNOWN is no
failure: the term fences all pending pods instead (barrier.py), which compares nothing.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from enum import Enum, auto

from shared.kube.wire import version_number
from shared.messages.watch import Kind
from shared.watch.reader import WatchReader

WRITTEN_KINDS = (Kind.POD, Kind.PERSISTENT_VOLUME, Kind.PERSISTENT_VOLUME_CLAIM, Kind.RESOURCE_CLAIM)
"""The kinds that binders write. Only pods must have a version: a server may not show the others."""
MOST_LISTINGS = 10
"""Listings that are asked for."""
PAUSE = 1.0
"""Seconds between two of them, at least."""
LISTING_PATIENCE = 10.0
"""Seconds after which a listing that was asked for counts as lost."""
LONGEST = 30.0
"""Seconds of listing again after which no further listing is asked for."""
LOOK = 0.05
NOT_COMPARABLE = "whether the listing is as new as this term is not known: its version or the Lease's is no number"


class Step(Enum):
    FRESH = auto()
    UNKNOWN = auto()
    ASK = auto()
    WAIT = auto()


class Freshness:
    def __init__(self, floor: str, log: logging.Logger) -> None:
        """`floor`: the version of the write that took the Lease."""
        self._floor = version_number(floor)
        self._log = log
        self._asked = 0
        self._asked_at = -math.inf
        self._began_at: float | None = None
        self._listings = 0
        self.problem = ""
        """Why the listing does not count yet, or cannot be told to."""

    async def run(
        self, reader: WatchReader, clock: Callable[[], float], ask: Callable[[], None], tell: Callable[[str], None]
    ) -> bool:
        """Wait until what was listed is as new as the term; False where that cannot be told. `ask`: for a listing."""
        while (step := self.step(reader, clock())) not in (Step.FRESH, Step.UNKNOWN):
            if step is Step.ASK:
                self._log.warning("%s", self.problem)
                tell(self.problem)
                ask()
            await asyncio.sleep(LOOK)
        if step is Step.UNKNOWN:
            self._log.warning("%s; fencing all pending pods instead", self.problem)
        elif self._asked:
            self._log.info("the API server lists what is as new as this term")
        return step is Step.FRESH

    def step(self, reader: WatchReader, now: float) -> Step:
        if not reader.synced:
            return Step.WAIT
        shown = {kind: version_number(reader.version_of(kind)) for kind in WRITTEN_KINDS}
        if not (self._floor and shown[Kind.POD]):
            self.problem = NOT_COMPARABLE
            return Step.UNKNOWN
        older = [kind for kind, version in shown.items() if 0 < version < self._floor]
        if not older:
            return Step.FRESH
        is_lost = now >= self._asked_at + LISTING_PATIENCE
        if now < self._asked_at + PAUSE or (reader.listings == self._listings and not is_lost and self._asked):
            return Step.WAIT
        return self._ask_again(older[0], shown[older[0]], reader.listings, now)

    def _ask_again(self, kind: Kind, version: int, listings: int, now: float) -> Step:
        if self._began_at is None:
            self._began_at = now
        state = f"the API server lists objects ({kind}) of version {version}, older than this term ({self._floor})"
        if self._asked == MOST_LISTINGS or now >= self._began_at + LONGEST:
            self.problem = f"{state}, also after {self._asked} more listings"
            return Step.UNKNOWN
        self._asked, self._asked_at, self._listings = self._asked + 1, now, listings
        self.problem = f"{state}: listing again, {self._asked} of {MOST_LISTINGS}"
        return Step.ASK
