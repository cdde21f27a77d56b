"""A cluster that runs already: its nodes, and its pods, which are on them or fit nowhere."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shared.model.wellknown import HOSTNAME, ZONE

Object = dict[str, Any]

ZONES = 10
APPS = 2_000
IMAGES = 20
IMAGES_A_NODE = 10
TOLERATIONS = [
    {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for why in ("not-ready", "unreachable")
]


@dataclass(frozen=True, slots=True)
class Cluster:
    """`pending`: no node has what a pod asks for."""

    node_count: int
    pod_count: int
    pending: bool

    def nodes(self) -> Iterator[Object]:
        amounts = {"cpu": "4", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
        for number in range(self.node_count):
            name = _node(number)
            labels = {HOSTNAME: name, ZONE: f"zone-{number % ZONES}", "kubernetes.io/arch": "amd64"}
            first = number % IMAGES
            yield {
                "metadata": {"name": name, "labels": labels},
                "spec": {"providerID": f"cloud:///zone/i-{number:016x}"},
                "status": {
                    "allocatable": amounts,
                    "capacity": amounts,
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                    "images": [_image((first + place) % IMAGES) for place in range(IMAGES_A_NODE)],
                },
            }

    def pods(self) -> Iterator[Object]:
        for number in range(self.pod_count):
            app = number % APPS
            name = f"app-{app:04}"
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
            placed = {} if self.pending else {"nodeName": _node(number % self.node_count)}
            yield {
                "metadata": {"name": f"{name}-{number:07}", "labels": {"app": name}, "ownerReferences": [owner]},
                "spec": {**placed, "containers": [self._container(app)], "tolerations": TOLERATIONS},
            }

    def _container(self, app: int) -> Object:
        return {
            "name": "app",
            "image": f"app-{app % IMAGES}:v1",
            "resources": {"requests": {"cpu": "1000" if self.pending else "100m", "memory": f"{500 + app % 50}Mi"}},
            "env": [{"name": f"SETTING_{place}", "value": "x" * 40} for place in range(8)],
        }


def _node(number: int) -> str:
    return f"node-{number:06}"


def _image(number: int) -> Object:
    digest = f"app-{number}@sha256:{number:064x}"
    return {"names": [digest, f"app-{number}:v1"], "sizeBytes": 100_000_000 + number}
