"""What cannot be taken is refused, counted and told, and what comes after it is taken."""

import asyncio
import logging

import nats
import pytest

from shared.bus import Envelope
from shared.bus.wire import MessageReader
from shared.errors import ProtocolError, Unexpected
from shared.messages.codec import encode
from shared.messages.limits import MAX_BODY, MAX_BYTES
from shared.messages.queue import Received, Take
from shared.messages.state import Delta, Heartbeat
from shared.messages.watch import Relist
from tests.bus.support import LOG, PREFIX, a_bus, a_telemetry, sample, until
from tests.servers import nats_server
from tools.supervisor.servers import NatsServer

pytestmark = pytest.mark.asyncio

GOOD = encode(Heartbeat(1, 1))
VERSION = {"Flotilla-Version": "1"}


@pytest.fixture(autouse=True)
def news_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOG.name)


async def send_raw(server: NatsServer, subject: str, body: bytes, headers: dict[str, str] | None) -> None:
    client = await nats.connect(server.url)
    await client.publish(f"{PREFIX}.{subject}", body, headers=headers)
    await client.flush()
    await client.close()


@pytest.mark.parametrize(
    ("reason", "body", "headers"),
    [
        ("version", GOOD, None),
        ("version", GOOD, {"Flotilla-Epoch": "1"}),
        ("version", GOOD, {"Flotilla-Version": "2"}),
        ("type", encode(Received(1, 1)), VERSION),
        ("type", b"\x81\xa4type\xa5other", VERSION),
        ("undecodable", b"", VERSION),
        ("undecodable", b"\xc1", VERSION),
        ("undecodable", GOOD[:-1], VERSION),
        ("undecodable", b"\x81\xa4type\xa9heartbeat", VERSION),
    ],
)
async def test_a_bad_message_is_refused_and_the_next_one_handled(
    reason: str, body: bytes, headers: dict[str, str] | None, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry, got = a_telemetry(), list[Delta | Heartbeat]()

    def refused() -> float:
        return sample(telemetry, "flotilla_bus_refused_total", subject="snapshot.deltas", reason=reason)

    async with nats_server() as server, a_bus(server, telemetry) as bus:
        await bus.subscribe("snapshot.deltas", (Delta, Heartbeat), lambda message, _: got.append(message))
        for _ in range(3):
            await send_raw(server, "snapshot.deltas", body, headers)
        await bus.publish("snapshot.deltas", Heartbeat(1, 2))
        await until(lambda: bool(got) and refused() == 3)
    assert (got, refused()) == ([Heartbeat(1, 2)], 3)
    refusals = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert len(refusals) == 1
    assert refusals[0].startswith("snapshot.deltas: a message was refused: ")


async def test_unreadable_headers_count_as_none() -> None:
    async with nats_server() as server, a_bus(server) as bus:
        got: list[tuple[int | None, object]] = []
        await bus.subscribe("snapshot.deltas", Heartbeat, lambda _, e: got.append((e.epoch, e.trace)))
        for epoch in ("", "-1", "x", "9" * 5000):
            await send_raw(
                server, "snapshot.deltas", GOOD, VERSION | {"Flotilla-Epoch": epoch, "traceparent": "00-x-y-01"}
            )
        await until(lambda: len(got) == 4)
    assert got == [(None, None)] * 4


@pytest.mark.parametrize(
    "headers",
    [b"NATS/1.0", b"NATS/1.0 \xff\xfe\xfd\r\n\r\n", b"NATS/1.0\r\n\xff: \xff\r\nx\r\n\r\n", b"NATS/1.0 503\r\n\r\n"],
)
async def test_malformed_headers_are_refused_and_the_next_message_handled(headers: bytes) -> None:
    telemetry, got = a_telemetry(), list[Heartbeat]()
    async with nats_server() as server, a_bus(server, telemetry) as bus:
        await bus.subscribe("snapshot.deltas", Heartbeat, lambda message, _: got.append(message))
        line = f"HPUB {PREFIX}.snapshot.deltas {len(headers)} {len(headers) + len(GOOD)}\r\n".encode()
        async with a_bus(server) as other:
            other._connection.client.send(line + headers + GOOD + b"\r\n")
            await other.publish("snapshot.deltas", Heartbeat(1, 2))
            await until(lambda: bool(got))
    assert got == [Heartbeat(1, 2)]
    assert sample(telemetry, "flotilla_bus_refused_total", subject="snapshot.deltas", reason="version") == 1
    assert sample(telemetry, "flotilla_bus_connection_losses_total") == 0


async def test_an_unreadable_reply_fails_only_its_request() -> None:
    telemetry = a_telemetry()
    async with nats_server() as server, a_bus(server, telemetry) as bus:
        await bus.subscribe("queue.take", Take, lambda _, envelope: envelope.respond(Heartbeat(1, 1)))
        with pytest.raises(ProtocolError, match="'heartbeat' is not expected here"):
            await bus.request("queue.take", Take(1, 1, 1), Received, timeout=5)
        await bus.subscribe("queue.inspect", Take, lambda _, envelope: envelope.respond(Received(1, 1)))
        assert await bus.request("queue.inspect", Take(1, 1, 1), Received, timeout=5) == Received(1, 1)
    assert sample(telemetry, "flotilla_bus_refused_total", subject="queue.take", reason="type") == 1


async def test_an_oversized_message_is_dropped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    telemetry, got = a_telemetry(), list[int]()
    async with nats_server() as server, a_bus(server, telemetry) as bus:
        await bus.subscribe("watcher.relist", Relist, lambda message, _: got.append(len(message.asker)))
        await bus.publish("watcher.relist", Relist("x" * MAX_BYTES))
        large = MAX_BODY - 100
        await bus.publish("watcher.relist", Relist("x" * large))
        await until(lambda: got == [large])
        assert bus.connected
        with pytest.raises(ProtocolError, match=rf"watcher\.relist: a Relist of {MAX_BYTES + 24:,} bytes"):
            await bus.request("watcher.relist", Relist("x" * MAX_BYTES), Received, timeout=1)
    assert sample(telemetry, "flotilla_bus_refused_total", subject="watcher.relist", reason="too large") == 2
    assert f"a message was dropped: watcher.relist: a Relist of {MAX_BYTES + 24:,} bytes" in caplog.text


async def test_who_waits_for_a_reply_that_is_too_large_is_told_so() -> None:
    asker, answerer = a_telemetry(), a_telemetry()
    async with nats_server() as server, a_bus(server, asker) as bus, a_bus(server, answerer) as other:
        await other.subscribe("queue.take", Take, lambda _, envelope: envelope.respond(Relist("x" * MAX_BODY)))
        with pytest.raises(ProtocolError, match=r"queue\.take: the answer cannot be sent: reply: a Relist of"):
            await bus.request("queue.take", Take(1, 1, 1), Relist, timeout=5)
    for telemetry, subject in ((asker, "queue.take"), (answerer, "reply")):
        assert sample(telemetry, "flotilla_bus_refused_total", subject=subject, reason="too large") == 1


async def test_replies_go_only_to_inboxes() -> None:
    """A requester cannot make us publish where it may not publish itself."""
    got: list[Received] = []
    async with nats_server() as server, a_bus(server) as bus:
        asked = asyncio.Event()

        def answer(message: Take, envelope: Envelope) -> None:
            envelope.respond(Received(message.epoch, message.number))
            asked.set()

        await bus.subscribe("queue.take", Take, answer)
        await bus.subscribe("snapshot.bound", Received, lambda message, _: got.append(message))
        client = await nats.connect(server.url)
        await client.publish(
            f"{PREFIX}.queue.take", encode(Take(1, 2, 3)), reply=f"{PREFIX}.snapshot.bound", headers=VERSION
        )
        await client.close()
        await asked.wait()
        await bus.publish("snapshot.bound", Received(5, 5))
        await until(lambda: bool(got))
    assert got == [Received(5, 5)]


# Handlers


@pytest.mark.parametrize("when", ["at once", "later", "cancelled"])
async def test_a_failing_handler_ends_the_term(when: str, caplog: pytest.LogCaptureFixture) -> None:
    """No message is handed on after it, and none goes out: the state behind them may be half of a change."""
    telemetry, seen, heard = a_telemetry(), list[int](), list[int]()

    def fail(message: Heartbeat, _: object) -> None:
        seen.append(message.seq)
        raise ValueError(f"no {message.seq}")

    async def fail_later(message: Heartbeat, _: object) -> None:
        seen.append(message.seq)
        await asyncio.sleep(0)
        raise asyncio.CancelledError if when == "cancelled" else ValueError(f"no {message.seq}")

    async with nats_server() as server, a_bus(server) as others, a_bus(server, telemetry) as bus:
        await others.subscribe("cycle.committed", Heartbeat, lambda message, _: heard.append(message.seq))
        await bus.subscribe("snapshot.deltas", Heartbeat, fail if when == "at once" else fail_later)
        await bus.subscribe("cycle.answers", Heartbeat, lambda message, _: seen.append(message.seq))
        for seq in range(3):
            await others.publish("snapshot.deltas", Heartbeat(1, seq))
        with pytest.raises(Unexpected, match=r"snapshot\.deltas: the handler of Heartbeat failed"):
            await telemetry.fault.raised()
        await others.publish("cycle.answers", Heartbeat(1, 9))
        bus.post("cycle.committed", Heartbeat(1, 1))
        others.post("cycle.committed", Heartbeat(1, 2))
        await until(lambda: bool(heard))
    assert (seen, heard) == ([0], [2])
    assert sample(telemetry, "flotilla_core_failures_total") == 1
    first = next(record for record in caplog.records if "handler" in record.getMessage())
    assert first.exc_info and first.exc_info[2] is not None


async def test_a_message_that_cannot_even_be_refused_ends_the_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than that its subject falls silent."""

    def fail(*_: object) -> None:
        raise ValueError("no message")

    telemetry = a_telemetry()
    async with nats_server() as server, a_bus(server) as others, a_bus(server, telemetry) as bus:
        await bus.subscribe("snapshot.deltas", Heartbeat, lambda _, __: None)
        monkeypatch.setattr(MessageReader, "read", fail)
        await others.publish("snapshot.deltas", Heartbeat(1, 1))
        with pytest.raises(Unexpected, match=r"snapshot\.deltas: reading a message failed"):
            await telemetry.fault.raised()


async def test_the_queue_of_a_slow_handler_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    telemetry, go, seen = a_telemetry(), asyncio.Event(), list[int]()

    async def slow(message: Heartbeat, _: object) -> None:
        seen.append(message.seq)
        await go.wait()

    overflown = 0.0
    async with nats_server() as server, a_bus(server, telemetry) as bus:
        await bus.subscribe("snapshot.deltas", Heartbeat, slow, most_pending=10)
        await bus.publish("snapshot.deltas", Heartbeat(1, 0))
        await until(lambda: seen == [0])
        for seq in range(1, 101):
            await bus.publish("snapshot.deltas", Heartbeat(1, seq))
        await until(lambda: sample(telemetry, "flotilla_bus_overflown_total", subject="snapshot.deltas") == 90)
        go.set()
        await until(lambda: len(seen) == 11)
        overflown = sample(telemetry, "flotilla_bus_overflown_total", subject="snapshot.deltas")
    assert overflown == 90
    assert seen == list(range(11))
    assert sum("too many were waiting" in record.getMessage() for record in caplog.records) == 1


async def test_a_flood_of_messages_yields_to_other_tasks() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    def busy(message: Heartbeat, _: object) -> None:
        done.append(turns)
        end = loop.time() + 0.002
        while loop.time() < end:
            pass

    loop, done = asyncio.get_running_loop(), list[int]()
    async with nats_server() as server, a_bus(server) as bus:
        await bus.subscribe("snapshot.deltas", Heartbeat, busy)
        task = asyncio.create_task(others())
        for seq in range(100):
            bus.post("snapshot.deltas", Heartbeat(1, seq))
        await until(lambda: len(done) == 100)
        task.cancel()
    assert len(set(done)) > 10
