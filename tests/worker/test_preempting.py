"""A worker's part in a search for victims: when it answers, and which of its nodes it tries."""

import numpy as np
import pytest

from flotilla.results import SUCCESS, PostFilterResult, error, unresolvable, unschedulable
from services.worker.events import Answer, Effect
from services.worker.preempting import findings
from shared.cluster.eviction_units import group_of
from shared.cluster.nodetable import NodeTable
from shared.framework.evaluator import ShardEvaluator
from shared.framework.profile import Framework
from shared.messages.evaluation import Ties
from shared.messages.preemption import Candidates, Preempt, PreemptAsk, ShardFindings
from shared.model.load import load_of
from shared.model.objects import GROUP_LABEL, ObjectKind, ObjectMeta, Pod, PodGroup, object_from
from shared.model.workloads import InTree
from testing.builders import PodBuilder, node, pod
from tests.framework.plugins import scripted
from tests.plugins.cluster import framework
from tests.rounds.support import delta, state, worker

NO = unschedulable("no")
NEW = pod("new").uid("new").request(cpu="1").priority(10).build()


def profile(percentage: int = 100, absolute: int = 0) -> Framework:
    args = {"minCandidateNodesPercentage": percentage, "minCandidateNodesAbsolute": absolute}
    return framework("NodeResourcesFit", "DefaultPreemption", args={"DefaultPreemption": args})


def full_nodes(count: int, *, backwards: bool = False) -> NodeTable:
    table = NodeTable()
    load = load_of(pod("p").request(cpu="1").build())
    for i in reversed(range(count)) if backwards else range(count):
        table.add_node(node(f"n{i:03}").capacity(cpu="1").build())
        table.add_pod(f"u{i}", f"n{i:03}", load, f"default/p{i}", float(i))
    return table


def found(table: NodeTable, made: Framework, *, everywhere: int, search: int = 0, wants: Pod = NEW) -> ShardFindings:
    evaluator = ShardEvaluator(table, made, Ties("name"))
    pod_class = evaluator.prepare("class", wants)
    group = group_of(load_of(wants))
    asked = PreemptAsk("class", made.name, wants, {}, everywhere, spares=[group] if group else [])
    return findings(evaluator, pod_class, asked, search)


@pytest.mark.parametrize(
    ("percentage", "absolute", "everywhere", "wanted"),
    [(100, 0, 200, 200), (10, 0, 200, 20), (10, 50, 200, 50), (10, 100, 2000, 20), (0, 1, 2000, 1), (100, 0, 50, 200)],
)
def test_a_shard_looks_for_its_share_of_the_candidates(
    percentage: int, absolute: int, everywhere: int, wanted: int
) -> None:
    shard = found(full_nodes(200), profile(percentage, absolute), everywhere=everywhere)
    assert shard.potential == 200
    assert max(wanted, 1) <= len(shard.candidates) <= max(wanted, 64)  # a handful is tried at once


def test_every_search_begins_with_other_nodes() -> None:
    table, made = full_nodes(300), profile(percentage=30)
    tried = [{c.node for c in found(table, made, everywhere=300, search=search).candidates} for search in range(4)]
    assert all(len(nodes) == 90 for nodes in tried)
    assert len(set.union(*tried)) == 300


def test_it_goes_on_until_one_candidate_violates_no_budget() -> None:
    table, made = full_nodes(300), profile(percentage=1)
    free = pod("free").request(cpu="1").label(app="free").build()
    guarded = pod("guarded").request(cpu="1").label(app="guarded").build()
    last = int(table.in_turn(np.arange(300))[-1])
    for i in range(300):
        table.remove_pod(f"u{i}")
        table.add_pod(f"u{i}", f"n{i:03}", load_of(free if i == last else guarded), f"default/p{i}")
    budgets = {"spec": {"selector": {"matchLabels": {"app": "guarded"}}}, "status": {"disruptionsAllowed": 0}}
    table.objects.upsert(object_from(ObjectKind.POD_DISRUPTION_BUDGET, {"metadata": {"name": "b"}, **budgets}))
    candidates = found(table, made, everywhere=300).candidates
    assert [c.node for c in candidates if not c.violations] == [table.names[last]]
    assert len(candidates) == 300


def test_which_nodes_are_tried_does_not_depend_on_the_order_in_which_they_were_added() -> None:
    tried = [
        [each.node for each in found(table, profile(percentage=30), everywhere=300, search=2).candidates]
        for table in (full_nodes(300), full_nodes(300, backwards=True))
    ]
    assert tried[0] == tried[1]


def test_the_other_plugins_are_asked_in_their_turn_and_a_final_answer_ends_it() -> None:
    journal: list[str] = []
    table = full_nodes(1)
    for answer, asked, tried in (
        (unschedulable("no"), ["A.post_filter", "B.post_filter"], True),
        (error("not found"), ["A.post_filter"], False),
        (unresolvable("never"), ["A.post_filter"], False),
        (SUCCESS, ["A.post_filter"], False),
    ):
        journal.clear()
        made = profile()
        [preemption] = made.post_filter
        first, last = scripted("A", journal, post_filter=answer), scripted("B", journal, post_filter=unschedulable())
        made.post_filter[:] = [first, preemption, last]  # type: ignore[list-item]
        shard = found(table, made, everywhere=1)
        assert journal == asked
        assert shard.others["A"] == PostFilterResult(answer)
        assert bool(shard.candidates) is tried


def test_nodes_that_an_extender_refused() -> None:
    table, made = full_nodes(1), profile()
    for name in ("refused", "never", "dropped", "no-victims"):
        table.add_node(node(name).capacity(cpu="4").build())
    for name in ("refused", "never", "dropped"):
        table.add_pod(name, name, load_of(pod(name).request(cpu="1").build()), f"default/{name}")
    refused = {"refused": NO, "never": unresolvable("never"), "no-victims": NO, "n000": NO, "elsewhere": NO}
    evaluator = ShardEvaluator(table, made, Ties("name"))
    ask = PreemptAsk("class", made.name, NEW, {}, 3, refused)
    shard = findings(evaluator, evaluator.prepare("class", NEW), ask, 0)
    assert shard.summary.feasible == 0
    assert shard.potential == 3
    assert [c.node for c in shard.candidates] == ["n000"]
    assert shard.faults == ['expected at least one victim pod on node "refused"']
    assert [(r.status.reasons, r.nodes) for r in shard.rejections] == [
        (("No preemption victims found for incoming pod",), 1)
    ]


@pytest.mark.parametrize("by", ["field", "label", "tree"])
def test_a_member_of_a_group_evicts_none_of_its_own(by: str) -> None:
    """One that is decided alone, because enough others have run: without those, it could not run either."""

    def member(name: str, group: str) -> PodBuilder:
        made = pod(name).uid(name).request(cpu="1")
        return made.label({GROUP_LABEL: group}) if by == "label" else made.group(group)

    table = NodeTable()
    sibling = "train" if by != "tree" else "beside-train"
    for name in ("train", sibling) if by == "tree" else ():
        metadata = ObjectMeta(name=name, namespace="default")
        table.objects.upsert(PodGroup(metadata=metadata, tree=InTree(root="default/root")))
    for name, group in (("own", sibling), ("other", "eval")):
        table.add_node(node(f"with-{name}").capacity(cpu="1").build())
        table.add_pod(name, f"with-{name}", load_of(member(name, group).build()), f"default/{name}", 0.0)
    wants = member("late", "train").priority(10).build()
    shard = found(table, profile(), everywhere=2, wants=wants)
    assert [[victim.uid for victim in each.victims] for each in shard.candidates] == [["other"]]
    assert shard.spared == [group_of(load_of(wants))]


def preempt(search: int, ask: int = 1, min_seq: int = 0, epoch: int = 1) -> Preempt:
    return Preempt(epoch, search, ask, min_seq, [])


def answered(effects: list[Effect]) -> list[tuple[int, int, int]]:
    """The searches that are answered: epoch, number and ask."""
    messages = [effect.message for effect in effects if isinstance(effect, Answer)]
    return [(each.epoch, each.search, each.ask) for each in messages if isinstance(each, Candidates)]


def test_a_search_is_answered_once_the_replica_is_new_enough() -> None:
    core = worker()
    core.start(0.0)
    core.handle(state(6), 0.0)
    assert answered(core.handle(preempt(1, min_seq=7), 0.0)) == []
    assert answered(core.handle(delta(7), 0.1)) == [(1, 1, 1)]
    assert answered(core.handle(delta(8), 0.2)) == []


def test_only_the_newest_search_is_answered() -> None:
    core = worker()
    core.start(0.0)
    core.handle(state(6), 0.0)
    assert answered(core.handle(preempt(2, min_seq=9), 0.0)) == []
    assert answered(core.handle(preempt(1, ask=8), 0.0)) == []
    assert [str(refusal) for refusal in core.refused] == ["search (1, 1, 8) is old, now (1, 2, 1)"]
    assert answered(core.handle(preempt(2, ask=2), 0.0)) == [(1, 2, 2)]
    assert answered(core.handle(preempt(2, ask=2), 0.0)) == [(1, 2, 2)], "asked again, as the answer was lost"
    assert answered(core.handle(preempt(1, epoch=2), 0.0)) == [(2, 1, 1)]
    assert answered(core.handle(preempt(3), 0.0)) == []
    assert answered(core.handle(delta(7), 0.0) + core.handle(delta(8), 0.0) + core.handle(delta(9), 0.0)) == []
