"""The approver of permits, the Redis that can be rolled back, and the configuration of fault runs."""

import os
from pathlib import Path
from typing import Any, cast

import pytest

from shared.bus import Bus
from shared.config.document import read_config
from shared.framework.loading import load_scheduler_config
from shared.messages.binding import PermitAnswer, PermitPending, Permits
from shared.store.link import RedisLink, connect
from shared.telemetry.logs import logger
from tools.faults.environment import IGNORED, IGNORED_FOR, Approver, RewindableRedis, configured
from tools.faults.workload import PERMIT_PLUGIN
from tools.supervisor.servers import temporary_folder


class Posted:
    """A bus that keeps what is posted."""

    def __init__(self) -> None:
        self.answers: list[PermitAnswer] = []

    def post(self, subject: str, message: Any) -> None:
        self.answers.append(message)


def reply(approver: Approver, *uids: str, binder: str = "binder-0", whose: str | None = None) -> None:
    waiting = [PermitPending(uid, "faults", f"pod-{uid}", "n", 0.0, {PERMIT_PLUGIN: 5.0}) for uid in uids]
    approver.on_reply(Permits(whose or approver.id, binder, waiting))


def test_waiting_pods_are_allowed_and_ignored_ones_only_later() -> None:
    now, bus = [100.0], Posted()
    approver = Approver(cast(Bus, bus), lambda: now[0])
    late = f"{IGNORED}-late"
    reply(approver, "1", late)
    reply(approver, "2", whose="another")
    assert bus.answers == [PermitAnswer("1", PERMIT_PLUGIN, allow=True)]
    now[0] += IGNORED_FOR + 0.1
    reply(approver, late)
    assert [each.uid for each in bus.answers] == ["1", late]


def test_only_recent_replies_count() -> None:
    now, bus = [100.0], Posted()
    approver = Approver(cast(Bus, bus), lambda: now[0])
    reply(approver, "1")
    reply(approver, "2", binder="binder-1")
    assert approver.waiting(2.0) == ["faults/pod-1", "faults/pod-2"]
    now[0] += 1.5
    reply(approver, binder="binder-1")
    assert approver.waiting(2.0) == ["faults/pod-1"]
    now[0] += 1.0
    assert approver.waiting(2.0) == []


async def value_of(redis: RewindableRedis, key: str) -> Any:
    link = await connect(redis.url, logger("test"))
    try:
        return await link.call("GET", key)
    finally:
        await link.close()


@pytest.mark.asyncio
async def test_redis_rolls_back_to_its_backup_and_restarts_empty() -> None:
    async with temporary_folder() as folder:
        redis = RewindableRedis(folder)
        await redis.start()
        try:
            link: RedisLink = await connect(redis.url, logger("test"))
            await link.call("SET", "key", "before")
            await redis.back_up()
            await link.call("SET", "key", "after")
            await link.close()
            await redis.roll_back()
            assert await value_of(redis, "key") == b"before"
            await redis.kill()
            await redis.start()
            assert await value_of(redis, "key") is None
        finally:
            await redis.stop()


def test_the_configuration_is_valid_and_variables_are_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    with configured(tmp_path) as config:
        monkeypatch.syspath_prepend(str(tmp_path / "site"))
        loaded = load_scheduler_config(read_config(str(config)))
        assert loaded.leader_election.lease_duration == 8.0
    assert os.environ["PYTHONPATH"] == "elsewhere"
