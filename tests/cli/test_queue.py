"""flotilla queue: the description of pods, listed in pages over NATS, and its output."""

import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from flotilla.events import Action, Registration, Resource
from services.queue.core import QueueCore
from services.queue.events import PodPending, PodUnreadable
from services.queue.introspection import ANY_EVENT, MAX_LINES, Introspection, awaited_events, describe, labels
from services.queue.scheduling.pod_groups import PodGroups
from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo
from shared.bus import Envelope
from shared.bus.subjects import QUEUE_LIST, STATUS_ANSWERS, STATUS_ASK
from shared.framework.loading import load_frameworks
from shared.messages.codec import encode
from shared.messages.inspection import LONGEST_TEXT, MAX_PODS, ListQueue, Move, QueueListed
from shared.messages.limits import MAX_BYTES
from shared.messages.queue import Outcome, Outcomes, Take, Verdict
from shared.messages.status import AskStatus, ProcessStatus
from shared.model.objects import DEFAULT_SCHEDULER, encode_msgpack, pod_from_msgpack
from testing.builders import PodBuilder, pod
from tests.bus.support import a_bus
from tests.cli.operating import Operator
from tests.servers import nats_server
from tools.cli.arguments import PodName
from tools.cli.output import age
from tools.cli.queue_listing import details, row
from tools.supervisor.servers import NatsServer

FRAMEWORK = load_frameworks(None)[DEFAULT_SCHEDULER]
NOW = 1000.0


def an_info(made: PodBuilder, place: PodState, at: float = 990.0, why: str = "ScheduleAttemptFailure") -> QueuedPodInfo:
    built = made.build()
    info = QueuedPodInfo(built.uid, built, FRAMEWORK, seen_at=900.0, queued_at=at, state=place)
    info.record(900.0, PodState.ACTIVE, "UnschedulablePodAdd")
    if place is not PodState.ACTIVE:
        info.record(at, place, why)
    return info


class Waiting(QueueCore):
    """A queue that holds these pods; with `nominated`, all are nominated to this node."""

    def __init__(self, *infos: QueuedPodInfo, nominated: str = "", foreign: dict[str, str] | None = None) -> None:
        self.infos = infos
        self.node = nominated
        self.schedulers = [FRAMEWORK.name]
        self.foreign = foreign or {}
        self.introspection = Introspection(self)

    @property
    def unreadable(self) -> dict[str, str]:
        return {}

    @property
    def groups(self) -> PodGroups:
        return PodGroups()

    def pods_in(self, state: PodState) -> Iterator[QueuedPodInfo]:
        return (info for info in self.infos if info.state is state)

    def counts(self) -> dict[PodState, int]:
        return dict(Counter(info.state for info in self.infos))

    def nominated(self) -> dict[str, list[str]]:
        return {self.node: [info.uid for info in self.infos]} if self.node else {}

    def left(self, namespace: str, name: str) -> None:
        return None

    def foreign_scheduler(self, key: str) -> str:
        return self.foreign.get(key, "")


def names(listed: QueueListed) -> list[str]:
    return [each.name for each in listed.pods]


# The description of a pod


def test_a_rejected_pod_shows_why_and_what_it_waits_for() -> None:
    info = an_info(pod("a", "shop").priority(7), PodState.UNSCHEDULABLE)
    info.attempts, info.rejections, info.unschedulable_plugins = 3, 3, ("NodeResourcesFit",)
    info.last_failure, info.failed_at = "0/1 nodes are available", 990.0
    shown = describe(info, "node-1")
    assert (shown.namespace, shown.name, shown.priority, shown.state) == (
        "shop",
        "a",
        7,
        "unschedulable",
    )
    assert (shown.since, shown.why, shown.first_seen) == (990.0, "ScheduleAttemptFailure", 900.0)
    assert (shown.attempts, shown.plugins, shown.nominated) == (3, ("NodeResourcesFit",), "node-1")
    assert {"NodeAdd", "AssignedPodDelete"} <= set(shown.requeue_events)
    assert (shown.message, shown.failed_at, shown.history) == ("0/1 nodes are available", 990.0, ())


def test_a_single_pod_shows_its_history_and_condition() -> None:
    info = an_info(pod("a"), PodState.UNSCHEDULABLE)
    info.last_failure = "x" * 5000
    assert len(describe(info, "").message) == LONGEST_TEXT
    shown = describe(info, "", in_full=True)
    assert len(shown.message) == 5000
    assert shown.history == (
        Move(900.0, "active", "UnschedulablePodAdd"),
        Move(990.0, "unschedulable", "ScheduleAttemptFailure"),
    )


def test_updates_do_not_reset_the_time_in_a_place() -> None:
    info = an_info(pod("a"), PodState.BINDING, at=980.0, why="decided")
    info.record(995.0, PodState.BINDING, "forgotten: the binding failed")
    shown = describe(info, "")
    assert (shown.since, shown.why) == (980.0, "decided")


def test_a_gated_pod_waits_only_for_what_its_gate_waits_for() -> None:
    info = an_info(pod("g").gate("x"), PodState.GATED)
    info.gating_plugin, info.unschedulable_plugins = "SchedulingGates", ("NodeResourcesFit", "SchedulingGates")
    shown = describe(info, "")
    assert shown.gate == "SchedulingGates"
    assert set(shown.requeue_events) == set(labels(FRAMEWORK.registrations["SchedulingGates"]))


def test_a_failing_gate_has_no_name() -> None:
    info = an_info(pod("g"), PodState.GATED)
    info.gating_plugin = ""
    shown = describe(info, "")
    assert shown.gate == "-"
    assert "failing" in row(shown, NOW)[4]


def test_a_pod_without_known_events_waits_for_any_event() -> None:
    info = an_info(pod("a"), PodState.UNSCHEDULABLE)
    info.unschedulable_plugins = ("NodeResourcesFit", "http://extender")
    assert awaited_events(info) == (ANY_EVENT,) == ("*All",)
    assert row(describe(info, ""), NOW)[5] == "any event"


def test_labels_are_those_of_kube_scheduler() -> None:
    registrations = [
        Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        Registration(Resource.POD, Action.DELETE),
        Registration(Resource.CSI_NODE, Action.ADD | Action.UPDATE),
        Registration(Resource.NODE, Action.ADD),
    ]
    assert labels(registrations) == (
        "NodeAdd", "NodeUpdateNodeLabel", "AssignedPodDelete", "UnschedulablePodDelete",
        "storage.k8s.io/CSINodeAdd", "storage.k8s.io/CSINodeUpdate",
    )  # fmt: skip


def test_a_pod_in_back_off_or_in_flight_shows_its_deadline() -> None:
    resting = an_info(pod("r"), PodState.BACKOFF)
    resting.backoff_until = 1002
    assert describe(resting, "").backoff_until == 1003.0
    away = an_info(pod("b"), PodState.BINDING)
    away.deadline, away.node = 1030.0, "node-1"
    shown = describe(away, "")
    assert (shown.backoff_until, shown.deadline, shown.node) == (None, 1030.0, "node-1")
    assert row(shown, NOW)[5] == "binding to node-1, at most 30 s"
    assert row(describe(resting, ""), NOW)[5] == "end of its back-off, 3.0 s"


# Pages


def test_pods_are_listed_in_queue_order_and_filtered() -> None:
    waiting = Waiting(
        an_info(pod("u", "shop"), PodState.UNSCHEDULABLE),
        an_info(pod("a"), PodState.ACTIVE),
        an_info(pod("b"), PodState.BINDING),
        an_info(pod("e"), PodState.ERROR_BACKOFF),
        an_info(pod("a", "shop"), PodState.BACKOFF),
    )
    answer = waiting.introspection.answer
    everything = answer(ListQueue(), NOW)
    assert names(everything) == ["a", "a", "e", "u", "b"]
    assert (everything.total, everything.next, everything.now) == (5, 0, NOW)
    assert everything.counts["error-backoff"] == 1
    assert names(answer(ListQueue(states=("binding", "error-backoff")), NOW)) == ["e", "b"]
    assert names(answer(ListQueue(namespace="shop"), NOW)) == ["a", "u"]
    alone = answer(ListQueue(namespace="shop", name="a"), NOW)
    assert [each.namespace for each in alone.pods] == ["shop"]
    assert alone.pods[0].history


def test_pages_show_current_places_and_omit_pods_that_left() -> None:
    infos = [an_info(pod(f"p{i}"), PodState.ACTIVE) for i in range(4)]
    waiting = Waiting(*infos)
    first = waiting.introspection.answer(ListQueue(limit=2), NOW)
    assert names(first) == ["p0", "p1"]
    infos[2].state = PodState.DONE
    infos[3].state = PodState.IN_FLIGHT
    second = waiting.introspection.answer(ListQueue(first.listing, first.next), NOW)
    assert [(each.name, each.state) for each in second.pods] == [("p3", "in-flight")]
    assert second.next == 0
    assert waiting.introspection.answer(ListQueue("of another queue", 2), NOW).listing == ""


def test_the_largest_page_is_far_below_the_message_limit() -> None:
    infos = []
    for i in range(2 * MAX_PODS):
        info = an_info(pod(f"{i:0>253}", "n" * 253), PodState.UNSCHEDULABLE)
        info.unschedulable_plugins, info.last_failure = tuple(FRAMEWORK.registrations), "€" * 10_000
        infos.append(info)
    page = Waiting(*infos).introspection.answer(ListQueue(limit=10**9), NOW)
    assert len(page.pods) == MAX_PODS
    assert len(encode(page)) < MAX_BYTES / 2


def test_pods_come_with_their_bodies_if_asked_for() -> None:
    infos = [an_info(pod(f"p{i}").label(filling="x" * 100_000), PodState.ACTIVE) for i in range(100)]
    infos[0].body = msgspec.Raw(encode_msgpack(infos[0].pod))
    answer = Waiting(*infos).introspection.answer
    assert not any(each.body for each in answer(ListQueue(), NOW).pods)
    page = answer(ListQueue(bodies=True), NOW)
    pods = list(page.pods)
    while page.next:
        assert len(encode(page)) < MAX_BYTES
        page = answer(ListQueue(page.listing, page.next, bodies=True), NOW)
        pods += page.pods
    assert len({each.uid for each in pods}) == len(pods) == 100
    assert [pod_from_msgpack(each.body) for each in pods] == [info.pod for info in infos]


def test_the_log_lists_a_limited_number_of_pods() -> None:
    gated = an_info(pod("g"), PodState.GATED)
    gated.gating_plugin, gated.unschedulable_plugins = "SchedulingGates", ("SchedulingGates",)
    shown = list(Waiting(gated, nominated="node-1").introspection.lines(NOW))
    assert shown == [
        "the queue holds 1 gated",
        "pod default/g (default/g): gated for 10.0 s, tried 0x, gate SchedulingGates, nominated to node-1",
    ]
    many = [an_info(pod(f"p{i}"), PodState.ACTIVE) for i in range(MAX_LINES + 5)]
    lines = list(Waiting(*many).introspection.lines(NOW))
    assert len(lines) == MAX_LINES + 2
    assert lines[-1] == "and 5 more pods: flotilla dump lists all"


# The command


@asynccontextmanager
async def a_queue(server: NatsServer, waiting: Waiting) -> AsyncIterator[None]:
    """Answers as the service does."""

    def answer(asked: ListQueue, envelope: Envelope) -> None:
        envelope.respond(waiting.introspection.answer(asked, time.time()))

    async with a_bus(server) as bus:
        await bus.subscribe(QUEUE_LIST, ListQueue, answer)
        yield


def some_pods() -> Waiting:
    now = time.time()
    rejected = an_info(pod("web", "shop"), PodState.UNSCHEDULABLE, at=now - 65)
    rejected.attempts, rejected.rejections, rejected.unschedulable_plugins = 2, 2, ("NodeAffinity",)
    rejected.last_failure, rejected.failed_at = "0/3 nodes are available: 3 node(s) didn't match", now - 65
    return Waiting(rejected, an_info(pod("next"), PodState.ACTIVE))


@pytest.mark.asyncio
async def test_queue_prints_a_line_for_each_pod(operator: Operator) -> None:
    async with nats_server() as server, a_queue(server, some_pods()):
        operator.reaches(server)
        code, out, err = await operator.types("queue")
        lines = out.splitlines()
        assert (code, err) == (0, "")
        assert lines[0] == "queue: 1 unschedulable, 1 active"
        assert lines[1].split() == ["POD", "STATE", "SINCE", "ATTEMPTS", "WHY", "WAITS", "FOR"]
        assert lines[2].split()[:2] == ["default/next", "active"]
        assert lines[3].split()[:4] == ["shop/web", "unschedulable", "1m5s", "2"]
        assert "3 node(s) didn't match" in lines[3]
        assert "a node is added" in lines[3]
        wide = (await operator.types("queue", "-o", "wide")).lines[3]
        assert "NodeAffinity" in wide
        assert "NodeAdd," in wide
        assert (await operator.types("queue", "--group-by", "namespace", "-w")).code == 2
        assert len((await operator.types("queue", "--state", "active")).lines) == 3
        assert (await operator.types("queue", "--limit", "1")).lines[-1] == "1 more"
        assert (await operator.types("queue", "-n", "nowhere")).lines == [
            "queue: 1 unschedulable, 1 active",
            "none in namespace nowhere",
        ]
        assert (await operator.types("queue", "-n", "shop", "--state", "gated", "--state", "active")).lines == [
            "queue: 1 unschedulable, 1 active",
            "none in namespace shop that is gated or active",
        ]


@pytest.mark.asyncio
async def test_queue_shows_the_details_of_one_pod(operator: Operator) -> None:
    async with nats_server() as server, a_queue(server, some_pods()):
        operator.reaches(server)
        by_key = await operator.types("queue", "shop/web")
        assert by_key.code == 0
        assert "Condition:    0/3 nodes are available: 3 node(s) didn't match (1m5s ago)" in by_key.lines
        assert "Rejected by:  NodeAffinity" in by_key.lines
        assert by_key.lines[-1].split()[2:] == ["unschedulable", "ScheduleAttemptFailure"]
        assert (await operator.types("queue", "web", "-n", "shop")).out == by_key.out


@pytest.mark.asyncio
async def test_a_binding_that_takes_long_comes_with_what_is_not_ready(operator: Operator) -> None:
    since, why = time.time() - 30, "not ready: snapshot: term: Redis is away"
    binding = an_info(pod("web"), PodState.BINDING, at=since)
    problems = {"term": "Redis is away"}

    async with nats_server() as server, a_queue(server, Waiting(binding)), a_bus(server) as bus:

        def answer(asked: AskStatus, _: Envelope) -> None:
            bus.post(
                STATUS_ANSWERS,
                ProcessStatus(asked.id, "snapshot", "snapshot", 1, "h", "1.0", 1.0, 2.0, 0.0, 1, problems=problems),
            )

        await bus.subscribe(STATUS_ASK, AskStatus, answer)
        operator.reaches(server)
        assert (await operator.types("queue")).lines[-1] == why
        assert (await operator.types("queue", "web")).lines[0] == why
        binding.record(time.time(), PodState.ACTIVE, "again")
        binding.state = PodState.ACTIVE
        assert why not in (await operator.types("queue")).out


@pytest.mark.asyncio
async def test_json_has_every_page_and_every_field(operator: Operator) -> None:
    waiting = Waiting(*(an_info(pod(f"p{i}"), PodState.ACTIVE) for i in range(2 * MAX_PODS + 1)))
    async with nats_server() as server, a_queue(server, waiting):
        operator.reaches(server)
        found = json.loads((await operator.types("queue", "-o", "json")).out)
        assert [each["name"] for each in found["pods"]] == [f"p{i}" for i in range(2 * MAX_PODS + 1)]
        assert found["total"] == 2 * MAX_PODS + 1
        assert found["counts"]["active"] == found["total"]
        assert found["pods"][0]["attempts"] == 0
        some = json.loads((await operator.types("queue", "-o", "json", "--limit", "600")).out)
        assert (len(some["pods"]), some["total"]) == (600, 2 * MAX_PODS + 1)


@pytest.mark.asyncio
async def test_no_reply_is_one_line_and_exit_code_1(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    async with nats_server() as server:
        operator.reaches(server)
        said = await operator.types("queue")
        assert said.code == 1
        assert said.err == (
            f"flotilla: no reply from the queue: no listener "
            f"(NATS at 127.0.0.1:{server.url.rpartition(':')[2]}, prefix 'test'); "
            "it is starting, down, or has another prefix: flotilla status says which\n"
        )
        monkeypatch.setenv("FLOTILLA_NATS_URL", server.url.replace("flotilla:", "flotilla:wrong"))
        refused = await operator.types("queue")
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert "refuses the credentials" in refused.err
    operator.reaches(server)
    began = time.monotonic()
    gone = await operator.types("queue")
    assert time.monotonic() - began < 8
    assert (gone.code, gone.out, gone.err.count("\n")) == (1, "", 1)
    assert "cannot be reached" in gone.err
    assert "FLOTILLA_NATS_URL" in gone.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["a/b/c"], "'a/b/c': expected NAMESPACE/POD or POD"),
        (["shop/"], "'shop/': expected"),
        (["/web"], "'/web': expected"),
        (["shop/web", "-n", "other"], "--namespace: 'other' contradicts shop/web"),
        (["--nats", "nats://u:secret@h"], "set FLOTILLA_NATS_URL instead"),
    ],
)
def test_bad_usage_is_exit_code_2(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    from tools.cli.main import main

    assert main(["queue", *arguments]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert "secret" not in said


# How it is printed


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1, "0s"),
        (0.4, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (303, "5m3s"),
        (3600, "1h"),
        (7800, "2h10m"),
        (273600, "3d4h"),
    ],
)
def test_ages_have_two_units(seconds: float, shown: str) -> None:
    assert age(seconds) == shown


def test_a_preemptor_waits_for_the_eviction_of_its_victims() -> None:
    info = an_info(pod("p"), PodState.GATED)
    info.gating_plugin = "DefaultPreemption"
    shown = describe(info, "node-1")
    assert row(shown, NOW)[4:] == (
        "gate DefaultPreemption; nominated to node-1",
        "eviction of its victims",
    )
    assert "Nominated to: node-1" in list(details(shown, NOW))


def test_names_of_pods() -> None:
    assert str(PodName("shop", "web")) == "shop/web"


def test_a_listed_pod_has_its_rejection_and_nomination() -> None:
    core = QueueCore({FRAMEWORK.name: FRAMEWORK})
    introspection = Introspection(core)
    made = pod("a", "shop").build()
    core.handle(PodPending(made, NOW), NOW)
    core.handle(Take(1, 1, 10), NOW)
    rejected = Outcome(
        made.uid, Verdict.UNSCHEDULABLE, message="0/1 nodes", plugins=("NodeAffinity",), nominated="node-1"
    )
    core.handle(Outcomes(1, 1, [rejected]), NOW + 1)
    (shown,) = introspection.answer(ListQueue(namespace="shop", name="a"), NOW + 2).pods
    assert (shown.state, shown.since, shown.attempts, shown.plugins) == (
        "unschedulable",
        NOW + 1,
        1,
        ("NodeAffinity",),
    )
    assert (shown.message, shown.failed_at, shown.nominated) == ("0/1 nodes", NOW + 1, "node-1")
    assert [move.state for move in shown.history] == ["active", "in-flight", "unschedulable"]
    assert "NodeUpdateNodeLabel" in shown.requeue_events


def test_the_first_page_says_which_pods_cannot_be_read_until_they_can() -> None:
    core = QueueCore({FRAMEWORK.name: FRAMEWORK})
    introspection = Introspection(core)
    made = pod("a", "shop").build()
    core.handle(PodUnreadable(made.uid, "shop", "a", DEFAULT_SCHEDULER, "Pod shop/a: no such quantity"), NOW)
    first = introspection.answer(ListQueue(), NOW)
    assert first.unreadable == {made.uid: "Pod shop/a: no such quantity"}
    assert introspection.answer(ListQueue(listing=first.listing), NOW).unreadable == {}
    core.handle(PodPending(made, NOW), NOW)
    assert introspection.answer(ListQueue(), NOW).unreadable == {}
