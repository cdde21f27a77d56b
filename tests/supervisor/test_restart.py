"""A pipeline that was stopped and is started again, at an API server that stays, with a Redis that begins empty."""

import pytest

from services.simulator.service import Simulator
from services.supervisor.options import PipelineOptions
from services.supervisor.pipeline import Pipeline
from shared.config.settings import ApiSettings
from tests.kube.support import api_server, raw_node, raw_pod
from tests.supervisor.waiting import until

pytestmark = pytest.mark.asyncio
WAITS = "the ledger of earlier terms is lost"


def options(server: Simulator) -> PipelineOptions:
    return PipelineOptions(workers=1, api=ApiSettings(server=server.url))


def is_bound(server: Simulator, name: str) -> bool:
    return bool(server.stored("pods", name, "default")["spec"].get("nodeName"))


async def test_after_a_clean_stop_the_next_start_decides_at_once() -> None:
    async with api_server() as server:
        server.store_raw("nodes", raw_node("n"))
        for name in ("first", "second"):
            server.store_raw("pods", raw_pod(name, cpu="1m"))
            async with Pipeline.running(options(server)) as pipeline:
                await until(lambda name=name: is_bound(server, name))  # type: ignore[misc]
                assert not [line for line in pipeline.log_lines if WAITS in line]
            lease = server.stored("leases", "flotilla-snapshot", "kube-system", group="coordination.k8s.io")
            term = lease["spec"]["leaseTransitions"]
            assert lease["metadata"]["annotations"]["flotilla.io/settled"] == str(term)
