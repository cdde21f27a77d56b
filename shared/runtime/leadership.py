"""Leadership: waiting for a Lease as a standby, keeping it, releasing it.

    async with leadership(context, config.leader_election, "flotilla-queue") as lead:
        await lead.during(...)  # no other process has lead.epoch

`LeaseKeeper` holds the Lease in a thread of its own.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

from shared.config.structs import LeaderElection
from shared.errors import ClusterError
from shared.kube.access import DEFAULT_CONNECTION, ClientConnection
from shared.kube.election import Lead
from shared.runtime.context import Context
from shared.runtime.lease_keeper import LeaseKeeper, LeaseLost

__all__ = ["LaterTerm", "Leadership", "LeaseLost", "leadership"]


class Leadership:
    """A term of leadership.

    `before`: the last term before ours, 0 if none is known.
    `settled`: the Lease said that nothing of that term was still in progress; taking the Lease removed the mark.
    `version`: the resourceVersion of the write that took the Lease. All that earlier terms did came before it.
    """

    def __init__(self, lease: str, lead: Lead, keeper: LeaseKeeper) -> None:
        self.lease = lease
        self.before = lead.before
        self.epoch = lead.term
        self.settled = lead.settled
        self.version = keeper.version
        self._keeper = keeper

    async def during(self, work: Awaitable[None]) -> None:
        """Run the work. If the Lease is lost, cancel it and raise LeaseLost, as a task group does."""
        async with asyncio.TaskGroup() as tasks:
            losing = tasks.create_task(self._lost())
            await work
            losing.cancel()

    async def _lost(self) -> None:
        await asyncio.shield(self._keeper.lost)

    @property
    def served(self) -> frozenset[str]:
        """The schedulers that leaders of this and earlier terms have served."""
        return frozenset(self._keeper.served)

    def settle(self) -> bool:
        """Nothing of our term is in progress any more: the released Lease will say so. False if the Lease is lost."""
        if self._keeper.lost.done():
            return False
        self._keeper.settled = self.epoch
        return True

    async def raise_term(self, beyond: int = 0) -> int:
        """Begin a term above ours and `beyond`. Waits for the API server; LeaseLost if another process leads."""
        self.epoch = await self._keeper.raise_term(max(beyond, self.epoch))
        return self.epoch

    async def later_version(self) -> int:
        """A resourceVersion of the API server that is later than all it has shown before this call."""
        return await self._keeper.later_version()


@asynccontextmanager
async def leadership(
    context: Context,
    config: LeaderElection,
    name: str,
    given: ClientConnection = DEFAULT_CONNECTION,
    schedulers: Iterable[str] = (),
    stand_by: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[Leadership]:
    """Wait until this process leads; raise the fault that ends the process before that.

    At the end the Lease `name` is released, unless it is lost. UserError, before or as the cause of LeaseLost, if
    another pipeline holds the Leases. `schedulers`: that the leader serves, recorded in the Lease. `stand_by`: runs
    while another process leads, and is cancelled when this one does.
    """
    keeper = LeaseKeeper(context, config, name, given, tuple(schedulers))
    await keeper.start()
    standing_by: asyncio.Task[None] | None = None
    if stand_by is not None:
        standing_by = asyncio.create_task(_stand_by(keeper, stand_by), name="standing by")
        context.fault.watch(standing_by)
    try:
        lead = await keeper.leads()
        await _end(standing_by)
        yield Leadership(name, lead, keeper)
    finally:
        await _end(standing_by)
        context.bus.withdraw()
        await keeper.end()


async def _stand_by(keeper: LeaseKeeper, work: Callable[[], Awaitable[None]]) -> None:
    await keeper.follows.wait()
    await work()


async def _end(standing_by: "asyncio.Task[None] | None") -> None:
    if standing_by is not None:
        standing_by.cancel()
        await asyncio.gather(standing_by, return_exceptions=True)


class LaterTerm:
    """Leaves our term for a later one, once a peer shows that another leader has used our term or a later one.

    Either another process leads by now and this one stood still; or the Lease was deleted, so that terms began again
    at or below one that peers have seen, and they refuse ours; or another process has sent messages in our name.
    """

    def __init__(self, context: Context, raise_term: Callable[[int], Awaitable[int]]) -> None:
        """`raise_term`: as that of `Leadership`."""
        self._fault = context.fault
        self._raise_term = raise_term
        self._leaving: asyncio.Task[None] | None = None

    def leave(self, newest: int, evidence: str) -> None:
        """End our term and take the next one above `newest`. Only the first call counts. `evidence`: for the log."""
        if self._leaving is None:
            self._leaving = asyncio.create_task(self._leave(newest, evidence), name="leaving the term")
            self._fault.watch(self._leaving)

    async def _leave(self, newest: int, evidence: str) -> None:
        try:
            term = await self._raise_term(newest)
        except ClusterError as lost:
            self._fault.end(lost)
            return
        self._fault.end(
            ClusterError(f"{evidence}: the Lease was deleted, or messages were forged; going on in a term above {term}")
        )
