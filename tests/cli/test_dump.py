"""flotilla dump: the snapshot's state in pages and in the log, and its comparison with the API server."""

import asyncio
import json
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from services.queue.introspection import Introspection as QueueIntrospection
from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo
from services.snapshot.cache_comparer import (
    PAGE,
    AssignedPod,
    ClusterView,
    compared,
    differences,
    lasting,
    list_cluster,
)
from services.snapshot.introspection import MAX_LINES, CachePages, Introspection, comparison_lines, lines, view
from shared.bus import Envelope
from shared.bus.access import where
from shared.bus.subjects import QUEUE_LIST, SNAPSHOT_LIST
from shared.errors import ClusterError
from shared.messages.codec import encode
from shared.messages.inspection import (
    MAX_DIFFERENCES,
    MAX_NODES,
    MAX_PODS_OF_NODES,
    MAX_WAITING,
    CacheCompared,
    CompareCache,
    Difference,
    ListCache,
    ListLedger,
    ListQueue,
    WaitingPod,
)
from shared.messages.limits import MAX_BYTES
from shared.runtime.hosting import PROFILE, on_dump_signal
from testing.builders import pod
from testing.simulator.requests import Response
from tests.bus.support import LOG, a_bus, a_telemetry, until
from tests.cli.held import Held
from tests.cli.operating import Operator
from tests.cli.test_queue import Waiting, an_info
from tests.servers import nats_server
from tests.simulator.support import PODS, Desk
from tests.simulator.support import node as plain_node
from tests.simulator.support import pod as plain_pod
from tools.cli.dump import MAX_SHOWN, difference, pending_differences, verdict
from tools.cli.service_client import UNANSWERED
from tools.supervisor.servers import NatsServer

NOW = 1000.0


def test_a_closed_node_is_described_with_its_reason() -> None:
    held = Held("a", "b")
    held.nodes.closed.close_for("uid-p", "a", "pod shop/p: spec.containers: what is that?")
    nodes = CachePages().nodes(ListCache(), held.cluster, NOW).nodes
    assert [each.closed for each in nodes] == ["pod shop/p: spec.containers: what is that?", ""]
    assert any(line.endswith("closed: pod shop/p: spec.containers: what is that?") for line in lines(held.cluster, NOW))


# Held against the API server


def a_view(nodes: str, waiting: str = "", **pods: str) -> ClusterView:
    placed = {uid: AssignedPod(f"shop/{uid}", where) for uid, where in pods.items()}
    return ClusterView(frozenset(nodes.split()), placed, frozenset(waiting.split()))


def test_equal_states_have_no_differences() -> None:
    assert differences(a_view("a b", p="a"), a_view("a b", p="a")) == []


def test_missing_redundant_and_misplaced_pods() -> None:
    listed = a_view("a b", p="a", q="b", r="a")
    cached = a_view("b c", q="b", r="b", s="c")
    assert differences(listed, cached) == [
        Difference("node", "missing", "a"),
        Difference("node", "redundant", "c"),
        Difference("pod", "elsewhere", "shop/r", "r", listed_on="a", cached_on="b"),
        Difference("pod", "missing", "shop/p", "p", listed_on="a"),
        Difference("pod", "redundant", "shop/s", "s", cached_on="c"),
    ]


def test_a_pod_being_bound_is_no_difference() -> None:
    held = Held("a")
    held.assume("p", "a")
    cached = view(held.cluster)
    assert differences(a_view("a", waiting="uid-p"), cached) == []
    assert [each.what for each in differences(a_view("a"), cached)] == ["redundant"], "it is gone"
    held.put("p", "a")
    assert [each.what for each in differences(a_view("a", waiting="uid-p"), view(held.cluster))] == ["redundant"]


def test_only_lasting_differences_count() -> None:
    first = differences(a_view("a", p="a", q="a"), a_view("a b"))
    second = differences(a_view("a", p="a", r="a"), a_view("a"))
    assert [each.name for each in lasting(first, second)] == ["shop/p"]
    moved = differences(a_view("a", p="a"), a_view("a", p="b"))
    assert lasting(moved, differences(a_view("a", p="c"), a_view("a", p="b"))) == [], "not in the same way"


def test_the_answer_is_bounded() -> None:
    found = [Difference("pod", "missing", f"{'n' * 253}/{i:0>253}", "u" * 36, "a" * 253) for i in range(5000)]
    answer = compared(a_view("a", p="a", waiting="q r"), found)
    assert (answer.nodes, answer.pods, answer.waiting) == (1, 1, 2)
    assert (len(answer.differences), answer.more) == (MAX_DIFFERENCES, 4000)
    assert len(encode(answer)) < MAX_BYTES / 4
    assert next(comparison_lines(answer)).endswith(": 5000 differences")


def getting(desk: Desk) -> Callable[[str], "asyncio.Future[bytes | None]"]:
    async def get(path: str) -> bytes | None:
        answer = desk.ask("GET", path)
        assert isinstance(answer, Response)
        assert answer.status == 200, answer.body
        return answer.body

    return lambda path: asyncio.ensure_future(get(path))


@pytest.mark.asyncio
async def test_unfinished_pods_and_nodes_are_listed_page_by_page() -> None:
    desk = Desk()
    desk.post("/api/v1/nodes", plain_node("n"))
    for i in range(PAGE + 2):
        desk.post(PODS, plain_pod(f"p{i}", nodeName="n"))
    desk.post(PODS, plain_pod("waits"))
    desk.patch("/api/v1/namespaces/default/pods/p0/status", {"status": {"phase": "Succeeded"}})
    listed = await list_cluster(getting(desk))
    assert listed.nodes == {"n"}
    assert len(listed.pods) == PAGE + 1
    assert len(listed.pending) == 1
    assert {each.key for each in listed.pods.values()} >= {"default/p1", f"default/p{PAGE + 1}"}


@pytest.mark.asyncio
@pytest.mark.parametrize("body", [None, b"[]", b"{"])
async def test_an_invalid_listing_is_reported(body: bytes | None) -> None:
    async def get(path: str) -> bytes | None:
        return body

    with pytest.raises(ClusterError, match="GET /api/v1/nodes: "):
        await list_cluster(get)


# What is held


def test_a_node_is_described_with_its_requests_and_pods() -> None:
    held = Held("a")
    held.put("p", "a")
    held.assume("q", "a")
    held.nominate("r", "a")
    held.nominate("q", "a")
    (found,) = CachePages().nodes(ListCache(), held.cluster, NOW).nodes
    assert (found.name, found.known, found.pod_count) == ("a", True, 2)
    assert found.requested == {"cpu": 1000, "memory": 2 << 30}
    assert found.allocatable == {"cpu": 4000, "memory": 8 << 30, "pods": 110}
    assert [(each.key, each.assumed) for each in found.pods] == [("shop/p", False), ("shop/q", True)]
    assert [each.key for each in found.nominated] == ["shop/r"], "who has a place needs no room beside it"


def test_a_node_known_only_from_its_pods_is_described() -> None:
    held = Held("b")
    held.put("p", "a")
    found = CachePages().nodes(ListCache(), held.cluster, NOW)
    assert [(each.name, each.known, each.pod_count) for each in found.nodes] == [("a", False, 1), ("b", True, 0)]
    assert found.nodes[0].allocatable == {}
    assert found.counts == {"nodes": 1, "pods": 1, "assumed_pods": 0, "nominated_pods": 0, "held_devices": 0}


def test_pages_of_nodes_are_shorter_when_they_have_many_pods() -> None:
    held = Held(*(f"n{i:04}" for i in range(MAX_NODES + 50)))
    for i in range(MAX_PODS_OF_NODES - 10):
        held.put(f"p{i:05}", "n0000")
    for i in range(20):
        held.put(f"q{i}", "n0001")
    dumps, cache = CachePages(), held.cluster
    pages = [dumps.nodes(ListCache(limit=10**9), cache, NOW)]
    while pages[-1].next:
        pages.append(dumps.nodes(ListCache(pages[-1].listing, pages[-1].next), cache, NOW))
    assert [len(page.nodes) for page in pages] == [1, MAX_NODES, 49]
    assert [each.name for page in pages for each in page.nodes] == sorted(each.name for each in held.nodes)
    assert max(len(encode(page)) for page in pages) < MAX_BYTES / 4
    assert dumps.nodes(ListCache("of another snapshot"), cache, NOW).listing == ""


def test_ledger_entries_have_ages_and_deadlines() -> None:
    held = Held("a")
    held.assume("late", "a", at=960.0, deadline=990.0)
    held.assume("new", "a", at=999.0, deadline=1029.0)
    held.assume("old", "a", at=0.0, deadline=1010.0)
    found = CachePages().ledger(ListLedger(), held.cluster, NOW)
    assert [(each.key, each.age, each.due_in) for each in found.pods] == [
        ("shop/late", 40.0, -5.0),
        ("shop/old", None, 15.0),
        ("shop/new", 1.0, 34.0),
    ]


def test_the_log_lists_a_limited_number_of_nodes() -> None:
    held = Held("a")
    held.assume("p", "a")
    held.nominate("r", "a")
    assert list(lines(held.cluster, NOW)) == [
        "the cache of epoch 1 at 5 holds "
        "{'nodes': 1, 'pods': 1, 'assumed_pods': 1, 'nominated_pods': 1, 'held_devices': 0}",
        "node a: 1 pods, cpu 500/4000, memory 1073741824/8589934592, nominated to it shop/r",
        "assumed for 10.0 s: pod shop/p (uid-p) on a, looked up in 25.0 s",
    ]
    many = Held(*(f"n{i}" for i in range(MAX_LINES + 3)))
    found = list(lines(many.cluster, NOW))
    assert len(found) == MAX_LINES + 2
    assert found[-1] == "and 3 more nodes: flotilla dump lists all"


def test_the_log_lists_differences() -> None:
    assert list(comparison_lines(CacheCompared(failure="403 Forbidden"))) == [
        "the cache cannot be compared with the API server: 403 Forbidden"
    ]
    found = [Difference("pod", "elsewhere", "shop/r", "r", "a", "b"), Difference("node", "missing", "c")]
    assert list(comparison_lines(CacheCompared(2, 3, 0, found))) == [
        "compared with 2 nodes and 3 pods of the API server: 2 differences",
        "elsewhere: pod shop/r (r), listed on a, cached on b",
        "missing: node c",
    ]


# The signal


@pytest.mark.asyncio
async def test_the_signal_dumps_to_the_log() -> None:
    heard: list[int] = []
    with on_dump_signal(lambda: heard.append(1)):
        signal.raise_signal(signal.SIGUSR2)
        await until(lambda: bool(heard))
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


@pytest.mark.asyncio
async def test_with_a_profiler_the_signal_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROFILE, "somewhere")
    with on_dump_signal(lambda: None):
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


@pytest.mark.asyncio
async def test_a_dump_to_the_log_ends_with_the_comparison(caplog: pytest.LogCaptureFixture) -> None:
    held, desk = Held("n"), Desk()
    desk.post("/api/v1/nodes", plain_node("other"))
    introspection = Introspection(held.cluster, getting(desk), time.time, LOG, a_telemetry().fault, pause=0.0)
    with caplog.at_level(logging.INFO, LOG.name):
        introspection.dump()
        await until(lambda: "dump: redundant: node n" in caplog.messages)
    assert "dump: missing: node other" in caplog.messages
    introspection.close()


@pytest.mark.asyncio
async def test_concurrent_requests_share_one_comparison() -> None:
    held, desk, asked = Held("n"), Desk(), 0
    desk.post("/api/v1/nodes", plain_node("n"))
    answers: list[object] = []

    def counted(path: str) -> "asyncio.Future[bytes | None]":
        nonlocal asked
        asked += 1
        return getting(desk)(path)

    introspection = Introspection(held.cluster, counted, time.time, LOG, a_telemetry().fault, pause=0.0)
    for _ in range(3):
        introspection.answer(CompareCache(), Envelope({}, "inbox", lambda _, message, __: answers.append(message)))
    await until(lambda: len(answers) == 3)
    assert asked == 2
    assert answers == [CacheCompared(1, 0)] * 3
    introspection.close()


# The command


@asynccontextmanager
async def services(server: NatsServer, held: Held, desk: Desk, *infos: QueuedPodInfo) -> AsyncIterator[None]:
    """Answer as the queue and the snapshot do. The queue has a pod `web`, which is listed, and these."""
    uid = desk.post(PODS, plain_pod("web"))["metadata"]["uid"]
    waiting = Waiting(an_info(pod("web").uid(uid), PodState.UNSCHEDULABLE), *infos)
    introspection = Introspection(held.cluster, getting(desk), time.time, LOG, a_telemetry().fault, pause=0.0)
    async with a_bus(server) as bus:
        await bus.subscribe(
            QUEUE_LIST, ListQueue, lambda asked, envelope: answer(waiting.introspection, asked, envelope)
        )
        await bus.subscribe(SNAPSHOT_LIST, (ListCache, ListLedger, CompareCache), introspection.answer)
        yield
    introspection.close()


def answer(inspection: QueueIntrospection, asked: ListQueue, envelope: Envelope) -> None:
    envelope.respond(inspection.answer(asked, time.time()))


@pytest.mark.asyncio
async def test_dump_writes_a_line_for_each_object(operator: Operator) -> None:
    held, desk = Held("n"), Desk()
    desk.post("/api/v1/nodes", plain_node("n"))
    uid = desk.post(PODS, plain_pod("p", nodeName="n"))["metadata"]["uid"]
    held.put("p", "n", uid=uid)
    decided = desk.post(PODS, plain_pod("q"))["metadata"]["uid"]
    held.assume("q", "n", uid=decided)
    binding = an_info(pod("q").uid(decided), PodState.BINDING)
    async with nats_server() as server, services(server, held, desk, binding):
        operator.reaches(server)
        said = await operator.types("dump")
    written = [json.loads(line) for line in said.lines]
    assert (said.code, said.err) == (0, "the cache matches the 1 nodes and 1 pods of the API server\n")
    assert [each["kind"] for each in written] == ["queue", "queue", "node", "assumed", "summary"]
    assert (written[0]["name"], written[0]["state"]) == ("web", "unschedulable")
    del written[0]
    assert written[1]["pods"][0] == {"uid": uid, "key": "shop/p", "assumed": False}
    assert (written[2]["key"], written[2]["node"]) == ("shop/q", "n")
    assert written[3]["cache"]["nodes"] == written[3]["assumed"] == 1
    assert written[3]["comparison"]["pods"] == 1


@pytest.mark.asyncio
async def test_closed_nodes_are_listed_with_their_reasons(operator: Operator) -> None:
    held, desk = Held("m", "n", "o"), Desk()
    for name in ("m", "n", "o"):
        desk.post("/api/v1/nodes", plain_node(name))
    held.nodes.closed.close_for("uid-p", "o", "pod shop/p: spec.containers: what is that?")
    held.nodes.closed.close("m", "spec.taints: what is that?")
    async with nats_server() as server, services(server, held, desk):
        operator.reaches(server)
        said = await operator.types("dump")
    assert (said.code, said.err.splitlines()) == (
        0,
        [
            "node m is closed and gets no more pods: spec.taints: what is that?",
            "node o is closed and gets no more pods: pod shop/p: spec.containers: what is that?",
            "the cache matches the 3 nodes and 0 pods of the API server",
        ],
    )


@pytest.mark.asyncio
async def test_differences_give_exit_code_1(operator: Operator, tmp_path: Path) -> None:
    held, desk = Held("n", "gone"), Desk()
    desk.post("/api/v1/nodes", plain_node("n"))
    folder = tmp_path / "of" / "today"
    async with nats_server() as server, services(server, held, desk):
        operator.reaches(server)
        said = await operator.types("dump", "--output", str(folder))
        assert (said.code, said.out) == (1, "")
        assert said.err.splitlines() == [
            f"{folder}: 1 queue, 2 node, 0 assumed",
            "the live state is not part of the dump: no reply from the workers: no listener"
            f" (NATS at {where(server.url)}, prefix 'test'); {UNANSWERED}",
            "the cache differs from the 1 nodes and 0 pods of the API server in 1 objects",
            "  node gone: cached, not listed",
        ]
        (tmp_path / "file").touch()
        bad = await operator.types("dump", "--output", str(tmp_path / "file"))
        assert (bad.code, bad.err.count("\n")) == (2, 1)
    assert sorted(path.name for path in folder.iterdir()) == [
        "assumed.jsonl", "node.jsonl", "queue.jsonl", "summary.json",
    ]  # fmt: skip
    summary = json.loads((folder / "summary.json").read_text())
    assert [(each["what"], each["name"]) for each in summary["comparison"]["differences"]] == [("redundant", "gone")]
    assert summary["comparison"]["pending"] == []
    assert [json.loads(line)["name"] for line in (folder / "node.jsonl").read_text().splitlines()] == ["gone", "n"]


@pytest.mark.asyncio
async def test_a_missing_service_is_named(operator: Operator) -> None:
    async with nats_server() as server:
        operator.reaches(server)
        said = await operator.types("dump")
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert said.err.startswith("flotilla: no reply from the queue: no listener")


def test_a_dump_contains_nothing_of_a_pods_spec() -> None:
    found = msgspec.json.encode(CachePages().nodes(ListCache(), Held("a").cluster, NOW))
    assert b"spec" not in found


@pytest.mark.asyncio
async def test_pending_pods_that_differ_are_named(operator: Operator) -> None:
    held, desk = Held("n"), Desk()
    desk.post("/api/v1/nodes", plain_node("n"))
    desk.post(PODS, plain_pod("lost"))
    desk.post(PODS, plain_pod("theirs", schedulerName="another"))
    kept = an_info(pod("kept").uid("uid-kept"), PodState.GATED)
    bound = an_info(pod("bound").uid("uid-bound"), PodState.BINDING)
    async with nats_server() as server, services(server, held, desk, kept, bound):
        operator.reaches(server)
        said = await operator.types("dump")
    assert (said.code, said.err.splitlines()) == (
        1,
        [
            "the cache matches the 1 nodes and 0 pods of the API server",
            "the queue differs from the pending pods of the API server in 2 pods",
            "  pod default/lost: listed, not queued",
            "  pod default/kept: queued, not listed",
        ],
    )
    pending = json.loads(said.lines[-1])["comparison"]["pending"]
    assert [(each["kind"], each["what"], each["name"]) for each in pending] == [
        ("pending", "missing", "default/lost"),
        ("pending", "redundant", "default/kept"),
    ]


def test_what_differs_is_said_in_words() -> None:
    many = [Difference("pod", "missing", f"shop/p{i}", str(i), listed_on="n") for i in range(MAX_SHOWN + 2)]
    lines = list(verdict(CacheCompared(1, 20, differences=many, more=3), []))
    assert lines[0] == "the cache differs from the 1 nodes and 20 pods of the API server in 15 objects"
    assert lines[1] == "  pod shop/p0: listed on node n, not cached"
    assert lines[-1] == "  and 5 more: see the summary"
    assert difference(Difference("pod", "elsewhere", "shop/q", "q", "a", "b")) == (
        "  pod shop/q: listed on node a, cached on node b"
    )
    assert difference(Difference("pod", "redundant", "shop/q", "q", cached_on="b")) == (
        "  pod shop/q: cached on node b, not listed"
    )


def test_very_many_pending_pods_are_not_compared() -> None:
    waiting = [WaitingPod(str(i), f"shop/p{i}", "default-scheduler") for i in range(MAX_WAITING + 1)]
    compared_now = compared(ClusterView(frozenset(), {}, frozenset(), waiting), [])
    assert (len(compared_now.waiting_pods), compared_now.waiting_more) == (MAX_WAITING, 1)
    assert len(encode(compared_now)) < MAX_BYTES / 2
    assert pending_differences(compared_now, {}, {"default-scheduler"}) == []
    assert list(verdict(compared_now, []))[-1] == "the queue is not compared: more than 10,000 pods are pending"
