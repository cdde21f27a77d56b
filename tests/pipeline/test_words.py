"""What a pod's owner is to read comes to stand there, though what carries it has lost it."""

import pytest

from services.queue.pod_conditions import RETRY_DELAYS
from shared.config.settings import ApiSettings
from testing.builders import node
from tests.kube.support import api_server
from tests.pipeline.corner import a_corner
from tests.pipeline.support import SOON, until
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio


async def test_a_condition_that_could_not_be_written_is_said_again() -> None:
    """The API server refuses it for good, as far as the binder goes; and nothing helps the pod to another attempt."""
    async with api_server() as server:
        options = PipelineOptions(workers=1, api=ApiSettings(server=server.url))
        async with Pipeline.running(options) as pipeline, a_corner(pipeline, "words") as corner:
            await corner.has_nodes(node("a").capacity(cpu=1))
            refused = server.faults.fail("PATCH", "/pods/large/status$", 403, reason="Forbidden")
            await corner.cluster.create(corner.pod("large").request(cpu=2))

            async def is_refused() -> bool:
                return refused.times == 0

            async def is_told() -> bool:
                pod = await corner.cluster.pod(corner.namespace, "large")
                conditions = {c["type"]: c["status"] for c in pod.get("status", {}).get("conditions", ())}
                return conditions.get("PodScheduled") == "False"

            await until(is_refused, "no binder has tried to write the condition")
            assert not await is_told()
            await until(is_told, "the condition is not written", RETRY_DELAYS[0] + SOON)
            events = await corner.cluster.events_of(corner.namespace, "large", "FailedScheduling")
            assert len(events) == 1
            corner.left.add("large")
