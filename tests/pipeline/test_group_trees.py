"""A tree of pod groups, through a whole pipeline, with an API server of Kubernetes v1.37."""

import pytest

from shared.config.settings import ApiSettings
from testing.builders import node
from tests.kube.support import api_server
from tests.pipeline.corner import a_corner
from tests.pipeline.support import Object, until
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

FOLDER = "/apis/scheduling.k8s.io/{}/namespaces/tree/{}"
COMPOSITE, GROUP = FOLDER.format("v1alpha3", "compositepodgroups"), FOLDER.format("v1beta1", "podgroups")
RACK = "example.com/rack"


@pytest.mark.asyncio
async def test_two_replicas_are_placed_together_each_in_one_rack() -> None:
    """The second rack is complete only later."""
    async with api_server() as simulator:
        simulator.serve("scheduling.k8s.io", "v1", "v1beta1", "v1alpha3")
        options = PipelineOptions(workers=1, api=ApiSettings(server=simulator.url))
        async with Pipeline.running(options) as pipeline, a_corner(pipeline, "tree") as corner:
            cluster = corner.cluster

            async def create_pods(group: str, count: int) -> None:
                for i in range(count):
                    made = corner.pod(f"{group}-{i}").request(cpu=1)
                    await cluster.create(made, schedulingGroup={"podGroupName": group})

            async def racks_of(group: str) -> list[str]:
                listed = (await cluster.get("/api/v1/namespaces/tree/pods"))["items"]
                pods = [each for each in listed if each["metadata"]["name"].startswith(f"{group}-")]
                return [each["spec"]["nodeName"][:2] for each in pods if each["spec"].get("nodeName")]

            async def condition() -> Object:
                status = (await cluster.get(f"{COMPOSITE}/root")).get("status") or {}
                return next(iter(status.get("conditions") or ()), {})

            async def is_unschedulable() -> bool:
                return (await condition()).get("reason") == "Unschedulable"

            async def is_placed() -> bool:
                return (await condition()).get("status") == "True"

            async def is_bound() -> bool:
                return len(await racks_of("a")) == len(await racks_of("b")) == 2

            names = ("r1-0", "r1-1", "r2-0", "r2-1")
            nodes = [node(name).label({RACK: name[:2]}).capacity(cpu=1, memory="8Gi") for name in names]
            await corner.has_nodes(*nodes[:3])
            made_of = {"workloadRef": {"workloadName": "w", "templateName": "t"}}
            gang: Object = {"gang": {"minGroupCount": 2}}
            topology = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
            for name in "ab":
                policy: Object = {"gang": {"minCount": 2}}
                spec = {"schedulingPolicy": policy, "parentCompositePodGroupName": "root"} | topology | made_of
                await cluster.create_at(GROUP, name, spec=spec)
                await create_pods(name, 2)
            await cluster.create_at(COMPOSITE, "root", spec={"schedulingPolicy": gang} | made_of)
            await until(is_unschedulable, "the tree does not say that it has no room")
            assert await racks_of("a") == await racks_of("b") == []
            await cluster.create(nodes[3])
            await until(is_bound, "the tree is not bound")
            assert {len(set(await racks_of(name))) for name in "ab"} == {1}
            await until(is_placed, "the tree does not say that it is placed")
