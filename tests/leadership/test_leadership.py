"""Leading, with a real API server's answers: taken, kept, given back, lost."""

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest
from msgspec.structs import replace

from shared.bus import Bus
from shared.config.settings import ApiSettings, Settings
from shared.config.structs import LeaderElection
from shared.errors import UserError
from shared.runtime import Context, Health, lease_keeper
from shared.runtime.leadership import Leadership, LeaseLost, leadership
from testing.simulator.errors import ApiError
from testing.simulator.service import Simulator
from tests.bus.proxy import a_proxy
from tests.bus.support import a_telemetry
from tests.kube.support import PATIENCE, api_server, client_of, until
from tests.leadership.terms import is_next
from tests.servers import nats_server
from tools.supervisor.servers import NatsServer

pytestmark = pytest.mark.asyncio

NAME = "flotilla-x"
NAMESPACE = "leases"
FAST = LeaderElection(True, 3.0, 2.4, 0.1, "leases", "", NAMESPACE)
"""For who is to lose by the end of its time; on a slow machine others would."""
LONG = LeaderElection(True, 60.0, 50.0, 0.1, "leases", "", NAMESPACE)
"""Its Lease outlasts any test: what happens within one does not wait for its end."""


class World:
    def __init__(self, server: Simulator, nats: NatsServer) -> None:
        self.server = server
        self.nats = nats

    def context(self, name: str, bus: Bus, identity: str) -> Context:
        return Context(
            service="x",
            name=name,
            settings=Settings(api=ApiSettings(server=self.server.url), identity=identity),
            bus=bus,
            telemetry=a_telemetry(),
            health=Health(),
            http_url="",
        )

    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.server.stored("leases", NAME, NAMESPACE, group="coordination.k8s.io")["spec"]
        return spec

    def write_over(self, **fields: Any) -> None:
        """Without a look at the Lease before."""
        stored = self.server.stored("leases", NAME, NAMESPACE, group="coordination.k8s.io")
        stored["spec"] |= fields
        stored["metadata"].pop("resourceVersion", None)
        self.server.store_raw("leases", stored, group="coordination.k8s.io")


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    async with api_server() as server, nats_server() as nats:
        server.store_raw("namespaces", {"metadata": {"name": NAMESPACE}})
        yield World(server, nats)


class Candidate:
    """Leads from when it can until it is stopped, or has lost."""

    def __init__(self, context: Context, config: LeaderElection, lease: str = NAME) -> None:
        self.context = context
        self.config = config
        self.lease = lease
        self.lead: Leadership | None = None
        self.failure: BaseException | None = None
        self._task = asyncio.create_task(self._live())

    @classmethod
    async def stands(
        cls,
        world: World,
        name: str,
        config: LeaderElection = LONG,
        url: str = "",
        lease: str = NAME,
        *,
        identity: str | None = None,
    ) -> Self:
        """`url`: of NATS, where it is not the world's own. `identity`: FLOTILLA_IDENTITY; default: the name."""
        bus = await Bus.connect(url or world.nats.url, "flotilla", name, a_telemetry())
        return cls(world.context(name, bus, name if identity is None else identity), config, lease)

    async def _live(self) -> None:
        try:
            async with leadership(self.context, self.config, self.lease) as lead:
                self.lead = lead
                self.context.health.ready()
                await lead.during(asyncio.sleep(600))
        except* (LeaseLost, UserError) as lost:
            self.failure = lost.exceptions[0]
        finally:
            await self.context.bus.close()

    @property
    def status(self) -> float:
        found = self.context.telemetry.metrics.registry.get_sample_value(
            "leader_election_master_status", {"name": NAME}
        )
        assert found is not None
        return found

    async def leads(self) -> Leadership:
        await until(lambda: self.lead is not None)
        assert self.lead is not None
        return self.lead

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def ends(self) -> None:
        await asyncio.wait_for(asyncio.shield(self._task), PATIENCE)

    async def loses(self) -> str:
        await self.ends()
        return str(self.failure)


async def test_one_leads_and_the_other_stands_by() -> None:
    async with a_world() as world:
        first = await Candidate.stands(world, "one")
        lead = await first.leads()
        assert lead.before == 0
        assert world.spec()["holderIdentity"] == "one"
        assert world.spec()["leaseTransitions"] == lead.epoch
        assert (first.context.health.role, first.status) == (f"leads, term {lead.epoch}", 1.0)
        second = await Candidate.stands(world, "two")
        await until(lambda: second.context.health.standing_by)
        assert (second.context.health.role, second.status) == ("standby: one leads", 0.0)
        assert second.context.health.reasons() == [], "it is ready as it is"
        assert second.lead is None
        await first.stop()
        next_ = await second.leads()
        assert is_next(next_.epoch, lead.epoch) and next_.before == lead.epoch
        assert first.status == 0.0
        await second.stop()
        assert world.spec()["holderIdentity"] == ""


async def test_a_standby_leads_as_soon_as_the_lease_is_released() -> None:
    rare = replace(LONG, retry_period=40.0)
    async with a_world() as world:
        first = await Candidate.stands(world, "one", rare)
        epoch = (await first.leads()).epoch
        second = await Candidate.stands(world, "two", rare)
        await until(lambda: second.context.health.standing_by)
        await first.stop()
        assert is_next((await second.leads()).epoch, epoch), "it would have looked 40 s after its last look"
        await second.stop()


async def test_a_standby_with_a_fault_ends() -> None:
    async with a_world() as world:
        first = await Candidate.stands(world, "one")
        await first.leads()
        second = await Candidate.stands(world, "two")
        await until(lambda: second.context.health.standing_by)
        second.context.fault.end(UserError("the prefix is used by another pipeline"))
        assert "used by another pipeline" in await second.loses()
        assert second.lead is None
        await first.stop()


async def test_a_killed_leader_is_replaced_after_expiry_or_by_itself_at_once() -> None:
    async with a_world() as world:
        dead = {"holderIdentity": "one", "leaseTransitions": 41, "renewTime": "x", "leaseDurationSeconds": 1}
        lease = {"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": dead}
        world.server.store_raw("leases", lease, group="coordination.k8s.io")
        began = time.monotonic()
        second = await Candidate.stands(world, "two")
        assert (await second.leads()).before == 41
        assert time.monotonic() - began >= 1.0
        await second.stop()
        world.write_over(holderIdentity="one", leaseDurationSeconds=60)
        first = await Candidate.stands(world, "one")
        await first.leads()
        await first.stop()


async def test_a_namesake_without_an_identity_of_its_own_stands_by() -> None:
    async with a_world() as world:
        first = await Candidate.stands(world, "one", identity="")
        epoch = (await first.leads()).epoch
        holder = world.spec()["holderIdentity"]
        assert holder.startswith("one-")
        second = await Candidate.stands(world, "one", identity="")
        await until(lambda: second.context.health.standing_by or second.lead is not None)
        assert (second.context.health.role, second.lead) == (f"standby: {holder} leads", None)
        assert first.failure is None and world.spec()["leaseTransitions"] == epoch
        await first.stop()
        await second.leads()
        await second.stop()


async def test_a_leader_that_cannot_renew_loses_before_another_leads() -> None:
    async with a_world() as world:
        first = await Candidate.stands(world, "one", FAST)
        await first.leads()
        world.server.faults.fail("*", "leases", 500, times=10_000)
        assert re.fullmatch(f"lost the Lease {NAME}: it was not renewed within 2.4 s .* 500 .*", await first.loses()), (
            "and why not"
        )
        assert first.status == 0.0
        world.server.faults.clear()
        assert world.spec()["holderIdentity"] == "one", "what is not ours for sure is left alone"


async def test_without_election_a_newcomer_deposes_the_leader() -> None:
    async with a_world() as world:
        first = await Candidate.stands(world, "one", replace(LONG, retry_period=2.0))  # does not write meanwhile
        epoch = (await first.leads()).epoch
        second = await Candidate.stands(world, "two", replace(LONG, leader_elect=False))
        later = (await second.leads()).epoch
        assert is_next(later, epoch)
        assert await first.loses() == f"lost the Lease {NAME}: two has it, in term {later}"
        await second.stop()


async def test_a_deleted_or_restored_lease_does_not_lower_the_term() -> None:
    async with a_world() as world:
        first = await Candidate.stands(world, "one")
        epoch = (await first.leads()).epoch
        world.write_over(leaseTransitions=1)
        await until(lambda: world.spec()["leaseTransitions"] == epoch)
        async with client_of(world.server) as client:
            path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}"
            assert (await client.call("DELETE", path)).ok
        await until(lambda: _holder(world) == "one")
        assert world.spec()["leaseTransitions"] == epoch
        await first.stop()
        world.write_over(leaseTransitions=1)
        second = await Candidate.stands(world, "two")
        assert (await second.leads()).epoch >= epoch, "the minutes since 2026 are its least"
        await second.stop()


def _holder(world: World) -> str:
    try:
        return str(world.spec()["holderIdentity"])
    except ApiError:
        return ""


async def test_a_leader_can_raise_its_term() -> None:
    async with a_world() as world:
        first = await Candidate.stands(world, "one")
        lead = await first.leads()
        before = lead.epoch
        assert await lead.raise_term() == lead.epoch
        assert is_next(lead.epoch, before)
        assert await lead.raise_term(before + 100) == before + 101
        assert world.spec()["leaseTransitions"] == before + 101
        renewed = world.spec()["renewTime"]
        await until(lambda: world.spec()["renewTime"] != renewed)
        assert first.failure is None and world.spec()["leaseTransitions"] == before + 101, "it is renewed in that term"
        world.write_over(holderIdentity="two")
        with pytest.raises(LeaseLost):
            await lead.raise_term()
        await first.loses()


async def test_a_leader_can_ask_for_a_version_later_than_all_that_was_shown() -> None:
    async with a_world() as world:
        first = await Candidate.stands(world, "one")
        lead = await first.leads()
        for _ in range(3):
            async with client_of(world.server) as client:
                path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
                shown = json.loads((await client.call("GET", path)).body)["metadata"]["resourceVersion"]
            assert await asyncio.wait_for(lead.later_version(), PATIENCE) > int(shown)
        await first.stop()


async def test_the_settled_mark_reaches_only_the_next_leader() -> None:
    async with a_world() as world:
        first = await Candidate.stands(world, "one")
        lead = await first.leads()
        assert not lead.settled
        lead.settle()
        await first.stop()
        second = await Candidate.stands(world, "two")
        assert (await second.leads()).settled
        await second.stop()
        third = await Candidate.stands(world, "three")
        assert not (await third.leads()).settled
        await third.stop()


async def test_an_old_settled_mark_does_not_count() -> None:
    async with a_world() as world:
        first = await Candidate.stands(world, "one")
        lead = await first.leads()
        lead.settle()
        await lead.raise_term()
        await first.stop()
        second = await Candidate.stands(world, "two")
        assert not (await second.leads()).settled
        await second.stop()


async def test_a_busy_loop_does_not_delay_renewals() -> None:
    """Half a second at a time it does not turn, for longer than the Lease lasts."""
    async with a_world() as world:
        busy = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.leadership.busy", world.server.url, world.nats.url),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await asyncio.wait_for(busy.communicate(), PATIENCE)
        assert said == b"keeps it\n"
        assert world.spec()["holderIdentity"] == "", "given back"


async def test_a_stuck_leader_gives_up_the_lease() -> None:
    async with a_world() as world:
        stuck = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.leadership.busy", world.server.url, world.nats.url, "stuck"),
            stdout=asyncio.subprocess.PIPE,
        )
        await until(lambda: _holder(world) == "busy")
        candidate = await Candidate.stands(world, "two")
        await candidate.leads()
        said, _ = await asyncio.wait_for(stuck.communicate(), PATIENCE)
        assert said == b"has lost it\n"
        await candidate.stop()


async def test_a_process_without_nats_gives_up_and_does_not_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_keeper, "NATS_TIMEOUT", 0.5)
    async with a_world() as world:
        async with a_proxy(world.nats) as proxy:
            first = await Candidate.stands(world, "one", FAST, url=proxy.url)
            await first.leads()
            cut_off = await Candidate.stands(world, "two", url=proxy.url)
            await until(lambda: cut_off.context.health.standing_by)
        assert await first.loses() == (
            f"lost the Lease {NAME}: it was not renewed within 2.4 s (not renewed: NATS is lost)"
        )
        third = await Candidate.stands(world, "three")
        await third.leads()
        assert cut_off.lead is None
        await third.stop()
        await cut_off.stop()
