"""The budget of a service's end."""

import pytest

from services.cli.run import SERVICES
from services.supervisor.servers import STOP_PATIENCE
from shared.runtime.stopping import MARGIN, PARTS, STOP_SECONDS


@pytest.mark.parametrize("service", SERVICES)
def test_the_parts_of_an_end_leave_a_margin(service: str) -> None:
    assert sum(PARTS[service]) + MARGIN <= STOP_SECONDS


def test_the_supervisor_waits_longer_than_a_service_takes() -> None:
    assert STOP_SECONDS + MARGIN <= STOP_PATIENCE
