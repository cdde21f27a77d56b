"""Pods that are decided while victims of a gang are searched for, and take the room that the gang would have used."""

import pytest

from services.cycle.preemption.gang_case import MAX_REPEATS
from shared.messages.preemption import Preempt
from testing.builders import pod
from tests.plugins.volumes.storage import HOSTNAME
from tests.rounds.preempting_gangs import PreemptingGangs, gang_of, pod_group
from tests.rounds.preempting_world import where_they_are
from tests.rounds.support import BY_NAME
from tests.rounds.test_preempting_gangs import MEMBER, low, racks, world

MOST_STEPS = 40


def gang_meets_a_pod(after: int, shards: int) -> tuple[PreemptingGangs, bool]:
    """Two members that request two CPUs each, and one node with one CPU free, which a pod takes after `after` steps."""
    run = world(racks(1, 1), [low(f"low{i}", 0) for i in range(3)], shards)
    gang = gang_of("train", 2, MEMBER)
    run.submit_gang(pod_group("train", 2), gang)
    run.steps(after)
    run.submit([pod("late").request(cpu=1).build()])
    run.run_for(60)
    return run, len(where_they_are(run, gang)) == 2


@pytest.mark.parametrize("shards", [1, 3])
def test_a_gang_does_not_wait_because_others_took_the_room_meanwhile(shards: int) -> None:
    stranded = [after for after in range(MOST_STEPS) if not gang_meets_a_pod(after, shards)[1]]
    assert not stranded, f"the gang waits if a pod comes after {stranded} steps"


def test_a_gang_that_cannot_fit_is_not_searched_for_again_and_again() -> None:
    """Pods that have nothing to do with it are decided all the time."""
    searches: set[int] = set()

    def count(message: object) -> list[float]:
        if isinstance(message, Preempt):
            searches.add(message.search)
        return [0.001]

    run = PreemptingGangs(shards=1, round_size=256, ties=BY_NAME, fate=count)
    run.add_nodes(racks(2, 1))
    run.add_pods([low("low", 0)])
    run.settle()
    small, large = (MEMBER.node_selector({HOSTNAME: "n0"}).request(cpu=cpu) for cpu in (2, 3))
    gang = [*gang_of("train", 1, small), *(each for each in gang_of("train", 2, large)[1:])]
    run.submit_gang(pod_group("train", 2), gang)
    for i in range(105):
        run.submit([pod(f"other{i}").request(cpu="1m").node_selector({HOSTNAME: "n1"}).build()])
        run.steps(6)
        if run.unfit(gang):
            break
    assert len(run.unfit(gang)) == 2
    assert len(searches) == 2 * (1 + MAX_REPEATS), "two stages, each as often as allowed"
