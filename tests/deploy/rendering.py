"""The manifests of k8s/ as kubectl makes them."""

import functools
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
K8S = ROOT / "k8s"
OVERLAYS = ("beside", "instead", "external", "core")
FOLDERS = (*(f"overlays/{name}" for name in OVERLAYS), "monitoring", "cli", "console")
NAMESPACE = "flotilla-system"
SERVICES = ("watcher", "queue", "snapshot", "cycle", "worker", "binder")
CORE = {"core": ("watcher", "queue", "snapshot", "cycle"), "worker": ("worker",), "binder": ("binder",)}
NAME_LABEL, COMPONENT_LABEL = "app.kubernetes.io/name", "app.kubernetes.io/component"

Object = dict[str, Any]


@functools.cache
def rendered(folder: str) -> list[Object]:
    """All objects that `kubectl apply -k` would send."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl to render the manifests with")
    done = subprocess.run([kubectl, "kustomize", str(K8S / folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    return [found for found in objects if found["kind"] in kinds]


def named(objects: list[Object], kind: str, name: str) -> Object:
    return next(found for found in of_kind(objects, kind) if found["metadata"]["name"] == name)


def workloads(objects: list[Object]) -> list[Object]:
    return of_kind(objects, "Deployment", "StatefulSet")


def pod_of(workload: Object) -> Object:
    spec: Object = workload["spec"]["template"]["spec"]
    return spec


def labels_of(workload: Object) -> dict[str, str]:
    """Of its pods."""
    labels: dict[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return labels


def components(overlay: str) -> Mapping[str, tuple[str, ...]]:
    """Our workloads, and the services that a process of each runs."""
    return CORE if overlay == "core" else {service: (service,) for service in SERVICES}


def service_of(workload: Object) -> str:
    """Which component of ours it is, empty if none."""
    labels = labels_of(workload)
    return labels[COMPONENT_LABEL] if labels[NAME_LABEL] == "flotilla" else ""


def selects(selector: Object | None, labels: dict[str, str]) -> bool:
    """As the API server judges a label selector; an empty one selects everything."""
    selector = selector or {}
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for term in selector.get("matchExpressions", []):
        assert term["operator"] == "In", term
        if labels.get(term["key"]) not in term["values"]:
            return False
    return True


def strings(value: object) -> Iterator[str]:
    """All texts in it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
