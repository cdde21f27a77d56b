"""A Context for what needs no bus."""

from collections.abc import Callable
from typing import Any

from shared.config.settings import Settings
from shared.runtime import Context, Health
from tests.bus.support import a_telemetry


def a_context(*, clock: Callable[[], float], wall: Callable[[], float]) -> Context:
    no_bus: Any = None
    return Context(
        service="test",
        name="test-1",
        settings=Settings(),
        bus=no_bus,
        telemetry=a_telemetry(),
        health=Health(),
        http_url="",
        clock=clock,
        wall=wall,
    )
