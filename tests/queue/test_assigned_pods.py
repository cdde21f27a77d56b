"""Pods on nodes as the queue keeps them: those that are alike share their parts."""

from random import Random

import msgspec

from services.queue.assigned_pods import AssignedPods
from services.queue.scheduling.assigned_pod import AssignedPod
from shared.messages.watch import AlikePods, PodOnNode
from shared.model.objects import Pod, group_of
from shared.plugins.volumes.own_claims import volume_claims
from tests.assigned import alike, alike_of, change_of, variants


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


def test_pods_that_come_together_are_kept_as_if_each_came_alone() -> None:
    seed = 7
    pods = [each for number in range(4) for each in variants(f"p{number}", f"n{number % 3}")]
    Random(seed).shuffle(pods)
    together = AssignedPods()
    shared = [(each, found) for each in pods if (found := alike_of(each)) is not None]
    for each, found in shared:
        ((before, now),) = together.update_alike(found)
        assert before is None, f"seed {seed}"
        assert (now, now.pod()) == ((alone := kept(AssignedPods(), each)), alone.pod()), f"seed {seed}"
        assert [*together.update_alike(found)] == [], "unchanged"
        assert together.update(change_of(each)) is None, "unchanged, grouped or separate"
        together.delete(each.uid)
    assert len(shared) > len(pods) / 2


def test_of_pods_that_come_together_those_that_are_new_or_changed_are_told() -> None:
    pods = AssignedPods()
    a, b, c = (variants(name, "n")[0] for name in "abc")
    changed = variants("b", "n")[2]
    assert pods.update(change_of(a)) is not None and pods.update(change_of(changed)) is not None
    found = [*pods.update_alike(alike(a, b, c))]
    assert [(None if before is None else before.pod().metadata.labels, now.name) for before, now in found] == [
        (changed.metadata.labels, "b"),
        (None, "c"),
    ]


def test_an_unreadable_body_leaves_known_pods_as_they_were() -> None:
    pods, a = AssignedPods(), variants("a", "n")[0]
    before = kept(pods, a)
    broken = AlikePods("default", msgspec.Raw(b"\xc1"), [PodOnNode(a.uid, a.name, "n"), PodOnNode("x", "x", "n")])
    ((_, now),) = pods.update_alike(broken)
    assert (now.uid, now.node, now.pod().key, len(pods)) == ("x", "n", "default/x", 2)
    assert pods.update(change_of(a)) is None and before.pod().metadata.labels == a.metadata.labels
