"""Gangs that cannot be decided at all, by the thousand."""

import sys

from services.cycle.events import Failed
from shared.framework.loading import load_frameworks
from shared.messages.queue import Gang
from shared.model.objects import Pod
from testing.builders import pod
from testing.inprocess.batches import batch_of
from tests.rounds.script import Script, asked

GANGS = 4 * sys.getrecursionlimit()
TWO_PROFILES = load_frameworks(
    {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "one"}, {"schedulerName": "two"}],
    }
)


def test_thousands_of_refused_gangs_in_a_row_end_in_one_round() -> None:
    """Each has members of two profiles."""
    script = Script("w0", frameworks=TWO_PROFILES)
    pods: list[Pod] = []
    gangs: dict[str, Gang] = {}
    for number in range(GANGS):
        for profile in ("one", "two"):
            member = pod(f"{profile}-{number}").scheduler(profile).build()
            pods.append(member)
            gangs[member.uid] = Gang(f"default/g{number}", 2)
    effects = script.handle(batch_of([*pods, pod("last").scheduler("one").build()], gangs=gangs))
    assert sum(isinstance(each, Failed) for each in effects) == 2 * GANGS
    assert asked(effects).keys() == {"w0"}
    assert script.core.pods_held == 1
