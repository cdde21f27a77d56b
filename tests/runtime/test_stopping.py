"""The budget of a service's end."""

import pytest

from shared.runtime.stopping import MARGIN, PARTS, STOP_SECONDS
from tools.cli.run import SERVICES
from tools.supervisor.servers import STOP_PATIENCE


@pytest.mark.parametrize("service", SERVICES)
def test_shutdown_steps_fit_into_the_budget(service: str) -> None:
    assert sum(PARTS[service]) + MARGIN <= STOP_SECONDS


def test_the_supervisor_waits_longer_than_the_shutdown_budget() -> None:
    assert STOP_SECONDS + MARGIN <= STOP_PATIENCE
