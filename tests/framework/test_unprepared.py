"""Filters and scores whose PreFilter or PreScore is disabled, on the way through all cores."""

from typing import Any

import pytest

from testing.inprocess.cases import decoded
from testing.inprocess.golden_case import Replay

NODE = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}}
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
NO_PORTS = 'running "NodePorts" filter plugin: reading "PreFilterNodePorts" from cycleState: not found'
NO_TAINTS = (
    'running Score plugins: plugin "TaintToleration" failed with: '
    'failed to read "PreScoreTaintToleration" from cycleState: not found'
)
NO_CLAIMS = 'running Score plugins: plugin "DynamicResources" failed with: not found'


def named(name: str, **more: Any) -> dict[str, Any]:
    return {**NODE, "metadata": {"name": name}, **more}


def differences(expected: dict[str, Any], *nodes: dict[str, Any], **disabled: str) -> list[str]:
    plugins = {point: {"disabled": [{"name": name}]} for point, name in disabled.items()}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}],
    }
    raw = {"name": "x", "config": config, "objects": {"nodes": list(nodes)}, "pending": [POD], "expected": [expected]}
    return [str(each) for each in Replay(decoded(raw), 1).run()]


@pytest.mark.parametrize(
    ("error", "disabled"),
    [
        (NO_PORTS, {"preFilter": "NodePorts"}),
        (NO_TAINTS, {"preScore": "TaintToleration"}),
        (NO_CLAIMS, {"preFilter": "DynamicResources", "filter": "DynamicResources"}),
    ],
)
def test_a_plugin_that_was_not_prepared_fails_the_pod(error: str, disabled: dict[str, str]) -> None:
    assert differences({"errors": [error]}, named("a"), named("b"), **disabled) == []


def test_a_node_that_an_earlier_filter_rejects_does_not_come_so_far() -> None:
    tainted = named("a", spec={"taints": [{"key": "k", "effect": "NoSchedule"}]})
    taint = {
        "plugin": "TaintToleration",
        "code": "UnschedulableAndUnresolvable",
        "reasons": ["node(s) had untolerated taint(s)"],
    }
    message = "0/1 nodes are available: 1 node(s) had untolerated taint(s). no new claims to deallocate, "
    preemption = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    of_preemption = {"outcomes": [], "message": f"no new claims to deallocate, {preemption}"}
    expected = {"filter": {"a": taint}, "message": message + preemption, "preemption": of_preemption}
    assert differences(expected, tainted, preFilter="NodePorts") == []


def test_without_a_choice_nothing_is_scored() -> None:
    found = differences({"errors": [NO_TAINTS]}, named("a"), preScore="TaintToleration")
    assert len(found) == 1
    assert found[0].endswith("got:      nothing")
