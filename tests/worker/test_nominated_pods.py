"""Nominated pods are judged by their class without the nomination as they would be by a class of their own."""

import random

import msgspec
import pytest

from services.worker.proposer import Proposer
from shared.cluster.nodetable import NodeTable
from shared.messages.evaluation import Ties
from shared.messages.rounds import ClassAnswer, ClassAsk, NominatedPod
from shared.model.load import load_of
from shared.model.objects import Pod
from shared.model.wellknown import HOSTNAME
from testing.builders import node, pod, selector
from tests.plugins.cluster import framework

FRAMEWORK = framework("NodeResourcesFit", "NodePorts", "InterPodAffinity", "TaintToleration", "DefaultPreemption")


def answers(table: NodeTable, asks: list[ClassAsk], round_: int = 1) -> dict[str, ClassAnswer]:
    proposer = Proposer(table, {FRAMEWORK.name: FRAMEWORK}, Ties("name"), 1.0)
    return {answer.class_id: answer for answer in proposer.propose(asks, round_)}


def made_up(rng: random.Random) -> tuple[NodeTable, list[Pod]]:
    """Nodes with pods of lower priority, some of which terminate, and nominated pods, some to nodes of other shards."""
    table, nominated = NodeTable(), list[Pod]()
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
        nominated.append(builder.build())
        table.nominate(f"p{i}", on, load_of(nominated[-1]), f"default/p{i}")
    return table, nominated


def asks_about(pods: list[Pod], *, shared: bool) -> list[ClassAsk]:
    found: list[ClassAsk] = []
    for each in pods:
        class_id, of_class = FRAMEWORK.class_of_template(each), FRAMEWORK.class_without_nomination(each)
        assert of_class not in ("", class_id)
        nominated = NominatedPod(of_class, each.uid, each.status.nominated_node_name) if shared else None
        found.append(ClassAsk(class_id, FRAMEWORK.name, 1, each, nominated=nominated))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_they_get_the_answers_of_their_own_classes(seed: int) -> None:
    print(f"seed {seed}")
    table, pods = made_up(random.Random(seed))
    plain, found = answers(table, asks_about(pods, shared=False)), answers(table, asks_about(pods, shared=True))
    assert found.keys() == plain.keys()
    for class_id, wanted in plain.items():
        got = found[class_id]
        assert got.via_nominated == wanted.via_nominated
        assert got.ladder.nodes == wanted.ladder.nodes
        assert got.summary.feasible == wanted.summary.feasible
        assert got.summary.plugins == wanted.summary.plugins
        assert {r.status: r.nodes for r in got.rejections} == {r.status: r.nodes for r in wanted.rejections}


def test_a_pod_whose_victims_still_terminate_is_not_searched_for() -> None:
    table = NodeTable()
    table.add_node(node("n").capacity(cpu="1").build())
    victim = load_of(pod("victim").request(cpu="1").build())
    new = pod("p").uid("p").priority(5).request(cpu="1").nominated("n").build()
    table.nominate("p", "n", load_of(new), "default/p")
    for goes, why in ((True, "not eligible due to a terminating pod on the nominated node."), (False, "")):
        table.add_pod("v", "n", msgspec.structs.replace(victim, preempted=goes), "default/victim")
        [answer] = answers(table, asks_about([new], shared=True)).values()
        assert (answer.ineligible, answer.ladder.nodes) == (why, [])
        assert [(r.status.reasons, r.nodes) for r in answer.rejections] == [(("Insufficient cpu",), 1)]


def test_the_class_without_the_nomination_must_be_known_or_brought_along() -> None:
    table, pods = made_up(random.Random(1))
    [ask] = asks_about(pods[:1], shared=True)
    [answer] = answers(table, [msgspec.structs.replace(ask, pod=None)]).values()
    assert answer.unknown
