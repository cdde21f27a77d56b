"""LeaseKeeper: campaigns for a Lease and renews it, in the process's LeaseThread with a connection of its own.

It gives the Lease up if the service's loop has not turned for a whole renewal deadline, or NATS has been unreachable
for NATS_TIMEOUT: a leader that cannot act must not lead. A candidate without NATS does not campaign.
"""

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections.abc import Callable
from typing import Any

from shared.bus import Envelope
from shared.bus.subjects import LEASES_RELEASED
from shared.config.structs import LeaderElection
from shared.errors import ClusterError, UserError
from shared.kube.access import ClientConnection
from shared.kube.client import KubeClient
from shared.kube.election import (
    JITTER,
    Election,
    Event,
    Failed,
    Follow,
    Lead,
    Look,
    Looked,
    Lose,
    Overtaken,
    Ownership,
    OwnershipTracker,
    Raise,
    Record,
    SaidReleased,
    Tick,
    Timings,
    Write,
    Written,
    describe_conflict,
    describe_holder,
)
from shared.kube.lease import Lease
from shared.messages.identity import LeaseReleased
from shared.runtime.context import Context
from shared.runtime.corerunner import sleep_until_tick
from shared.runtime.stopping import RELEASE_CALL
from shared.telemetry.logs import Repeated

TERM = "term"
NATS_TIMEOUT = 30.0
"""Seconds without NATS after which a leader gives up; a restart of NATS takes less."""
STOOD_STILL = 2.0
"""Seconds that a wait took longer than it should have: the process was paused, or its machine was."""
OWNER_POLL = 0.25
"""Seconds between two reads of the snapshot's Lease while it keeps us from taking ours."""


class LeaseLost(ClusterError):
    """Another process may lead: the holder of this error must stop at once."""


def timings_of(config: LeaderElection) -> Timings:
    """Without leader election the durations are not validated; inconsistent ones are replaced by the defaults."""
    if not config.lease_duration > config.renew_deadline > JITTER * config.retry_period > 0:
        return Timings(elect=config.leader_elect)
    return Timings(
        elect=config.leader_elect,
        lease_duration=config.lease_duration,
        renew_deadline=config.renew_deadline,
        retry_period=config.retry_period,
    )


def holder_identity(context: Context) -> str:
    """Lease holder identity; random unless FLOTILLA_IDENTITY sets it, so that two processes of one name differ.

    A candidate that finds its own identity in the Lease re-acquires it at once. If FLOTILLA_IDENTITY
    is set, the user guarantees that no other live process has it.
    """
    return context.settings.identity or f"{context.name}-{secrets.token_hex(4)}"


class LeaseKeeper:
    """One half is called in the service's loop, the other half runs in the thread; they call each other threadsafe."""

    def __init__(
        self,
        context: Context,
        config: LeaderElection,
        name: str,
        given: ClientConnection,
        schedulers: tuple[str, ...] = (),
    ) -> None:
        self._context = context
        self.served = self._schedulers = schedulers
        self._name = name
        self._given = given
        self._identity = holder_identity(context)
        self._timings = timings_of(config)
        self._namespace = config.resource_namespace
        self._log: logging.Logger = context.log
        self._limited_log = Repeated(context.log)
        self._master = context.metrics.gauge(
            "leader_election_master_status", "1: this process leads; 0: another one does.", ["name"]
        ).labels(name)
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._led: Lead | None = None
        self.version = ""
        """The resourceVersion of the write that took the Lease for the present term."""
        self.settled = 0
        """The term of which nothing is in progress any more."""
        self._term_changed = asyncio.Event()
        self.follows = asyncio.Event()
        """Another process was seen to lead."""
        self._version_asked: list[asyncio.Future[int]] = []
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.lost.add_done_callback(lambda lost: lost.cancelled() or lost.exception())
        self._election = Election(self._identity, self._timings)
        self._owner = f"{context.settings.prefix}-snapshot"
        self._ownership = OwnershipTracker()
        self._blocked = ""
        """Why we may not take our Lease, while another pipeline holds the snapshot's."""
        self._refusal: UserError | None = None
        self._ours = asyncio.Event()
        self._leases = context.leases
        self._thread_loop: asyncio.AbstractEventLoop | None = None
        self._campaigning: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._raise_beyond: int | None = None
        self._said_released = False
        self._ending = False
        self._turned_at = time.monotonic()
        """When the service's loop last turned."""
        self._heard_at = time.monotonic()
        """When NATS was last known to be connected."""
        self._not_renewed_because = ""

    # In the service's loop

    async def start(self) -> None:
        self._master.set(0)
        await self._context.bus.subscribe(LEASES_RELEASED, LeaseReleased, self._on_said_released)
        self._start_thread()

    async def leads(self) -> Lead:
        """Wait for the Lease, or raise the fault that ends this process before."""
        ending = asyncio.create_task(self._context.fault.raised())
        try:
            return await self._term_above(0, ending)
        finally:
            ending.cancel()

    async def raise_term(self, beyond: int) -> int:
        self._in_thread(lambda: self._on_raise(beyond))
        return (await self._term_above(beyond)).term

    async def later_version(self) -> int:
        """The resourceVersion of the next write of the Lease, which begins after this call."""
        asked: asyncio.Future[int] = self._loop.create_future()
        self._in_thread(lambda: self._version_asked.append(asked))
        return await asked

    async def end(self) -> None:
        """Release the Lease; takes a bounded time."""
        self._ending = True
        self._in_thread(lambda: self._campaigning and self._campaigning.cancel())
        await asyncio.shield(self._ended)
        self._end_thread()
        self._master.set(0)
        self.lost.cancel()

    async def _term_above(self, term: int, *endings: asyncio.Future[Any]) -> Lead:
        while self._led is None or self._led.term <= term:
            self._term_changed.clear()
            changed = asyncio.ensure_future(self._term_changed.wait())
            waits: set[asyncio.Future[Any]] = {changed, self.lost, *endings}
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
            for each in (self.lost, *endings):
                if each.done():
                    each.result()
        return self._led

    def _in_thread(self, what: Callable[[], object]) -> None:
        loop = self._thread_loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the thread has ended
                loop.call_soon_threadsafe(what)

    def _start_thread(self) -> None:
        self._leases.start(self._live, lambda: self._in_service(self._on_end))

    def _end_thread(self) -> None:
        self._leases.join()

    def _on_said_released(self, said: LeaseReleased, envelope: Envelope) -> None:
        if said.lease == self._name and self._led is None:
            self._in_thread(self._look_soon)

    def _on_released(self) -> None:
        self._log.info("%s is released", self._name)
        self._context.bus.post(LEASES_RELEASED, LeaseReleased(self._name))

    def _on_turn(self) -> None:
        self._turned_at = time.monotonic()

    def _on_lead(self, lead: Lead, version: str) -> None:
        self._context.health.clear(TERM)
        self._context.health.lead(lead.term, self._context.wall())
        self._master.set(1)
        self._log.info("term %d of %s begins", lead.term, self._name)
        self._led, self.version = lead, version
        self._term_changed.set()

    def _on_version(self, asked: list[asyncio.Future[int]], version: int) -> None:
        for each in asked:
            if not each.done():
                each.set_result(version)

    def _on_blocked(self, why: str) -> None:
        if why:
            self._context.health.wait_for(TERM, why)
            self._log.warning("%s cannot be taken: %s", self._name, why)
        else:
            self._context.health.clear(TERM)

    def _on_follow(self, holder: str, blocked: str) -> None:
        health = self._context.health
        if not blocked:
            health.clear(TERM)
        before = health.role
        health.stand_by(holder, self._context.wall())
        self.follows.set()
        if health.role != before:
            self._log.info("%s: %s", self._name, health.role)

    def _on_lost(self, why: str) -> None:
        self._master.set(0)
        if not self.lost.done():
            self.lost.set_exception(LeaseLost(f"lost the Lease {self._name}: {why}"))

    def _on_failure(self, cause: BaseException) -> None:
        if not self.lost.done():
            self.lost.set_exception(cause)

    def _on_trouble(self, cause: ClusterError) -> None:
        """A leader stays ready for as long as it may lead."""
        if self._led is None:
            self._context.health.wait_for(TERM, str(cause))
        self._limited_log.warning(f"lease {type(cause).__name__}", "%s", cause)

    # In the thread

    async def _live(self) -> None:
        try:
            await self._keep()
        except Exception as cause:
            self._in_service(self._on_failure, cause)
        finally:
            self._leases.held.discard(self._name)

    def _on_end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _in_service(self, what: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the service's loop has ended
            self._loop.call_soon_threadsafe(what, *arguments)

    async def _keep(self) -> None:
        self._thread_loop = asyncio.get_running_loop()
        client = await KubeClient.open(
            self._context.settings.api, given=self._given, agent=f"flotilla-{self._context.service}"
        )
        try:
            lease = Lease(
                client, self._namespace, self._name, self._identity, self._timings.lease_duration, self._schedulers
            )
            self._campaigning = asyncio.create_task(self._campaign(lease))
            watching = asyncio.create_task(self._watch_owner(client))
            with contextlib.suppress(asyncio.CancelledError):
                await self._campaigning
            watching.cancel()
            if not self._election.over and self._election.wanted:
                await self._release(lease)
        finally:
            await client.close()

    async def _campaign(self, lease: Lease) -> None:
        """Run the election until the end, or until the Lease is lost."""
        event: Event = Tick()
        while not self._ending:
            if self._refusal is not None:
                self._in_service(self._on_failure, self._refusal)
                return
            effects = self._election.handle(event, time.monotonic(), time.time())
            event = Tick()
            for effect in effects:
                match effect:
                    case Look() | Write():
                        event = await self._ask(lease, effect)
                    case Follow(holder=holder):
                        self._in_service(self._on_follow, holder, self._blocked)
                    case Lead():
                        self._leases.held.add(self._name)
                        self._in_service(self._on_lead, effect, lease.version)
                    case Lose(why=why):
                        because = f" ({self._not_renewed_because})" if self._not_renewed_because else ""
                        self._in_service(self._on_lost, why + because)
                        return
            if isinstance(event, Tick):
                event = await self._pause()

    def _on_raise(self, beyond: int) -> None:
        self._raise_beyond = max(beyond, self._raise_beyond or 0)
        self._wake.set()

    def _look_soon(self) -> None:
        self._said_released = True
        self._wake.set()

    async def _pause(self) -> Event:
        """Wait until the election has something to ask."""
        self._in_service(self._on_turn)
        if self._said_released:
            self._said_released = False
            return SaidReleased()
        beyond, self._raise_beyond = self._raise_beyond, None
        if beyond is not None:
            return Raise(beyond)
        began = time.monotonic()
        seconds = self._election.next_deadline() - began
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if math.isinf(seconds) else seconds):
                    await self._wake.wait()
            self._wake.clear()
            if (late := time.monotonic() - began - seconds) > STOOD_STILL:
                self._not_renewed_because = f"this process stood still for {late:.0f} s"
        return Tick()

    async def _ask(self, lease: Lease, effect: Look | Write) -> Event:
        unfit = self._unfit()
        if unfit:
            self._not_renewed_because = unfit
            self._in_service(self._limited_log.warning, "unfit", "%s: %s", self._name, unfit)
            await asyncio.sleep(min(effect.patience, self._timings.retry_period))
            return Failed()
        if isinstance(effect, Write) and not self._election.term and not await self._is_ours(effect.patience):
            return Failed()
        began = time.monotonic()
        try:
            if isinstance(effect, Look):
                record = await lease.look(effect.patience)
                if self._name == self._owner:
                    self._judge(record, lease.where)
                return Looked(record)
            self.served = lease.served
            asked = self._version_asked.copy()
            written = await lease.write(
                effect.term, acquired=effect.acquired, patience=effect.patience, network=self._context.bus.network
            )
            if written and lease.version.isdecimal():
                del self._version_asked[: len(asked)]
                self._in_service(self._on_version, asked, int(lease.version))
            self._not_renewed_because = ""
            return Written() if written else Overtaken()
        except ClusterError as cause:
            late = time.monotonic() - began - effect.patience
            self._not_renewed_because = (
                f"this process stood still for {late:.0f} s" if late > STOOD_STILL else str(cause)
            )
            self._in_service(self._on_trouble, cause)
            return Failed()

    def _unfit(self) -> str:
        """Why this process must not lead now; empty if it may."""
        now = time.monotonic()
        if self._context.bus.connected:
            self._heard_at = now
        leads = bool(self._election.term)
        if now - self._heard_at > (NATS_TIMEOUT if leads else 0.0):
            return "not renewed: NATS is lost" if leads else "not taken: NATS is lost"
        if leads and now - self._turned_at > self._timings.renew_deadline:
            return "not renewed: the event loop is stuck"
        return ""

    # In the thread: which pipeline holds the snapshot's Lease

    async def _watch_owner(self, client: KubeClient) -> None:
        """Follow the snapshot's Lease, unless this process holds it; the snapshot itself reads it anyway."""
        if self._name == self._owner:
            self._ours.set()
            return
        owner = Lease(client, self._namespace, self._owner, self._identity, self._timings.lease_duration)
        while True:
            is_here = self._owner in self._leases.held
            try:
                self._judge(None if is_here else await owner.look(self._timings.renew_deadline / 2), owner.where)
            except ClusterError as cause:
                self._in_service(self._on_trouble, cause)
            ours = self._ours.is_set() or self._election.term
            await sleep_until_tick(self._timings.retry_period if ours else OWNER_POLL)

    def _judge(self, record: Record | None, where: str) -> None:
        network = self._context.bus.network
        if not network or (record is not None and record.holder == self._identity):
            return
        owner = self._ownership.judge(record, network, time.monotonic())
        before, self._blocked = self._blocked, ""
        if owner is Ownership.OURS or record is None:
            self._ours.set()
        elif owner is Ownership.FOREIGN:
            seconds = record.duration or self._timings.lease_duration
            after = "it has not noticed yet that NATS was replaced, or is another pipeline's"
            self._blocked = f"{describe_holder(where, record)}: {after}; free after {seconds:g} s without a renewal"
            if self._name != self._owner:
                self._ours.clear()
        else:
            self._refusal = UserError(describe_conflict(where, record))
            self._ours.set()
            self._wake.set()
        if self._blocked != before:
            self._in_service(self._on_blocked, self._blocked)

    async def _is_ours(self, patience: float) -> bool:
        """Wait until our Lease is ours to take; False after `patience`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._ours.wait()
        return self._ours.is_set() and self._refusal is None

    async def _release(self, lease: Lease) -> None:
        try:
            if await lease.release(self._election.wanted, RELEASE_CALL, settled=self.settled):
                self._in_service(self._on_released)
        except ClusterError as cause:
            self._in_service(self._log.warning, "%s could not be released: %s", self._name, cause)
