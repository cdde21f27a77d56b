"""Two pipelines under one prefix never take each other's messages."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import nats
import pytest

from shared.bus import Bus
from shared.bus.wire import PIPELINE_HEADER, VERSION, VERSION_HEADER, NoAnswer, pipeline_id
from shared.messages.codec import encode
from shared.messages.queue import Received, Take
from shared.messages.state import Heartbeat
from shared.telemetry import Telemetry
from tests.bus.support import PREFIX, a_bus, a_telemetry, sample, until
from tests.servers import nats_server
from tools.supervisor.servers import NatsServer

pytestmark = pytest.mark.asyncio

OURS, OTHERS = pipeline_id("cluster-1", "kube-system"), pipeline_id("cluster-2", "kube-system")
REFUSED = "flotilla_bus_refused_total"


@asynccontextmanager
async def a_member(server: NatsServer, pipeline: str, telemetry: Telemetry | None = None) -> AsyncIterator[Bus]:
    async with a_bus(server, telemetry) as bus:
        bus.pipeline.id = pipeline
        yield bus


async def test_messages_of_another_pipeline_are_refused_and_counted() -> None:
    telemetry, got = a_telemetry(), list[int]()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(nats_server())
        us = await stack.enter_async_context(a_member(server, OURS, telemetry))
        friend = await stack.enter_async_context(a_member(server, OURS))
        other = await stack.enter_async_context(a_member(server, OTHERS))
        await us.subscribe("snapshot.deltas", Heartbeat, lambda message, _: got.append(message.seq))
        other.post("snapshot.deltas", Heartbeat(1 << 20, 1))
        await until(us.pipeline.foreign.is_set)
        friend.post("snapshot.deltas", Heartbeat(1, 2))
        await until(lambda: got == [2])
    assert sample(telemetry, REFUSED, subject="snapshot.deltas", reason="pipeline") == 1


async def test_requests_are_answered_only_within_the_pipeline() -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(nats_server())
        cycle = await stack.enter_async_context(a_member(server, OURS))
        ours = await stack.enter_async_context(a_member(server, OURS))
        theirs = await stack.enter_async_context(a_member(server, OTHERS))
        await theirs.subscribe("queue.take", Take, lambda take, envelope: envelope.respond(Received(9, 9)))
        with pytest.raises(NoAnswer):
            await cycle.request("queue.take", Take(1, 1, 1), Received, timeout=0.2)
        await ours.subscribe("queue.take", Take, lambda take, envelope: envelope.respond(Received(1, 1)))
        for _ in range(20):
            assert await cycle.request("queue.take", Take(1, 1, 1), Received, timeout=5) == Received(1, 1)


@pytest.mark.parametrize(
    ("header", "taken"), [(None, True), (OURS, True), (OTHERS, False), ("", False), ("x" * 500, False)]
)
async def test_a_message_without_a_pipeline_header_is_accepted(header: str | None, taken: bool) -> None:
    got: list[int] = []
    async with nats_server() as server, a_member(server, OURS) as bus:
        await bus.subscribe("snapshot.deltas", Heartbeat, lambda message, _: got.append(message.seq))
        headers = {VERSION_HEADER: VERSION} | ({} if header is None else {PIPELINE_HEADER: header})
        client = await nats.connect(server.url)
        await client.publish(f"{PREFIX}.snapshot.deltas", encode(Heartbeat(1, 1)), headers=headers)
        await client.flush()
        await client.close()
        bus.post("snapshot.deltas", Heartbeat(1, 2))
        await until(lambda: len(got) == 1 + taken)
    assert sorted(got) == ([1, 2] if taken else [2])


async def test_the_command_line_joins_the_first_pipeline_that_answers() -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(nats_server())
        ours = await stack.enter_async_context(a_member(server, OURS))
        theirs = await stack.enter_async_context(a_member(server, OTHERS))
        asker = await stack.enter_async_context(a_bus(server))
        await ours.subscribe("queue.take", Take, lambda take, envelope: envelope.respond(Received(1, 1)))
        await asker.request("queue.take", Take(1, 1, 1), Received, timeout=5)
        assert asker.pipeline.id == OURS
        await theirs.subscribe("queue.outcomes", Take, lambda take, envelope: envelope.respond(Received(2, 2)))
        with pytest.raises(NoAnswer):
            await asker.request("queue.outcomes", Take(1, 1, 1), Received, timeout=0.2)


@pytest.mark.parametrize(("theirs", "count"), [("defaults", 0), ("VolumeLimitScaling=true", 1), ("", 0)])
async def test_messages_of_services_with_other_feature_gates_are_taken_and_counted(theirs: str, count: int) -> None:
    """The command line says none."""
    telemetry, got = a_telemetry(), list[int]()
    async with nats_server() as server:
        us = await Bus.connect(server.url, PREFIX, "us", telemetry, gates="defaults")
        them = await Bus.connect(server.url, PREFIX, "them", a_telemetry(), gates=theirs)
        await us.subscribe("snapshot.deltas", Heartbeat, lambda message, _: got.append(message.seq))
        them.post("snapshot.deltas", Heartbeat(1, 2))
        await until(lambda: got == [2])
        await us.close()
        await them.close()
    assert sample(telemetry, "flotilla_bus_feature_gates_differ_total") == count
