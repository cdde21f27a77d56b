"""The budget of a service's end."""

import pytest

from shared.runtime.stopping import MARGIN, PARTS, STOP_SECONDS
from tools.cli.run import SERVICES
from tools.supervisor.servers import STOP_PATIENCE


@pytest.mark.parametrize("service", SERVICES)
def test_the_parts_of_an_end_leave_a_margin(service: str) -> None:
    assert sum(PARTS[service]) + MARGIN <= STOP_SECONDS


def test_the_supervisor_waits_longer_than_a_service_takes() -> None:
    assert STOP_SECONDS + MARGIN <= STOP_PATIENCE
