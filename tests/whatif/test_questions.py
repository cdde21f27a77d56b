"""Questions about changes, capacity and node groups, in small scenes whose answers are known; and their errors."""

import itertools
import json
from typing import Any

import pytest
from msgspec.structs import replace

from services.snapshot.core import SnapshotCore
from services.snapshot.events import NodeSeen, ObjectSeen, PodSeen
from shared.config.document import ConfigSource, without_secrets
from shared.config.points import ExtensionPoint, PluginRef
from shared.errors import ClusterError, UserError
from shared.framework.loading import load_scheduler_config
from shared.messages.inspection import ConfigurationRead, DescribedPod
from shared.model.objects import GroupApi, Node, ObjectKind, Pod, encode_msgpack, object_from
from testing.builders import PodBuilder, node, pod
from tools.live_state import LiveGroup, LiveState
from tools.whatif.answer import Answer, NodeGroup, NodesNeeded, Question
from tools.whatif.answering import answer
from tools.whatif.documents import documents
from tools.whatif.engine import Engine, binding_notes, deadline_check
from tools.whatif.manifests import read


def a_node(name: str, cpu: int, **labels: str) -> Node:
    return node(name).label(labels).capacity(cpu=cpu, memory="8Gi", pods=110).build()


def a_live(*nodes: Node, pods: tuple[PodBuilder, ...] = (), pending: tuple[PodBuilder, ...] = ()) -> LiveState:
    core = SnapshotCore(1)
    for each in nodes:
        core.handle(NodeSeen(each), 0.0)
    for made in pods:
        core.handle(PodSeen(made.build()), 0.0)
    waiting = []
    for made in pending:
        body = encode_msgpack(made.build())
        there = made.build()
        waiting.append(
            DescribedPod(
                there.uid, there.namespace, there.name, "default-scheduler", "active", 0.0, 0.0, 0.0, body=body
            )
        )
    return LiveState(100.0, 1, core.state(), waiting, ConfigurationRead())


def a_pod(name: str, cpu: str = "1", **spec: object) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def a_workload(kind: str, replicas: int, cpu: str = "1") -> dict[str, Any]:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": a_pod("x", cpu)["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": spec}


def where(told: Answer) -> dict[str, str]:
    return {each.name: each.node or each.verdict for each in told.pods}


def ask(live: LiveState, *manifests: object, on: dict[str, list[Pod]] | None = None, **changes: Any) -> Answer:
    return answer(live, Question(manifests=list(manifests), **changes), on or {})


def test_pods_of_a_workload_go_where_there_is_room_and_the_rest_says_why_not() -> None:
    told = ask(a_live(a_node("n1", 2), a_node("n2", 1)), a_workload("Deployment", 4))
    assert told.nodes == {"n1": 2, "n2": 1}
    assert where(told) == {"web-0": "n1", "web-1": "n1", "web-2": "n2", "web-3": "unschedulable"}
    assert told.pods[3].message.startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert [each.namespace for each in told.pods] == ["shop"] * 4


def test_pending_pods_are_decided_first_and_a_gated_one_says_so() -> None:
    gated = pod("gated").gate("later")
    live = a_live(a_node("n1", 1), pending=(pod("first").request(cpu="1"), gated))
    told = ask(live, a_pod("second"))
    assert where(told) == {"first": "n1", "gated": "gated", "second": "unschedulable"}
    assert [each.origin for each in told.pods] == ["pending (active)", "pending (active)", "new"]
    assert told.pods[1].message.startswith("gated by SchedulingGates")


@pytest.mark.parametrize(("placed", "leaves"), [(2, False), (1, False), (2, True)])
def test_members_that_run_count_towards_the_minimum_of_their_group(placed: int, leaves: bool) -> None:
    """One more of a group of three is enough if two run, and stay."""
    running = [pod(f"run-{i}").request(cpu="1").owner("Job", "j").on("n1") for i in range(placed)]
    members = {made.build().uid: made.build().name for made in running}
    group = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}
    body = encode_msgpack(object_from(ObjectKind.POD_GROUP, group))
    live = a_live(a_node("n1", 8), a_node("n2", 8), pods=tuple(running))
    live = replace(live, groups=[LiveGroup(GroupApi.SCHEDULING, "default/g", body, members)])
    more = a_pod("more", schedulingGroup={"podGroupName": "g"})
    told = ask(live, more, on={"n1": [made.build() for made in running]}, remove=["n1"] if leaves else [])
    assert where(told)["more"] == ("n2" if placed == 2 and not leaves else "gated")


@pytest.mark.parametrize(("count", "rack"), [(3, "r2"), (5, "")])
def test_a_gang_goes_to_one_rack_or_is_told_why_not(count: int, rack: str) -> None:
    racks = [a_node(f"r1-{i}", 1, **{"example.com/rack": "r1"}) for i in range(2)]
    racks += [a_node(f"r2-{i}", 2, **{"example.com/rack": "r2"}) for i in range(2)]
    constraints = {"topology": [{"key": "example.com/rack"}]}
    spec = {"schedulingPolicy": {"gang": {"minCount": count}}, "schedulingConstraints": constraints}
    body = encode_msgpack(object_from(ObjectKind.POD_GROUP, {"metadata": {"name": "g"}, "spec": spec}))
    live = replace(a_live(*racks), groups=[LiveGroup(GroupApi.SCHEDULING, "default/g", body, {})])
    told = ask(live, *(a_pod(f"m{i}", schedulingGroup={"podGroupName": "g"}) for i in range(count)))
    assert {each.node.partition("-")[0] for each in told.pods} == {rack}
    if not rack:
        why = "no rack has room for all 5 members: the best, r2, has room for 4."
        assert all(why in each.message for each in told.pods), told.pods[0].message


def test_a_pod_of_higher_priority_preempts() -> None:
    live = a_live(a_node("n1", 2), pods=(pod("low", "shop").request(cpu="2").on("n1"),))
    told = ask(live, a_pod("high", "2", priorityClassName="high"), _class("high", 10))
    (victim,) = told.victims
    assert (victim.pod, victim.node, victim.priority, victim.preemptor) == ("shop/low", "n1", 0, "default/high")
    assert (where(told), told.pods[0].victims) == ({"high": "n1"}, [victim])


def test_victims_name_the_budgets_that_they_violate() -> None:
    low = pod("low", "shop").label(app="web").request(cpu="2").on("n1")
    live = a_live(a_node("n1", 2), pods=(low,))
    spec = {"selector": {"matchLabels": {"app": "web"}}}
    raw = {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec, "status": {"disruptionsAllowed": 0}}
    guard = object_from(ObjectKind.POD_DISRUPTION_BUDGET, raw)
    live = replace(live, state=replace(live.state, objects=[*live.state.objects, guard]))
    (victim,) = ask(live, a_pod("high", "2", priorityClassName="high"), _class("high", 10)).victims
    assert (victim.pod, victim.violates) == ("shop/low", ["web"])


def test_a_drained_node_loses_its_pods_except_those_that_belong_to_it() -> None:
    placed = (
        pod("web-1").request(cpu="1").owner("ReplicaSet", "web").on("n1"),
        pod("agent").request(cpu="1").owner("DaemonSet", "agent").on("n1"),
        pod("alone").request(cpu="1").on("n1"),
    )
    live = a_live(a_node("n1", 4), a_node("n2", 4), pods=placed)
    on = {"n1": [each.build() for each in placed]}
    for change in ("drain", "remove"):
        told = ask(live, on=on, **{change: ["n1"]})
        assert (where(told), told.lost) == ({"web-1": "n2"}, ["default/alone"])
        assert told.pods[0].origin == "recreated from n1"


def test_new_nodes_are_like_another_and_have_its_daemons() -> None:
    agent = pod("agent").request(cpu="1").owner("DaemonSet", "agent").on("n1")
    full = pod("full").request(cpu="1").on("n1")
    live = a_live(a_node("n1", 2, size="s"), pods=(agent, full))
    on = {"n1": [agent.build(), full.build()]}
    pods = [a_pod(f"p{i}", nodeSelector={"size": "s"}) for i in range(3)]
    told = ask(live, *pods, on=on, add_nodes=2, like="n1")
    assert sorted(where(told).values()) == ["n1-new-1", "n1-new-2", "unschedulable"]
    told = ask(live, *pods, add_nodes=2, like="n1")
    assert told.notes == ["new nodes get no DaemonSet pods: the pods of node n1 are not known in full"]


def test_another_configuration_decides() -> None:
    most = {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [most]}],
    }
    live = a_live(a_node("n1", 8), a_node("n2", 8), pods=(pod("a").request(cpu="4", memory="4Gi").on("n1"),))
    assert where(ask(live, a_pod("p"))) == {"p": "n2"}
    assert where(ask(live, a_pod("p"), config=config)) == {"p": "n1"}


def test_plugins_at_permit_that_a_profile_has_beyond_the_default_ones_get_a_note() -> None:
    config = load_scheduler_config(None)
    (profile,) = config.profiles
    approved = replace(
        profile,
        scheduler_name="approved",
        plugins={**profile.plugins, ExtensionPoint.PERMIT: (PluginRef("Approval", 0),)},
    )
    assert list(binding_notes(config)) == []
    assert list(binding_notes(replace(config, profiles=(profile, approved)))) == [
        "Permit and PreBind plugins do not run: profile approved decides without Approval"
    ]


def test_extenders_that_are_not_asked_are_named() -> None:
    asked = [{"urlPrefix": url, "filterVerb": "filter"} for url in ("http://me:secret@a/x", "https://b/x")]
    text = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "extenders": asked}
    live = a_live(a_node("n1", 1))
    live = replace(live, configuration=ConfigurationRead(without_secrets(ConfigSource("f", json.dumps(text).encode()))))

    def never(extenders: object, talk: object) -> object:
        raise AssertionError("asked")

    told = answer(live, Question(manifests=[a_pod("p")]), {}, converse=never)
    (note,) = told.notes
    assert note.startswith("extenders are not asked, pods are decided without them: http://a/x, https://b/x")
    assert where(told) == {"p": "n1"}


def test_capacity_is_counted_by_group_before_and_after() -> None:
    live = a_live(a_node("n1", 2, disk="ssd"), a_node("n2", 3, disk="hdd"))
    told = ask(live, a_pod("p"), capacity=True, by="disk", add_nodes=1, like="n1")
    assert told.capacity is not None and told.capacity_before is not None
    assert (told.capacity.total, told.capacity.groups) == (7, {"hdd": 3, "ssd": 4})
    assert (told.capacity_before.total, told.capacity_before.groups) == (5, {"hdd": 3, "ssd": 2})
    assert told.capacity.message.startswith("0/3 nodes are available: 3 Insufficient cpu.")
    few = ask(live, a_pod("p"), capacity=True, limit=4).capacity
    assert few is not None and (few.total, few.more) == (4, True)


@pytest.mark.parametrize("cpus", ["1 1 1 1", "3 3 1", "2 2 2 2 1", "4 1 1"])
def test_the_cheapest_nodes_are_as_cheap_as_any_set_that_does(cpus: str) -> None:
    """Held against all sets, each decided on its own state."""
    live = a_live(a_node("n1", 2))
    groups = [
        NodeGroup("small", 4, 1.0, like="n1"),
        NodeGroup("large", 2, 2.5, template={"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}}),
    ]
    pods = [a_pod(f"p{i}", cpu) for i, cpu in enumerate(cpus.split())]
    prices = []
    for small, large in itertools.product(range(5), range(3)):
        added = [a_node(f"s{i}", 2) for i in range(small)] + [a_node(f"l{i}", 4) for i in range(large)]
        told = ask(a_live(a_node("n1", 2), *added), *pods)
        if told.count("scheduled") == len(pods):
            prices.append(small + 2.5 * large)
    needed = _needed(ask(live, *pods, node_groups=groups))
    assert (needed.price, needed.proven, needed.complete) == (min(prices), True, True)
    assert needed.price == needed.counts.get("small", 0) + 2.5 * needed.counts.get("large", 0)


def test_what_no_node_group_helps_does_not_hinder_the_others() -> None:
    told = ask(
        a_live(a_node("n1", 1)),
        *(a_pod("hopeless", "64"), a_pod("a"), a_pod("b")),
        node_groups=[NodeGroup("more", 3, 1.0, like="n1")],
    )
    needed = _needed(told)
    assert (needed.counts, needed.complete, needed.proven) == ({"more": 1}, False, True)
    assert where(told)["hopeless"] == "unschedulable"


def test_with_few_steps_the_best_set_found_is_said_to_be_no_proof() -> None:
    pods = [a_pod(f"p{i}", cpu) for i, cpu in enumerate(["1500m"] * 6)]
    groups = [NodeGroup("small", 8, 1.0, like="n1"), NodeGroup("other", 8, 1.1, like="n1")]
    needed = _needed(ask(a_live(a_node("n1", 2)), *pods, node_groups=groups, steps=3))
    assert not needed.proven and needed.steps <= 3


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (Question(add_nodes=1), "add_nodes: say which node they are like"),
        (Question(add_nodes=1, like="no"), "like: there is no node no"),
        (Question(drain=["no"]), "drain: there is no node no"),
        (Question(drain=["n1"]), "the pods of node n1 are not known in full: ask again, or make another dump"),
        (Question(capacity=True), "capacity: expected one pod, not 0"),
        (Question(capacity=True, node_groups=[NodeGroup("g", 1, 1.0)]), "capacity and node_groups are two questions"),
        (Question(node_groups=[NodeGroup("g", 1, 1.0)]), "node group g: expected either like or template"),
        (Question(node_groups=[NodeGroup("g", -1, 1.0, like="n1")]), "node group g: max: takes 0 to 1000, not -1"),
        (Question(manifests=[{"kind": "Deployment"}]), "manifests: Deployment: metadata: is missing"),
        (Question(config={"kind": "Nope"}), "config: "),
    ],
)
def test_errors_say_what_is_wrong(question: Question, why: str) -> None:
    live = a_live(a_node("n1", 1), pods=(pod("p").on("n1"),))
    with pytest.raises(UserError) as raised:
        answer(live, question, {})
    assert str(raised.value).startswith(why)


def test_pods_that_share_a_new_claim_of_devices_follow_once_it_is_allocated() -> None:
    """A decided claim is only promised, and others that name it wait, until a binder has written it."""
    exactly = {"deviceClassName": "gpu", "count": 1}
    pool = {"name": "n2", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "gpu-0"}]
    uses = [{"name": "d", "resourceClaimName": "shared"}]
    manifests = [
        {"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
        {
            "kind": "ResourceSlice",
            "metadata": {"name": "n2-gpu"},
            "spec": {"driver": "gpu.example.com", "pool": pool, "nodeName": "n2", "devices": devices},
        },
        {
            "kind": "ResourceClaim",
            "metadata": {"name": "shared"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        },
        *(a_pod(name, resourceClaims=uses) for name in ("first", "second", "third")),
    ]
    told = answer(a_live(a_node("n1", 8), a_node("n2", 8)), Question(manifests=manifests), {})
    assert [(each.name, each.node) for each in told.pods] == [("first", "n2"), ("second", "n2"), ("third", "n2")]


def test_a_pod_that_waits_for_devices_gets_those_of_a_victim() -> None:
    """The claim that was made for the victim is deallocated before it goes: its deletion wakes nobody."""
    wanted = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}]}}
    result = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    owner = {"kind": "Pod", "name": "victim", "uid": "victim", "controller": True}
    status: dict[str, Any] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "victim", "uid": "victim"}],
    }
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": "n1", "devices": [{"name": "gpu-0"}]}
    metadata = {"name": "victim-d", "namespace": "default", "uid": "claim", "ownerReferences": [owner]}
    objects = [
        object_from(ObjectKind.DEVICE_CLASS, {"metadata": {"name": "gpu"}, "spec": {}}),
        object_from(ObjectKind.RESOURCE_SLICE, {"metadata": {"name": "n1-gpu"}, "spec": spec}),
        object_from(ObjectKind.RESOURCE_CLAIM, {"metadata": metadata, "spec": wanted, "status": status}),
    ]
    core = SnapshotCore(1)
    core.handle(NodeSeen(a_node("n1", 4)), 0.0)
    for each in objects:
        core.handle(ObjectSeen(each), 0.0)
    core.handle(PodSeen(pod("victim").uid("victim").request(cpu="3").on("n1").build()), 0.0)
    live = LiveState(100.0, 1, core.state(), [], ConfigurationRead())
    manifests = [
        {"kind": "ResourceClaim", "metadata": {"name": "mine"}, "spec": wanted},
        a_pod("waits", "0", resourceClaims=[{"name": "d", "resourceClaimName": "mine"}]),
        a_pod("urgent", "3", priority=10),
    ]
    told = answer(live, Question(manifests=manifests), {})
    assert [(each.name, each.node) for each in told.pods] == [("waits", "n1"), ("urgent", "n1")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: b: c", "f: document 1: is not YAML"),
        ("kind: Pod\nmetadata: {name: x}\n---\nkind: Secret\nmetadata: {name: s}", "f: Secret does not matter"),
        ("kind: DaemonSet\nmetadata: {name: x}", "f: DaemonSet: its pods belong to their nodes"),
        ("kind: Pod\nmetadata: {name: x}", 'f: Pod x: Pod "x" is invalid: spec.containers: Required value'),
        ("kind: Job\nmetadata: {name: j}\nspec: {parallelism: -1, template: {}}", "f: Job j: spec: -1 is no number"),
        ("[]", "f: expected Kubernetes objects"),
    ],
)
def test_errors_of_manifests(text: str, why: str) -> None:
    with pytest.raises(UserError) as raised:
        read("f", documents("f", text))
    assert str(raised.value).startswith(why)


def test_workloads_lists_and_claims_are_read() -> None:
    stateful = a_workload("StatefulSet", 2)
    stateful["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["x"]}}]
    job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": 3, "completions": 2}}
    job["spec"]["template"] = {"spec": a_pod("x")["spec"]}  # type: ignore[index]
    found = read("f", [{"kind": "PodList", "items": [a_pod("a")]}, {"kind": "List", "items": [stateful]}, job])
    assert [each.key for each in found.pods] == ["default/a", "shop/web-0", "shop/web-1", "default/j-0", "default/j-1"]
    assert [each.key for each in found.objects] == ["shop/web", "shop/data-web-0", "shop/data-web-1"]
    assert found.pods[1].spec.volumes[0].persistent_volume_claim is not None


def test_an_answer_that_takes_too_long_ends() -> None:
    live = a_live(a_node("n1", 64))
    with pytest.raises(ClusterError, match="takes longer than"):
        Engine(live, Question(manifests=[a_workload("Deployment", 64)]), {}, deadline_check(-1.0)).answer()


def _class(name: str, value: int) -> dict[str, Any]:
    return {"kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def _needed(told: Answer) -> NodesNeeded:
    assert told.needed is not None
    return told.needed
