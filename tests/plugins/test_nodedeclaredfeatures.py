"""NodeDeclaredFeatures."""

import msgspec
import pytest

from flotilla.results import SKIP, SUCCESS, unresolvable
from shared.model.objects import Node, Pod, decode_node, decode_pod
from shared.plugins.single_node import NodeDeclaredFeatures
from testing.builders import class_state, node, pod
from tests.plugins.cluster import framework, judge, statuses, table_of

RESTARTS = "RestartAllContainersOnContainerExits"
HOST_NETWORK = "UserNamespacesHostNetworkSupport"
LACKING = unresolvable("node(s) didn't match Pod's required features")


def declaring(name: str, *features: str) -> Node:
    status = {"allocatable": {"pods": "110"}, "declaredFeatures": list(features)}
    return decode_node(msgspec.json.encode({"metadata": {"name": name}, "status": status}))


def made(**spec: object) -> Pod:
    whole = {"containers": [{"name": "c"}]} | spec
    return decode_pod(msgspec.json.encode({"metadata": {"name": "p"}, "spec": whole}))


def container(*actions: str) -> dict[str, object]:
    rules = [{"action": action, "exitCodes": {"operator": "In", "values": [42]}} for action in actions]
    return {"name": "c", "restartPolicyRules": rules}


PODS = [
    (made(), ()),
    (made(hostNetwork=True), ()),
    (made(hostNetwork=True, hostUsers=True), ()),
    (made(hostUsers=False), ()),
    (made(hostNetwork=True, hostUsers=False), (HOST_NETWORK,)),
    (made(containers=[container("Restart")]), ()),
    (made(containers=[container("Restart", "RestartAllContainers")]), (RESTARTS,)),
    (made(initContainers=[container("RestartAllContainers")]), (RESTARTS,)),
    (
        made(hostNetwork=True, hostUsers=False, containers=[container("RestartAllContainers")]),
        (HOST_NETWORK, RESTARTS),
    ),
]


@pytest.mark.parametrize(("arriving", "required"), PODS)
def test_a_node_must_declare_all_that_the_pod_requires(arriving: Pod, required: tuple[str, ...]) -> None:
    nodes = {"none": (), "one": (HOST_NETWORK,), "other": (RESTARTS, "Unknown"), "both": (HOST_NETWORK, RESTARTS)}
    table = table_of(*(declaring(name, *features) for name, features in nodes.items()))
    lacking = {name for name, features in nodes.items() if not set(required) <= set(features)}
    assert statuses(NodeDeclaredFeatures(), arriving, table) == dict.fromkeys(lacking, LACKING)


@pytest.mark.parametrize(("arriving", "required"), PODS)
def test_it_is_skipped_for_pods_that_require_nothing(arriving: Pod, required: tuple[str, ...]) -> None:
    expected = SUCCESS if required else SKIP
    assert NodeDeclaredFeatures().pre_filter(class_state(arriving)).status == expected


def test_pods_that_require_different_features_have_different_signatures() -> None:
    signatures = {NodeDeclaredFeatures().signature(arriving) for arriving, _ in PODS}
    assert len(signatures) == len({required for _, required in PODS})


def test_a_node_that_declares_more_than_before_is_looked_at_again() -> None:
    arriving, table = made(hostNetwork=True, hostUsers=False), table_of(declaring("n"))
    profile = framework("NodeDeclaredFeatures")
    assert judge(profile, arriving, table).rejected == {"n": LACKING.by("NodeDeclaredFeatures")}
    table.upsert_node(declaring("n", HOST_NETWORK))
    assert judge(profile, arriving, table).rejected == {}


def test_other_pods_go_anywhere() -> None:
    assert judge(framework("NodeDeclaredFeatures"), pod("p"), table_of(node("n"))).rejected == {}
