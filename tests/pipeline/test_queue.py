"""Pods that wait: what has them tried again and what does not, and what is known of them once the queue was killed."""

import json
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from shared.store.link import connect
from shared.store.retry_records import Memory
from shared.telemetry.logs import logger
from testing.builders import node, selector
from tests.cli.operating import Operator
from tests.pipeline.corner import Corner, a_corner, unfit
from tests.pipeline.ownplugins import STUMBLING, own_plugins
from tests.pipeline.support import Object, all_ready, numbered, until, value_of
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio(loop_scope="module")

REST = 8
"""Seconds after the first failure: longer than a queue takes to start again."""
RESULTS = ("scheduled", "unschedulable", "error")
ATTEMPTS = "scheduler_schedule_attempts_total"
GPU = "example.com/gpu"
WAITING = 100
"""Pods of each kind."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pipeline]:
    with own_plugins(tmp_path_factory.mktemp("plugins"), rest=REST) as settings:
        async with Pipeline.running(PipelineOptions(settings=settings)) as running:
            yield running


@pytest.fixture
def operator(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Operator:
    monkeypatch.setenv("FLOTILLA_NATS_URL", pipeline.nats_url)
    return Operator(monkeypatch, capsys)


class Tally(NamedTuple):
    """What the queue counts, all at the same moment."""

    attempts: float
    """However they ended."""
    resting: float
    """Pods that are unschedulable."""
    flushed: float
    """Pods bound by an attempt that only the time limit gave them."""


async def tally(pipeline: Pipeline) -> Tally:
    answer = await pipeline.ask("queue", "/metrics")
    assert answer is not None
    ended = (value_of(answer.body, ATTEMPTS, result=each, profile="default-scheduler") for each in RESULTS)
    resting = value_of(answer.body, "scheduler_pending_pods", queue="unschedulable")
    return Tally(sum(ended), resting, value_of(answer.body, "scheduler_pod_scheduled_after_flush_total"))


async def comes_to(pipeline: Pipeline, attempts: float, resting: float) -> None:
    """Waits for this number of attempts and of unschedulable pods; more attempts are an error."""

    async def is_so() -> bool:
        now = await tally(pipeline)
        assert now.attempts <= attempts, f"{now}, not {attempts} attempts"
        return (now.attempts, now.resting) == (attempts, resting)

    await until(is_so, f"it does not come to {attempts} attempts and {resting} pods that rest")


# What helps


async def test_pods_are_tried_again_when_it_helps_and_only_then(pipeline: Pipeline) -> None:
    """Some wait for a label, some for more than there is, some for a resource. First much happens to no avail."""
    async with a_corner(pipeline, "helped") as corner:
        await corner.has_nodes(*(node(name).capacity(cpu=64, memory="64Gi", pods=500) for name in ("a", "b")))
        kinds = {
            "labelled": corner.pod("labelled").node_selector(zone="x"),
            "large": corner.pod("large").request(cpu=100),
            "fast": corner.pod("fast").request({GPU: 1}).limit({GPU: 1}),
        }
        began = await tally(pipeline)
        for made in kinds.values():
            await corner.cluster.create_many("/api/v1/namespaces/helped/pods", numbered(made, WAITING))
        count = began.attempts + 3 * WAITING
        await comes_to(pipeline, count, 3 * WAITING)
        count += await much_happens(corner)
        await comes_to(pipeline, count, 3 * WAITING)

        await corner.cluster.change_node("a", {"metadata": {"labels": {"zone": "x"}}})
        await all_land(corner, "labelled", "a")
        await comes_to(pipeline, count + WAITING, 2 * WAITING)
        more = {GPU: str(WAITING)}
        await corner.cluster.change_node("b", {"status": {"capacity": more, "allocatable": more}}, "status")
        await all_land(corner, "fast", "b")
        await comes_to(pipeline, count + 2 * WAITING, WAITING)
        assert (await tally(pipeline)).flushed == began.flushed
        corner.left = {f"large-{i:04}" for i in range(WAITING)}


async def all_land(corner: Corner, kind: str, on: str) -> None:
    for i in range(WAITING):
        await corner.lands(f"{kind}-{i:04}", on)


async def much_happens(corner: Corner) -> int:
    """Two hundred changes that wake no pod. Returns how many pods are bound once the scheduler has seen them."""
    heartbeat: Object = {"type": "Ready", "status": "True"}
    for i in range(60):
        heartbeat["lastHeartbeatTime"] = f"2030-01-01T00:00:{i:02}Z"
        await corner.cluster.change_node("a", {"status": {"conditions": [heartbeat]}}, "status")
        await corner.cluster.change_node("a", {"metadata": {"labels": {"tick": str(i)}}})
    for i in range(20):
        theirs = f"theirs-{i}"
        await corner.cluster.create(corner.pod(theirs).scheduler("other"))
        await corner.cluster.change_pod("helped", theirs, {"metadata": {"labels": {"some": "thing"}}})
        await corner.cluster.delete_pod("helped", theirs)
    for i in range(20):
        await corner.cluster.create(corner.pod(f"ours-{i}").node_selector(tick="59"))
    for i in range(20):
        await corner.lands(f"ours-{i}", "a")
    return 20


async def test_a_pod_that_is_changed_so_that_it_fits_is_scheduled(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "changed") as corner:
        await corner.has_nodes(node("a").taint("closed").label(host="a"))
        near = corner.pod("near").require_pods("host", selector(app="web")).tolerate()
        await corner.cluster.create(corner.pod("tolerant"), near)
        await corner.is_unschedulable("tolerant", unfit(1, "1 node(s) had untolerated taint(s)"))
        await corner.is_unschedulable("near", unfit(1, "1 node(s) didn't match pod affinity rules"))
        tolerations = (await corner.cluster.pod("changed", "tolerant"))["spec"]["tolerations"]
        everything = {"spec": {"tolerations": [*tolerations, {"operator": "Exists"}]}}
        await corner.cluster.change_pod("changed", "tolerant", everything)
        await corner.lands("tolerant", "a")
        await corner.cluster.change_pod("changed", "near", {"metadata": {"labels": {"app": "web"}}})
        await corner.lands("near", "a")


# Killed


async def test_a_queue_that_is_killed_knows_what_came_before(pipeline: Pipeline, operator: Operator) -> None:
    async with a_corner(pipeline, "before") as corner:
        await corner.has_nodes(node("a").capacity(cpu=4, memory="8Gi"))
        stumbling = {f"stumbling-{i}" for i in range(3)}
        await corner.cluster.create(
            *(corner.pod(name).label(STUMBLING) for name in stumbling),
            corner.pod("picky").node_selector(zone="x"),
            corner.pod("gated").gate("a.example/x"),
        )
        await corner.is_unschedulable("picky", unfit(1, "1 node(s) didn't match Pod's node affinity/selector"))

        async def have_stumbled() -> bool:
            listed = await listing(operator)
            return all(listed[name].get("errors") == 1 for name in stumbling)

        await until(have_stumbled, "not all have stumbled")
        before = await listing(operator)
        await until(lambda: remembers(pipeline, 4), "Redis does not know of the failures")
        first = pipeline.processes["queue"]
        pipeline.kill("queue")

        async def is_another() -> bool:
            return pipeline.processes.get("queue", first) != first and await all_ready(pipeline)

        await until(is_another, "the queue does not come back")
        after = await listing(operator)
        for name in stumbling:
            assert after[name]["state"] == before[name]["state"], after[name]
            for known in ("attempts", "errors", "backoff_until", "queued_at"):
                # Two processes count on clocks of their own: the same moment may differ in its last digits.
                same = pytest.approx(before[name][known], abs=1e-3)
                assert after[name][known] == same, f"{known}: {before[name]}, {after[name]}"

        async def is_tried_again() -> bool:
            picky = (await listing(operator))["picky"]
            return (picky["state"], picky["attempts"]) == ("unschedulable", 2)

        await until(is_tried_again, "the second attempt is not the second one")
        await corner.cluster.change_pod("before", "gated", {"spec": {"schedulingGates": None}})
        await corner.lands("gated", "a")
        for name in stumbling:
            await corner.cluster.delete_pod("before", name)
        corner.left = {"picky"}


async def listing(operator: Operator) -> dict[str, Object]:
    """All that wait, by name."""
    said = await operator.types("queue", "-o", "json")
    assert said.code == 0, said.err
    return {each["name"]: each for each in json.loads(said.out)["pods"]}


async def remembers(pipeline: Pipeline, pods: int) -> bool:
    link = await connect(pipeline.redis_url, logger("test"))
    try:
        return len(await Memory(link, pipeline.options.settings.prefix).load()) == pods
    finally:
        await link.close()
