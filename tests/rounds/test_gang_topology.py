"""Gangs with topology constraints: in one domain, chosen over all shards, and never split."""

from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from services.cycle.events import Decided, Superseded, Unschedulable
from services.snapshot import events as snapshot
from shared.messages.queue import Gang
from shared.model.objects import Node, Pod
from shared.model.workloads import TopologyConstraint
from testing.builders import node, pod, selector
from testing.inprocess.pipeline import Pipeline, bound
from tests.rounds.all_placements import BLOCK, RACK
from tests.rounds.gangs import GangRun, members
from tests.rounds.support import QUIET
from tests.rounds.test_hard_rules import HOST

everywhere = pytest.mark.parametrize("shards", [1, 3, 7])
IN_ONE_RACK = (TopologyConstraint(key=RACK),)
IN_ONE_BLOCK_AND_PERHAPS_RACK = (TopologyConstraint(key=BLOCK), TopologyConstraint(key=RACK, preferred=True))
WORKER = pod("worker").request(cpu=1)


def rack(name: str, nodes: int, cpu: int = 4, block: str = "b0") -> list[Node]:
    names = (f"{name}-{i}" for i in range(nodes))
    labels = {RACK: name, BLOCK: block}
    return [node(each).label(labels | {HOST: each}).capacity(cpu=cpu, memory="64Gi").build() for each in names]


def run_with(nodes: Iterable[Node], shards: int = 1) -> GangRun:
    run = GangRun(shards=shards)
    run.add_nodes(nodes)
    run.settle()
    return run


def gang(pods: Sequence[Pod], topology: tuple[TopologyConstraint, ...] = IN_ONE_RACK, **more: object) -> Gang:
    least = more.pop("least", len(pods))
    assert isinstance(least, int)
    placed_on = more.pop("placed_on", ())
    assert isinstance(placed_on, tuple)
    return Gang("ns/g", least, topology=topology, placed_on=placed_on)


def racks_of(run: GangRun, pods: Sequence[Pod]) -> set[str]:
    return {where.partition("-")[0] for where in run.places(pods).values()}


def why(run: GangRun, pods: Sequence[Pod]) -> str:
    outcome = run.outcomes[pods[0].uid]
    assert isinstance(outcome, Unschedulable)
    return outcome.unfit.message


@everywhere
def test_all_members_go_to_the_smallest_rack_that_holds_them(shards: int) -> None:
    run = run_with([*rack("r1", 4), *rack("r2", 2), *rack("r3", 1)], shards)
    pods = members(WORKER, 8)
    run.take((gang(pods), pods))
    run.settle()
    assert len(run.places(pods)) == 8
    assert racks_of(run, pods) == {"r2"}


@everywhere
def test_a_gang_that_no_rack_holds_is_told_so_in_one_sentence(shards: int) -> None:
    run = run_with([*rack("r1", 1), *rack("r2", 2), *rack("r3", 1, block="b1")], shards)
    pods = members(WORKER, 9)
    run.take((gang(pods), pods))
    run.settle()
    assert run.decisions == []
    sentence = 'Pod group "ns/g": no rack has room for all 9 members: the best, r2, has room for 8.'
    assert why(run, pods).endswith(sentence)
    last = run.unfit(pods)["m8"].unfit
    assert last.message == f"0/2 nodes are available: 2 Insufficient cpu. {sentence}"
    assert {"GangScheduling", "NodeResourcesFit"} <= set(last.plugins)


@everywhere
@pytest.mark.parametrize("topology", [IN_ONE_RACK, IN_ONE_BLOCK_AND_PERHAPS_RACK])
def test_full_racks_are_no_missing_label(shards: int, topology: tuple[TopologyConstraint, ...]) -> None:
    bare = [node(f"bare-{i}").capacity(cpu=1).build() for i in range(3)]
    run = run_with([*rack("r1", 2, cpu=1), *rack("r2", 2, cpu=1), *bare], shards)
    large, small = members(pod("large").request(cpu=2), 4), members(pod("small").request(cpu=1), 4, "s")
    run.take((gang(large, topology), large))
    run.settle()
    what = "rack" if topology is IN_ONE_RACK else "block"
    sentence = f'Pod group "ns/g": no {what} has room for any of its 4 members.'
    assert why(run, large) == f"0/2 nodes are available: 2 Insufficient cpu. {sentence}"
    typo = (TopologyConstraint(key="example.com/rak"),)
    run.take((gang(small, typo), small))
    run.settle()
    assert why(run, small).endswith("no node has the label example.com/rak, by which members lie together.")
    assert run.decisions == []


@everywhere
def test_a_preferred_rack_is_given_up_for_the_block(shards: int) -> None:
    nodes = [*rack("r1", 1), *rack("r2", 1), *rack("r3", 2, block="b1"), *rack("r4", 2, block="b1")]
    run = run_with(nodes, shards)
    pods = members(WORKER, 8)
    run.take((gang(pods, IN_ONE_BLOCK_AND_PERHAPS_RACK), pods))
    run.settle()
    assert len(racks_of(run, pods)) == 1
    assert racks_of(run, pods) <= {"r3", "r4"}
    more = members(WORKER, 8, "more")
    run.take((Gang("ns/h", 8, topology=IN_ONE_BLOCK_AND_PERHAPS_RACK), more))
    run.settle()
    assert racks_of(run, more) == {"r3", "r4"} - racks_of(run, pods)
    last = members(WORKER, 8, "last")
    run.take((Gang("ns/i", 8, topology=IN_ONE_BLOCK_AND_PERHAPS_RACK), last))
    run.settle()
    assert racks_of(run, last) == {"r1", "r2"}


@everywhere
def test_members_beyond_the_minimum_stay_in_the_rack(shards: int) -> None:
    run = run_with([*rack("r1", 1), *rack("r2", 1, cpu=3)], shards)
    pods = members(WORKER, 6)
    run.take((gang(pods, least=2), pods))
    run.settle()
    assert len(run.places(pods)) == 4
    assert racks_of(run, pods) == {"r1"}
    assert len(run.unfit(pods)) == 2


@everywhere
def test_a_restarted_member_goes_back_to_its_rack_or_waits(shards: int) -> None:
    """r2 has room, but the others are in r1."""
    run = run_with([*rack("r1", 2), *rack("r2", 4)], shards)
    there = [bound(each, "r1-0") for each in members(WORKER, 4, "there")]
    run.add_pods(there)
    run.settle()
    again = members(WORKER, 3)
    run.take((gang(again, least=1, placed_on=("r1-0",)), again))
    run.settle()
    assert set(run.places(again).values()) == {"r1-1"}
    late = members(WORKER, 2, "late")
    run.take((gang(late, least=2, placed_on=("r1-0", "r1-1")), late))
    run.settle()
    assert run.places(late) == {}
    assert "r1, where other members are, has room for 1 of the 2 that are left" in why(run, late)


def test_members_that_were_on_their_way_go_where_the_first_was_placed() -> None:
    """They left the queue before it knew that the first one was decided."""
    run = run_with([*rack("r1", 1, cpu=1), *rack("r2", 1, cpu=2)])
    first, second = members(WORKER, 1, "first"), members(WORKER, 1, "second")
    run.take((Gang("ns/g", 1, topology=IN_ONE_RACK), first))
    run.take((Gang("ns/g", 1, topology=IN_ONE_RACK), second))
    run.settle()
    assert racks_of(run, first) == {"r1"}
    assert run.places(second) == {}
    assert "members are in r1 already, where no node has room for another one" in why(run, second)


def test_a_gang_whose_members_are_in_two_racks_gets_no_others() -> None:
    run = run_with([*rack("r1", 1), *rack("r2", 1)])
    pods = members(WORKER, 1)
    run.take((gang(pods, placed_on=("r1-0", "r2-0")), pods))
    run.settle()
    assert "members are in r1 and r2 already, and all must be in one rack" in why(run, pods)


@everywhere
def test_after_a_conflict_the_gang_is_still_in_one_rack(shards: int) -> None:
    """Another scheduler takes room in the best rack while the gang is decided."""
    run = run_with([*rack("r1", 2), *rack("r2", 3)], shards)
    pods = members(WORKER, 8)
    run.take((gang(pods), pods))
    for step in range(6):
        run.step()
        if step == 2:
            run.observe(snapshot.PodSeen(bound(members(WORKER, 1, "other")[0], "r1-0")))
    run.settle()
    assert len(run.places(pods)) == 8
    assert len(racks_of(run, pods)) == 1


@everywhere
def test_a_domain_that_fits_each_but_not_all_is_passed_over(shards: int) -> None:
    """In r1 the two kinds exclude each other: it has one node for both."""
    apart = WORKER.label(app="db").require_no_pods(HOST, selector(app="web"))
    run = run_with([*rack("r1", 1, cpu=2), *rack("r2", 2, cpu=2)], shards)
    pods = [*members(apart, 1, "a"), *members(WORKER.label(app="web"), 1, "b")]
    run.take((gang(pods), pods))
    run.settle()
    assert racks_of(run, pods) == {"r2"}
    alone = run_with([*rack("r1", 1, cpu=2)], shards)
    alone.take((gang(pods), pods))
    alone.settle()
    assert "r1 would have room for each of its 2 members alone, but not for all of them together" in why(alone, pods)


def test_a_gang_of_five_thousand_is_decided_together() -> None:
    pipeline = Pipeline(QUIET, round_size=256)
    pipeline.add_nodes([*rack("r1", 640, cpu=8), *rack("r2", 600, cpu=8)])
    pipeline.settle()
    pods = members(WORKER, 5000)
    pipeline.submit(pods, gang=gang(pods))
    pipeline.settle()
    assert Counter(type(outcome) for outcome in pipeline.outcomes.values()) == {Decided: 5000}
    assert pipeline.cycle.rounds.begun == 2


@everywhere
def test_members_that_a_new_queue_believes_pending_tell_where_the_others_must_lie(shards: int) -> None:
    """They have places that are not bound yet, of which a queue that has just begun does not know."""
    run = Pipeline(QUIET, shards=shards, binds=False)
    run.add_nodes([*rack("r1", 1, cpu=2), *rack("r2", 1, cpu=8)])
    run.settle()
    pods, late = members(WORKER, 2), members(WORKER, 1, "late")
    run.submit(pods, gang=gang(pods))
    run.settle()
    assert [run.outcomes[each.uid] for each in pods] == [Decided(each.uid, "r1-0") for each in pods]
    run.now += 600.0  # the cycle has forgotten it
    run.submit([*pods, *late], gang=gang(pods))
    run.settle()
    assert [run.outcomes[each.uid] for each in pods] == [Superseded(each.uid, "r1-0") for each in pods]
    refused = run.outcomes[late[0].uid]
    assert isinstance(refused, Unschedulable)
    assert "r1" in refused.unfit.message


@pytest.mark.parametrize("room", [0, 2])
def test_a_full_rack_with_members_is_told_of_alike_however_nodes_are_divided(room: int) -> None:
    """`room`: for members in other racks."""

    def told(shards: int) -> set[str]:
        nodes = [*rack("r1", 1, cpu=room or 1), *rack("r2", 2, cpu=1), *rack("r3", 2, cpu=room or 1, block="b1")]
        run = run_with(nodes, shards)
        there, other, *left = members(WORKER, 4)
        full = [pod(f"full-{each.name}").request(cpu=1).build() for each in nodes if not room]
        on_it = [bound(there, "r2-0"), bound(other, "r2-1")]
        run.add_pods(
            [*on_it, *(bound(each, each.name.removeprefix("full-")) for each in full if "r2" not in each.name)]
        )
        run.settle()
        run.take((gang(left, placed_on=("r2-0", "r2-1")), left))
        run.settle()
        assert run.decisions == []
        return {why(run, [each]) for each in left}

    of_one = told(1)
    assert {shards: told(shards) for shards in (2, 3, 7)} == dict.fromkeys((2, 3, 7), of_one)
    sentence = 'Pod group "ns/g": members are in r2 already, where no node has room for another one.'
    assert of_one == {f"0/2 nodes are available: 2 Insufficient cpu. {sentence}"}
