"""Joining a pipeline: a service learns which one it is part of, and ends if another one uses the prefix.

A pipeline is a cluster and a set of Leases in it. Messages carry its identity (`shared/bus/wire.py`), so two
pipelines never mix. This module tells people who start a second one by mistake: it ends at once with one line that says
why.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

from shared.bus import Envelope, NoAnswer
from shared.bus.access import where
from shared.bus.subjects import OWNER_GROUP, PIPELINE_OWNER
from shared.bus.wire import described, pipeline_id, same_cluster
from shared.config.structs import LeaderElection
from shared.errors import ClusterError, ProtocolError, UserError
from shared.kube.access import ClientConnection
from shared.kube.client import KubeClient
from shared.kube.errors import Forbidden
from shared.messages.identity import Owner, WhoOwns
from shared.runtime.api_clock import offset_from_date
from shared.runtime.clocks import CLOCKS
from shared.runtime.context import Context
from shared.runtime.names import utc
from shared.telemetry.logs import Repeated
from shared.ticks import next_tick

CLUSTER = "cluster"
PAUSE = 0.5
"""Seconds between two attempts to reach the API server."""
OWNER_PATIENCE = 1.0
"""Seconds to wait for the owner of the prefix. Without an owner, NATS answers at once."""
LOOK_AGAIN = 5.0
"""Seconds between two identity checks while messages of another pipeline arrive."""
LOOK_EVERY = 15.0
"""Seconds between two checks that the API server is still that of our cluster, and what time it has."""


OWN_NAMES = "scheduler names of its own in the configuration (profiles[].schedulerName), as both serve this cluster"
"""What a second pipeline of one cluster needs besides a prefix; otherwise both schedule the same pods."""


@asynccontextmanager
async def joined(
    context: Context, election: LeaderElection, given: ClientConnection, *, answers: bool = False
) -> AsyncIterator[None]:
    """Exchange messages with this pipeline only, while the context lasts.

    `answers`: reply to others that the prefix is in use. UserError if another pipeline uses it.
    """
    joining = _Joining(context, election, given)
    context.health.check(CLOCKS, lambda: context.api_clock.problem(context.clock()))
    try:
        context.bus.pipeline.id = await joining.learn()
        await joining.check_prefix()
    except BaseException:
        await joining.close()
        raise
    guarding = asyncio.create_task(joining.guard(), name="guarding the prefix")
    context.fault.watch(guarding)
    try:
        if answers:
            await context.bus.subscribe(
                PIPELINE_OWNER, WhoOwns, joining.answer, group=OWNER_GROUP, ours=False, local=False
            )
        yield
    finally:
        guarding.cancel()
        await joining.close()


class _Joining:
    def __init__(self, context: Context, election: LeaderElection, given: ClientConnection) -> None:
        self._context = context
        self._namespace = election.resource_namespace
        self._given = given
        self._limited_log = Repeated(context.log)
        self._since = context.wall()
        self._client: KubeClient | None = None
        self._api_gauge = context.metrics.gauge(
            "flotilla_api_clock_offset_seconds", "By how much the API server's clock is ahead of this process's."
        )

    async def learn(self) -> str:
        """The identity of our pipeline. Waits for the API server."""
        health = self._context.health
        while True:
            try:
                found = await self._ask()
            except ClusterError as cause:
                health.wait_for(CLUSTER, str(cause))
                self._limited_log.warning("cluster", "%s; trying again", cause)
            else:
                health.clear(CLUSTER)
                return found
            await asyncio.sleep(PAUSE)

    async def _ask(self) -> str:
        context = self._context
        if self._client is None:
            agent = f"flotilla-{context.service}"
            self._client = await KubeClient.open(context.settings.api, given=self._given, agent=agent)
            if not context.bus.pipeline.id:
                context.health.wait_for(CLUSTER, f"asks {self._client.server} which cluster this is")
        before = context.wall()
        uid = await _cluster_uid(self._client)
        ahead = offset_from_date(self._client.date, before, context.wall())
        if ahead is not None:
            self._api_gauge.set(ahead)
            context.api_clock.measured(ahead, context.clock())
        return pipeline_id(uid, self._namespace)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def check_prefix(self, younger_than: float | None = None) -> None:
        """UserError if another pipeline uses the prefix and, given a time, has done so for longer."""
        bus, settings = self._context.bus, self._context.settings
        try:
            asked = WhoOwns(bus.pipeline.id)
            owner = await bus.request(PIPELINE_OWNER, asked, Owner, timeout=OWNER_PATIENCE, ours=False)
        except (NoAnswer, ProtocolError):
            return
        if owner.pipeline == bus.pipeline.id or (younger_than is not None and owner.since >= younger_than):
            return
        since = utc(owner.since)
        raise UserError(
            f"prefix {settings.prefix!r} on NATS at {where(settings.nats_url)} is used by {described(owner.pipeline)},"
            f" since {since}: set --prefix or FLOTILLA_PREFIX to another one"
            + (f", and {OWN_NAMES}" if same_cluster(owner.pipeline, bus.pipeline.id) else "")
        )

    def answer(self, asked: WhoOwns, envelope: Envelope) -> None:
        envelope.respond(Owner(self._context.bus.pipeline.id, self._since))

    async def guard(self) -> None:
        """End the term if our cluster has changed, or another pipeline is heard that was there first."""
        foreign, loop = self._context.bus.pipeline.foreign, asyncio.get_running_loop()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(next_tick(loop.time(), LOOK_EVERY)):
                    await foreign.wait()
            heard = foreign.is_set()
            try:
                await self._look_again(heard)
            except (ClusterError, UserError) as cause:
                self._limited_log.warning("cluster", "%s", cause)
            if self._context.fault.found:
                return
            if heard:
                await asyncio.sleep(LOOK_AGAIN)
                foreign.clear()

    async def _look_again(self, heard: bool) -> None:
        found = await self._ask()
        if found != self._context.bus.pipeline.id:
            self._context.fault.end(ClusterError(f"the API server is that of another cluster now: {described(found)}"))
            return
        if not heard:
            return
        try:
            await self.check_prefix(self._since)
        except UserError as cause:
            self._context.fault.end(cause)


class _Metadata(msgspec.Struct, frozen=True):
    uid: str = ""


class _Namespace(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


async def _cluster_uid(client: KubeClient) -> str:
    """The uid of namespace kube-system, which identifies a cluster.

    ClusterError if the server does not answer, UserError if it does not allow us to read it.
    """
    try:
        raw = await client.get("/api/v1/namespaces/kube-system")
    except Forbidden as cause:
        raise UserError(f"{cause}; the right to get namespace kube-system is needed to identify the cluster") from cause
    try:
        uid = "" if raw is None else msgspec.json.decode(raw, type=_Namespace).metadata.uid
    except msgspec.DecodeError as cause:
        raise ClusterError(f"{client.server}: namespace kube-system cannot be read: {cause}") from cause
    if not uid:
        raise ClusterError(f"{client.server}: there is no namespace kube-system, which identifies a cluster")
    return uid
