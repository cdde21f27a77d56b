"""Rules about other pods, through a whole pipeline with two workers: each sees only its share of the nodes."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from testing.builders import NodeBuilder, node, selector
from tests.pipeline.corner import Corner, a_corner
from tests.pipeline.support import until
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio(loop_scope="module")

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ZONES = ("a", "b", "c")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline() -> AsyncIterator[Pipeline]:
    async with Pipeline.running(PipelineOptions(workers=2)) as running:
        yield running


def in_zones(each: int) -> list[NodeBuilder]:
    return [
        node(f"{zone}{i}").label({ZONE: zone, HOST: f"{zone}{i}"}).capacity(cpu=16, memory="32Gi")
        for zone in ZONES
        for i in range(each)
    ]


async def zones_of(corner: Corner, names: list[str]) -> Counter[str]:
    """Waits until all are bound."""
    return Counter([(await corner.lands(name))[0] for name in names])


async def test_pods_spread_over_zones(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "spread") as corner:
        await corner.has_nodes(*in_zones(3))
        names = [f"p{i}" for i in range(30)]
        pods = [corner.pod(name).label(app="spread").spread_hard(ZONE, selector(app="spread")) for name in names]
        await corner.cluster.create(*pods)
        assert await zones_of(corner, names) == dict.fromkeys(ZONES, 10)


async def test_a_full_zone_holds_up_the_others_only_as_far_as_they_may_differ(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "skew") as corner:
        await corner.has_nodes(
            node("a0").label({ZONE: "a"}).capacity(cpu=16, memory="32Gi", pods=1),
            node("b0").label({ZONE: "b"}).capacity(cpu=16, memory="32Gi", pods=9),
        )
        names = [f"p{i}" for i in range(4)]
        pods = [corner.pod(name).label(app="skew").spread_hard(ZONE, selector(app="skew"), 1) for name in names]
        await corner.cluster.create(*pods)

        async def three_are_bound() -> bool:
            return sum([bool(await corner.node_of(name)) for name in names]) == 3

        await until(three_are_bound, "not three of four pods are bound")
        nodes = {name: await corner.node_of(name) for name in names}
        corner.left = {name for name, bound_to in nodes.items() if not bound_to}
        where = Counter(bound_to[:1] for bound_to in nodes.values())
        assert where == {"a": 1, "b": 2, "": 1}


async def test_pods_that_want_no_company_get_a_node_each(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "alone") as corner:
        await corner.has_nodes(*in_zones(2))
        names = [f"p{i}" for i in range(6)]
        pods = [corner.pod(name).label(app="alone").require_no_pods(HOST, selector(app="alone")) for name in names]
        await corner.cluster.create(*pods)
        assert len({await corner.lands(name) for name in names}) == 6


async def test_who_is_not_wanted_stays_out_of_the_zone(pipeline: Pipeline) -> None:
    """The rule is that of the pod that is there already."""
    async with a_corner(pipeline, "rivals") as corner:
        await corner.has_nodes(*in_zones(2))
        await corner.cluster.create(corner.pod("first").label(app="shy").require_no_pods(ZONE, selector(app="loud")))
        taken = (await corner.lands("first"))[0]
        names = [f"p{i}" for i in range(8)]
        await corner.cluster.create(*(corner.pod(name).label(app="loud") for name in names))
        assert taken not in await zones_of(corner, names)


async def test_pods_that_want_company_all_go_where_the_first_one_goes(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "together") as corner:
        await corner.has_nodes(*in_zones(3))
        names = [f"p{i}" for i in range(20)]
        pods = [corner.pod(name).label(app="together").require_pods(ZONE, selector(app="together")) for name in names]
        await corner.cluster.create(*pods)
        assert len(await zones_of(corner, names)) == 1
