"""The auditor's clock."""

import time

import pytest

from testing.auditor.service import now


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_steps_of_the_system_clock_have_no_effect(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    real, before = time.time, now()
    assert abs(before - real()) < 60, "readable as Unix time"
    monkeypatch.setattr(time, "time", lambda: real() + step)
    assert 0 <= now() - before < 60
