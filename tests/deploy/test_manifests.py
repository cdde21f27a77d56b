"""The manifests of k8s/: what the API server would say of them, and what it would not."""

import functools
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import msgspec
import pytest
import yaml  # type: ignore[import-untyped]

from shared.config.setting_sources import SOURCES
from shared.config.settings import Settings, serves_tls
from shared.runtime.serving import is_open
from shared.runtime.stopping import STOP_SECONDS
from tests.deploy.rendering import (
    FOLDERS,
    NAMESPACE,
    OVERLAYS,
    SERVICES,
    Object,
    components,
    labels_of,
    named,
    of_kind,
    pod_of,
    rendered,
    selects,
    service_of,
    strings,
    workloads,
)
from tools.cli.main import main
from tools.supervisor.options import SINGLE

VERSIONS = ("1.30", "1.36")
"""The oldest and the newest API server that is served."""
CUSTOM = frozenset({"PrometheusRule", "ServiceMonitor"})
"""Kinds of the Prometheus Operator, which Kubernetes has no schemas for."""
CLUSTER_WIDE = frozenset({"Namespace", "PriorityClass", "ClusterRole", "ClusterRoleBinding"})
MADE_BY_USERS = frozenset({*(f"flotilla-{service}" for service in (*SERVICES, "core")), "nats-server", "valkey-server"})
"""Secrets; docs/install.md says how."""
WITH_REDIS = frozenset({"queue", "snapshot", "worker"})

READ_SCHEMA = functools.cache(kubernetes_validate.utils.schema_contents)

every_folder = pytest.mark.parametrize("folder", FOLDERS)
every_overlay = pytest.mark.parametrize("overlay", OVERLAYS)


def objects(overlay: str) -> list[Object]:
    return rendered(f"overlays/{overlay}")


def containers(found: list[Object]) -> list[tuple[Object, Object]]:
    """(workload, container)"""
    return [(workload, each) for workload in workloads(found) for each in pod_of(workload)["containers"]]


# Schemas


@pytest.fixture(autouse=True)
def schemas_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_validate.utils, "schema_contents", READ_SCHEMA)


@pytest.mark.parametrize("version", VERSIONS)
def test_objects_are_as_their_schemas_say(version: str) -> None:
    all_of_them = {msgspec.json.encode(found, order="sorted"): found for each in FOLDERS for found in rendered(each)}
    for found in all_of_them.values():
        if found["kind"] not in CUSTOM:
            kubernetes_validate.validate(found, version, strict=True)


def test_the_schemas_are_strict() -> None:
    (nats,) = (each for each in of_kind(objects("beside"), "StatefulSet") if each["metadata"]["name"] == "nats")
    wrong = msgspec.json.decode(msgspec.json.encode(nats))
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@every_folder
def test_names_are_said_once_and_everything_is_in_our_namespace(folder: str) -> None:
    found = rendered(folder)
    names = [(each["kind"], each["metadata"]["name"]) for each in found]
    assert len(names) == len(set(names))
    for each in found:
        expected = None if each["kind"] in CLUSTER_WIDE else NAMESPACE
        assert each["metadata"].get("namespace") == expected, each["metadata"]["name"]


# Pods


@every_overlay
def test_every_service_is_there_more_than_once(overlay: str) -> None:
    ours = {service_of(each): each for each in workloads(objects(overlay)) if service_of(each)}
    assert ours.keys() == components(overlay).keys()
    assert all(each["spec"]["replicas"] >= 2 for each in ours.values())
    assert ours["worker"]["kind"] == "StatefulSet"
    for component, each in ours.items():
        (container,) = pod_of(each)["containers"]
        assert container["args"] == ["run", *components(overlay)[component]]
        assert container["image"].partition(":")[0] == "flotilla"


@pytest.mark.parametrize("folder", [*(f"overlays/{each}" for each in OVERLAYS), "console"])
def test_containers_are_watched_limited_and_locked_in(folder: str) -> None:
    for workload, container in containers(rendered(folder)):
        where = workload["metadata"]["name"]
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys(), where
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), where
        assert "memory" in container["resources"]["limits"], where
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, where


@every_overlay
def test_pods_have_no_owner_and_the_highest_priority_class(overlay: str) -> None:
    found = objects(overlay)
    assert named(found, "PriorityClass", "flotilla")["value"] == 10**9, "the highest that is not the system's"
    for workload in workloads(found):
        pod, where = pod_of(workload), workload["metadata"]["name"]
        assert pod["priorityClassName"] == "flotilla", where
        assert pod["enableServiceLinks"] is False, where
        context = pod["securityContext"]
        assert context["runAsNonRoot"] and context["runAsUser"] == context["runAsGroup"] == 65532, where
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, where


@every_overlay
def test_pods_have_time_to_end(overlay: str) -> None:
    for workload in workloads(objects(overlay)):
        assert pod_of(workload)["terminationGracePeriodSeconds"] >= 2 * STOP_SECONDS


@every_overlay
def test_probes_ask_for_what_services_answer(overlay: str) -> None:
    for workload, container in containers(objects(overlay)):
        if service_of(workload):
            asked = {probe: container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "liveness")}
            assert asked == {"startup": "/livez", "liveness": "/livez"}
            assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
            ports = {each["name"]: each["containerPort"] for each in container["ports"]}
            assert ports == {"https": int(environment(container)["FLOTILLA_HTTP_PORT"])}
            assert serves_tls(Settings(http_host=environment(container)["FLOTILLA_HTTP_HOST"]))
            for probe in ("startup", "liveness", "readiness"):
                request = container[f"{probe}Probe"]["httpGet"]
                assert (request["scheme"], request["port"]) == ("HTTPS", "https")
                assert is_open(request["path"])


@every_overlay
def test_selectors_select_their_own_pods_and_no_others(overlay: str) -> None:
    found = objects(overlay)
    owners = workloads(found)
    for owner in owners:
        selected = [each for each in owners if selects(owner["spec"]["selector"], labels_of(each))]
        assert selected == [owner]
    for budget in of_kind(found, "PodDisruptionBudget"):
        (selected_one,) = (each for each in owners if selects(budget["spec"]["selector"], labels_of(each)))
        assert selected_one["metadata"]["name"] == budget["metadata"]["name"]
        assert selected_one["spec"]["replicas"] > budget["spec"]["maxUnavailable"]
    for service in of_kind(found, "Service"):
        selector = {"matchLabels": service["spec"]["selector"]}
        (selected_one,) = (each for each in owners if selects(selector, labels_of(each)))
        named_ports = {port["name"] for container in pod_of(selected_one)["containers"] for port in container["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= named_ports
    budgets = {each["metadata"]["name"] for each in of_kind(found, "PodDisruptionBudget")}
    assert budgets == {f"flotilla-{component}" for component in components(overlay)}


@every_overlay
def test_replicas_avoid_each_other(overlay: str) -> None:
    for workload in workloads(objects(overlay)):
        if service_of(workload):
            pod = pod_of(workload)
            (apart,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
            (spread,) = pod["topologySpreadConstraints"]
            for selector in (apart["podAffinityTerm"]["labelSelector"], spread["labelSelector"]):
                assert selector == workload["spec"]["selector"]


# Settings


def environment(container: Object) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container.get("env", [])}


@every_overlay
def test_variables_are_settings(overlay: str) -> None:
    known = {source.variable for source in SOURCES}
    known |= {f"{source.variable}_FILE" for source in SOURCES if source.secret}
    for workload, container in containers(objects(overlay)):
        if service_of(workload):
            assert environment(container).keys() - {"POD_UID"} <= known


@every_overlay
def test_each_service_is_given_what_it_uses(overlay: str) -> None:
    for workload, container in containers(objects(overlay)):
        service = service_of(workload)
        if service:
            pod = pod_of(workload)
            given = environment(container)
            assert given["FLOTILLA_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
            services = components(overlay)[service]
            if set(services) & set(SINGLE):  # the uid of the pod, of which one container lives at a time
                assert given["POD_UID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
                assert given["FLOTILLA_IDENTITY"] == "$(FLOTILLA_NAME)-$(POD_UID)"
                names = [variable["name"] for variable in container["env"]]
                assert names.index("FLOTILLA_IDENTITY") > max(map(names.index, ("FLOTILLA_NAME", "POD_UID")))
            assert ("FLOTILLA_REDIS_URL_FILE" in given) == bool(WITH_REDIS & set(services))
            (source,) = given["FLOTILLA_FEATURE_GATES"].values()
            (config,) = (each["configMap"]["name"] for each in pod["volumes"] if "configMap" in each)
            assert source == {"name": config, "key": "feature-gates", "optional": True}
            assert pod["serviceAccountName"] == f"flotilla-{service}"
            assert pod["automountServiceAccountToken"] is True, "it asks for reviews of those who read its metrics"
            for variable in (
                "FLOTILLA_CONFIG",
                "FLOTILLA_NATS_URL_FILE",
                "FLOTILLA_NATS_CA",
                "FLOTILLA_REDIS_URL_FILE",
            ):
                if variable in given:
                    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
                    assert str(Path(given[variable]).parent) in mounts
            mounted = {each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
            assert mounted == {f"flotilla-{service}"}, "no secret of another service"


@every_overlay
def test_what_is_mounted_is_there(overlay: str) -> None:
    found = objects(overlay)
    maps = {each["metadata"]["name"] for each in of_kind(found, "ConfigMap")}
    secrets: set[str] = set()
    for workload, container in containers(found):
        volumes = {each["name"]: each for each in pod_of(workload)["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
        for volume in volumes.values():
            for source in volume.get("projected", {}).get("sources", [volume]):
                if "configMap" in source:
                    assert source["configMap"]["name"] in maps
                if "secret" in source:
                    secrets.add(source["secret"].get("secretName") or source["secret"]["name"])
    assert secrets <= MADE_BY_USERS
    accounts = {each["metadata"]["name"] for each in of_kind(found, "ServiceAccount")}
    assert accounts == {f"flotilla-{component}" for component in components(overlay)}


@every_overlay
def test_the_scheduler_configuration_is_right(overlay: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = (
        each for each in of_kind(objects(overlay), "ConfigMap") if each["metadata"]["name"].startswith("flotilla-")
    )
    path = tmp_path / "scheduler.yaml"
    path.write_text(found["data"]["scheduler.yaml"])
    assert main(["config", "validate", str(path)]) == 0
    assert "ok" in capsys.readouterr().out
    config = yaml.safe_load(path.read_text())
    assert config["leaderElection"]["resourceNamespace"] == NAMESPACE
    schedulers = {profile["schedulerName"] for profile in config["profiles"]}
    assert ("default-scheduler" in schedulers) == (overlay == "instead")


def test_our_own_pods_always_have_a_scheduler() -> None:
    """Those of `instead` by what runs before them, which is `beside`, and by themselves."""
    wanted = {pod_of(each).get("schedulerName", "default-scheduler") for each in workloads(objects("instead"))}
    assert wanted == {"flotilla"}
    for overlay in ("beside", "external", "core"):
        assert not any("schedulerName" in pod_of(each) for each in workloads(objects(overlay)))


def test_monitoring_finds_the_services() -> None:
    found = rendered("monitoring")
    (monitor,) = of_kind(found, "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    (service,) = of_kind(found, "Service")
    others = of_kind(objects("beside"), "Service")
    assert [selects(monitor["spec"]["selector"], each["metadata"]["labels"]) for each in (service, *others)] == [
        True,
        *(False for _ in others),
    ]
    (port,) = service["spec"]["ports"]
    assert port["name"] == endpoint["port"]
    assert endpoint["scheme"] == "https" and endpoint["bearerTokenFile"]
    (role,) = of_kind(found, "ClusterRole")
    assert role["rules"] == [{"nonResourceURLs": [endpoint["path"]], "verbs": ["get"]}]
    for workload, container in containers(objects("beside")):
        assert selects({"matchLabels": service["spec"]["selector"]}, labels_of(workload)) == bool(service_of(workload))
        if service_of(workload):
            assert {port["targetPort"]} <= {each["name"] for each in container["ports"]}


def test_no_secret_is_in_the_manifests() -> None:
    for folder in FOLDERS:
        assert of_kind(rendered(folder), "Secret") == []
        assert not [text for text in strings(rendered(folder)) if "://flotilla:" in text]
