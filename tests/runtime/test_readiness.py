"""What a process logs about its own readiness."""

import logging

import pytest

from shared.runtime import Health
from shared.runtime.readiness import LOOK_INTERVAL, ReadinessLog

LOG = logging.getLogger("test.readiness")


class Process:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, LOG.name)
        self.health, self.now, self._caplog = Health(), 0.0, caplog
        self.health.ready()
        self._readiness = ReadinessLog(self.health, LOG, lambda: self.now)

    def look(self) -> list[str]:
        """The lines of the next look."""
        self._caplog.clear()
        self.now += LOOK_INTERVAL
        self._readiness.look()
        return [f"{record.levelname}: {record.getMessage()}" for record in self._caplog.records]


def test_a_lasting_reason_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    process = Process(caplog)
    assert process.look() == []
    process.health.wait_for("redis", "127.0.0.1:6379 does not answer")
    assert process.look() == []
    assert process.look() == ["WARNING: not ready: redis: 127.0.0.1:6379 does not answer"]
    process.health.wait_for("redis", "in other words")
    assert process.look() == []
    process.health.clear("redis")
    assert process.look() == ["INFO: ready again after 15 s: redis"]
    assert process.look() == []


def test_what_is_over_at_the_next_look_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    process = Process(caplog)
    for _ in range(3):
        process.health.wait_for("workers", "no worker is left")
        assert process.look() == []
        process.health.clear("workers")
        assert process.look() == []


def test_each_check_is_told_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    process = Process(caplog)
    process.health.wait_for("nats", "the connection is lost")
    process.look()
    process.health.check("snapshot", lambda: "nothing is heard")
    assert process.look() == ["WARNING: not ready: nats: the connection is lost"]
    assert process.look() == ["WARNING: not ready: snapshot: nothing is heard"]


def test_that_it_is_starting_is_no_reason_beside_another_one(caplog: pytest.LogCaptureFixture) -> None:
    process = Process(caplog)
    process.health = Health()
    process._readiness = ReadinessLog(process.health, LOG, lambda: process.now)
    process.health.wait_for("redis", "away")
    process.look()
    assert process.look() == ["WARNING: not ready: redis: away"]
    process.health.clear("redis")
    process.look()
    assert process.look() == ["WARNING: not ready: service: is starting"]
