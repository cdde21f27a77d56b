import json
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from shared.errors import InvalidObject
from shared.model.objects import (
    LabelSelector,
    Node,
    Pod,
    Taint,
    dec_hook,
    decode_node,
    decode_pod,
    enc_hook,
    encode_json,
    encode_msgpack,
    node_from,
    pod_from,
    validate_node,
)
from shared.model.quantity import Quantity, parse_quantity
from testing.builders import expr, node, pod, selector, term

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def raw_pod(spec: Any = None, status: Any = None, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", **metadata}, "spec": spec or {}, "status": status or {}}


def raw_node(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n"}, "spec": spec, "status": {"allocatable": {"cpu": "4"}}}


def with_requests(**requests: Any) -> dict[str, Any]:
    return {"containers": [{"name": "a"}, {"name": "b", "resources": {"requests": {"memory": "1", **requests}}}]}


def with_node_term(**parts: Any) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}, parts]}}}}


TERM = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[1]"
ANTI = f"spec.affinity.podAntiAffinity.{REQUIRED}[0]"


def with_anti_affinity(**parts: Any) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {REQUIRED: [parts]}}}


def test_every_part_of_a_pod_is_read() -> None:
    built = pod_from(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "p",
                "namespace": "ns",
                "uid": "u",
                "labels": {"a": "b"},
                "creationTimestamp": None,
                "ownerReferences": [{"kind": "ReplicaSet", "name": "rs", "uid": "x", "controller": True}],
                "managedFields": [{"manager": "kubectl"}],
            },
            "spec": {
                "nodeName": "n",
                "priority": 7,
                "hostNetwork": True,
                "containers": [
                    {
                        "name": "c",
                        "image": "i:1",
                        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": 2}},
                        "ports": [{"containerPort": 80, "hostPort": 81, "hostIP": "10.0.0.1"}],
                    }
                ],
                "volumes": [
                    {"name": "a", "persistentVolumeClaim": {"claimName": "c"}},
                    {"name": "b", "awsElasticBlockStore": {"volumeID": "v", "readOnly": True}},
                    {"name": "c", "azureDisk": {"diskName": "d", "diskURI": "u"}},
                    {"name": "d", "gcePersistentDisk": {"pdName": "g"}},
                    {"name": "e", "rbd": {"monitors": ["m"], "image": "i"}},
                    {"name": "f", "iscsi": {"iqn": "q", "targetPortal": "t", "lun": 1}},
                    {"name": "g", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
                    {"name": "h", "image": {"reference": "i:2"}},
                    {"name": "i", "emptyDir": {}},
                ],
                "topologySpreadConstraints": [
                    {
                        "maxSkew": 2,
                        "topologyKey": "zone",
                        "whenUnsatisfiable": "DoNotSchedule",
                        "minDomains": 3,
                        "nodeTaintsPolicy": "Honor",
                        "matchLabelKeys": ["v"],
                    }
                ],
                "schedulingGates": [{"name": "g"}],
                "resourceClaims": [{"name": "r", "resourceClaimName": "rc"}],
            },
            "status": {
                "phase": "Running",
                "nominatedNodeName": "m",
                "startTime": "2024-01-01T00:00:00Z",
                "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "3"}}],
            },
        }
    )
    assert (built.key, built.uid, built.priority) == ("ns/p", "u", 7)
    assert (built.spec.node_name, built.spec.scheduler_name) == ("n", "default-scheduler")
    assert built.spec.host_network
    assert built.metadata.owner_references[0].controller
    container = built.spec.containers[0]
    assert container.resources.requests == {"cpu": parse_quantity("1")}
    assert container.resources.limits == {"cpu": parse_quantity("2")}
    port = container.ports[0]
    assert (port.container_port, port.host_port, port.protocol, port.host_ip) == (80, 81, "TCP", "10.0.0.1")
    a, b, c, d, e, f, g, h, i = built.spec.volumes
    assert a.persistent_volume_claim and a.persistent_volume_claim.claim_name == "c"
    assert b.aws_elastic_block_store
    assert (b.aws_elastic_block_store.volume_id, b.aws_elastic_block_store.read_only) == ("v", True)
    assert c.azure_disk and (c.azure_disk.disk_name, c.azure_disk.disk_uri) == ("d", "u")
    assert d.gce_persistent_disk and d.gce_persistent_disk.pd_name == "g"
    assert e.rbd and (e.rbd.monitors, e.rbd.image, e.rbd.pool) == (["m"], "i", "rbd")
    assert f.iscsi and (f.iscsi.iqn, f.iscsi.target_portal, f.iscsi.lun) == ("q", "t", 1)
    assert g.ephemeral is not None
    assert h.image and h.image.reference == "i:2"
    assert i.name == "i"
    constraint = built.spec.topology_spread_constraints[0]
    assert (constraint.max_skew, constraint.min_domains, constraint.match_label_keys) == (2, 3, ["v"])
    assert (constraint.node_affinity_policy, constraint.node_taints_policy) == ("Honor", "Honor")
    assert built.spec.scheduling_gates[0].name == "g"
    assert built.spec.resource_claims[0].resource_claim_name == "rc"
    assert (built.status.phase, built.status.nominated_node_name) == ("Running", "m")
    assert built.status.container_statuses[0].allocated_resources == {"cpu": parse_quantity("3")}


def test_defaults_of_a_pod() -> None:
    built = decode_pod(b'{"metadata":{"name":"p"}}')
    assert (built.name, built.namespace, built.key, built.uid) == ("p", "default", "default/p", "default/p")
    assert (built.metadata.namespace, built.metadata.uid) == ("default", "default/p")
    assert (built.priority, built.spec.scheduler_name) == (0, "default-scheduler")


def test_every_part_of_a_node_is_read() -> None:
    built = decode_node(
        json.dumps(
            {
                "metadata": {"name": "n", "labels": {"zone": "a"}},
                "spec": {"unschedulable": True, "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]},
                "status": {
                    "allocatable": {"cpu": "4", "pods": 110},
                    "images": [{"names": ["i:1", "i@sha"], "sizeBytes": 5}],
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        ).encode()
    )
    assert built.name == "n"
    assert built.spec.unschedulable
    assert built.spec.taints == [Taint(key="k", value="v", effect="NoExecute")]
    assert built.status.allocatable == {"cpu": parse_quantity("4"), "pods": parse_quantity("110")}
    assert (built.status.images[0].names, built.status.images[0].size_bytes) == (["i:1", "i@sha"], 5)
    assert built.status.conditions[0].type == "Ready"


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": None, "tolerations": None, "volumes": None, "priority": None, "schedulerName": None},
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": None}}}},
        {"containers": [{"name": "a", "resources": {"requests": None, "limits": {"cpu": None}}, "ports": None}]},
    ],
)
def test_null_means_absent(spec: dict[str, Any]) -> None:
    raw = raw_pod(spec, labels=None, annotations=None, creationTimestamp=None)
    built = decode_pod(json.dumps(raw).encode())
    assert built == pod_from(raw)
    assert built.metadata.labels == {}
    assert (built.spec.tolerations, built.spec.scheduler_name) == ([], "default-scheduler")


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        (with_requests(cpu="1x"), "spec.containers[1].resources.requests.cpu", "unknown suffix 'x'"),
        (with_requests(cpu=""), "spec.containers[1].resources.requests.cpu", "no digits"),
        (with_requests(cpu="-1"), "spec.containers[1].resources.requests.cpu", "must not be negative, is -1"),
        (with_requests(cpu=-1), "spec.containers[1].resources.requests.cpu", "must not be negative"),
        (with_requests(cpu=True), "spec.containers[1].resources.requests.cpu", "not a boolean"),
        (with_requests(cpu=[]), "spec.containers[1].resources.requests.cpu", "not an array"),
        (
            with_requests(**{"example.com/gpu": {}}),
            "spec.containers[1].resources.requests.example.com/gpu",
            "an object",
        ),
        (
            {"containers": [{"resources": {"limits": {"memory": "-1m"}}}]},
            "spec.containers[0].resources.limits.memory",
            "must not be negative, is -1m",
        ),
        (
            {"initContainers": [{"resources": {"requests": {"cpu": "-1"}}}]},
            "spec.initContainers[0].resources.requests.cpu",
            "must not be negative",
        ),
        ({"overhead": {"cpu": "-1"}}, "spec.overhead.cpu", "must not be negative"),
        ({"overhead": {"cpu": "one"}}, "spec.overhead.cpu", "is not a quantity"),
        ({"resources": {"requests": {"cpu": "-1"}}}, "spec.resources.requests.cpu", "must not be negative"),
        ({"priority": "high"}, "spec.priority", "Expected `int"),
        ({"containers": {}}, "spec.containers", "Expected `array`"),
        ({"nodeSelector": {"a": "b", "c": 1}}, "spec.nodeSelector.c", "Expected `str`"),
        (
            with_node_term(matchExpressions=[{"key": "k", "operator": "In"}]),
            f"{TERM}.matchExpressions[0].values",
            "empty",
        ),
        (
            with_node_term(matchExpressions=[{"key": "k", "operator": "NotIn", "values": []}]),
            f"{TERM}.matchExpressions[0].values",
            "must not be empty with operator NotIn",
        ),
        (
            with_node_term(matchExpressions=[{"key": "k", "operator": "Exists", "values": ["v"]}]),
            f"{TERM}.matchExpressions[0].values",
            "must be empty with operator Exists",
        ),
        (
            with_node_term(matchExpressions=[{"key": "k", "operator": "DoesNotExist", "values": ["v"]}]),
            f"{TERM}.matchExpressions[0].values",
            "must be empty",
        ),
        (
            with_node_term(matchExpressions=[{"key": "k", "operator": "Gt", "values": ["1", "2"]}]),
            f"{TERM}.matchExpressions[0].values",
            "exactly one element",
        ),
        (
            with_node_term(matchExpressions=[{"key": "k", "operator": "Lt"}]),
            f"{TERM}.matchExpressions[0].values",
            "exactly one element",
        ),
        (
            with_node_term(matchExpressions=[{"key": "k", "operator": "Like", "values": ["v"]}]),
            f"{TERM}.matchExpressions[0].operator",
            "Invalid enum value 'Like'",
        ),
        (with_node_term(matchExpressions=[{"operator": "Exists"}]), f"{TERM}.matchExpressions[0].key", "is required"),
        (
            with_node_term(matchExpressions=[{"key": "", "operator": "Exists"}]),
            f"{TERM}.matchExpressions[0].key",
            "empty",
        ),
        (
            with_node_term(matchFields=[{"key": "metadata.uid", "operator": "In", "values": ["v"]}]),
            f"{TERM}.matchFields[0].key",
            "must be metadata.name, not 'metadata.uid'",
        ),
        (
            with_node_term(matchFields=[{"key": "metadata.name", "operator": "Exists"}]),
            f"{TERM}.matchFields[0].operator",
            "must be In or NotIn, not Exists",
        ),
        (
            with_anti_affinity(topologyKey="z", labelSelector={"matchExpressions": [{"key": "k", "operator": "In"}]}),
            f"{ANTI}.labelSelector.matchExpressions[0].values",
            "must not be empty",
        ),
        (
            with_anti_affinity(
                topologyKey="z", labelSelector={"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["1"]}]}
            ),
            f"{ANTI}.labelSelector.matchExpressions[0].operator",
            "Invalid enum value 'Gt'",
        ),
        (with_anti_affinity(), f"{ANTI}.topologyKey", "is required"),
        ({"tolerations": [{"key": "a"}, {"value": "v"}]}, "spec.tolerations[1].operator", "must be Exists"),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "v"}]},
            "spec.tolerations[0].value",
            "must be empty with operator Exists",
        ),
        (
            {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]},
            "spec.topologySpreadConstraints[0].maxSkew",
            ">= 1",
        ),
    ],
)
def test_a_bad_pod_is_refused_with_the_field(spec: dict[str, Any], field: str, reason: str) -> None:
    raw = raw_pod(spec)
    read: Callable[[], Pod]
    for read in (partial(pod_from, raw), partial(decode_pod, json.dumps(raw).encode())):
        with pytest.raises(InvalidObject) as caught:
            read()
        assert (caught.value.kind, caught.value.key, caught.value.field) == ("Pod", "default/p", field)
        assert reason in caught.value.reason
        assert str(caught.value) == f"Pod default/p: {field}: {caught.value.reason}"


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"taints": [{"key": 5}]}, "spec.taints[0].key", "Expected `str`"),
        ({"unschedulable": "yes"}, "spec.unschedulable", "Expected `bool`"),
    ],
)
def test_a_bad_node_is_refused_with_the_field(spec: dict[str, Any], field: str, reason: str) -> None:
    raw = raw_node(**spec)
    read: Callable[[], Node]
    for read in (partial(node_from, raw), partial(decode_node, json.dumps(raw).encode())):
        with pytest.raises(InvalidObject) as caught:
            read()
        assert (caught.value.kind, caught.value.key, caught.value.field) == ("Node", "n", field)
        assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("raw", "key", "field"),
    [
        (b"{", "(unnamed)", ""),
        (b"\xff", "(unnamed)", ""),
        (b"[]", "(unnamed)", ""),
        (b"{}", "(unnamed)", "metadata.name"),
        (b'{"metadata":[]}', "(unnamed)", "metadata"),
        (b'{"metadata":{"name":7}}', "(unnamed)", "metadata.name"),
        (b'{"metadata":{"name":"p","namespace":"ns","labels":{"a":"b","c":[]}}}', "ns/p", "metadata.labels.c"),
    ],
)
def test_an_object_that_is_no_pod_is_refused(raw: bytes, key: str, field: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        decode_pod(raw)
    assert (caught.value.key, caught.value.field) == (key, field)


def test_names_may_contain_anything_in_errors_about_plain_data() -> None:
    with pytest.raises(InvalidObject) as caught:
        pod_from({"metadata": {"name": "p", "labels": {1: "x"}}})
    assert (caught.value.key, caught.value.field) == ("default/p", "metadata.labels")


def test_accepted_although_it_never_matches() -> None:
    spec = with_node_term(matchExpressions=[{"key": "k", "operator": "Gt", "values": ["many"]}])
    tolerations = [{"key": "k", "operator": operator, "value": "1"} for operator in ("Lt", "Gt", "Equal", "")]
    built = pod_from(raw_pod({**spec, "tolerations": [*tolerations, {"operator": "Exists"}]}))
    assert len(built.spec.tolerations) == 5


@pytest.mark.parametrize(
    "pod_",
    [
        pod("plain").build(),
        pod("p", "ns").request(cpu="1500n", memory="1Ei").limit(cpu="1").label(a="b").on("n").priority(-3).build(),
        pod("p").init_container(cpu="1", sidecar=True).overhead(cpu="5m").pod_request(cpu="2").host_port(80).build(),
        pod("p").require_node(term(expr("k", "In", "a", "b"), name="n")).prefer_node(5, expr("k", "Exists")).build(),
        pod("p").require_pods("zone", selector(app="a"), "ns").prefer_no_pods(1, "zone", None).build(),
        pod("p").spread_hard("zone", selector()).spread_soft("host", None, 2).tolerate().claim("c").build(),
    ],
)
def test_pods_survive_encoding(pod_: Pod) -> None:
    assert decode_pod(encode_json(pod_)) == pod_
    assert msgspec.msgpack.decode(encode_msgpack(pod_), type=Pod, dec_hook=dec_hook) == pod_
    assert pod_from(msgspec.to_builtins(pod_, enc_hook=enc_hook)) == pod_


def test_nodes_survive_encoding() -> None:
    built = node("n").capacity(cpu="100n", memory="32Gi").label(zone="a").taint("k").image("i:1", 5).build()
    assert decode_node(encode_json(built)) == built
    assert msgspec.msgpack.decode(encode_msgpack(built), type=Node, dec_hook=dec_hook) == built


def test_the_api_names_are_used_and_defaults_left_out() -> None:
    encoded = json.loads(encode_json(pod("p").host_port(80, ip="::").require_pods("zone", LabelSelector()).build()))
    assert encoded["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "hostPort": 80, "hostIP": "::"}]
    assert list(encoded["spec"]["affinity"]["podAffinity"]) == [REQUIRED]
    assert "schedulerName" not in encoded["spec"]


def test_hooks_refuse_unknown_types() -> None:
    with pytest.raises(NotImplementedError):
        enc_hook(object())
    with pytest.raises(NotImplementedError):
        dec_hook(complex, "1")
    assert enc_hook(Quantity(1)) == "1n"
    with pytest.raises(ValueError, match="not null"):
        dec_hook(Quantity, None)


def test_a_node_without_a_name_is_refused_and_any_other_is_valid() -> None:
    with pytest.raises(InvalidObject) as caught:
        validate_node(node("").build())
    assert (caught.value.kind, caught.value.key, caught.value.field) == ("Node", "(unnamed)", "metadata.name")
    validate_node(Node(metadata=node("n").build().metadata))
    validate_node(node("n").taint("").taint("a", effect="").build())


def test_values_that_kube_scheduler_only_compares_may_be_unknown() -> None:
    spread = {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "Maybe", "nodeTaintsPolicy": "Sometimes"}
    tolerations = [{"key": "a", "operator": "Like"}, {"key": "a", "effect": "Never"}]
    read = pod_from(raw_pod({"topologySpreadConstraints": [spread], "tolerations": tolerations}))
    assert read.spec.topology_spread_constraints[0].when_unsatisfiable == "Maybe"
    assert [toleration.operator for toleration in read.spec.tolerations] == ["Like", "Equal"]
    taints = node_from(raw_node(taints=[{"key": "k", "effect": "Never"}, {"key": "", "effect": ""}])).spec.taints
    assert [taint.effect for taint in taints] == ["Never", ""]


def test_objects_do_not_change() -> None:
    built = pod("p").build()
    with pytest.raises(AttributeError):
        built.spec.node_name = "n"  # type: ignore[misc]
    assert hash(Taint(key="a", effect="NoSchedule")) == hash(Taint(key="a", effect="NoSchedule"))
