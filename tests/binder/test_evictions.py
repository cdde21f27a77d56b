"""Evictions and permits from outside, with a real NATS and an API server."""

import pytest
from msgspec.structs import replace

from services.binder.eviction_calls import MAX_REPORTS
from shared.messages.binding import Displaced, Evicted, ListPermits, PermitAnswer, Withdraw
from tests.binder.support import binding_framework, wait
from tests.binder.world import World, until, world
from tests.framework.plugins import scripted

pytestmark = pytest.mark.asyncio

MESSAGE = "default-scheduler: preempting to accommodate a higher priority pod"


def bound(w: World, *names: str) -> list[Displaced]:
    return [Displaced(w.pod(name, "n1"), "default", name) for name in names]


def shown(w: World) -> set[str]:
    return {pod.name for pod in w.permits[-1].waiting} if w.permits else set()


async def listed(w: World, count: int) -> None:
    """Asks until this many pods are known to wait."""

    def known() -> bool:
        w.bus.post("binder.permits", ListPermits("me"))
        return len(shown(w)) == count

    await until(known)


async def test_victims_are_marked_deleted_and_get_an_event() -> None:
    async with world() as w:
        names = [f"v{i}" for i in range(20)]
        w.pod("low", nominated="n1")
        w.pod("elsewhere", nominated="n2")
        low = [Displaced(f"uid-{name}", "default", name) for name in ("low", "elsewhere")]
        w.evict(*bound(w, *names), denominated=tuple(low))
        assert await w.evicted_of() == Evicted("uid-high", 7)
        for name in names:
            assert w.terminating(name)
            condition = w.condition_of(name, "DisruptionTarget") or {}
            told = {key: condition[key] for key in ("status", "reason", "message")}
            assert told == {"status": "True", "reason": "PreemptionByScheduler", "message": MESSAGE}
        event = await w.event("Preempted")
        assert (event["type"], event["action"], event["note"]) == (
            "Normal",
            "Preempting",
            "Preempted by pod uid-high on node n1",
        )
        assert event["regarding"]["name"] in names
        assert event["related"]["uid"] == "uid-high"
        assert event["reportingController"] == "default-scheduler"
        told = await w.event("Preempting")
        assert (told["regarding"]["uid"], told["type"]) == ("uid-high", "Normal")
        assert told["note"].startswith("evicted 20 pod(s) of lower priority from node n1: default/v")
        assert told["note"].endswith(" and 12 more")
        preemption = (await w.report_of()).preemption
        assert preemption is not None
        assert {victim.name for victim in preemption.victims} == {*names}
        await until(lambda: w.nominated("low") == "")
        assert w.nominated("elsewhere") == "n2"
        assert w.metric("scheduler_preemption_victims_sum") == 20
        assert w.metric("scheduler_preemption_goroutines_execution_total", result="success") == 1
        assert w.metric("scheduler_preemption_goroutines_duration_seconds_count", result="success") == 1


async def test_budgets_that_victims_violate_are_named_by_the_preemptors_event_and_the_report() -> None:
    async with world() as w:
        first, second = bound(w, "v0", "v1")
        w.evict(first, replace(second, violates=("web", "all")))
        await w.evicted_of()
        told = await w.event("Preempting")
        despite = ", in spite of PodDisruptionBudgets default/all, default/web: "
        assert told["note"].startswith(f"evicted 2 pod(s) of lower priority from node n1{despite}")
        preemption = (await w.report_of()).preemption
        assert preemption is not None
        assert {victim.name: victim.violates for victim in preemption.victims} == {"v0": (), "v1": ("web", "all")}
        assert (await w.event("Preempted"))["note"] == "Preempted by pod uid-high on node n1"


async def test_a_victim_that_is_gone_is_a_success() -> None:
    async with world() as w:
        (here,) = bound(w, "here")
        recreated = Displaced("uid-of-before", "default", "here")
        w.evict(Displaced("uid-x", "default", "nothing"), recreated)
        assert await w.evicted_of() == Evicted("uid-high", 7)
        assert not w.terminating("here")
        w.evict(here, attempt=8)
        w.evict(here, attempt=8)
        assert await w.evicted_of(8) == Evicted("uid-high", 8)
        assert w.terminating("here")


async def test_temporary_failures_are_retried() -> None:
    async with world() as w:
        w.simulator.faults.fail("PATCH", "/pods/a/status$", 409, reason="Conflict")
        w.simulator.faults.fail("DELETE", "/pods/a$", 500)
        w.simulator.faults.drop("DELETE", "/pods/b$", after=True)
        w.evict(*bound(w, "a", "b"))
        assert await w.evicted_of() == Evicted("uid-high", 7)
        assert w.terminating("a") and w.terminating("b")


async def test_a_forbidden_deletion_fails_and_spares_the_last_victim() -> None:
    async with world() as w:
        w.simulator.faults.fail("DELETE", "/pods/a$", 403, reason="Forbidden")
        w.evict(*bound(w, "a", "b"))
        assert (await w.evicted_of()).failure == "victim default/a: injected fault"
        assert not w.terminating("b")
        assert w.metric("scheduler_preemption_goroutines_execution_total", result="error") == 1


async def test_a_victim_that_waits_for_a_permit_is_not_bound() -> None:
    async with world(framework=binding_framework(scripted("Gate", [], permit=wait(60)))) as w:
        w.pod("p")
        w.order("p")
        await listed(w, 1)
        w.evict(Displaced("uid-p", "default", "p", attempt=1))
        assert await w.evicted_of() == Evicted("uid-high", 7)
        outcome = next(outcome for outcome in w.outcomes if outcome.reason)
        assert outcome.reason == "waiting on permit for pod: preempted"
        assert (outcome.plugin, outcome.rejected) == ("DefaultPreemption", False)
        assert (w.node_of("p"), w.terminating("p")) == ("", False)
        event = await w.event("Preempted")
        assert event["note"] == "Preempted by pod uid-high on node n1 (in kube-scheduler memory)."


async def test_a_victim_whose_binding_is_under_way_is_deleted_once_it_is_bound() -> None:
    async with world() as w:
        w.pod("p")
        w.simulator.faults.delay("POST", "/binding$", 0.4)
        w.order("p")
        await until(lambda: not w.simulator.faults)
        w.evict(Displaced("uid-p", "default", "p", attempt=1))
        assert await w.evicted_of() == Evicted("uid-high", 7)
        assert (await w.outcome("p")).bound
        assert w.node_of("p") == "n1"
        await until(lambda: w.terminating("p"))
        assert (await w.event("Preempted"))["note"] == "Preempted by pod uid-high on node n1"


async def test_without_api_calls_all_make_way_at_once() -> None:
    async with world(api_calls=False) as w:
        w.evict(*bound(w, "a"))
        assert await w.evicted_of() == Evicted("uid-high", 7)
        assert not w.terminating("a")


async def test_a_leaving_binder_finishes_evictions() -> None:
    async with world() as w:
        victims = bound(w, "a")
        w.simulator.faults.delay("DELETE", "/pods/a$", 0.3)
        w.evict(*victims)
        await until(lambda: not w.simulator.faults)
    assert [replace(evicted, preemption=None) for evicted in w.evicted] == [Evicted("uid-high", 7)]


async def test_permits_are_listed_and_answered_from_outside() -> None:
    gates = [scripted(name, [], permit=wait(60)) for name in ("Gate", "Door")]
    async with world(framework=binding_framework(*gates)) as w:
        for name in ("p", "q", "r", "s"):
            w.pod(name)
            w.order(name)
        await listed(w, 4)
        answer = w.permits[-1]
        assert (answer.id, answer.binder, answer.more) == ("me", "b1", 0)
        pending = answer.waiting[0]
        assert (pending.uid, pending.namespace, pending.name, pending.node) == ("uid-p", "default", "p", "n1")
        assert pending.plugins.keys() == {"Gate", "Door"}
        assert all(0 < seconds <= 60 for seconds in pending.plugins.values())
        w.bus.post("binder.permits", PermitAnswer("uid-p", "", allow=True))
        w.bus.post("binder.permits", PermitAnswer("uid-q", "Gate", allow=True))
        w.bus.post("binder.permits", PermitAnswer("uid-r", "Door", allow=False, reason="no"))
        w.bus.post("binder.withdrawals", Withdraw("uid-s", 4, "", "the pod is deleted", epoch=1))
        await listed(w, 1)
        assert shown(w) == {"q"}
        await until(lambda: sum(outcome.wait is None for outcome in w.outcomes) == 3)
        ended = {outcome.uid: outcome.reason for outcome in w.outcomes if outcome.wait is None}
        assert ended == {
            "uid-p": "",
            "uid-r": "0/1 nodes are available: 1 no.",
            "uid-s": "the pod is deleted",
        }
        assert w.node_of("p") == "n1"


async def test_the_end_of_an_eviction_is_reported_until_acknowledged() -> None:
    async with world() as w:
        w.acknowledges = False
        w.evict()
        await until(lambda: len(w.evicted) >= 2)
        w.acknowledges = True
        heard = len(w.evicted)
        await until(lambda: len(w.evicted) > heard)
        last = len(w.evicted)
        w.evict(attempt=8)
        assert await w.evicted_of(8) == Evicted("uid-high", 8)
    assert {replace(evicted, preemption=None) for evicted in w.evicted[:last]} == {Evicted("uid-high", 7)}
    assert len([evicted for evicted in w.evicted if evicted.attempt == 7]) == last


async def test_ends_that_are_not_acknowledged_do_not_pile_up() -> None:
    """The core has each reported every second; a report that still waits for its turn is not made twice."""
    ends = 3 * MAX_REPORTS
    async with world() as w:
        w.acknowledges = False
        for attempt in range(1, ends + 1):
            w.evict(attempt=attempt)
        await until(lambda: len(w.evicted) > 2 * MAX_REPORTS)
        assert len({evicted.attempt for evicted in w.evicted[:ends]}) == len(w.evicted[:ends])
        w.acknowledges = True
        for attempt in range(1, ends + 1):
            await w.evicted_of(attempt)
        w.evict(attempt=ends + 1)
        await w.evicted_of(ends + 1)  # after all that waited before
        assert len(w.evicted) <= 2 * MAX_REPORTS + ends + MAX_REPORTS
