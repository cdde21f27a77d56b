"""A rejected gang waits for all that keeps a member from a node: one that fits may be in the way of another."""

import pytest

from services.cycle.events import Unschedulable
from services.snapshot.events import PodSeen
from shared.messages.queue import Gang
from testing.builders import node, pod, selector
from testing.inprocess.pipeline import bound
from tests.rounds.gangs import GangRun, members
from tests.rounds.support import QUIET
from tests.rounds.test_tree_placements import TreeRun, composite, leaf

PICKY = pod("picky").request(cpu=4).node_selector(disk="fast").never_preempting().build()
SERVER = pod("server").request(cpu=4).host_port(80).never_preempting().build()
"""It fits on n1, where PICKY has to go. On n2 its port is in use; PICKY is kept from there by something else."""


def with_two_nodes(run: GangRun) -> None:
    run.add_nodes(
        [
            node("n1").capacity(cpu=4, memory="8Gi").label(disk="fast").build(),
            node("n2").capacity(cpu=8, memory="8Gi").build(),
        ]
    )
    run.settle()
    run.observe(PodSeen(bound(pod("other").host_port(80).build(), "n2")))
    run.settle()


def rejected_by(run: GangRun) -> set[str]:
    unfit = [outcome for outcome in run.told if isinstance(outcome, Unschedulable)]
    assert [outcome.uid for outcome in unfit] == [SERVER.uid, PICKY.uid]
    (plugins,) = {outcome.unfit.plugins for outcome in unfit}
    return set(plugins)


@pytest.mark.parametrize("shards", [1, 3])
def test_what_keeps_a_fitting_member_from_another_node_is_named(shards: int) -> None:
    run = GangRun(shards=shards)
    with_two_nodes(run)
    run.take((Gang("ns/g", 2), [SERVER, PICKY]))
    run.settle()
    assert rejected_by(run) == {"GangScheduling", "NodeAffinity", "NodePorts", "NodeResourcesFit"}


@pytest.mark.parametrize("shards", [1, 3])
def test_in_a_tree_it_may_be_any_plugin_of_the_profile(shards: int) -> None:
    run = TreeRun(shards=shards)
    with_two_nodes(run)
    run.take_tree([composite("root", 0, 2), leaf("a", 0, 1), leaf("b", 0, 1)], {1: [SERVER], 2: [PICKY]})
    run.settle()
    (framework,) = QUIET.values()
    assert rejected_by(run) == {"GangScheduling", *framework.registrations}


def test_members_that_are_alike_wait_for_what_has_rejected_one_of_them() -> None:
    run = TreeRun()
    with_two_nodes(run)
    alike = members(pod("alike").request(cpu=4).host_port(80).never_preempting(), 2)
    run.take_tree([composite("root", 0, 2), leaf("a", 0, 1), leaf("b", 0, 1)], {1: alike[:1], 2: alike[1:]})
    run.settle()
    assert {outcome.unfit.plugins for outcome in run.unfit(alike).values()} == {("GangScheduling", "NodePorts")}


@pytest.mark.parametrize("shards", [1, 3])
def test_members_that_keep_each_other_from_nodes_hide_what_else_does(shards: int) -> None:
    """Spread: after the first member is in z1, the others must go to z2, where affinity forbids it too."""
    db, app = {"role": "db"}, {"app": "served"}
    run = TreeRun(shards=shards)
    zones = (("a", "z1", "r1"), ("b", "z1", "r2"), ("c", "z2", "r1"))
    for name, zone, row in zones:
        run.add_nodes([node(name).capacity(cpu=100, memory="8Gi").label(zone=zone, row=row).build()])
    run.settle()
    run.observe(PodSeen(bound(pod("db").label(db).build(), "b")))
    run.settle()
    served = pod("served").label(app).request(cpu=1).never_preempting().require_pods("zone", selector(db))
    spread = served.spread_hard("zone", selector(app)).spread_hard("row", selector(app))
    alike = members(spread, 3)
    groups = [composite("root", 0, 2), *(leaf(name, 0, 1) for name in "abc")]
    run.take_tree(groups, {number: [each] for number, each in enumerate(alike, start=1)})
    run.settle()
    plugins = {outcome.unfit.plugins for outcome in run.unfit(alike).values()}
    assert plugins
    assert all("InterPodAffinity" in of_member for of_member in plugins)
