"""Plugins' runs are counted by class, and a tenth of the evaluations is timed."""

from shared.cluster.nodetable import NodeTable
from shared.framework.evaluator import Question, ShardEvaluator
from shared.framework.loading import load_frameworks
from shared.framework.metering import MAX_TIMINGS, TIMED_EVERY, PluginMeter
from shared.messages.evaluation import Ties
from shared.model.objects import DEFAULT_SCHEDULER
from testing.builders import node, pod

FRAMEWORK = load_frameworks(None)[DEFAULT_SCHEDULER]


class Stopwatch:
    """Each look takes a second."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1.0
        return self.seconds


def an_evaluator(meter: PluginMeter) -> ShardEvaluator:
    table = NodeTable()
    for name in "ab":
        table.upsert_node(node(name).capacity(cpu=4, memory="8Gi", pods=110).build())
    return ShardEvaluator(table, FRAMEWORK, Ties("name"), meter)


def test_runs_are_counted_for_each_class() -> None:
    meter = PluginMeter()
    evaluator = an_evaluator(meter)
    fits = evaluator.prepare("fits", pod("p").request(cpu=1).build())
    unfit = evaluator.prepare("unfit", pod("q").request(cpu=9).build())
    for _ in range(3):
        evaluator.evaluate([Question(fits), Question(unfit)])
    runs = meter.evaluations()
    assert runs["NodeResourcesFit", "PreFilter"] == 2
    assert runs["NodeResourcesFit", "Filter"] == 6
    assert runs["NodeResourcesFit", "Score"] == 3, "nothing is scored for a class that fits nowhere"
    assert ("NodePorts", "Filter") not in runs, "it is skipped for pods without host ports"
    assert not meter.timings


def test_every_tenth_class_is_timed_at_points_that_look_at_no_nodes() -> None:
    meter = PluginMeter(Stopwatch())
    evaluator = an_evaluator(meter)
    for i in range(2 * TIMED_EVERY):
        given = pod(f"p{i}").request(cpu=1)
        pod_class = evaluator.prepare(f"c{i}", (given.host_port(80) if i else given).build())
        if i % TIMED_EVERY:
            assert not meter.timings
            continue
        timed = {(timing.plugin, timing.point): timing for timing in meter.timings}
        assert timed["NodePorts", "PreFilter"].status == ("Success" if i else "Skip")
        assert timed["NodeResourcesFit", "PreFilter"].seconds == 1.0
        assert ("NodeResourcesFit", "PreScore") in timed
        assert {point for _, point in timed} == {"PreFilter", "PreScore"}
        meter.timings.clear()
        evaluator.release(pod_class)


def test_points_are_sampled_apart_from_each_other() -> None:
    meter = PluginMeter(Stopwatch())
    timed = [[meter.of_pod(point) is not None for point in ("Reserve", "PostBind")] for _ in range(TIMED_EVERY + 1)]
    assert timed == [[True, True], *[[False, False]] * (TIMED_EVERY - 1), [True, True]]


def test_every_tenth_evaluation_is_timed() -> None:
    meter = PluginMeter(Stopwatch())
    evaluator = an_evaluator(meter)
    pod_class = evaluator.prepare("c", pod("p").request(cpu=1).build())
    meter.timings.clear()
    evaluator.evaluate([Question(pod_class)])
    first = {(timing.plugin, timing.point): timing.seconds for timing in meter.timings}
    assert first["NodeResourcesFit", "Filter"] == 1.0
    assert first["NodeResourcesFit", "Score"] == 1.0
    assert all(plugin for plugin, _ in first)
    meter.timings.clear()
    for i in range(1, TIMED_EVERY):
        evaluator.table.upsert_node(node(f"more-{i}").capacity(cpu=4, pods=110).build())
        evaluator.evaluate([Question(pod_class)])
    assert not meter.timings
    evaluator.evaluate([Question(pod_class)])
    assert not meter.timings, "nothing has changed since, so no plugin ran"
    assert meter.timings.maxlen == MAX_TIMINGS
