"""The server is not there yet, refuses us, dies, hangs and comes back."""

import asyncio
import logging
import socket
import time
from collections.abc import Iterator

import pytest

from shared.bus import Bus, NoAnswer, Silence, connection
from shared.bus.outbox import MAX_WAITING
from shared.errors import ClusterError, ProtocolError, UserError
from shared.messages.queue import Received, Take
from shared.messages.state import Heartbeat
from shared.messages.watch import Relist
from tests.bus.proxy import a_proxy
from tests.bus.support import LOG, PREFIX, a_bus, a_telemetry, sample, until
from tests.servers import nats_server
from tools.supervisor.servers import NatsServer, temporary_folder

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, LOG.name):
        yield


def a_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def pings_are_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PING_INTERVAL", 0.2)


async def connect(url: str, patience: float = 10.0) -> Bus:
    return await Bus.connect(url, PREFIX, "me", a_telemetry(), patience=patience)


# At the start


async def test_an_unreachable_server_is_one_line_after_the_timeout(caplog: pytest.LogCaptureFixture) -> None:
    port = a_free_port()
    began = time.monotonic()
    with pytest.raises(
        ClusterError, match=rf"^NATS at 127\.0\.0\.1:{port} cannot be reached: Connection refused$"
    ) as error:
        await connect(f"nats://user:secret@127.0.0.1:{port}", patience=0.5)
    assert 0.4 < time.monotonic() - began < 3
    said = [record.getMessage() for record in caplog.records if record.name == LOG.name]
    assert len(said) == 1
    assert f"NATS at 127.0.0.1:{port} cannot be reached yet" in said[0]
    assert "secret" not in str(error.value) + caplog.text


async def test_a_server_that_does_not_greet_as_nats_does_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        why = "cannot be reached: no NATS greets there in time"
        with pytest.raises(ClusterError, match=f"^NATS at {host}:{port} {why}"):
            await connect(f"nats://{host}:{port}", patience=1.0)


async def test_connecting_waits_for_the_server() -> None:
    async with temporary_folder() as folder:
        server = NatsServer(folder)
        await server.start()
        await server.stop()
        connecting = asyncio.create_task(connect(server.url))
        await asyncio.wait((connecting,), timeout=0.3)
        assert not connecting.done()
        await server.start()
        bus = await connecting
        assert bus.connected
        await bus.close()
        await server.stop()


async def test_wrong_credentials_are_reported_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async with nats_server() as server:
        where = server.url.rpartition("@")[2]
        for user in ("flotilla:wrong@", ""):
            with pytest.raises(UserError, match=f"^NATS at {where} refuses the credentials$"):
                await connect(f"nats://{user}{where}", patience=30)
    assert "wrong" not in caplog.text


@pytest.mark.parametrize(
    "url", ["", "nats://", "127.0.0.1:4222", "http://127.0.0.1:4222", "nats://user:secret@host:port", "nats://[::1"]
)
async def test_an_invalid_url_is_reported_at_once_without_its_password(url: str) -> None:
    with pytest.raises(UserError, match=r"^invalid NATS URL: expected .*$") as error:
        await connect(url)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("prefix", ["", "a b", "a.b", "a*", ">", "ä"])
async def test_an_invalid_prefix_is_reported_at_once(prefix: str) -> None:
    with pytest.raises(UserError, match=r"^the prefix "):
        await Bus.connect("nats://127.0.0.1:1", prefix, "me", a_telemetry())


# Later


async def test_a_server_that_dies_and_returns_is_used_again(caplog: pytest.LogCaptureFixture) -> None:
    telemetry, sent, got = a_telemetry(), list[int](), list[int]()
    async with nats_server() as server, a_bus(server, telemetry) as bus:
        await bus.subscribe("snapshot.deltas", Heartbeat, lambda message, _: got.append(message.seq))
        await bus.subscribe("queue.take", Take, lambda m, envelope: envelope.respond(Received(m.epoch, m.number)))
        for turn in range(2):
            await server.kill()
            await until(lambda: not bus.connected)
            for _ in range(10):
                await bus.publish("snapshot.deltas", Heartbeat(1, -1))
            asking = asyncio.create_task(bus.request("queue.take", Take(1, turn, 1), Received, timeout=10))
            await server.start()
            await until(lambda: bus.connected)
            assert await asking == Received(1, turn)
            await bus.publish("snapshot.deltas", Heartbeat(1, turn))
            sent.append(turn)
            await until(lambda: got == sent)
    assert sample(telemetry, "flotilla_bus_dropped_total", subject="snapshot.deltas") == 20
    assert sample(telemetry, "flotilla_bus_connection_losses_total") == 2
    said = [record.getMessage() for record in caplog.records if record.name == LOG.name]
    assert [" is lost" in line for line in said] == [True, False, True, False]
    assert [" is back" in line for line in said] == [False, True, False, True]


async def test_without_a_connection_publishing_does_not_wait_for_room() -> None:
    async with nats_server() as server, a_bus(server) as bus:
        await server.kill()
        await until(lambda: not bus.connected)
        publishing = asyncio.create_task(bus.publish("snapshot.deltas", Heartbeat(1, 2)))
        await asyncio.sleep(0)
        assert publishing.done()


async def test_a_lost_connection_fails_pending_requests_and_later_ones_wait() -> None:
    async with nats_server() as server, a_bus(server) as bus:
        asked = asyncio.Event()
        await bus.subscribe("queue.take", Take, lambda _, __: asked.set())
        asking = asyncio.create_task(bus.request("queue.take", Take(1, 1, 1), Received, timeout=30))
        await asked.wait()
        await server.kill()
        with pytest.raises(NoAnswer) as lost:
            await asking
        assert lost.value.silence is Silence.NOT_CONNECTED
        began = time.monotonic()
        with pytest.raises(NoAnswer) as away:
            await bus.request("queue.take", Take(1, 2, 1), Received, timeout=0.2)
        assert away.value.silence is Silence.NOT_CONNECTED
        assert time.monotonic() - began > 0.15


@pytest.mark.usefixtures("pings_are_frequent")
async def test_a_hanging_connection_is_given_up() -> None:
    telemetry, got, large = a_telemetry(), list[int](), Relist("x" * 100_000)
    async with nats_server() as server, a_proxy(server) as proxy:
        bus = await Bus.connect(proxy.url, PREFIX, "me", telemetry)
        await bus.subscribe("snapshot.deltas", Heartbeat, lambda message, _: got.append(message.seq))
        proxy.stall()
        while not sample(telemetry, "flotilla_bus_connection_losses_total"):
            sending = time.monotonic()
            await bus.publish("watch", large)
            assert time.monotonic() - sending < 3
            await asyncio.sleep(0.001)
        await until(lambda: bus.connected)
        await bus.publish("snapshot.deltas", Heartbeat(1, 5))
        await until(lambda: got == [5])
        await bus.close()
    assert sample(telemetry, "flotilla_bus_dropped_total", subject="watch") > 0


@pytest.mark.usefixtures("pings_are_frequent")
async def test_the_outbox_of_a_hanging_connection_is_bounded_and_dropped() -> None:
    telemetry, got, large = a_telemetry(), list[str](), Relist("x" * 1_000_000)
    async with nats_server() as server, a_proxy(server) as proxy:
        bus = await Bus.connect(proxy.url, PREFIX, "me", telemetry)
        async with a_bus(server) as receiver:
            await receiver.subscribe("watcher.relist", Relist, lambda message, _: got.append(message.asker))
            proxy.stall()
            for _ in range(20):
                bus.post("watcher.relist", large)
            await until(lambda: bus._connection.client.pending_data_size == 0)
            for _ in range(100):
                bus.post("watcher.relist", large)
            most = bus._connection.client.pending_data_size
            await until(lambda: sample(telemetry, "flotilla_bus_connection_losses_total") == 1)
            await until(lambda: bus.connected)
            bus.post("watcher.relist", Relist("new"))
            await until(lambda: "new" in got)
        await bus.close()
    assert most < 2 * MAX_WAITING
    assert sample(telemetry, "flotilla_bus_dropped_total", subject="watcher.relist") > 90
    assert len(got) < 20


async def test_an_invalid_subject_is_not_sent_to() -> None:
    async with nats_server() as server, a_bus(server) as bus:
        for subject in ("", "a b", "a\r\nPUB x 0", "a.*", ">", ".a", "a."):
            with pytest.raises(ProtocolError, match="is not a valid subject"):
                bus.post(subject, Heartbeat(1, 1))


async def test_a_protocol_error_leads_to_a_reconnect() -> None:
    got: list[int] = []
    async with nats_server() as server, a_bus(server) as bus:
        await bus.subscribe("snapshot.deltas", Heartbeat, lambda message, _: got.append(message.seq))
        client = bus._connection.client
        await client.publish("x", b"x" * client.max_payload, headers={"makes": "it too large"})
        await until(lambda: not bus.connected)
        await until(lambda: bus.connected)
        await bus.publish("snapshot.deltas", Heartbeat(1, 5))
        await until(lambda: got == [5])


async def test_a_cancelled_round_trip_does_no_harm() -> None:
    async with nats_server() as server, a_bus(server) as bus:
        client = bus._connection.client
        for turns in range(8):
            going = asyncio.create_task(client.round_trip())
            for _ in range(turns):
                await asyncio.sleep(0)
            going.cancel()
            await asyncio.gather(going, return_exceptions=True)
        await client.flush(5)  # so all answers have come
        reading = client._reading_task
        assert reading is not None and not reading.done()
        assert bus.connected


async def test_it_subscribes_while_the_server_is_away() -> None:
    got: list[int] = []
    async with nats_server() as server, a_bus(server) as bus:
        await server.kill()
        await until(lambda: not bus.connected)
        await bus.subscribe("snapshot.deltas", Heartbeat, lambda message, _: got.append(message.seq))
        await server.start()
        await until(lambda: bus.connected)
        await bus.publish("snapshot.deltas", Heartbeat(1, 5))
        await until(lambda: got == [5])


async def test_closing_sends_posted_messages() -> None:
    got: list[int] = []
    async with nats_server() as server, a_bus(server) as receiver:
        await receiver.subscribe("watcher.relist", Relist, lambda message, _: got.append(len(message.asker)))
        async with a_bus(server) as sender:
            for _ in range(500):
                sender.post("watcher.relist", Relist("x" * 20_000))
        await until(lambda: got == [20_000] * 500)


async def test_closing_while_the_server_is_away_does_not_wait() -> None:
    async with nats_server() as server, a_bus(server) as bus:
        await server.kill()
        began = time.monotonic()
        await bus.close()
        assert time.monotonic() - began < 1
        bus.post("watch", Heartbeat(1, 1))
        with pytest.raises(NoAnswer):
            await bus.request("queue.take", Take(1, 1, 1), Received, timeout=0.05)
