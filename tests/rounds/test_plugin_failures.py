"""Plugins that raise in the cycle: their pods fail by their name, other pods go on, and no worker is blamed for it."""

from typing import Any

import pytest

from flotilla.plugin import Tracker
from flotilla.results import NodeDomains, Range
from services.cycle.events import Decided, Failed
from shared.config.points import ExtensionPoint
from shared.framework.profile import Framework
from shared.messages.explaining import ExplainPod
from shared.model.load import PodLoad
from shared.model.objects import Pod, encode_msgpack
from testing.builders import pod
from testing.inprocess.pipeline import Pipeline
from tests.framework.plugins import framework
from tests.rounds.test_followed_rounds import FewPerZone, FewTracker, few, zoned


class Brittle(FewPerZone):
    """Raises in the named method about pods of app `bad`."""

    def __init__(self, breaks: str) -> None:
        self.breaks = breaks

    def merge(self, one: Any, other: Any) -> Any:
        if self.breaks == "merge":
            raise KeyError("merge")
        return object() if self.breaks == "merge to an object" else super().merge(one, other)

    def tracker(self, pod: Pod, summary: Any, late: Any, scores: Range | None) -> Tracker | None:
        if self.breaks == "tracker" and pod.metadata.labels.get("app") == "bad":
            raise KeyError("tracker")
        return BrittleTracker(self.breaks, pod.metadata.labels, summary)


class BrittleTracker(FewTracker):
    def __init__(self, breaks: str, labels: dict[str, str], counts: dict[str, int]) -> None:
        super().__init__(labels.get("app", ""), labels.get("few"), counts)
        self._breaks = breaks if labels.get("app") == "bad" else ""

    def _do(self, method: str) -> None:
        if self._breaks == method:
            raise KeyError(method)

    def admits(self, place: NodeDomains) -> bool:
        self._do("admits")
        return super().admits(place)

    def concerns(self, load: PodLoad) -> bool:
        self._do("concerns")
        return True

    def placed(self, class_id: str, load: PodLoad, place: NodeDomains) -> None:
        self._do("placed")
        super().placed(class_id, load, place)

    def summary(self) -> Any:
        self._do("summary")
        return super().summary()


def a_profile(breaks: str) -> Framework:
    made = framework({ExtensionPoint.FILTER: ("FewPerZone",)}, Brittle(breaks))
    made.name = "default-scheduler"
    return made


def a_pipeline(breaks: str, shards: int) -> Pipeline:
    """Raises InvariantBroken if a worker is blamed, or the cycle's term ends."""
    pipeline = Pipeline({"default-scheduler": a_profile(breaks)}, shards=shards)
    pipeline.add_nodes(zoned(2, 2))
    pipeline.settle()
    return pipeline


GOOD = [few(f"good{i}", "good", 9) for i in range(3)]
BAD = [few(f"bad{i}", "bad", 9) for i in range(3)]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("breaks", ["tracker", "admits", "concerns", "placed"])
def test_pods_of_a_tracker_that_raises_fail_by_its_name_and_others_go_on(breaks: str, shards: int) -> None:
    pipeline = a_pipeline(breaks, shards)
    pipeline.submit([GOOD[0], *BAD, *GOOD[1:]])
    pipeline.settle()
    assert all(isinstance(pipeline.outcomes[each.uid], Decided) for each in GOOD)
    failed = [outcome for each in BAD if isinstance(outcome := pipeline.outcomes[each.uid], Failed)]
    assert failed
    for outcome in failed:
        assert outcome.status.plugin == "FewPerZone"
        assert 'running "FewPerZone" plugin: tracker' in outcome.status.message
        assert f"KeyError('{breaks}')" in outcome.status.message
    places = [place for place, _ in pipeline.cycle.rounds.failures.unexpected()]
    assert places
    assert all(place.startswith("FewPerZone KeyError ") for place in places)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_prediction_that_raises_costs_no_pod(shards: int) -> None:
    pipeline = a_pipeline("summary", shards)
    pipeline.submit([*GOOD, *BAD])
    pipeline.settle()
    assert all(isinstance(outcome, Decided) for outcome in pipeline.outcomes.values())
    assert len(pipeline.outcomes) == 6
    assert [str(cause) for _, cause in pipeline.cycle.rounds.failures.unexpected()] == [
        """running "FewPerZone" plugin: tracker.summary: KeyError('summary')"""
    ]


@pytest.mark.parametrize(("breaks", "why"), [("merge", "KeyError('merge')"), ("merge to an object", "TypeError(")])
def test_pods_whose_summaries_a_plugin_cannot_merge_fail_by_its_name(breaks: str, why: str) -> None:
    pipeline = a_pipeline(breaks, 3)
    pipeline.submit([*GOOD, *BAD])
    pipeline.settle()
    for outcome in pipeline.outcomes.values():
        assert isinstance(outcome, Failed)
        assert outcome.status.plugin == "FewPerZone"
        text = 'merging the summaries of the shards: running "FewPerZone" plugin: merge'
        assert outcome.status.message.startswith(f"{text}: {why}")


def test_an_explanation_says_that_summaries_cannot_be_merged() -> None:
    pipeline = a_pipeline("merge", 3)
    explained = pipeline.explain_pod(ExplainPod(body=encode_msgpack(pod("p").build())))
    assert explained.findings is None
    assert """running "FewPerZone" plugin: merge: KeyError('merge')""" in explained.problem
