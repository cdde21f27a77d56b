"""Retry records in a Redis that is unreachable at times."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from services.queue import retry_store
from services.queue.events import StoreRetry
from services.queue.retry_store import RetryStore
from services.queue.scheduling.queued_pod_info import RetryRecord
from shared.errors import UserError
from shared.store.errors import Deposed
from shared.store.retry_records import Memory
from shared.telemetry import Telemetry
from tests.bus.support import PREFIX, a_telemetry, sample, until
from tests.servers import redis_server
from tests.store.support import linked
from tools.supervisor.servers import RedisServer

pytestmark = pytest.mark.asyncio


class OnlyTerm:
    epoch = 1

    async def raise_term(self, beyond: int) -> int:
        raise AssertionError("there is no newer one")


TERM = OnlyTerm()
ONE = RetryRecord(attempts=1, rejections=1, errors=0, queued_at=7.5, backoff_until=9)
TWO = RetryRecord(attempts=2, rejections=1, errors=1, queued_at=8.5, backoff_until=10)


def a_store(
    server: RedisServer, telemetry: Telemetry | None = None, clock: float = 100.0, wall: float = 1_767_225_600.0
) -> RetryStore:
    return RetryStore(server.url, PREFIX, telemetry or a_telemetry(), clock=lambda: clock, wall=lambda: wall)


@asynccontextmanager
async def at_work(
    server: RedisServer, telemetry: Telemetry | None = None, clock: float = 100.0
) -> AsyncIterator[RetryStore]:
    async with a_store(server, telemetry, clock) as memory:
        await memory.load(TERM)
        running = asyncio.create_task(memory.run())
        try:
            yield memory
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def recalled(server: RedisServer) -> dict[str, RetryRecord]:
    async with a_store(server) as memory:
        return await memory.load(TERM)


async def comes_to(server: RedisServer, expected: dict[str, RetryRecord]) -> None:
    async with asyncio.timeout(10.0):
        while await recalled(server) != expected:
            await asyncio.sleep(0.01)


async def test_saved_records_are_loaded() -> None:
    async with redis_server() as server:
        async with at_work(server) as memory:
            memory.save(StoreRetry("a", ONE))
            memory.save(StoreRetry("b", ONE))
            await comes_to(server, {"a": ONE, "b": ONE})
            memory.save(StoreRetry("a", TWO))
            memory.save(StoreRetry("b", None))
            await comes_to(server, {"a": TWO})
        assert await recalled(server) == {"a": TWO}


async def test_a_backoff_continues_on_a_clock_with_another_zero() -> None:
    """The machine was rebooted in between, so its monotonic clock starts over."""
    async with redis_server() as server:
        async with at_work(server, clock=5_000_000.0) as memory:
            memory.save(StoreRetry("a", RetryRecord(1, 1, 0, queued_at=4_999_998.5, backoff_until=5_000_004)))
        async with a_store(server, clock=20.0, wall=1_767_225_603.0) as memory:
            assert await memory.load(TERM) == {"a": RetryRecord(1, 1, 0, queued_at=15.5, backoff_until=21)}


async def test_records_of_a_clock_that_was_ahead_are_not_in_the_future() -> None:
    async with redis_server() as server:
        async with at_work(server, clock=100.0) as memory:
            memory.save(StoreRetry("a", RetryRecord(1, 1, 0, queued_at=99.5, backoff_until=104)))
        async with a_store(server, clock=100.0, wall=1_767_225_540.0) as memory:
            (kept,) = (await memory.load(TERM)).values()
        assert (kept.queued_at, kept.backoff_until) == (100.0, 164)  # no rest that is resumed exceeds the longest


async def test_waiting_records_are_written_at_the_end() -> None:
    async with redis_server() as server:
        async with RetryStore(server.url, PREFIX, a_telemetry()) as memory:
            await memory.load(TERM)
            for number in range(retry_store.MAX_BATCH + 1):
                memory.save(StoreRetry(f"uid-{number}", ONE))
        assert len(await recalled(server)) == retry_store.MAX_BATCH + 1


async def test_records_wait_for_an_unreachable_redis(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = a_telemetry()
    async with redis_server() as server, at_work(server, telemetry) as memory:
        memory.save(StoreRetry("a", ONE))
        await comes_to(server, {"a": ONE})
        await server.kill()
        with caplog.at_level(logging.WARNING):
            memory.save(StoreRetry("a", TWO))
            memory.save(StoreRetry("b", ONE))
            await until(lambda: sample(telemetry, "flotilla_queue_memory_failures_total") > 0)
            memory.save(StoreRetry("b", TWO))
        await server.start()
        await comes_to(server, {"a": TWO, "b": TWO})
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert lines[0].endswith("retry records will be written later")


async def test_without_redis_loading_gives_no_records(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retry_store, "LOAD_TIMEOUT", 0.2)
    async with redis_server() as server:
        await server.kill()
        with caplog.at_level(logging.WARNING):
            async with at_work(server) as memory:
                assert caplog.records[-1].getMessage().endswith("pods start without their retry history")
                memory.save(StoreRetry("a", ONE))
                await server.start()
                await comes_to(server, {"a": ONE})


async def test_a_newer_term_is_noticed_once_redis_answers_even_if_there_is_nothing_to_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry_store, "LOAD_TIMEOUT", 0.2)
    async with redis_server() as server:
        async with linked(server) as link:
            await Memory(link, PREFIX).claim(4)
        await server.kill()
        async with a_store(server) as memory:
            await memory.load(TERM)
            await server.start()
            async with linked(server) as link:
                await Memory(link, PREFIX).claim(4)
            with pytest.raises(Deposed):
                async with asyncio.timeout(10.0):
                    await memory.run()


async def test_a_malformed_url_is_refused() -> None:
    async with RetryStore("http://nowhere", PREFIX, a_telemetry()) as memory:
        with pytest.raises(UserError, match="redis URL"):
            await memory.load(TERM)


async def test_an_unreadable_record_is_skipped_and_deleted() -> None:
    async with redis_server() as server:
        async with linked(server) as link:
            await Memory(link, PREFIX).write(1, {"a": msgspec.msgpack.encode(ONE), "b": b"\xc1"})
        async with a_store(server, clock=1_767_225_600.0) as memory:
            assert await memory.load(TERM) == {"a": ONE}
        async with linked(server) as link:
            assert list(await Memory(link, PREFIX).load()) == ["a"]


async def test_waiting_records_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_store, "MAX_WAITING", 2)
    telemetry = a_telemetry()
    async with redis_server() as server:
        async with a_store(server, telemetry) as memory:
            await memory.load(TERM)
            for name in "abc":
                memory.save(StoreRetry(name, ONE))
            memory.save(StoreRetry("a", TWO))
        assert sample(telemetry, "flotilla_queue_memory_dropped_total") == 1.0
        assert await recalled(server) == {"a": TWO, "b": ONE}
