"""A made-up cluster that looks like one that has run for a while: nodes in three zones, and the pods of its system.

    node 1, 2, 3, ...    zones a, b, c, a, ...    every fifth one is large, every tenth has devices and a taint

Names depend on the number of nodes only.
"""

import asyncio
from dataclasses import dataclass

from testing.simulator.cluster import SimulatedCluster
from testing.simulator.controllers import DEVICES, DRIVER, MEMORY, MODEL
from testing.simulator.discovery import VERSION
from testing.simulator.resources import NODES, PODS, Object, builtin
from testing.simulator.subresources import bind
from testing.simulator.volumes import CLASSES, IS_DEFAULT, PROVISIONER
from testing.simulator.workloads.daemon_sets import target_of
from testing.simulator.workloads.ownership import DAEMON_SETS, DEPLOYMENTS

PATIENCE = 60.0
"""Seconds for the controllers to make the pods of the system."""
REGION = "north-1"
ZONES = ("a", "b", "c")
SYSTEM = "kube-system"
DEVICE_CLASSES = builtin("deviceclasses", "resource.k8s.io")
KI = 1 << 10
RESERVED_CPU = 80
"""Millicores of each node that pods do not get."""
DNS_REPLICAS = 2


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one size."""

    name: str
    instance_type: str
    cpu: int
    memory_gi: int
    devices: int = 0


GENERAL = Pool("general", "standard-4", 4, 16)
LARGE = Pool("large", "standard-16", 16, 64)
GPU = Pool("gpu", "gpu-8", 8, 64, devices=4)
TAINT = {"key": "example.com/gpu", "value": "present", "effect": "NoSchedule"}


async def populate(cluster: SimulatedCluster, count: int, *, running: bool) -> None:
    """Create the nodes and, if controllers are `running`, the workloads of the system with their pods in place."""
    for made in nodes(cluster, count):
        cluster.create(NODES, "", made)
    device_class = {"spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}}
    if count:
        storage_class = {"provisioner": PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"}
        cluster.create(
            CLASSES, "", {"metadata": {"name": "standard", "annotations": {IS_DEFAULT: "true"}}, **storage_class}
        )
        cluster.create(DEVICE_CLASSES, "", {"metadata": {"name": DRIVER}, **device_class})
    if not running or not count:
        return
    agents = [_agent("network-agent", "100m", "64Mi"), _agent("node-metrics", "20m", "48Mi")]
    for agent in agents:
        cluster.create(DAEMON_SETS, SYSTEM, agent)
    cluster.create(DEPLOYMENTS, SYSTEM, _dns())
    pods = cluster.store.bucket(PODS)
    async with asyncio.timeout(PATIENCE):
        while len(pods) < len(agents) * count + DNS_REPLICAS:
            await asyncio.sleep(0)
    names = [item.name for item in cluster.store.bucket(NODES).items()]
    others = 0
    for item in pods.in_order(SYSTEM):
        node = target_of(item.decode()["spec"])
        if not node:
            node = names[others % count]
            others += 1
        bind(cluster, SYSTEM, item.name, {"target": {"kind": "Node", "name": node}})


def nodes(cluster: SimulatedCluster, count: int) -> list[Object]:
    made: dict[str, Object] = {}
    numbers: dict[tuple[str, str], int] = {}
    for index in range(count):
        pool = GPU if index % 10 == 9 else LARGE if index % 5 == 4 else GENERAL
        zone = ZONES[index % len(ZONES)]
        number = numbers[pool.name, zone] = numbers.get((pool.name, zone), 0) + 1
        name = f"{pool.name}-{zone}{number}"
        made[name] = _node(cluster, name, pool, zone, index)
    return list(made.values())


def _node(cluster: SimulatedCluster, name: str, pool: Pool, zone: str, index: int) -> Object:
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name,
        "node.kubernetes.io/instance-type": pool.instance_type,
        "node-role.kubernetes.io/worker": "",
        "topology.kubernetes.io/region": REGION,
        "topology.kubernetes.io/zone": f"{REGION}{zone}",
        "example.com/pool": pool.name,
    }
    metadata: Object = {"name": name, "labels": labels}
    spec: Object = {"providerID": f"simulated://{REGION}{zone}/{name}"}
    if pool.devices:
        metadata["annotations"] = {DEVICES: str(pool.devices), MODEL: "sim-100", MEMORY: "80Gi"}
        spec["taints"] = [TAINT]
    memory = pool.memory_gi * KI * KI
    capacity = {"cpu": str(pool.cpu), "memory": f"{memory}Ki", "ephemeral-storage": f"{100 * KI * KI}Ki"}
    allocatable = {
        "cpu": f"{pool.cpu * 1000 - RESERVED_CPU}m",
        "memory": f"{memory * 93 // 100}Ki",
        "ephemeral-storage": f"{90 * KI * KI}Ki",
    }
    addresses = [
        {"type": "InternalIP", "address": f"198.18.{index // 250}.{index % 250 + 1}"},  # reserved for benchmarks
        {"type": "Hostname", "address": name},
    ]
    status: Object = {
        "capacity": {**capacity, "pods": "110"},
        "allocatable": {**allocatable, "pods": "110"},
        "conditions": _conditions(cluster),
        "addresses": addresses,
        "nodeInfo": {
            "machineID": cluster.new_uid().replace("-", ""),
            "systemUUID": cluster.new_uid(),
            "bootID": cluster.new_uid(),
            "kernelVersion": "6.12.0-simulated",
            "osImage": "Simulated Linux",
            "containerRuntimeVersion": "simulated://1.0.0",
            "kubeletVersion": VERSION["gitVersion"].partition("+")[0],
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }
    return {"metadata": metadata, "spec": spec, "status": status}


def _conditions(cluster: SimulatedCluster) -> list[Object]:
    now = cluster.now()
    states = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "the simulated kubelet is ready"),
    ]
    return [
        {"type": type_, "status": status, "reason": reason, "message": message}
        | {"lastHeartbeatTime": now, "lastTransitionTime": now}
        for type_, status, reason, message in states
    ]


def _agent(name: str, cpu: str, memory: str) -> Object:
    """A DaemonSet with a pod on every node."""
    spec: Object = {"priorityClassName": "system-node-critical", "tolerations": [{"operator": "Exists"}]}
    spec |= {"hostNetwork": True, "containers": [_container(name, cpu, memory)]}
    return _workload(name, spec)


def _dns() -> Object:
    spec: Object = {"priorityClassName": "system-cluster-critical"}
    spec["containers"] = [_container("cluster-dns", "100m", "70Mi")]
    deployment = _workload("cluster-dns", spec)
    deployment["spec"]["replicas"] = DNS_REPLICAS
    return deployment


def _workload(name: str, spec: Object) -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    metadata = {"name": name, "labels": labels}
    return {"metadata": metadata, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def _container(name: str, cpu: str, memory: str) -> Object:
    resources = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}
    return {"name": name, "image": f"registry.example.com/{name}:1.0", "resources": resources}
