"""Pods on nodes as the queue keeps them: those that are alike share their parts."""

from random import Random

from services.queue.assigned_pods import AssignedPods
from services.queue.scheduling.assigned_pod import AssignedPod
from shared.model.objects import Pod, group_of
from shared.plugins.volumes.own_claims import volume_claims
from tests.assigned import change_of, variants


def kept(pods: AssignedPods, one: Pod) -> AssignedPod:
    versions = pods.update(change_of(one))
    assert versions is not None
    return versions[1]


def test_each_is_kept_as_if_it_were_decoded_alone() -> None:
    seed = 7
    pods: list[Pod] = [each for number in range(4) for each in variants(f"p{number}", f"n{number % 3}")]
    Random(seed).shuffle(pods)
    all_pods = AssignedPods()
    for each in pods:
        found = kept(all_pods, each)
        assert found.pod() == kept(AssignedPods(), each).pod(), f"seed {seed}"
        assert (found.parts.group, found.parts.claims) == (group_of(each), volume_claims(each))
        assert (found.pod().key, found.pod().spec) == (each.key, each.spec)
        all_pods.delete(each.uid)


def test_pods_that_are_alike_share_all_their_parts() -> None:
    pods = AssignedPods()
    plain = [variants(name, "n")[0] for name in ("a", "b", "c")]
    assert len({id(kept(pods, each).parts) for each in plain}) == 1
