"""Nominated pods are judged beside their class as they would be by a class of their own."""

import random

import msgspec
import pytest

from flotilla.results import Status
from services.worker.proposer import Proposer
from shared.cluster.nodetable import NodeTable
from shared.framework.profile import merge_rejections
from shared.messages.evaluation import Rejections, Ties
from shared.messages.rounds import ClassAnswer, ClassAsk, NominatedPod, OwnNodes
from shared.model.load import load_of
from shared.model.objects import Pod
from shared.model.wellknown import HOSTNAME
from testing.builders import node, pod, selector
from testing.inprocess.batches import nominated
from tests.plugins.cluster import framework

FRAMEWORK = framework("NodeResourcesFit", "NodePorts", "InterPodAffinity", "TaintToleration", "DefaultPreemption")


def answers(table: NodeTable, asks: list[ClassAsk], round_: int = 1) -> dict[str, ClassAnswer]:
    proposer = Proposer(table, {FRAMEWORK.name: FRAMEWORK}, Ties("name"), 1.0)
    return {answer.class_id: answer for answer in proposer.propose(asks, round_)}


def made_up(rng: random.Random) -> tuple[NodeTable, list[Pod]]:
    """Nodes with pods of lower priority, some of which terminate, and nominated pods, some to nodes of other shards."""
    table, pods = NodeTable(), list[Pod]()
    most = rng.choice((1, 4))
    for i in range(12):
        made = node(f"n{i}").label({HOSTNAME: f"n{i}"}).capacity(cpu=str(rng.randint(1, most)), memory="8Gi")
        table.add_node((made.taint("t") if rng.random() < 0.2 else made).build())
        for j in range(rng.randint(0, 2)):
            low = pod("low").request(cpu=rng.choice(("0", "1"))).label(app=rng.choice("ab"))
            load = load_of((low.host_port(80) if rng.random() < 0.3 else low).build())
            goes = msgspec.structs.replace(load, preempted=rng.random() < 0.3)
            table.add_pod(f"low-{i}-{j}", f"n{i}", goes, f"default/low-{i}-{j}")
    for i in range(14):
        on = f"n{rng.randrange(14)}"  # the last two are not here
        builder = pod(f"p{i}").uid(f"p{i}").priority(rng.choice((5, 10))).request(cpu=rng.choice("12")).nominated(on)
        builder = builder.label(app=rng.choice("ab"))
        if rng.random() < 0.5:
            builder = builder.require_no_pods(HOSTNAME, selector(app="a"))
        if rng.random() < 0.6:
            builder = builder.host_port(80)
        pods.append(builder.build())
        table.nominate(f"p{i}", on, load_of(pods[-1]), f"default/p{i}")
    return table, pods


def without_nomination(given: Pod) -> Pod:
    return nominated(given, "")


def own_classes(table: NodeTable, pods: list[Pod]) -> dict[str, ClassAnswer]:
    """By uid, what is said of each pod as a class of its own."""
    asks = [ClassAsk(FRAMEWORK.class_of_template(each), FRAMEWORK.name, 1, each) for each in pods]
    found = answers(table, asks)
    return {each.uid: found[ask.class_id] for each, ask in zip(pods, asks, strict=True)}


def by_class(table: NodeTable, pods: list[Pod]) -> dict[str, ClassAnswer]:
    """By uid, what is said of each pod's class, together with its nominated pods."""
    classes: dict[str, list[Pod]] = {}
    for each in pods:
        classes.setdefault(FRAMEWORK.class_of_template(without_nomination(each)), []).append(each)
    asks = [
        ClassAsk(
            class_id,
            FRAMEWORK.name,
            1,
            without_nomination(alike[0]),
            nominated=[NominatedPod(each.uid, each.status.nominated_node_name) for each in alike],
        )
        for class_id, alike in classes.items()
    ]
    found = answers(table, asks)
    return {each.uid: found[class_id] for class_id, alike in classes.items() for each in alike}


@pytest.mark.parametrize("seed", range(12))
def test_they_get_the_answers_of_their_own_classes(seed: int) -> None:
    print(f"seed {seed}")
    table, pods = made_up(random.Random(seed))
    wanted, found = own_classes(table, pods), by_class(table, pods)
    for each in pods:
        alone, of_class = wanted[each.uid], found[each.uid]
        own = of_class.own_nodes
        assert own is not None
        assert alone.via_nominated == (each.uid in own.fit)
        assert alone.summary.plugins == of_class.summary.plugins
        if alone.via_nominated:
            assert alone.ladder.nodes == [own.ladder.nodes[own.fit.index(each.uid)]]
            continue
        assert alone.summary.feasible == of_class.summary.feasible
        assert alone.ladder.nodes == of_class.ladder.nodes
        assert counted(alone.rejections) == counted([*of_class.rejections, *moved(own, each.uid)])


def counted(rejections: list[Rejections]) -> dict[Status, int]:
    return {each.status: each.nodes for each in merge_rejections(rejections)}


def moved(own: OwnNodes, uid: str) -> list[Rejections]:
    """The pod's own node counts with the status that it has for this pod."""
    return [
        part
        for each in own.unfit
        if each.uid == uid and each.status is not None and each.of_class is not None
        for part in (Rejections(each.of_class, -1), Rejections(each.status, 1))
    ]


def test_a_pod_whose_victims_still_terminate_is_not_searched_for() -> None:
    table = NodeTable()
    table.add_node(node("n").capacity(cpu="1").build())
    victim = load_of(pod("victim").request(cpu="1").build())
    new = pod("p").uid("p").priority(5).request(cpu="1").nominated("n").build()
    table.nominate("p", "n", load_of(new), "default/p")
    for goes, why in ((True, "preemption: not eligible due to a terminating pod on the nominated node."), (False, "")):
        table.add_pod("v", "n", msgspec.structs.replace(victim, preempted=goes), "default/victim")
        own = by_class(table, [new])["p"].own_nodes
        assert own is not None
        assert own.fit == []
        assert [each.in_vain for each in own.unfit] == [why]


def test_nothing_is_said_of_pods_that_are_nominated_to_nodes_of_other_shards() -> None:
    table = NodeTable()
    table.add_node(node("n").capacity(cpu="1").build())
    assert by_class(table, [pod("p").uid("p").nominated("elsewhere").build()])["p"].own_nodes == OwnNodes()
