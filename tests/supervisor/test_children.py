"""Processes that the supervisor starts, as far as no process is needed."""

import asyncio
import io

import pytest

from tools.supervisor import children
from tools.supervisor.children import Service
from tools.supervisor.forked_process import ForkServer
from tools.supervisor.relay import Relay


@pytest.mark.asyncio
async def test_output_that_does_not_end_is_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop after a failed start waits a second time; that must not hide why the start has failed."""
    monkeypatch.setattr(children, "FLUSH_TIMEOUT", 0.01)
    service = Service("worker-0", "nothing", {}, Relay(io.StringIO(), as_json=False), ForkServer())
    service._following = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]
    await service.flush()
    await service.flush()
    assert not service._following.done()
    service._following.cancel()
