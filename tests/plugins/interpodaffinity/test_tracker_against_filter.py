"""What a tracker says while a round is decided, against the filter on tables where these decisions were placed."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.model.load import load_of
from shared.model.objects import Pod
from shared.plugins.interpodaffinity.plugin import InterPodAffinity
from tests.plugins.interpodaffinity.scalar import Cluster
from tests.plugins.interpodaffinity.shards import Shards
from tests.plugins.interpodaffinity.strategies import ARRIVING, clusters

RANDOM = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@RANDOM
@given(clusters(), ARRIVING, st.sampled_from([1, 2, 3]), st.data())
def test_a_round(cluster: Cluster, arriving: tuple[Pod, ...], count: int, data: st.DataObject) -> None:
    plugin = InterPodAffinity(None)
    asked, now = Shards(cluster, count), Shards(cluster, count)
    everywhere = range(len(cluster.nodes))
    trackers = {}
    before = {}
    for pod in arriving:
        summary = asked.use_merged(plugin, pod)
        raw = [asked.score(plugin, pod, at) for at in everywhere]
        trackers[pod.uid] = plugin.tracker(pod, summary, None, (min(raw), max(raw)))
        before[pod.uid] = asked.reasons(plugin, pod)
    own: dict[tuple[str, int], int] = {}
    loads = {pod.uid: load_of(pod) for pod in arriving}
    for step in range(data.draw(st.integers(1, 5))):
        admitted = []
        for pod in arriving:
            tracker = trackers[pod.uid]
            assert tracker is not None
            assert now.use_merged(plugin, pod) == tracker.summary()
            judged = now.reasons(plugin, pod)
            if [why is None for why in judged] != [why is None for why in before[pod.uid]]:
                assert tracker.touched
            for at in everywhere:
                ahead = [(pod, own.get((pod.uid, at), 0))]
                if asked.reason(plugin, pod, at, ahead) is None:
                    assert tracker.admits(asked.where(at)) == (judged[at] is None)
                    if judged[at] is None:
                        admitted.append((pod, at))
        if not admitted:
            break
        pod, at = data.draw(st.sampled_from(admitted))
        now.place(pod, at, f"decided-{step}")
        own[pod.uid, at] = own.get((pod.uid, at), 0) + 1
        for tracker in trackers.values():
            assert tracker is not None
            tracker.placed("class", loads[pod.uid], asked.where(at))
