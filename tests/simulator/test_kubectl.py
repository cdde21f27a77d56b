"""The real kubectl works with the simulator."""

import asyncio
import re
import shutil
from pathlib import Path

import pytest

from testing.simulator.resources import PODS as TYPE_OF_PODS
from tests.simulator.support import NODES, PODS, binding, node, running
from tests.supervisor.waiting import until

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH; .ci/run installs it"),
]
DEADLINE = 30.0

MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "web:1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: web}}
spec: {containers: [{name: c, image: "web:1"}]}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: leader, namespace: kube-system}
spec: {holderIdentity: me}
"""


GROUPS = """
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {name: ours}
spec: {schedulingPolicy: {gang: {minCount: 3}}}
---
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: theirs}
spec: {minMember: 3}
---
apiVersion: scheduling.k8s.io/v1alpha2
kind: Workload
metadata: {name: work}
spec: {podGroupTemplates: [{name: workers, schedulingPolicy: {basic: {}}}]}
"""


class Kubectl:
    def __init__(self, url: str, home: Path) -> None:
        self._flags = ("--server", url, "--cache-dir", str(home / "cache"), "--kubeconfig", "/dev/null")

    async def __call__(self, *arguments: str, code: int = 0) -> str:
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            *self._flags,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), DEADLINE)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        assert process.returncode == code, f"kubectl {' '.join(arguments)}: {output.decode()}"
        return output.decode()


async def test_kubectl_works_against_the_simulator(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(MANIFEST)
    async with running() as (simulator, client):
        kubectl = Kubectl(simulator.url, tmp_path)
        await client.fine("POST", NODES, node("n"))
        assert "poddisruptionbudgets" in await kubectl("api-resources")

        assert "deployment.apps/web created" in await kubectl("apply", "-f", str(manifest))
        manifest.write_text(MANIFEST.replace("replicas: 2", "replicas: 3"))
        applied = await kubectl("apply", "-f", str(manifest))
        assert "deployment.apps/web configured" in applied
        assert "pod/p unchanged" in applied

        await client.fine("POST", f"{PODS}/p/binding", binding("p", "n"))
        await kubectl("wait", "pod/p", "--for=condition=Ready", "--timeout=5s")
        assert "Running" in await kubectl("get", "pods", "-l", "app=web", "-o", "wide")
        assert "Node:" in await kubectl("describe", "pod", "p")
        assert "default" in await kubectl("describe", "node", "n")
        assert "the simulator runs no containers" in await kubectl("logs", "p", code=1)

        await kubectl("label", "node", "n", "zone=a")
        await kubectl("taint", "node", "n", "key=value:NoSchedule")
        await kubectl("cordon", "n")
        assert "Ready,SchedulingDisabled" in await kubectl("get", "nodes")
        changed = simulator.stored("nodes", "n")
        assert changed["metadata"]["labels"] == {"zone": "a"}
        assert {taint["key"] for taint in changed["spec"]["taints"]} == {"key"}

        await kubectl("scale", "deployment", "web", "--replicas=7")
        assert await kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "7"
        assert "me" in await kubectl("get", "leases", "-A")
        assert "No resources" in await kubectl("get", "events")

        await kubectl("delete", "deployment", "--all", "--timeout=10s")
        await kubectl("drain", "n", "--force", "--timeout=10s")
        await until(lambda: not len(simulator.cluster.store.bucket(TYPE_OF_PODS)))


async def test_a_deployment_with_kubectl(tmp_path: Path) -> None:
    """As a newcomer types it; the test is the scheduler."""
    async with running() as (simulator, client):
        kubectl = Kubectl(simulator.url, tmp_path)
        await client.fine("POST", NODES, node("n"))
        assert "created" in await kubectl("create", "deployment", "web", "--image=nginx", "--replicas=3")
        await until(lambda: len(simulator.cluster.store.bucket(TYPE_OF_PODS)) == 3)
        for item in simulator.cluster.store.bucket(TYPE_OF_PODS).in_order():
            await client.fine("POST", f"{PODS}/{item.name}/binding", binding(item.name, "n"))
        assert "successfully rolled out" in await kubectl("rollout", "status", "deployment/web", "--timeout=10s")
        shown = await kubectl("get", "deployments,replicasets", "-o", "wide")
        assert re.search(r"^deployment.apps/web +3/3 +3 +3 +\d+s +nginx +nginx +app=web$", shown, re.MULTILINE)
        assert re.search(r"^replicaset.apps/web-\w+ +3 +3 +3 +\d+s ", shown, re.MULTILINE)
        assert "3 desired | 3 updated | 3 total | 3 available" in await kubectl("describe", "deployment", "web")
        assert "1         <none>" in await kubectl("rollout", "history", "deployment/web")
        assert "created" in await kubectl("create", "job", "sum", "--image=busybox", "--", "true")
        assert re.search(r"^sum +Running +0/1 ", await kubectl("get", "jobs"), re.MULTILINE)
        assert "deleted" in await kubectl("delete", "deployment,job", "--all", "--timeout=10s")
        await until(lambda: not len(simulator.cluster.store.bucket(TYPE_OF_PODS)))


async def test_pod_groups_with_kubectl(tmp_path: Path) -> None:
    manifest = tmp_path / "groups.yaml"
    manifest.write_text(GROUPS)
    async with running() as (simulator, _):
        kubectl = Kubectl(simulator.url, tmp_path)
        applied = await kubectl("apply", "-f", str(manifest))
        assert "podgroup.scheduling.k8s.io/ours created" in applied
        assert "podgroup.scheduling.x-k8s.io/theirs created" in applied
        assert "workload.scheduling.k8s.io/work created" in applied
        manifest.write_text(GROUPS.replace("minMember: 3", "minMember: 5"))
        applied = await kubectl("apply", "-f", str(manifest))
        assert "podgroup.scheduling.k8s.io/ours unchanged" in applied
        assert "podgroup.scheduling.x-k8s.io/theirs configured" in applied
        assert "gang" in await kubectl("get", "podgroups.scheduling.k8s.io")
        assert "theirs" in await kubectl("get", "pg")
        assert "5" in await kubectl("get", "pg", "theirs", "-o", "jsonpath={.spec.minMember}")
        assert "work" in await kubectl("get", "workloads")
        await kubectl("delete", "-f", str(manifest), "--timeout=10s")
        assert "No resources" in await kubectl("get", "podgroups.scheduling.k8s.io,pg")
