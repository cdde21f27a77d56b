"""NATS denies what docs/nats.md does not grant. That it grants what services need: test_real_servers.py."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import nats
import pytest

from shared.bus import Bus, NoAnswer
from shared.bus.rights import USERS, authorization, table
from shared.messages.queue import Outcomes, Received, Take
from shared.messages.state import Heartbeat
from shared.telemetry import Telemetry
from tests.bus.support import LOG, a_telemetry, sample, until
from tests.servers import ConfiguredNats, configured_nats

pytestmark = pytest.mark.asyncio

PAGE = Path(__file__).parents[2] / "docs" / "nats.md"
PREFIX = "flotilla"
FORBIDDEN = "flotilla_bus_forbidden_total"


@pytest.fixture(autouse=True)
def passwords(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for user in USERS:
        monkeypatch.setenv(f"NATS_{user.upper()}", f"pw-{user}")
    yield


def url(server: ConfiguredNats, user: str) -> str:
    return server.as_user(f"{user}:pw-{user}")


async def test_the_page_is_current() -> None:
    page = PAGE.read_text()
    assert table() in page
    assert authorization() in page


async def test_a_reader_can_only_read(caplog: pytest.LogCaptureFixture) -> None:
    """A denied subject is logged, rarely, and counted, and the connection stays."""
    telemetry, got = a_telemetry(), list[object]()
    async with configured_nats(authorization()) as server, AsyncExitStack() as stack:
        reader = await Bus.connect(url(server, "reader"), PREFIX, "me", telemetry)
        stack.push_async_callback(reader.close)
        for subject in ("watch", "snapshot.commits", "inbox.cycle.x.y"):
            await reader.subscribe(subject, Heartbeat, lambda message, _: got.append(message))
        for _ in range(3):
            reader.post("queue.outcomes", Outcomes(1, 1, []))
        counts = {("in", "watch"): 1, ("in", "snapshot.commits"): 1, ("in", "inbox.*"): 1, ("out", "queue.outcomes"): 3}
        await until(lambda: all(forbidden(telemetry, *labels) == count for labels, count in counts.items()))
        with pytest.raises(NoAnswer):
            await reader.request("queue.take", Take(1, 1, 1), Received, timeout=0.3)
        assert reader.connected and not got
    told = [record.getMessage() for record in caplog.records if record.name == LOG.name]
    assert "NATS denied to publish to flotilla.queue.outcomes: a permission is missing" in told
    assert "NATS denied to subscribe to flotilla.watch: a permission is missing" in told
    assert len(told) == 5


async def test_inboxes_are_private() -> None:
    async with configured_nats(authorization()) as server, AsyncExitStack() as stack:
        queue, cycle = [
            await Bus.connect(url(server, user), PREFIX, user, a_telemetry(), role=user) for user in ("queue", "cycle")
        ]
        stack.push_async_callback(queue.close)
        stack.push_async_callback(cycle.close)
        await queue.subscribe("queue.take", Take, lambda m, envelope: envelope.respond(Received(m.epoch, m.number)))
        assert await cycle.request("queue.take", Take(1, 2, 3), Received, timeout=5) == Received(1, 2)
        refusals: list[Exception] = []

        async def refused(error: Exception) -> None:
            refusals.append(error)

        spy = await nats.connect(url(server, "worker"), error_cb=refused)
        stack.push_async_callback(spy.close)
        await spy.subscribe(f"{PREFIX}.inbox.>")
        await spy.flush()
        await until(lambda: len(refusals) == 1)


def forbidden(telemetry: Telemetry, way: str, subject: str) -> float:
    return sample(telemetry, FORBIDDEN, direction=way, subject=subject)
