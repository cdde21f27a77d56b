"""The plugin over columns and shards against the same decisions taken slowly, pod by pod."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.config.args import InterPodAffinityArgs
from shared.model.objects import Pod
from shared.plugins.interpodaffinity.plugin import InterPodAffinity
from tests.plugins.interpodaffinity import scalar
from tests.plugins.interpodaffinity.scalar import Cluster
from tests.plugins.interpodaffinity.shards import Shards
from tests.plugins.interpodaffinity.strategies import ARRIVING, clusters, pods

RANDOM = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SHARDS = st.sampled_from([1, 2, 3, 7])
ARGS = st.builds(InterPodAffinityArgs, st.sampled_from([0, 1, 100]), st.booleans())


def expected_reason(actual: Cluster, pod: Pod, at: int, hypothetical: Cluster | None = None) -> str | None:
    """The plugin is skipped by the real state, and judges by the hypothetical one."""
    return None if scalar.skips_filter(actual, pod) else scalar.reason(hypothetical or actual, pod, at)


@RANDOM
@given(clusters(), pods("arriving"), SHARDS)
def test_filter(cluster: Cluster, pod: Pod, count: int) -> None:
    plugin, shards = InterPodAffinity(None), Shards(cluster, count)
    shards.use_merged(plugin, pod)
    assert shards.reasons(plugin, pod) == [expected_reason(cluster, pod, at) for at in range(len(cluster.nodes))]


@RANDOM
@given(clusters(), pods("arriving"), SHARDS, ARGS)
def test_score(cluster: Cluster, pod: Pod, count: int, args: InterPodAffinityArgs) -> None:
    plugin, shards = InterPodAffinity(args), Shards(cluster, count)
    how = (args.hard_pod_affinity_weight, args.ignore_preferred_terms_of_existing_pods)
    shards.use_merged(plugin, pod)
    everywhere = range(len(cluster.nodes))
    assert [shards.score(plugin, pod, at) for at in everywhere] == [
        scalar.score(cluster, pod, at, *how) for at in everywhere
    ]
    state = shards.states(pod)[0]
    skipped = plugin.pre_score(state).skipped or plugin.scores_alike(state)
    assert skipped == (not scalar.contributions(cluster, pod, *how))


@RANDOM
@given(clusters(), ARRIVING, SHARDS, st.data())
def test_hypothetical_pods_count_on_their_node(
    cluster: Cluster, arriving: tuple[Pod, ...], count: int, data: st.DataObject
) -> None:
    plugin, shards = InterPodAffinity(None), Shards(cluster, count)
    pod, *others = arriving
    others.append(pod)  # as in a ladder
    shards.use_merged(plugin, pod)
    for at, there in enumerate(cluster.pods):
        more = data.draw(st.lists(st.sampled_from(others), max_size=2))
        gone = data.draw(st.lists(st.sampled_from(there), unique_by=lambda p: p.uid)) if there else []
        hypothetical = cluster.with_pods(at, *more).without_pods(at, *gone)
        changes = [*((p, 1) for p in more), *((p, -1) for p in gone)]
        assert shards.reason(plugin, pod, at, changes) == expected_reason(cluster, pod, at, hypothetical)
        if scalar.contributions(cluster, pod):
            assert shards.score(plugin, pod, at, changes) == scalar.score(hypothetical, pod, at)


@RANDOM
@given(clusters(), ARRIVING, SHARDS, st.data())
def test_pods_come_and_go(cluster: Cluster, arriving: tuple[Pod, ...], count: int, data: st.DataObject) -> None:
    plugin, shards = InterPodAffinity(None), Shards(cluster, count)
    now = cluster
    for step in range(data.draw(st.integers(1, 4))):
        for pod in arriving:
            shards.use_merged(plugin, pod)
            for at in range(len(now.nodes)):
                assert shards.reason(plugin, pod, at) == expected_reason(now, pod, at)
                assert shards.score(plugin, pod, at) == scalar.score(now, pod, at)
        at = data.draw(st.integers(0, len(now.nodes) - 1))
        there = [p for p in now.pods[at] if p in cluster.pods[at]]
        goes: bool = data.draw(st.booleans())
        if there and goes:
            shards.remove(there[0], at)
            now = now.without_pods(at, there[0])
        else:
            pod = data.draw(st.sampled_from(arriving))
            shards.place(pod, at, f"placed-{step}")
            now = now.with_pods(at, pod)


@RANDOM
@given(clusters(), pods("arriving"))
def test_summaries_do_not_depend_on_the_number_of_shards(cluster: Cluster, pod: Pod) -> None:
    plugin = InterPodAffinity(None)
    summaries = [Shards(cluster, count).summary(plugin, pod) for count in (1, 2, 3, 7)]
    assert all(summary == summaries[0] for summary in summaries)
