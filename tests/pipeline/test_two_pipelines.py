"""A second pipeline is refused, on the first one's NATS as on one of its own, and the first one goes on."""

import signal
from pathlib import Path
from typing import Any

import pytest

from shared.config.settings import ApiSettings, Settings
from shared.errors import UserError
from testing.simulator.service import Simulator
from tests.kube.support import api_server
from tests.pipeline.support import until
from tests.servers import nats_server
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

LEADERS = ("watcher", "queue", "snapshot", "cycle")
SHORT_LEASES = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms}
"""


def lease_of(api: Simulator, name: str) -> dict[str, Any]:
    lease: dict[str, Any] = api.stored("leases", f"flotilla-{name}", "kube-system", group="coordination.k8s.io")
    return lease


def holder_of(api: Simulator, name: str) -> str:
    return str(lease_of(api, name)["spec"]["holderIdentity"])


@pytest.mark.asyncio
async def test_a_second_pipeline_on_the_same_nats_is_refused_and_the_first_goes_on() -> None:
    async with nats_server() as nats:
        options = PipelineOptions(settings=Settings(), nats_url=nats.url)
        async with Pipeline.running(options) as first:
            with pytest.raises(UserError, match=r"is used by the pipeline of cluster .* set --prefix"):
                async with Pipeline.running(options):
                    raise AssertionError
            assert await first.unready() == {}


@pytest.mark.asyncio
async def test_a_second_one_of_the_same_nats_and_cluster_is_told_of_the_nats_and_of_no_flag_of_services() -> None:
    async with nats_server() as nats, api_server() as api:
        options = PipelineOptions(nats_url=nats.url, api=ApiSettings(server=api.url))
        async with Pipeline.running(options) as first:
            with pytest.raises(UserError) as refused:
                async with Pipeline.running(options) as second:
                    await second.failure
            assert "uses the NATS at 127.0.0.1:" in str(refused.value) and "--name" not in str(refused.value)
            assert await first.unready() == {}


@pytest.mark.asyncio
async def test_a_second_pipeline_with_a_nats_of_its_own_is_refused_even_while_a_leader_of_the_first_stands_still(
    tmp_path: Path,
) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text(SHORT_LEASES)
    async with api_server() as api:
        options = PipelineOptions(settings=Settings(config=str(config)), api=ApiSettings(server=api.url))
        async with Pipeline.running(options) as first:
            before = {name: holder_of(api, name) for name in LEADERS}
            first.signal("queue", signal.SIGSTOP)
            try:
                with pytest.raises(
                    UserError, match=r"flotilla-snapshot is held by .* another pipeline schedules this cluster"
                ):
                    async with Pipeline.running(options):
                        raise AssertionError
            finally:
                first.signal("queue", signal.SIGCONT)
            assert {name: holder_of(api, name) for name in LEADERS} == before


@pytest.mark.asyncio
async def test_a_pipeline_follows_one_that_was_killed_with_its_nats(tmp_path: Path) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text(SHORT_LEASES)
    async with api_server() as api:
        options = PipelineOptions(settings=Settings(config=str(config)), api=ApiSettings(server=api.url))
        async with Pipeline.running(options):
            left = [lease_of(api, name) for name in LEADERS]
        for lease in left:
            lease["metadata"].pop("resourceVersion")
            lease["spec"]["holderIdentity"] = "elsewhere"
            api.store_raw("leases", lease, group="coordination.k8s.io")

        async def all_lead_here() -> bool:
            return "elsewhere" not in {holder_of(api, name) for name in LEADERS}

        async with Pipeline.running(options):  # which returns once all are ready, though the last may be on standby yet
            await until(all_lead_here, "the Leases are held elsewhere still")
