"""A whole Flotilla at the server: every family of plugins decides something, and the server receives the result.

The pods ask for the nodes of these tests alone, and it is the tests that play the kubelet. So it does not matter what
else is in the cluster.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.config.settings import Settings
from tests.contract.sandbox import NODES, OWNER, VOLUMES, Sandbox, condition_of
from tests.contract.server import STRATEGIC, Object, Server
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  resourceNamespace: {name}
profiles:
- schedulerName: {name}
"""
HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
GROUPS = "/apis/scheduling.k8s.io/v1alpha2"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline(
    server: Server, sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pipeline]:
    """One worker and one binder, with Leases in the namespace of the tests. Checks that no service logs an error."""
    config = Path(tmp_path_factory.mktemp("contract")) / "scheduler.yaml"
    config.write_text(CONFIG.format(name=sandbox.name))
    settings = Settings(prefix=sandbox.name, config=str(config))
    options = PipelineOptions(workers=1, settings=settings, api=server.settings)
    async with Pipeline.running(options) as running:
        yield running
        assert [line for line in running.log_lines if " ERROR " in line] == []


@pytest_asyncio.fixture(loop_scope="module")
async def crew(pipeline: Pipeline, sandbox: Sandbox, request: pytest.FixtureRequest) -> AsyncIterator["Crew"]:
    assert pipeline.processes
    made = Crew(sandbox, request.node.name.removeprefix("test_").replace("_", "-")[:30].strip("-"))
    yield made
    await made.leave()


class Crew:
    """The nodes and pods of one test."""

    def __init__(self, sandbox: Sandbox, name: str) -> None:
        self.sandbox = sandbox
        self.server = sandbox.server
        self.name = name
        self._nodes: list[str] = []

    async def node(
        self, name: str, labels: dict[str, str] | None = None, spec: Object | None = None, **amounts: str
    ) -> str:
        made = await self.sandbox.node(f"{self.name}-{name}", {"crew": self.name, **(labels or {})}, spec, **amounts)
        self._nodes.append(made)
        return made

    def host(self, name: str) -> str:
        return self.sandbox.unique(f"{self.name}-{name}")

    def path(self, name: str) -> str:
        return f"{self.sandbox.pods}/{self.name}-{name}"

    async def pod(self, name: str, labels: dict[str, str] | None = None, cpu: str = "100m", **spec: Any) -> None:
        container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}
        selector = {"crew": self.name, OWNER: self.sandbox.name}
        given = {"schedulerName": self.sandbox.name, "nodeSelector": selector, "containers": [container]}
        labelled = {"crew": self.name, **(labels or {})}
        await self.sandbox.pod(f"{self.name}-{name}", labelled, **{**given, **spec})

    async def get(self, name: str) -> Object:
        return await self.server.get(self.path(name))

    async def group(self, least: int, **spec: Any) -> Object | None:
        """A group of the test's name; None if the server has none."""
        if (await self.server.ask("GET", GROUPS)).status == 404:
            return None
        policy = {"schedulingPolicy": {"gang": {"minCount": least}}}
        folder = f"{GROUPS}/namespaces/{self.sandbox.name}/podgroups"
        return await self.sandbox.of_new_class(folder, {"metadata": {"name": self.name}, "spec": policy | spec})

    async def group_is(self, status: str, reason: str) -> None:
        """Wait until the group's condition says so."""
        path = f"{GROUPS}/namespaces/{self.sandbox.name}/podgroups/{self.name}"

        async def told() -> bool:
            condition = condition_of(await self.server.get(path), "PodGroupScheduled")
            return (condition.get("status"), condition.get("reason")) == (status, reason)

        await self.sandbox.until(told, f"group {self.name} is not {status}: {reason}")

    async def lands(self, name: str, *nodes: str) -> str:
        """Wait until the pod is bound; to one of these nodes, if any are named."""

        async def node_of() -> str:
            return str((await self.get(name))["spec"].get("nodeName", ""))

        node = str(await self.sandbox.until(node_of, f"{name} is not bound"))
        assert not nodes or node in {self.host(each) for each in nodes}, f"{name} is on {node}"
        condition = condition_of(await self.get(name), "PodScheduled")
        assert condition["status"] == "True"
        return node

    async def waits(self, name: str, *reasons: str) -> None:
        """Wait until its condition and an Event say that it cannot be scheduled, and why."""

        async def message() -> str:
            condition = condition_of(await self.get(name), "PodScheduled")
            said = str(condition.get("message", "")) if condition.get("reason") == "Unschedulable" else ""
            return said if all(reason in said for reason in reasons) else ""

        await self.sandbox.until(message, f"{name} is not told {reasons}")
        # An Event keeps its first text, which may be of an attempt that had not seen all nodes.
        await self.is_said(name, "FailedScheduling", " nodes are available: ")

    async def is_said(self, name: str, reason: str, note: str) -> None:
        selector = f"regarding.name%3D{self.name}-{name}%2Creason%3D{reason}"

        async def said() -> bool:
            listed = await self.server.get(f"{self.sandbox.events}?fieldSelector={selector}")
            return any(note in item.get("note", "") for item in listed["items"])

        await self.sandbox.until(said, f"{name}: no event {reason}: {note}")

    async def ends(self, name: str) -> None:
        """Remove a terminating pod, as its kubelet does."""

        async def told() -> bool:
            return "deletionTimestamp" in (await self.get(name))["metadata"]

        await self.sandbox.until(told, f"{name} is not told to go")
        await self.server.delete(f"{self.path(name)}?gracePeriodSeconds=0")

    async def leave(self) -> None:
        await self.server.delete(f"{self.sandbox.pods}?labelSelector=crew%3D{self.name}&gracePeriodSeconds=0")
        for node in self._nodes:
            await self.server.delete(f"{NODES}/{node}")


def required(key: str, operator: str, *values: str) -> Object:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def with_ports(*ports: int) -> list[Object]:
    return [{"name": "main", "image": "app:1", "ports": [{"containerPort": port, "hostPort": port} for port in ports]}]


async def test_resources(crew: Crew) -> None:
    await crew.node("a", cpu="1")
    await crew.pod("first", cpu="800m")
    await crew.lands("first", "a")
    await crew.is_said("first", "Scheduled", f"Successfully assigned {crew.sandbox.name}/{crew.name}-first to ")
    await crew.pod("second", cpu="800m")
    await crew.waits("second", "Insufficient cpu")
    await crew.node("b", cpu="1")
    await crew.lands("second", "b")
    await crew.pod("third", cpu="800m")
    await crew.waits("third", "2 Insufficient cpu")
    await crew.server.delete(f"{crew.path('first')}?gracePeriodSeconds=0")
    await crew.lands("third", "a")


async def test_node_affinity_and_taints(crew: Crew) -> None:
    taint = {"key": "example.com/own", "value": "x", "effect": "NoSchedule"}
    specs: dict[str, Object] = {"free": {}, "cordoned": {"unschedulable": True}, "tainted": {"taints": [taint]}}
    for name, spec in specs.items():
        await crew.node(name, {"kind": name}, spec)
    await crew.pod("affine", affinity=required("kind", "In", "free", "other"))
    await crew.lands("affine", "free")
    await crew.pod("nowhere", affinity=required("kind", "In", "other"))
    await crew.waits("nowhere", "didn't match Pod's node affinity/selector")
    tolerations = [{"key": "example.com/own", "operator": "Exists"}]
    await crew.pod("tolerates", affinity=required("kind", "NotIn", "free"), tolerations=tolerations)
    await crew.lands("tolerates", "tainted")
    await crew.pod("shuns", affinity=required("kind", "NotIn", "free"))
    await crew.waits("shuns", "untolerated taint", "were unschedulable")
    await crew.server.patch(f"{NODES}/{crew.host('tainted')}", {"spec": {"taints": None}})
    await crew.lands("shuns", "tainted")


async def test_host_ports(crew: Crew) -> None:
    for name in "ab":
        await crew.node(name)
    for name in ("first", "second"):
        await crew.pod(name, containers=with_ports(8080))
    assert await crew.lands("first") != await crew.lands("second")
    await crew.pod("third", containers=with_ports(8080))
    await crew.waits("third", "didn't have free ports for the requested pod ports")


async def test_spread_and_pod_affinity(crew: Crew) -> None:
    for zone in "ab":
        await crew.node(zone, {ZONE: zone})
        # Pods may be told of before nodes: both are known once a pod is on each.
        await crew.pod(f"on-{zone}", affinity=required(ZONE, "In", zone))
        await crew.lands(f"on-{zone}", zone)
    chosen = {"labelSelector": {"matchLabels": {"app": "even"}}, "topologyKey": ZONE}
    even = {**chosen, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    for name in ("even-0", "even-1"):
        await crew.pod(name, {"app": "even"}, topologySpreadConstraints=[even])
    assert await crew.lands("even-0") != await crew.lands("even-1")
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [chosen]}}
    await crew.pod("apart", affinity=apart)
    await crew.waits("apart", "didn't match pod anti-affinity rules")
    leader = {"labelSelector": {"matchLabels": {"app": "leader"}}, "topologyKey": HOST}
    await crew.pod("leader", {"app": "leader"})
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [leader]}}
    await crew.pod("follower", affinity=near)
    assert await crew.lands("follower") == await crew.lands("leader")


async def test_local_volumes(crew: Crew) -> None:
    """Volumes are bound with the pod. The test plays the controller that completes the claim's binding."""
    for name in "ab":
        await crew.node(name)
    name = f"{crew.name}-local"
    fields: Object = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    of_class = (await crew.sandbox.make(CLASSES, name, **fields))["metadata"]["name"]
    term = required(HOST, "In", crew.host("b"))["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    spec = {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": of_class,
        "nodeAffinity": {"required": term},
        "local": {"path": "/data"},
    }
    volume = f"{VOLUMES}/{(await crew.sandbox.make(VOLUMES, name, spec=spec))['metadata']['name']}"
    await crew.server.patch(f"{volume}/status", {"status": {"phase": "Available"}})
    wanted = {"accessModes": ["ReadWriteOnce"], "storageClassName": of_class}
    claim = {"metadata": {"name": name}, "spec": {**wanted, "resources": {"requests": {"storage": "5Gi"}}}}
    await crew.server.post(crew.sandbox.claims, claim)
    await crew.pod("p", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": name}}])

    async def given() -> Object:
        return dict((await crew.server.get(volume))["spec"].get("claimRef") or {})

    assert (await crew.sandbox.until(given, "no volume is reserved for the claim"))["name"] == name
    done = {"pv.kubernetes.io/bind-completed": "yes"}
    full = volume.rpartition("/")[2]
    bound = {"metadata": {"annotations": done}, "spec": {"volumeName": full}}
    await crew.server.patch(f"{crew.sandbox.claims}/{name}", bound)
    await crew.lands("p", "b")
    await crew.pod("missing", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "no-such-claim"}}])
    await crew.waits("missing", 'persistentvolumeclaim "no-such-claim" not found')


class Devices:
    """A class, and a slice of GPUs for each node of a test."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._server, self._sandbox = crew.server, crew.sandbox
        self.claims = f"/apis/resource.k8s.io/v1/namespaces/{crew.sandbox.name}/resourceclaims"
        self.driver = f"{crew.sandbox.name}.example.com"
        self.resource = f"{crew.sandbox.name}.example.com/gpu"
        self.device_class = crew.sandbox.unique(crew.name)

    async def begin(self) -> None:
        selectors = [{"cel": {"expression": f'device.driver == "{self.driver}"'}}]
        spec = {"selectors": selectors, "extendedResourceName": self.resource}
        await self._sandbox.make("/apis/resource.k8s.io/v1/deviceclasses", self._crew.name, spec=spec)

    async def put(self, node: str, *names: str) -> None:
        pool = {"name": self._crew.host(node), "generation": 1, "resourceSliceCount": 1}
        spec = {
            "driver": self.driver,
            "pool": pool,
            "nodeName": pool["name"],
            "devices": [{"name": each} for each in names],
        }
        await self._sandbox.make("/apis/resource.k8s.io/v1/resourceslices", f"{self._crew.name}-{node}", spec=spec)

    async def claim(self, name: str) -> Object:
        """How a pod names the claim."""
        full = f"{self._crew.name}-{name}"
        request = {"name": "r", "exactly": {"deviceClassName": self.device_class}}
        await self._server.post(self.claims, {"metadata": {"name": full}, "spec": {"devices": {"requests": [request]}}})
        return {"name": "gpu", "resourceClaimName": full}

    async def given(self, claim: str) -> tuple[str, list[str]]:
        """Its device, and the pods that it is reserved for."""
        status = (await self._server.get(f"{self.claims}/{claim}"))["status"]
        (result,) = status["allocation"]["devices"]["results"]
        return f"{result['pool']}/{result['device']}", sorted(each["name"] for each in status["reservedFor"])


async def test_devices(crew: Crew) -> None:
    devices = Devices(crew)
    await devices.begin()
    for node in "ab":
        await crew.node(node)
        await devices.put(node, "gpu-0")
    mine, shared = await devices.claim("mine"), await devices.claim("shared")
    await crew.pod("first", resourceClaims=[mine])
    node = await crew.lands("first")
    assert await devices.given(mine["resourceClaimName"]) == (f"{node}/gpu-0", [f"{crew.name}-first"])
    for name in ("second", "third"):
        await crew.pod(name, resourceClaims=[shared])
    other = await crew.lands("second")
    assert (other == node, await crew.lands("third")) == (False, other)
    users = [f"{crew.name}-second", f"{crew.name}-third"]
    assert await devices.given(shared["resourceClaimName"]) == (f"{other}/gpu-0", users)
    late = await devices.claim("late")
    await crew.pod("fourth", resourceClaims=[late])
    await crew.waits("fourth", "cannot allocate all claims")
    await crew.node("c")
    await devices.put("c", "gpu-0")
    await crew.lands("fourth", "c")
    await crew.pod("gated", resourceClaims=[{"name": "gpu", "resourceClaimName": f"{crew.name}-missing"}])
    await crew.node("d")
    await devices.put("d", "gpu-0")
    amounts = {"requests": {devices.resource: "1"}, "limits": {devices.resource: "1"}}
    await crew.pod("extended", containers=[{"name": "main", "image": "app:1", "resources": amounts}])
    await crew.lands("extended", "d")
    named = (await crew.get("extended"))["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    assert await devices.given(named) == (f"{crew.host('d')}/gpu-0", [f"{crew.name}-extended"])


async def test_priority_and_preemption(crew: Crew) -> None:
    names = {}
    for name, value in {"low": 1, "high": 1000}.items():
        made = await crew.sandbox.make(PRIORITIES, f"{crew.name}-{name}", value=value)
        names[name] = made["metadata"]["name"]
    await crew.node("a", cpu="1")
    await crew.pod("victim", cpu="800m", priorityClassName=names["low"])
    await crew.lands("victim", "a")
    await crew.pod("urgent", cpu="800m", priorityClassName=names["high"])

    async def marked() -> Object:
        return condition_of(await crew.get("victim"), "DisruptionTarget")

    assert (await crew.sandbox.until(marked, "the victim is not told why"))["reason"] == "PreemptionByScheduler"

    async def nominated() -> str:
        return str((await crew.get("urgent"))["status"].get("nominatedNodeName", ""))

    assert await crew.sandbox.until(nominated, "it is not nominated") == crew.host("a")
    await crew.ends("victim")
    await crew.lands("urgent", "a")


async def test_gates(crew: Crew) -> None:
    await crew.node("a")
    await crew.pod("gated", schedulingGates=[{"name": "example.com/wait"}])
    await crew.pod("free")
    await crew.lands("free", "a")
    gated = await crew.get("gated")
    assert condition_of(gated, "PodScheduled")["reason"] == "SchedulingGated"
    assert "nodeName" not in gated["spec"]
    await crew.server.patch(crew.path("gated"), {"spec": {"schedulingGates": None}}, STRATEGIC)
    await crew.lands("gated", "a")


async def test_gangs_where_they_are_served(crew: Crew) -> None:
    if (await crew.server.ask("GET", GROUPS)).status == 404:
        return
    await crew.node("a", cpu="1")
    await crew.group(2)
    member = {"podGroupName": crew.name}
    for name in ("first", "second"):
        await crew.pod(name, cpu="800m", schedulingGroup=member)
    await crew.waits("first")
    assert "nodeName" not in (await crew.get("second"))["spec"]
    await crew.group_is("False", "Unschedulable")
    await crew.node("b", cpu="1")
    assert await crew.lands("first") != await crew.lands("second")
    await crew.group_is("True", "Scheduled")


async def test_a_gang_goes_to_one_domain(crew: Crew) -> None:
    """One zone has room for one member only, as the group's constraints say if the server keeps them."""
    racks = {"topology": [{"key": ZONE}]}
    made = await crew.group(2, schedulingConstraints=racks)
    if made is None or made["spec"].get("schedulingConstraints") != racks:
        return
    for name, zone in (("a", "small"), ("b", "large"), ("c", "large")):
        await crew.node(name, {ZONE: zone}, cpu="1")
    for name in ("first", "second"):
        await crew.pod(name, cpu="800m", schedulingGroup={"podGroupName": crew.name})
    assert {await crew.lands("first"), await crew.lands("second")} == {crew.host("b"), crew.host("c")}


async def test_a_gang_preempts_for_all_of_its_members_by_the_priority_of_its_group(crew: Crew) -> None:
    await crew.sandbox.make(PRIORITIES, f"{crew.name}-high", value=1000)
    made = await crew.group(2, priorityClassName=crew.sandbox.unique(f"{crew.name}-high"))
    if made is None or not made["spec"].get("priority"):
        return
    for name in "ab":
        await crew.node(name, cpu="1")
        await crew.pod(f"low-{name}", cpu="800m")
    for name in "ab":
        await crew.lands(f"low-{name}")
    for name in ("first", "second"):
        await crew.pod(name, cpu="800m", schedulingGroup={"podGroupName": crew.name})
    for name in "ab":
        await crew.ends(f"low-{name}")
    assert await crew.lands("first") != await crew.lands("second")
    await crew.group_is("True", "Scheduled")


async def test_a_gang_shares_a_claim_that_is_reserved_for_its_group(crew: Crew) -> None:
    devices = Devices(crew)
    shared = await devices.claim("shared")
    made = await crew.group(2, resourceClaims=[shared])
    if made is None or "resourceClaims" not in made["spec"]:  # the gate DRAWorkloadResourceClaims is off
        return
    await devices.begin()
    for node in "ab":
        await crew.node(node)
        await devices.put(node, "gpu-0", "gpu-1")
    for name in ("first", "second"):
        await crew.pod(name, schedulingGroup={"podGroupName": crew.name}, resourceClaims=[shared])
    node = await crew.lands("first")
    assert await crew.lands("second") == node
    assert await devices.given(shared["resourceClaimName"]) == (f"{node}/gpu-0", [crew.name])
