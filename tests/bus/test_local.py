"""Services of one process: messages between them need no socket, and are otherwise as those of others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shared.bus import Bus, Envelope, NoAnswer, Silence
from shared.bus.link import Link
from shared.bus.rights import LED, RIGHTS
from shared.messages.queue import Received, Take
from shared.messages.state import Heartbeat
from shared.messages.watch import Relist
from shared.telemetry import Telemetry
from tests.bus.support import LOG, PATIENCE, PREFIX, a_bus, a_telemetry, sample, until
from tests.servers import nats_server
from tools.supervisor.servers import NatsServer

pytestmark = pytest.mark.asyncio

SHARED, SHARED_REQUEST, LEADERS = "snapshot.deltas", "queue.evicted", "queue.take"


@asynccontextmanager
async def two_on_a_link(server: NatsServer, *telemetries: Telemetry) -> AsyncIterator[tuple[Bus, Bus]]:
    link = await Link.open(server.url, "process-1", LOG, patience=PATIENCE)
    try:
        one, two = telemetries or (a_telemetry(), a_telemetry())
        yield await Bus.on(link, PREFIX, one, role="queue"), await Bus.on(link, PREFIX, two, role="cycle")
    finally:
        await link.close()


async def test_only_subjects_of_one_leader_stay_in_a_process() -> None:
    assert {"queue.take", "snapshot.commits", "cycle.answers", "watcher.seen"} <= LED
    heard_by_standbys = {"watch", SHARED, "binder.beats", "worker.beats"}
    assert not {*heard_by_standbys, SHARED_REQUEST, "status.ask", "pipeline.owner"} & LED
    for subject in LED:
        assert [user for user, rights in RIGHTS.items() if subject in rights.hears] == [subject.partition(".")[0]]


async def test_a_message_for_all_reaches_those_here_and_elsewhere_once_and_in_order() -> None:
    here: list[int] = []
    own: list[int] = []
    there: list[int] = []
    async with nats_server() as server, two_on_a_link(server) as (one, two), a_bus(server) as other:
        await one.subscribe(SHARED, Heartbeat, lambda message, _: own.append(message.seq))
        await two.subscribe(SHARED, Heartbeat, lambda message, _: here.append(message.seq))
        await other.subscribe(SHARED, Heartbeat, lambda message, _: there.append(message.seq))
        for seq in range(0, 200, 2):
            one.post(SHARED, Heartbeat(1, seq))
            two.post(SHARED, Heartbeat(1, seq + 1))
        await until(lambda: len(there) == 200)
        other.post(SHARED, Heartbeat(1, 200))
        await until(lambda: all(200 in each for each in (own, here, there)))
    assert own == here == there == [*range(201)]


async def test_what_only_a_leader_hears_stays_here_for_as_long_as_it_does() -> None:
    here: list[int] = []
    there: list[int] = []
    async with nats_server() as server, two_on_a_link(server) as (one, two), a_bus(server) as other:
        await other.subscribe(LEADERS, Take, lambda message, _: there.append(message.number))
        leading = await one.subscribe(LEADERS, Take, lambda message, _: here.append(message.number))
        for number in range(3):
            two.post(LEADERS, Take(1, number, 1))
        await until(lambda: len(here) == 3)
        await leading.close()
        two.post(LEADERS, Take(1, 3, 1))
        await until(lambda: bool(there))
    assert (here, there) == ([0, 1, 2], [3])


async def test_a_request_is_answered_here() -> None:
    async with nats_server() as server, two_on_a_link(server) as (one, two):
        await one.subscribe(LEADERS, Take, lambda m, envelope: envelope.respond(Received(m.epoch, m.number)))
        received = two._connection.client.stats["in_msgs"]
        assert await two.request(LEADERS, Take(1, 2, 1), Received, timeout=5) == Received(1, 2)
        assert two._connection.client.stats["in_msgs"] == received


async def test_a_request_that_others_may_hear_waits_for_the_reply_from_here() -> None:
    """NATS knows of no subscriber and says so; the one here answers later."""
    held: list[tuple[Take, Envelope]] = []
    async with nats_server() as server, two_on_a_link(server) as (one, two):
        await one.subscribe(SHARED_REQUEST, Take, lambda message, envelope: held.append((message, envelope)))
        asking = asyncio.create_task(two.request(SHARED_REQUEST, Take(1, 2, 1), Received, timeout=5))
        before = two._connection.client.stats["in_msgs"]
        await until(lambda: bool(held) and two._connection.client.stats["in_msgs"] > before)
        held[0][1].respond(Received(1, 2))
        assert await asking == Received(1, 2)


async def test_without_a_listener_here_or_elsewhere_a_request_fails_at_once() -> None:
    async with nats_server() as server, two_on_a_link(server) as (one, two):
        await one.subscribe(SHARED, Heartbeat, lambda message, _: None)
        with pytest.raises(NoAnswer) as none:
            await two.request(LEADERS, Take(1, 2, 1), Received, timeout=30)
    assert none.value.silence is Silence.NO_LISTENER


async def test_of_a_group_the_member_here_gets_it() -> None:
    here: list[str] = []
    there: list[str] = []
    async with nats_server() as server, two_on_a_link(server) as (one, two), a_bus(server) as other:
        await one.subscribe("binder.notices", Relist, lambda message, _: here.append(message.asker), group="binder")
        await other.subscribe("binder.notices", Relist, lambda message, _: there.append(message.asker), group="binder")
        for number in range(20):
            two.post("binder.notices", Relist(str(number)))
        await until(lambda: len(here) == 20)
    assert not there


async def test_a_question_for_other_processes_does_not_stay_here() -> None:
    async with nats_server() as server, two_on_a_link(server) as (one, two), a_bus(server) as other:

        def answer(number: int) -> object:
            return lambda m, envelope: envelope.respond(Received(m.epoch, number))

        await one.subscribe("pipeline.owner", Take, answer(1), group="owner", local=False)  # type: ignore[arg-type]
        with pytest.raises(NoAnswer) as none:
            await two.request("pipeline.owner", Take(1, 2, 1), Received, timeout=30)
        assert none.value.silence is Silence.NO_LISTENER
        await other.subscribe("pipeline.owner", Take, answer(2), group="owner")  # type: ignore[arg-type]
        answers = [await two.request("pipeline.owner", Take(1, 2, 1), Received, timeout=5) for _ in range(20)]
    assert answers == [Received(1, 2)] * 20


async def test_it_is_counted_and_bounded_like_others() -> None:
    sender, receiver = a_telemetry(), a_telemetry()
    go = asyncio.Event()
    got: list[int] = []

    async def handle(message: Take, _: Envelope) -> None:
        await go.wait()
        got.append(message.number)

    async with nats_server() as server, two_on_a_link(server, receiver, sender) as (one, two):
        await one.subscribe(LEADERS, Take, handle, most_pending=3)
        for number in range(10):
            two.post(LEADERS, Take(1, number, 1))
            await asyncio.sleep(0)
        go.set()
        await until(lambda: len(got) + sample(receiver, "flotilla_bus_overflown_total", subject=LEADERS) == 10)
    assert got == [*range(len(got))] and 3 <= len(got) <= 4
    name = "flotilla_bus_messages_total"
    assert sample(sender, name, direction="out", subject=LEADERS) == 10
    assert sample(receiver, name, direction="in", subject=LEADERS) == len(got)


async def test_another_pipeline_is_refused_here_too() -> None:
    telemetry, got = a_telemetry(), list[int]()
    async with nats_server() as server, two_on_a_link(server, telemetry, a_telemetry()) as (one, two):
        one.pipeline.id, two.pipeline.id = "a/x", "b/x"
        await one.subscribe(SHARED, Heartbeat, lambda message, _: got.append(message.seq))
        two.post(SHARED, Heartbeat(1, 1))
        refused = "flotilla_bus_refused_total"
        await until(lambda: sample(telemetry, refused, subject=SHARED, reason="pipeline") == 1)
    assert not got


async def test_a_process_without_nats_is_cut_off_as_a_whole() -> None:
    telemetry, got = a_telemetry(), list[int]()
    async with nats_server() as server, two_on_a_link(server, a_telemetry(), telemetry) as (one, two):
        await one.subscribe(SHARED, Heartbeat, lambda message, _: got.append(message.seq))
        await server.kill()
        await until(lambda: not two.connected)
        two.post(SHARED, Heartbeat(1, 1))
        assert sample(telemetry, "flotilla_bus_dropped_total", subject=SHARED) == 1
        await server.start()
        await until(lambda: two.connected)
        two.post(SHARED, Heartbeat(1, 2))
        await until(lambda: bool(got))
    assert got == [2]


async def test_a_service_that_ends_leaves_the_others_their_connection() -> None:
    got: list[int] = []
    async with nats_server() as server, two_on_a_link(server) as (one, two), a_bus(server) as other:
        await one.subscribe(SHARED, Heartbeat, lambda message, _: got.append(-message.seq))
        await two.subscribe(SHARED, Heartbeat, lambda message, _: got.append(message.seq))
        asking = asyncio.create_task(one.request(SHARED_REQUEST, Take(1, 1, 1), Received, timeout=30))
        await one.close()
        with pytest.raises(NoAnswer):
            await asking
        two.post(SHARED, Heartbeat(1, 1))
        await until(lambda: got == [1])
        other.post(SHARED, Heartbeat(1, 2))
        await until(lambda: got == [1, 2])


async def test_a_leader_whose_term_has_ended_leaves_messages_to_its_successor() -> None:
    """Until its bus is closed it hears others, but takes nothing of its own process away."""
    ended, successor = list[int](), list[int]()
    async with nats_server() as server, two_on_a_link(server) as (one, two), a_bus(server) as other:
        await one.subscribe(LEADERS, Take, lambda message, _: ended.append(message.number))
        await other.subscribe(LEADERS, Take, lambda message, _: successor.append(message.number))
        two.post(LEADERS, Take(1, 1, 1))
        await until(lambda: ended == [1])
        one.withdraw()
        two.post(LEADERS, Take(1, 2, 1))
        await until(lambda: successor == [2])
    assert ended == [1]
