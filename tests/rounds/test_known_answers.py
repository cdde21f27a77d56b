"""Answers that the cycle keeps are those that the workers would give if they were asked."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.cycle.events import Ask, Decided, Effect
from services.cycle.round.known_answers import AHEAD
from services.snapshot import events as snapshot
from shared.framework.lasting import Lasting
from shared.framework.profile import Framework
from shared.messages.evaluation import Ties
from shared.messages.recording import RecordDecisions
from shared.messages.rounds import Propose
from shared.model.objects import Pod
from shared.model.wellknown import HOSTNAME
from testing.builders import PodBuilder, expr, node, pod
from testing.inprocess.pipeline import Pipeline, bound
from tests.rounds.known_answers import (
    KINDS,
    PACKING,
    REPLICA_SETS,
    UNSCORED_SPREADING,
    Cluster,
    Run,
    a_while,
    named,
    one_by_one,
)
from tests.rounds.support import BY_NAME, FRAMEWORKS, small_node, small_pod


@settings(deadline=None, max_examples=8)
@given(
    st.integers(0, 10**6),
    st.integers(1, 30),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 256]),
    st.sampled_from([BY_NAME, Ties(seed=7)]),
    st.sampled_from([FRAMEWORKS, PACKING]),
    st.booleans(),
    st.booleans(),
)
@example(212, 7, 2, 1, BY_NAME, FRAMEWORKS, False, True)  # a class that is followed is asked about in advance
def test_known_answers_are_those_of_the_workers(
    seed: int,
    nodes: int,
    shards: int,
    round_size: int,
    ties: Ties,
    frameworks: Mapping[str, Framework],
    relabels: bool,
    roomy: bool,
) -> None:
    cluster = Cluster(seed, nodes, roomy=roomy)
    run = Run(shards, round_size, ties, frameworks, relabels=relabels)
    run.add_objects(REPLICA_SETS)
    run.add_nodes(cluster.nodes)
    run.settle()
    a_while(run, cluster, 25)


def wide(count: int = 40) -> Run:
    run = Run(2)
    run.add_nodes([small_node(f"n{i:02}") for i in range(count)])
    run.settle()
    return run


def strict(ties: Ties = BY_NAME, nodes: int = 200) -> Run:
    run = Run(2, 1, ties)
    run.add_nodes([small_node(f"n{i:03}") for i in range(nodes)])
    run.settle()
    return run


def five_kinds(count: int) -> list[Pod]:
    return [small_pod(f"p{i}", cpu=f"{100 + i % 5}m") for i in range(count)]


def nodes_of(run: Run) -> dict[str, str]:
    return {key: node for key, (node, _) in run.placed.items()}


def test_a_class_that_comes_again_needs_no_ask_until_the_ladder_is_used_up() -> None:
    """New to the workers, it takes two asks of each; when it comes again, one more of each, with placements ahead."""
    run = wide(2 * AHEAD + 10)
    costs = one_by_one(run, [small_pod(f"p{i}", cpu="100m") for i in range(AHEAD + 2)])
    assert (costs[0], sum(costs[1:AHEAD])) == (4, 2)
    assert len({run.placed[f"default/p{i}"][0] for i in range(AHEAD + 2)}) == AHEAD + 2, "the emptiest node each time"


def test_decisions_of_which_no_worker_was_asked_are_sent_before_the_next_ask() -> None:
    pipeline = Pipeline(shards=2)
    pipeline.add_nodes([small_node(f"n{i:02}") for i in range(20)])
    pipeline.settle()
    for i in range(8):
        pipeline.submit([small_pod(f"p{i}", cpu="100m")])
        while f"default/p{i}" not in pipeline.outcomes:
            pipeline.step()
    seen = {core.seq for core in pipeline.workers.values()}
    assert max(seen) < pipeline.snapshot.seq, "no worker has seen the last decisions"
    pipeline.submit([small_pod("other", cpu="200m")])
    before = pipeline.now
    while "default/other" not in pipeline.outcomes:
        pipeline.step()
    assert pipeline.now == before, "and it has not waited for a deadline"
    assert {core.seq for core in pipeline.workers.values()} <= {pipeline.snapshot.seq, pipeline.snapshot.seq - 1}


def test_a_search_that_begins_before_a_decision_without_asks_does_not_hide_its_delta() -> None:
    """The search asks workers in the same moment, and first, so the deltas sent for it do not include that decision."""
    pipeline = Pipeline(shards=2)
    pipeline.add_nodes([small_node(f"n{i:02}") for i in range(20)])
    for i in range(3):
        pipeline.submit([small_pod(f"p{i}", cpu="100m")])
        pipeline.settle()
    pipeline.submit([small_pod("huge", cpu="64"), small_pod("with", cpu="100m")])
    while not pipeline.cycle.is_committing:
        pipeline.step()
    pipeline.submit([small_pod("after", cpu="100m")])
    while "default/after" not in pipeline.outcomes:
        pipeline.step()
    assert {core.seq for core in pipeline.workers.values()} == {pipeline.snapshot.seq - 1}, "its delta is quiet"
    pipeline.submit([small_pod("other", cpu="200m")])
    before = pipeline.now
    while "default/other" not in pipeline.outcomes:
        pipeline.step()
    assert pipeline.now == before, "and it has not waited for a deadline"


def test_what_is_summed_up_over_feasible_nodes_is_asked_for_each_time_even_if_it_is_not_scored() -> None:
    """It changes when a node is full."""
    run = Run(1, frameworks=UNSCORED_SPREADING)
    run.add_nodes(
        [node(f"n{i}").capacity(cpu=8, memory="8Gi", pods=2).label({HOSTNAME: f"n{i}"}).build() for i in "abc"]
    )
    run.settle()
    kind = KINDS["spread over nodes"]
    pods = [replace(kind, metadata=msgspec.structs.replace(kind.metadata, name=f"p{i}")).build() for i in range(6)]
    assert all(one_by_one(run, pods))
    assert run.known.given == 0


def test_a_class_that_comes_for_the_first_time_costs_an_ask_of_the_worker_whose_node_it_gets() -> None:
    run = wide()
    one_by_one(run, [small_pod(f"p{i}", cpu="100m") for i in range(4)])
    one_by_one(run, [small_pod("other", cpu="200m")])
    assert one_by_one(run, [small_pod("p9", cpu="100m")]) == [1]


@pytest.mark.parametrize("ties", [BY_NAME, Ties(seed=7)], ids=["all want the same nodes", "each wants others"])
def test_classes_in_turn_need_no_ask_either_once_each_came_twice(ties: Ties) -> None:
    """Whether or not the node of one is among those that the others would get next."""
    run = Run(2, ties=ties)
    run.add_nodes([small_node(f"n{i:03}") for i in range(200)])
    run.settle()
    costs = one_by_one(run, [small_pod(f"p{i}", cpu=f"{100 + i % 5}m") for i in range(60)])
    assert sum(costs[20:]) <= 8
    assert len({run.placed[f"default/p{i}"][0] for i in range(60)}) == 60, "the emptiest node each time"


@pytest.mark.parametrize("ties", [BY_NAME, Ties(seed=7)], ids=["all want the same nodes", "each wants others"])
def test_in_strict_mode_rounds_wait_for_commits_that_make_asks_needless(ties: Ties) -> None:
    """Pods wait, and are decided as if each came alone. The first round of each class overlaps."""
    pods = five_kinds(60)
    alone, together = strict(ties), strict(ties)
    costs = one_by_one(alone, pods)
    together.submit(pods)
    together.settle()
    assert nodes_of(together) == nodes_of(alone)
    assert together.asks <= sum(costs), "the second time with placements ahead"


def test_in_strict_mode_decisions_that_need_no_ask_share_a_commit() -> None:
    """In the order of the queue; and each has its own while they are recorded, as a replay needs the state of each."""
    pods = five_kinds(60)
    run, recorded = strict(), strict()
    run.submit(pods)
    run.settle()
    recorded.cycle.handle(RecordDecisions("recording", 1e6), recorded.now)
    recorded.submit(pods)
    recorded.settle()
    assert nodes_of(run) == nodes_of(recorded)
    assert list(chain(*run.commits)) == list(chain(*recorded.commits)) == [each.uid for each in pods]
    assert len(recorded.commits) == 60
    assert len(run.commits) < 30


def test_in_strict_mode_an_ask_is_also_about_the_pods_that_follow() -> None:
    """Each class is asked about once, the first one again as nothing was expected of it. With the second pod of that
    come all classes, for placements ahead, and then all other pods are decided.
    """
    run = strict()
    run.submit(five_kinds(60))
    run.settle()
    assert run.asks == (6 + 1) * 2
    assert [len(each) for each in run.commits] == [1, 1, 1, 1, 1, 55]


def test_a_refused_decision_leaves_the_others_of_its_commit_in_place() -> None:
    run = strict()
    run.submit(five_kinds(60))
    while not run.commits or len(run.commits[-1]) < 3:
        run.step()
    assert run.cycle.is_committing
    refused, its_node = list(run.commits[-1].items())[1]
    run.observe(snapshot.NodeSeen(node(its_node).capacity(cpu=4, memory="8Gi").label(new="yes").build()))
    run.settle()
    assert all(isinstance(outcome, Decided) for outcome in run.outcomes.values())
    decided = Counter(chain(*run.commits))
    assert decided.pop(refused) == 2
    assert set(decided.values()) == {1}


def test_in_strict_mode_rounds_overlap_with_commits_where_each_needs_an_ask() -> None:
    """One pod at most is decided between an ask and its answers, and none where its class has a topology."""
    run = Run(2, 1)
    run.add_nodes([small_node(f"n{i:02}") for i in range(20)])
    run.settle()
    kind = KINDS["rather with large"]
    run.submit([replace(kind, metadata=msgspec.structs.replace(kind.metadata, name=f"p{i}")).build() for i in range(6)])
    overlapped = 0
    while len(run.outcomes) < 6:
        run.step()
        overlapped += run.cycle.is_committing and run.cycle.rounds.current is not None
    assert overlapped


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("round_size", [1, 256])
def test_scores_by_a_range_that_has_moved_since_tell_nothing(together: bool, round_size: int) -> None:
    """A class likes nodes that were full when it was last evaluated. What another class's placements mean for it was
    judged before it was asked again, by the range without them.
    """
    liking = pod("liking").request(cpu="800m", memory="1Mi").prefer_node(50, expr("group", "In", "a"))
    plain = pod("plain").request(cpu="400m", memory="1Mi")
    run = Run(1, round_size)
    sizes = {
        "m": (9, "b", 8),
        "y": (8, "a", 8),
        "z": (8, "a", 8),
        "w": (6, "a", 6),
        "k1": (8, "b", 0),
        "k2": (8, "b", 0),
    }
    for name, (cpu, group, taken) in sizes.items():
        run.add_nodes([node(name).capacity(cpu=cpu, memory="64Gi", pods=110).label(group=group).build()])
        if taken:
            run.observe(snapshot.PodSeen(bound(pod(f"on-{name}").request(cpu=taken).build(), name)))
    run.settle()

    names = (f"p{i}" for i in range(20))

    def come(*kinds: PodBuilder) -> None:
        run.submit([named(kind, next(names)) for kind in kinds])
        run.settle()

    for kind in (liking, liking, plain, plain):
        come(kind)
    for name in "myzw":
        run.observe(snapshot.PodDeleted(f"default/on-{name}"))
    run.settle()
    for kinds in [(plain, liking)] if together else [(plain,), (liking,)]:
        come(*kinds)
    before = run.known.given
    for kind in (plain, liking, liking):
        come(kind)
    assert run.known.given > before, "of these, Checked compares each with what the worker would say"


def test_a_plugin_that_fails_for_another_class_does_not_fail_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ArithmeticError("on purpose")

    monkeypatch.setattr(Lasting, "totals_beside", fail)
    run = wide()
    costs = one_by_one(run, [small_pod(f"p{i}", cpu=f"{100 + i % 2}m") for i in range(8)])
    assert all(costs[4:]), "what is not known is asked about"
    assert any(str(cause) == "on purpose" for core in run.workers.values() for _, cause in core.failures.unexpected())


def test_classes_that_fill_the_node_that_the_others_want_next_are_asked_about_each_time() -> None:
    run = Run(2, frameworks=PACKING)
    run.add_nodes([small_node(f"n{i:02}") for i in range(20)])
    run.settle()
    costs = one_by_one(run, [small_pod(f"p{i}", cpu=f"{100 + i % 3}m") for i in range(12)])
    assert all(costs)
    assert len({run.placed[f"default/p{i}"][0] for i in range(12)}) <= 2


def test_a_class_that_came_once_is_not_asked_about_placements_ahead() -> None:
    run = wide()
    asked: list[int] = []
    send = run._carry_out_cycle

    def noting(effects: Iterable[Effect]) -> None:
        told = list(effects)
        messages = [effect.message for effect in told if isinstance(effect, Ask)]
        asked.extend(each.ahead for message in messages if isinstance(message, Propose) for each in message.classes)
        send(told)

    run._carry_out_cycle = noting  # type: ignore[method-assign]
    one_by_one(run, [small_pod(f"p{i}", cpu=f"{100 + i}m") for i in range(12)])
    assert set(asked) == {0}
    one_by_one(run, [small_pod("p", cpu="105m")])
    assert AHEAD in asked


def test_what_the_snapshot_tells_of_other_changes_ends_what_is_known() -> None:
    run = wide()
    one_by_one(run, [small_pod(f"p{i}", cpu="100m") for i in range(4)])
    run.observe(snapshot.NodeSeen(small_node("new")))
    run.settle()
    assert one_by_one(run, [small_pod("p9", cpu="100m")])[0] >= 2


def test_pods_that_must_see_a_later_state_are_asked_about() -> None:
    run = wide()
    one_by_one(run, [small_pod(f"p{i}", cpu="100m") for i in range(4)])
    before = run.asks
    run.submit([small_pod("p9", cpu="100m")], seq=run.snapshot.seq + 1)
    assert run.asks == before + 2


def test_after_shards_were_assigned_again_nothing_is_known() -> None:
    run = wide()
    one_by_one(run, [small_pod(f"p{i}", cpu="100m") for i in range(4)])
    run.assign_again()
    assert one_by_one(run, [small_pod("p9", cpu="100m")])[0] >= 2
