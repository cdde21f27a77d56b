"""Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs make pods, and what belongs to nobody is removed."""

from functools import partial
from typing import Any

import pytest

from testing.simulator.controllers import RUN_SECONDS
from testing.simulator.service import Simulator
from testing.simulator.workloads.deployments import next_sizes
from testing.simulator.workloads.ownership import template_hash
from tests.simulator.support import MERGE, NODES, PODS, Client, Object, node, running
from tests.supervisor.waiting import until

pytestmark = pytest.mark.asyncio
APPS = "/apis/apps/v1/namespaces/default"
DEPLOYMENTS = f"{APPS}/deployments"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


def workload(name: str = "web", *, image: str = "i:1", labels: Object | None = None, **spec: Any) -> Object:
    """Its pods are on node n, which needs no scheduler."""
    labels = labels or {"app": name}
    pod = {"containers": [{"name": "c", "image": image}], "nodeName": "n"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template, **spec}}


class World:
    def __init__(self, simulator: Simulator, client: Client) -> None:
        self.client = client
        self._simulator = simulator

    def objects(self, plural: str, group: str = "apps") -> list[Object]:
        bucket = self._simulator.cluster.store.bucket(self._simulator._resource(plural, group, "v1"))
        return [item.decode() for item in bucket.in_order()]

    def pods(self) -> list[Object]:
        return self.objects("pods", "")

    def names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods()]

    def all_run(self, count: int) -> bool:
        pods = self.pods()
        return len(pods) == count and all(pod["status"]["phase"] == "Running" for pod in pods)

    async def reports(self, plural: str, name: str, group: str = "apps", **counts: int) -> Object:
        """The status of a workload, once it has these counts."""

        def status() -> Object:
            found: Object = self._simulator.stored(plural, name, "default", group=group).get("status") or {}
            return found

        await until(lambda: counts.items() <= status().items())
        return status()


async def test_a_deployment_makes_a_replica_set_that_makes_pods() -> None:
    async with running(seed=1) as (simulator, client):
        world = World(simulator, client)
        await client.fine("POST", NODES, node("n"))
        await client.fine("POST", DEPLOYMENTS, workload(replicas=3))
        status = await world.reports("deployments", "web", availableReplicas=3, updatedReplicas=3, observedGeneration=1)
        assert {each["type"]: each["status"] for each in status["conditions"]} == {
            "Available": "True",
            "Progressing": "True",
        }
        (replica_set,) = world.objects("replicasets")
        hashed = replica_set["metadata"]["labels"]["pod-template-hash"]
        assert replica_set["metadata"]["name"] == f"web-{hashed}"
        assert replica_set["metadata"]["ownerReferences"][0]["kind"] == "Deployment"
        for pod in world.pods():
            assert pod["metadata"]["name"].startswith(f"web-{hashed}-")
            assert pod["metadata"]["labels"] == {"app": "web", "pod-template-hash": hashed}
            (owner,) = pod["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["uid"]) == ("ReplicaSet", replica_set["metadata"]["uid"])


async def test_scaling_and_lost_pods() -> None:
    async with running() as (simulator, client):
        world = World(simulator, client)
        await client.fine("POST", NODES, node("n"))
        await client.fine("POST", DEPLOYMENTS, workload(replicas=1))
        await until(lambda: world.all_run(1))
        await client.fine("PATCH", f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 4}}, MERGE)
        await until(lambda: world.all_run(4))
        (first, *_) = world.names()
        await client.fine("DELETE", f"{PODS}/{first}")
        await until(lambda: first not in world.names() and world.all_run(4))
        await client.fine("PATCH", f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 0}}, MERGE)
        await until(lambda: world.pods() == [])
        await world.reports("deployments", "web", replicas=0, availableReplicas=0)


async def test_a_new_template_replaces_the_pods_and_an_old_one_is_found_again() -> None:
    async with running() as (simulator, client):
        world = World(simulator, client)
        await client.fine("POST", NODES, node("n"))
        await client.fine("POST", DEPLOYMENTS, workload(replicas=4))
        await until(lambda: world.all_run(4))
        (before,) = [each["metadata"]["name"] for each in world.objects("replicasets")]

        def shows(image: str) -> bool:
            images = {pod["spec"]["containers"][0]["image"] for pod in world.pods()}
            return images == {image} and world.all_run(4)

        for image, revision in (("i:2", "2"), ("i:1", "3")):
            template = workload(image=image)["spec"]["template"]
            await client.fine("PATCH", f"{DEPLOYMENTS}/web", {"spec": {"template": template}}, MERGE)
            await until(partial(shows, image))
            await world.reports("deployments", "web", updatedReplicas=4, replicas=4, availableReplicas=4)
            found = simulator.stored("deployments", "web", "default", group="apps")
            assert found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == revision
        sizes = {each["metadata"]["name"]: each["spec"]["replicas"] for each in world.objects("replicasets")}
        assert len(sizes) == 2
        assert sizes[before] == 4


async def test_a_deployment_takes_everything_with_it_unless_it_is_orphaned() -> None:
    async with running() as (simulator, client):
        world = World(simulator, client)
        await client.fine("POST", NODES, node("n"))
        for name in ("web", "db"):
            await client.fine("POST", DEPLOYMENTS, workload(name, replicas=2))
        await until(lambda: world.all_run(4))
        await client.fine("DELETE", f"{DEPLOYMENTS}/web", {"propagationPolicy": "Background"})
        await until(lambda: world.all_run(2))
        assert all(name.startswith("db-") for name in world.names())
        assert len(world.objects("replicasets")) == 1
        await client.fine("DELETE", f"{DEPLOYMENTS}/db", {"propagationPolicy": "Orphan"})
        (left,) = world.objects("replicasets")
        assert left["metadata"]["ownerReferences"] == []
        await client.fine(
            "PATCH", f"{APPS}/replicasets/{left['metadata']['name']}/scale", {"spec": {"replicas": 3}}, MERGE
        )
        await until(lambda: world.all_run(3))


async def test_jobs_complete_once_enough_pods_have_succeeded() -> None:
    async with running() as (simulator, client):
        world = World(simulator, client)
        await client.fine("POST", NODES, node("n"))
        job = workload("sum", parallelism=2, completions=3, completionMode="Indexed")
        del job["spec"]["selector"]
        job["spec"]["template"]["metadata"]["annotations"] = {RUN_SECONDS: "0.01"}
        created = await client.fine("POST", JOBS, job)
        status = await world.reports("jobs", "sum", "batch", succeeded=3, active=0)
        assert [each["type"] for each in status["conditions"]] == ["SuccessCriteriaMet", "Complete"]
        indexes = [pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] for pod in world.pods()]
        assert indexes == ["0", "1", "2"]
        assert all(
            pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == created["metadata"]["uid"]
            for pod in world.pods()
        )
        await client.fine("DELETE", f"{JOBS}/sum")
        await until(lambda: world.pods() == [])


async def test_a_suspended_job_has_no_pods() -> None:
    async with running() as (simulator, client):
        world = World(simulator, client)
        job = workload("sum", suspend=True, completions=2, parallelism=2)
        del job["spec"]["selector"]
        await client.fine("POST", JOBS, job)
        status = await world.reports("jobs", "sum", "batch", active=0)
        assert [each["type"] for each in status["conditions"]] == ["Suspended"]
        await client.fine("PATCH", f"{JOBS}/sum", {"spec": {"suspend": False}}, MERGE)
        await until(lambda: len(world.pods()) == 2)


async def test_a_stateful_set_makes_replaces_and_removes_numbered_pods_in_order() -> None:
    async with running() as (simulator, client):
        world = World(simulator, client)
        await client.fine("POST", NODES, node("n"))
        claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {}}}]
        async with client.watch(f"{PODS}?watch=1") as stream:
            created = workload("db", replicas=3, volumeClaimTemplates=claims, serviceName="db")
            await client.fine("POST", f"{APPS}/statefulsets", created)
            await world.reports("statefulsets", "db", readyReplicas=3, updatedReplicas=3)
            story: list[tuple[str, str]] = []
            while len(story) < 6:
                event = await stream.next()
                phase = event["object"]["status"]["phase"]
                story.append((event["object"]["metadata"]["name"], phase))
        assert story == [(f"db-{number}", phase) for number in range(3) for phase in ("Pending", "Running")]
        claimed = [each["metadata"]["name"] for each in world.objects("persistentvolumeclaims", "")]
        assert claimed == ["data-db-0", "data-db-1", "data-db-2"]
        made = simulator.stored("statefulsets", "db", "default", group="apps")["spec"]
        assert made["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
        template = workload("db", image="i:2")["spec"]["template"]
        await client.fine("PATCH", f"{APPS}/statefulsets/db", {"spec": {"template": template, "replicas": 2}}, MERGE)
        status = await world.reports("statefulsets", "db", replicas=2, readyReplicas=2, updatedReplicas=2)
        assert status["currentRevision"] == status["updateRevision"]
        assert {pod["spec"]["containers"][0]["image"] for pod in world.pods()} == {"i:2"}


async def test_a_daemon_set_has_a_pod_for_each_node_that_it_fits() -> None:
    async with running() as (simulator, client):
        world = World(simulator, client)
        tainted = {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
        for name, spec in (("a", {}), ("b", {}), ("c", tainted)):
            await client.fine("POST", NODES, node(name, **spec))
        agent = workload("agent")
        del agent["spec"]["template"]["spec"]["nodeName"]
        await client.fine("POST", f"{APPS}/daemonsets", agent)

        def meant_for() -> list[str]:
            return sorted(
                pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
                    "nodeSelectorTerms"
                ][0]["matchFields"][0]["values"][0]
                for pod in world.pods()
            )

        await until(lambda: meant_for() == ["a", "b"])
        await client.fine("POST", NODES, node("d"))
        await until(lambda: meant_for() == ["a", "b", "d"])
        await client.fine("DELETE", f"{NODES}/a")
        await until(lambda: meant_for() == ["b", "d"])
        await world.reports("daemonsets", "agent", desiredNumberScheduled=2, currentNumberScheduled=2)


async def test_the_pods_of_a_deleted_node_are_replaced() -> None:
    async with running() as (simulator, client):
        world = World(simulator, client)
        await client.fine("POST", NODES, node("n"))
        await client.fine("POST", f"{APPS}/replicasets", workload(replicas=2))
        await until(lambda: world.all_run(2))
        before = set(world.names())
        await client.fine("DELETE", f"{NODES}/n")
        await until(lambda: len(world.names()) == 2 and before.isdisjoint(world.names()))


async def test_a_template_that_is_rejected_is_reported() -> None:
    async with running() as (simulator, client):
        world = World(simulator, client)
        await client.fine("POST", NODES, node("n"))
        odd = workload(replicas=2)
        odd["spec"]["template"]["spec"]["priorityClassName"] = "none"
        await client.fine("POST", f"{APPS}/replicasets", odd)
        status = await world.reports("replicasets", "web", replicas=0)
        (failure,) = status["conditions"]
        assert (failure["type"], failure["reason"]) == ("ReplicaFailure", "FailedCreate")
        assert "no PriorityClass with name none was found" in failure["message"]
        code, answer = await client.call("POST", DEPLOYMENTS, workload(labels={"app": "x"}) | {"spec": {
            "selector": {"matchLabels": {"app": "y"}}, "template": odd["spec"]["template"]}})  # fmt: skip
        assert code == 422
        assert "`selector` does not match template `labels`" in answer["message"]


async def test_the_same_seed_gives_the_same_names() -> None:
    names = []
    for _ in range(2):
        async with running(seed=7) as (simulator, client):
            world = World(simulator, client)
            await client.fine("POST", DEPLOYMENTS, workload(replicas=3))
            await world.reports("deployments", "web", replicas=3)
            names.append(world.names())
    assert names[0] == names[1]


def replica_set(size: int, available: int) -> Object:
    return {"spec": {"replicas": size}, "status": {"replicas": size, "availableReplicas": available}}


@pytest.mark.parametrize(
    ("strategy", "latest", "old", "sizes"),
    [
        ({}, (0, 0), (8, 8), [(0, 2)]),
        ({}, (2, 0), (8, 8), [(1, 6)]),
        ({}, (2, 2), (6, 6), [(0, 4)]),
        ({}, (4, 4), (6, 6), [(1, 2)]),
        ({}, (4, 0), (6, 6), []),
        ({}, (8, 8), (2, 2), [(1, 0)]),
        ({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}, (0, 0), (8, 8), [(1, 7)]),
        ({"type": "Recreate"}, (0, 0), (8, 8), [(1, 0)]),
    ],
    ids=["begins", "frees-the-unavailable", "grows", "shrinks", "waits", "ends", "limits-of-zero", "recreate"],
)
async def test_a_rollout_keeps_its_limits(
    strategy: Object, latest: tuple[int, int], old: tuple[int, int], sizes: list[tuple[int, int]]
) -> None:
    sets = [replica_set(*latest), replica_set(*old)]
    changed = next_sizes({"replicas": 8, "strategy": strategy}, sets[0], [sets[1]])
    assert [(sets.index(each), size) for each, size in changed] == sizes


async def test_equal_templates_have_equal_hashes() -> None:
    template = workload()["spec"]["template"]
    same = {"spec": template["spec"] | {"restartPolicy": "Always"}, "metadata": {"creationTimestamp": None}}
    same["metadata"] |= template["metadata"]
    assert template_hash(same) == template_hash(template)
    assert template_hash(workload(image="i:2")["spec"]["template"]) != template_hash(template)
