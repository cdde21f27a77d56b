"""flotilla evictions: what the queue remembers of reports, and how it is printed."""

import json
import time

import pytest
from msgspec.structs import replace

from services.queue.core import QueueCore
from services.queue.events import PodPending
from services.queue.eviction_journal import MAX_AGE, MAX_VICTIMS, EvictionJournal
from services.queue.introspection import Introspection
from shared.bus import Envelope
from shared.bus.subjects import QUEUE_LIST
from shared.cluster.disruption_budgets import MAX_BUDGETS
from shared.messages.binding import Evicted, EvictedPod, Preemption
from shared.messages.codec import encode
from shared.messages.inspection import ListEvictions, ListQueue
from shared.messages.limits import MAX_BYTES
from testing.builders import pod
from tests.bus.support import a_bus
from tests.cli.operating import Operator
from tests.cli.test_queue import FRAMEWORK
from tests.servers import nats_server
from tools.cli.evictions import moment
from tools.cli.main import main

NOW = 1000.0
VICTIM = EvictedPod("uid-v", "shop", "web-1", "ReplicaSet/web", 5)


def report(number: int = 1, *victims: EvictedPod, failure: str = "") -> Evicted:
    return Evicted("high", number, failure, Preemption("shop", "high", "node-1", victims))


# The journal


def test_a_report_is_remembered_once() -> None:
    journal = EvictionJournal()
    for at in (NOW, NOW + 1):
        journal.record(report(1, VICTIM), 10, at)
    (entry,) = journal.since(0.0, NOW + 1)
    assert (entry.at, entry.priority, entry.preemption.victims) == (NOW, 10, (VICTIM,))


def test_reports_without_anything_to_tell_are_not_remembered() -> None:
    journal = EvictionJournal()
    journal.record(Evicted("high", 1), 10, NOW)
    journal.record(report(2), 10, NOW)
    assert journal.since(0.0, NOW) == []
    journal.record(report(3, failure="the preemptor is gone"), None, NOW)
    assert [entry.failure for entry in journal.since(0.0, NOW)] == ["the preemptor is gone"]


def test_the_newest_come_first_and_old_ones_are_left_out() -> None:
    journal = EvictionJournal()
    for number in range(3):
        journal.record(report(number, VICTIM), 10, NOW + number)
    assert [entry.at for entry in journal.since(NOW + 1, NOW + 2)] == [NOW + 2, NOW + 1]
    assert journal.since(0.0, NOW + 1.5 + MAX_AGE)[-1].at == NOW + 2
    assert journal.dropped == 2


def test_the_journal_is_bounded_and_fits_in_one_message() -> None:
    core = QueueCore({FRAMEWORK.name: FRAMEWORK})
    budgets = tuple(name * 253 for name in "abcdef"[:MAX_BUDGETS])
    long = EvictedPod("u" * 36, "n" * 63, "p" * 253, f"ReplicaSet/{'r' * 253}", 10**9, True, violates=budgets)
    for number in range(MAX_VICTIMS // 2 + 50):
        core.evictions.record(report(number, long, long, failure="€" * 5000), 10, NOW)
    answer = Introspection(core).evictions(ListEvictions(), NOW)
    assert sum(len(each.victims) for each in answer.preemptions) == MAX_VICTIMS
    assert answer.dropped == 50
    assert len(encode(answer)) < MAX_BYTES / 2


def test_a_core_names_the_preemptor_priority() -> None:
    core = QueueCore({FRAMEWORK.name: FRAMEWORK})
    made = pod("high", "shop").priority(1000).build()
    core.handle(PodPending(made, NOW), NOW)
    core.handle(Evicted(made.uid, 7, preemption=Preemption("shop", "high", "node-1", (VICTIM,))), NOW + 1)
    core.handle(Evicted("gone", 8, preemption=Preemption("shop", "left", "node-1", (VICTIM,))), NOW + 2)
    introspection = Introspection(core, lambda at: at + 5000, NOW)
    answer = introspection.evictions(ListEvictions(), NOW + 3)
    assert (answer.now, answer.began) == (6003.0, 6000.0)
    assert [(each.name, each.priority, each.at) for each in answer.preemptions] == [
        ("left", None, 6002.0),
        ("high", 1000, 6001.0),
    ]
    assert introspection.evictions(ListEvictions(since=1.5), NOW + 3).preemptions == answer.preemptions[:1]


def test_a_nominated_pod_shows_the_budgets_that_its_last_evictions_violated() -> None:
    core = QueueCore({FRAMEWORK.name: FRAMEWORK})
    made = pod("high", "shop").priority(1000).nominated("node-1").build()
    core.handle(PodPending(made, NOW), NOW)
    for attempt, budgets in enumerate([("old",), ("web", "all"), ()]):
        victims = (replace(VICTIM, violates=budgets), replace(VICTIM, violates=budgets[:1]))
        core.handle(Evicted(made.uid, attempt, preemption=Preemption("shop", "high", "node-1", victims)), NOW)
        core.handle(
            Evicted("other", attempt, preemption=Preemption("shop", "b", "n", (replace(VICTIM, violates=("no",)),))),
            NOW,
        )
        (described,) = Introspection(core).answer(ListQueue(name="high"), NOW).pods
        assert described.violates == tuple(sorted(f"shop/{budget}" for budget in budgets))
    assert Introspection(core).answer(ListQueue(), NOW).pods[0].violates == ()


# The command


@pytest.mark.asyncio
async def test_evictions_are_printed_with_victims_and_preemptors(operator: Operator) -> None:
    core = QueueCore({FRAMEWORK.name: FRAMEWORK})
    began = time.time() - 60
    unlucky = replace(VICTIM, violates=("web",))
    core.evictions.record(report(1, unlucky, EvictedPod("u2", "shop", "web-2", in_memory=True)), 1000, began + 30)
    core.evictions.record(report(2, failure="victim shop/a: no rights"), None, began + 40)
    introspection = Introspection(core, began=began)

    def answer(asked: ListEvictions, envelope: Envelope) -> None:
        envelope.respond(introspection.evictions(asked, time.time()))

    async with nats_server() as server, a_bus(server) as bus:
        await bus.subscribe(QUEUE_LIST, ListEvictions, answer)
        operator.reaches(server)
        said = await operator.types("evictions")
        assert said.code == 0, said.err
        assert said.lines[0].split() == ["TIME", "VICTIM", "OWNER", "FOR", "NODE", "REASON"]
        assert said.lines[1].endswith("shop/high (left since)     node-1  failed: victim shop/a: no rights")
        assert "shop/web-1 (priority 5)" in said.lines[2]
        assert (
            "ReplicaSet/web  shop/high (priority 1000)  node-1  preempted, violates PodDisruptionBudget web"
            in said.lines[2]
        )
        assert said.lines[3].endswith("kept from being bound")
        assert said.lines[4] == f"the queue knows of none before {moment(began)}, when it began"
        recent = await operator.types("evictions", "--since", "25s")
        assert len(recent.lines) == 2, recent.out
        assert (await operator.types("evictions", "--since", "1s")).lines == ["no evictions"]
        found = json.loads((await operator.types("evictions", "-o", "json")).out)
        assert found["preemptions"][1]["victims"][0]["owner"] == "ReplicaSet/web"


@pytest.mark.parametrize("since", ["0s", "-1m", "soon"])
def test_since_is_a_duration(since: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["evictions", f"--since={since}"])
    assert ended.value.code == 2
    assert "--since: must be " in capsys.readouterr().err
