"""On a whole pipeline: it is asked where pods would go, then they are created, and go there, ties included."""

import pytest

from shared.bus import Bus
from shared.config.settings import Settings
from testing.builders import PodBuilder, node
from tests.bus.support import a_telemetry
from tests.cli.operating import Operator
from tests.pipeline.support import a_cluster, cached, plain, until, web
from tools import live_state
from tools.cli.service_client import ServiceClient
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline
from tools.whatif.answer import Answer, Question
from tools.whatif.answering import answer

pytestmark = pytest.mark.asyncio

SPACE = "default"
SETTINGS = Settings(round_size=1, seed=11)


async def ask(pipeline: Pipeline, question: Question, *nodes: str) -> Answer:
    prefix = pipeline.options.settings.prefix
    bus = await Bus.connect(pipeline.nats_url, prefix, "asker", a_telemetry())
    try:
        client = ServiceClient(bus, Settings(prefix=prefix, nats_url=pipeline.nats_url))
        pods_on = {name: await live_state.pods_on(client, name) for name in nodes}
        every = await live_state.pods_on_all(client)
        assert {name: every[name] for name in nodes} == pods_on
        return answer(await live_state.load(client), question, pods_on)
    finally:
        await bus.close()


def manifest(made: PodBuilder) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Pod", **plain(made)}


async def test_pods_go_where_was_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    operator = Operator(monkeypatch, capsys)
    async with Pipeline.running(PipelineOptions(settings=SETTINGS)) as pipeline, a_cluster(pipeline) as cluster:
        monkeypatch.setenv("FLOTILLA_NATS_URL", pipeline.nats_url)
        monkeypatch.setenv("FLOTILLA_PREFIX", pipeline.options.settings.prefix)
        for i in range(6):
            await cluster.create(node(f"n{i}").capacity(cpu=4, memory="8Gi", pods=110))
        await cluster.create(web("first", SPACE).request(cpu="1").owner("ReplicaSet", "web").on("n0"))
        await cluster.create(web("second", SPACE).request(cpu="1").owner("ReplicaSet", "web").on("n1"))
        await until(lambda: cached(pipeline, "pods", 2), "the placed pods are not known")
        moves = await operator.types("defrag", "--dry-run")
        assert (moves.code, moves.lines[0]) == (0, "1 node could be freed by 1 move; 4 are free already")
        assert f"{SPACE}/first  n0    n1" in moves.lines
        made = [web(f"p{i}", SPACE).request(cpu="1500m", memory="1Gi") for i in range(13)]
        told = await ask(pipeline, Question(manifests=[manifest(each) for each in made]))
        assert told.count("scheduled") == 12
        for each, said in zip(made, told.pods, strict=True):
            await cluster.create(each)
            if said.node:

                async def is_bound(name: str = said.name) -> bool:
                    return bool(await cluster.node_of(SPACE, name))

                await until(is_bound, f"{said.name} is pending")
                assert await cluster.node_of(SPACE, said.name) == said.node

        async def is_refused() -> bool:
            found = (await cluster.pod(SPACE, "p12"))["status"].get("conditions", [])
            return any(each.get("message") == told.pods[12].message for each in found)

        await until(is_refused, f"p12 has no condition {told.pods[12].message!r}")
        drained = await ask(pipeline, Question(drain=["n0"]), "n0")
        assert {each.origin for each in drained.pods} >= {"pending (unschedulable)", "recreated from n0"}
