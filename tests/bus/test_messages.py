"""Publishing, subscribing, asking and answering."""

import asyncio

import pytest

from shared.bus import Envelope, NoAnswer, Silence
from shared.messages.queue import Received, Take
from shared.messages.state import Delta, Heartbeat
from shared.messages.watch import Relist
from shared.telemetry.tracing import TraceContext
from tests.bus.support import a_bus, a_telemetry, sample, until
from tests.servers import nats_server

pytestmark = pytest.mark.asyncio

TRACE = TraceContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, True)


async def test_messages_arrive_in_the_order_they_were_sent_in() -> None:
    arrived: list[Delta | Heartbeat] = []
    async with nats_server() as server, a_bus(server) as sender, a_bus(server) as receiver:
        await receiver.subscribe("snapshot.deltas", (Delta, Heartbeat), lambda message, _: arrived.append(message))
        sent: list[Delta | Heartbeat] = []
        for seq in range(500):
            message = Delta(1, seq, []) if seq % 2 else Heartbeat(1, seq)
            sent.append(message)
            if seq % 3:
                await sender.publish("snapshot.deltas", message)
            else:
                sender.post("snapshot.deltas", message)
        await until(lambda: len(arrived) == 500)
    assert arrived == sent


async def test_an_envelope_has_the_epoch_and_the_trace() -> None:
    envelopes: list[Envelope] = []
    async with nats_server() as server, a_bus(server) as bus:
        await bus.subscribe("snapshot.deltas", Heartbeat, lambda _, envelope: envelopes.append(envelope))
        await bus.subscribe("watcher.relist", Relist, lambda _, envelope: envelopes.append(envelope))
        await bus.publish("snapshot.deltas", Heartbeat(7, 1), trace=TRACE)
        await until(lambda: len(envelopes) == 1)
        await bus.publish("watcher.relist", Relist("me"))
        await until(lambda: len(envelopes) == 2)
    assert [envelope.epoch for envelope in envelopes] == [7, None]
    assert [envelope.trace for envelope in envelopes] == [TRACE, None]
    envelopes[0].respond(Heartbeat(1, 1))  # no reply was asked for: nothing happens


async def test_one_subscriber_of_a_group_gets_each_message() -> None:
    got: dict[str, list[str]] = {"a": [], "b": [], "alone": []}
    async with nats_server() as server, a_bus(server) as one, a_bus(server) as two, a_bus(server) as sender:
        await one.subscribe("watcher.relist", Relist, lambda m, _: got["a"].append(m.asker), group="watcher")
        await two.subscribe("watcher.relist", Relist, lambda m, _: got["b"].append(m.asker), group="watcher")
        await two.subscribe("watcher.relist", Relist, lambda m, _: got["alone"].append(m.asker))
        for number in range(100):
            await sender.publish("watcher.relist", Relist(str(number)))
        await until(lambda: len(got["alone"]) == 100 and len(got["a"]) + len(got["b"]) == 100)
    assert got["a"] and got["b"]
    assert sorted(got["a"] + got["b"], key=int) == got["alone"]


async def test_prefixes_separate_two_pipelines() -> None:
    got: list[Relist] = []
    async with nats_server() as server, a_bus(server, prefix="one") as one, a_bus(server, prefix="two") as two:
        await one.subscribe("watcher.relist", Relist, lambda m, _: got.append(m))
        await two.publish("watcher.relist", Relist("of two"))
        await one.publish("watcher.relist", Relist("of one"))
        await until(lambda: bool(got))
        with pytest.raises(NoAnswer):
            await two.request("watcher.relist", Relist("of two"), Received, timeout=0.5)
    assert got == [Relist("of one")]


async def test_a_closed_subscription_gets_nothing_more() -> None:
    got: list[Relist] = []
    async with nats_server() as server, a_bus(server) as bus:
        first = await bus.subscribe("watcher.relist", Relist, lambda m, _: got.append(m))
        await first.close()
        await first.close()
        last: list[Relist] = []
        await bus.subscribe("watcher.relist", Relist, lambda m, _: last.append(m))
        await bus.publish("watcher.relist", Relist("me"))
        await until(lambda: bool(last))
    assert got == []


# Asking


async def test_a_closed_bus_handles_nothing_more() -> None:
    handled: list[int] = []
    goes_on = asyncio.Event()

    async def on_beat(beat: Heartbeat, envelope: Envelope) -> None:
        handled.append(beat.seq)
        await goes_on.wait()

    async with nats_server() as nats, a_bus(nats) as sender:
        async with a_bus(nats) as bus:
            await bus.subscribe("snapshot.deltas", Heartbeat, on_beat)
            for seq in (1, 2):
                sender.post("snapshot.deltas", Heartbeat(1, seq))
            await until(lambda: handled == [1])
        goes_on.set()
        for _ in range(5):  # turns in which the second one would be handled
            await asyncio.sleep(0)
        assert handled == [1]


async def test_each_request_gets_its_own_reply_now_or_later() -> None:
    held: list[tuple[Take, Envelope]] = []

    def hold(message: Take, envelope: Envelope) -> None:
        held.append((message, envelope))

    async with nats_server() as server, a_bus(server) as asker, a_bus(server) as other:
        await other.subscribe("queue.take", Take, hold)
        asking = [
            asyncio.create_task(asker.request("queue.take", Take(3, n, 1), Received, timeout=5)) for n in range(50)
        ]
        await until(lambda: len(held) == 50)
        for message, envelope in reversed(held):
            envelope.respond(Received(message.epoch, message.number))
            envelope.respond(Received(0, 0))  # a doubled answer counts once
        answers = await asyncio.gather(*asking)
    assert answers == [Received(3, n) for n in range(50)]


async def test_an_asynchronous_handler_may_send_requests() -> None:
    telemetry = a_telemetry()
    async with nats_server() as server, a_bus(server) as asker, a_bus(server, telemetry) as between:

        async def pass_on(message: Take, envelope: Envelope) -> None:
            envelope.respond(await between.request("queue.outcomes", message, Received, timeout=5))

        await between.subscribe("queue.take", Take, pass_on)
        await between.subscribe("queue.outcomes", Take, lambda m, e: e.respond(Received(m.epoch, m.number)))
        assert await asker.request("queue.take", Take(1, 2, 3), Received, timeout=5) == Received(1, 2)
    assert sample(telemetry, "flotilla_bus_request_duration_seconds_count", subject="queue.outcomes") == 1


async def test_no_listener_and_a_timeout_are_distinguished() -> None:
    telemetry = a_telemetry()
    async with nats_server() as server, a_bus(server, telemetry) as bus:
        with pytest.raises(NoAnswer, match=r"queue\.take: no listener") as unanswered:
            await bus.request("queue.take", Take(1, 1, 1), Received, timeout=5)
        assert unanswered.value.silence is Silence.NO_LISTENER
        late: list[Envelope] = []
        await bus.subscribe("queue.take", Take, lambda _, envelope: late.append(envelope))
        with pytest.raises(NoAnswer, match=r"queue\.take: no answer in time") as none:
            await bus.request("queue.take", Take(1, 1, 1), Received, timeout=0.05)
        assert none.value.silence is Silence.TOO_LATE
        late[0].respond(Received(1, 1))  # too late: the request is over
        await bus.subscribe("queue.inspect", Take, lambda _, e: e.respond(Received(2, 2)))
        assert await bus.request("queue.inspect", Take(1, 1, 1), Received, timeout=5) == Received(2, 2)
    for silence in (Silence.NO_LISTENER, Silence.TOO_LATE):
        assert sample(telemetry, "flotilla_bus_unanswered_total", subject="queue.take", reason=silence) == 1


# Metrics


async def test_traffic_is_counted_by_subject_pattern() -> None:
    telemetry = a_telemetry()
    async with nats_server() as server, a_bus(server, telemetry) as bus:
        got: list[Heartbeat] = []
        for name in ("w-1", "w-2"):
            await bus.subscribe(f"worker.{name}", Heartbeat, lambda m, _: got.append(m))
            await bus.publish(f"worker.{name}", Heartbeat(1, 1))
        await bus.subscribe("worker.beats", Heartbeat, lambda m, _: got.append(m))
        await bus.publish("worker.beats", Heartbeat(1, 1))
        await until(lambda: len(got) == 3)
    for direction in ("in", "out"):
        for subject, messages in (("worker.*", 2), ("worker.beats", 1)):
            labels = {"direction": direction, "subject": subject}
            assert sample(telemetry, "flotilla_bus_messages_total", **labels) == messages
            assert sample(telemetry, "flotilla_bus_bytes_total", **labels) > 0
    assert "w-1" not in telemetry.metrics.exposition().decode()
