"""What operators ask a running pipeline: the queue, evictions, gangs and dumps, of the processes that decide."""

import signal
from pathlib import Path

import pytest

from testing.builders import node
from tests.cli.commands import flotilla
from tests.cli.operating import Operator
from tests.pipeline.corner import Corner, a_corner
from tests.pipeline.support import until
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio

GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups"
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"


async def test_operators_get_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async with Pipeline.running(PipelineOptions(workers=1)) as pipeline, a_corner(pipeline, "shop") as corner:
        monkeypatch.setenv("FLOTILLA_NATS_URL", pipeline.nats_url)
        operator = Operator(monkeypatch, capsys)
        await corner.has_nodes(node("node-1").capacity(cpu=4, memory="8Gi", pods=20))
        await preempts(corner, operator)
        await is_looked_for(corner, operator)
        await is_watched(corner, operator, tmp_path)
        await waits_for_members(corner, operator)
        await until_dump_matches(operator)
        corner.left = {"large", "foreign", "worker-0", "worker-1"}


async def preempts(corner: Corner, operator: Operator) -> None:
    await corner.cluster.create_priorities(much=1000)
    await corner.cluster.create(corner.pod("little").request(cpu=3).owner("ReplicaSet", "web"))
    await corner.lands("little", "node-1")
    await corner.cluster.create(corner.pod("urgent").request(cpu=3), priorityClassName="much")
    await corner.lands("urgent", "node-1")
    await corner.is_said("urgent", "Preempting", "evicted 1 pod(s) of lower priority from node node-1: shop/little")
    said = await operator.types("evictions", "--since", "10m")
    assert (said.code, len(said.lines)) == (0, 3), said
    assert "shop/little (priority 0)  ReplicaSet/web  shop/urgent (priority 1000)  node-1  preempted" in said.lines[1]
    assert said.lines[2].startswith("the queue knows of none before 20")


async def is_looked_for(corner: Corner, operator: Operator) -> None:
    async def refusal(name: str) -> str:
        said = await operator.types("queue", f"shop/{name}")
        return said.err if said.code == 1 else ""

    async def is_seen_bound() -> bool:
        return "it is on node node-1" in await refusal("urgent")

    await until(is_seen_bound, "the queue does not say that the pod is bound")
    assert "it does not exist" in await refusal("nobody")
    await corner.cluster.create(corner.pod("foreign"), schedulerName="another")

    async def is_known() -> bool:
        return "its schedulerName is another, and the profiles are default-scheduler" in await refusal("foreign")

    await until(is_known, "the queue does not know the pod of another scheduler")


async def is_watched(corner: Corner, operator: Operator, folder: Path) -> None:
    """A pod that fits nowhere comes while `--watch` runs, which Ctrl-C ends."""
    async with flotilla(folder, "queue", "--watch") as watching:
        await watching.prints(lambda line: line.endswith("queue: empty"))
        await corner.cluster.create(corner.pod("large").request(cpu=9))
        await watching.prints(lambda line: line.endswith("unschedulable: 1 Insufficient cpu"))
        watching.process.send_signal(signal.SIGINT)
        assert await watching.ends() == 130
        assert not [line for line in watching.lines if "Traceback" in line]
    (line,) = (await operator.types("queue", "--group-by", "reason")).lines
    assert line == ("1 pod: Insufficient cpu; it asks for 9 cpu, the largest node has 4, no node has more than 1 free")
    row = (await operator.types("queue")).lines[2]
    assert row.split()[:2] == ["shop/large", "unschedulable"]
    assert "a node is added, a pod leaves" in row


async def waits_for_members(corner: Corner, operator: Operator) -> None:
    await corner.cluster.create_at(GROUPS.format("shop"), "train", spec={"minMember": 3})
    for i in range(2):
        await corner.cluster.create(corner.pod(f"worker-{i}").label({GROUP_LABEL: "train"}))

    async def is_listed() -> bool:
        lines = (await operator.types("gang")).lines
        return len(lines) == 2 and lines[1].startswith("shop/train  incomplete  2 of 3  0  ")

    await until(is_listed, "the gang is not listed")
    said = await operator.types("gang", "shop/train")
    assert said.lines[1].endswith("worker-2 not created")

    async def is_told() -> bool:
        told = [await corner.cluster.events_of("shop", f"worker-{i}", "WaitingForPodGroup") for i in range(2)]
        return any("2 of its pods exist, and at least 3 are needed" in note for notes in told for note in notes)

    await until(is_told, "no pod of the gang has an Event")


async def until_dump_matches(operator: Operator) -> None:
    said = await operator.types("dump")
    assert (said.code, said.err) == (0, "the cache matches the 1 nodes and 1 pods of the API server\n")
