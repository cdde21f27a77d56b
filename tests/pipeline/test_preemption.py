"""Who could make way for a pod that matters more, found by a whole pipeline with two workers."""

import pytest

from services.supervisor.options import PipelineOptions
from services.supervisor.pipeline import Pipeline
from shared.config.settings import Settings
from tests.builders import node
from tests.pipeline.corner import a_corner
from tests.pipeline.support import until

pytestmark = pytest.mark.asyncio

OPTIONS = PipelineOptions(workers=2, settings=Settings(log_level="debug", log_format="text"))
IMPORTANCE = {"a": "little", "b": "least", "c": "little"}
"""Of the pod that fills each node."""


async def test_who_could_make_way_on_a_full_cluster_is_logged() -> None:
    """The pod's owner is told as if there were no preemption: where somebody is found, its plugins add nothing."""
    async with Pipeline.running(OPTIONS) as pipeline, a_corner(pipeline, "full") as corner:
        await corner.cluster.create_priorities(least=1, little=2, much=100)
        await corner.has_nodes(*(node(name).capacity(cpu=2, memory="4Gi") for name in IMPORTANCE))
        for name, importance in IMPORTANCE.items():
            small = corner.pod(f"small-{name}").request(cpu=2).on(name)
            await corner.cluster.create(small, priorityClassName=importance)
        await corner.knows(pods=len(IMPORTANCE))
        corner.left = {"urgent"}
        await corner.cluster.create(corner.pod("urgent").request(cpu=1), priorityClassName="much")
        await corner.is_unschedulable("urgent", "0/3 nodes are available: 3 Insufficient cpu.")

        async def logged() -> bool:
            said = "full/urgent: there would be room on node b without these pods: full/small-b"
            return any(said in line for line in pipeline.log_lines)

        await until(logged, "no log line tells who could make way")
        assert {await corner.node_of(f"small-{name}") for name in IMPORTANCE} == set(IMPORTANCE)
