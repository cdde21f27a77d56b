"""Admission of pod groups, composite pod groups and workloads, in every version that the simulator knows."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

from testing.simulator.errors import Cause, forbidden, forbidden_value, invalid_value, required, unsupported_value
from testing.simulator.metadata import cannot_unmarshal, expect, expect_objects
from testing.simulator.pod_admission import PriorityClasses
from testing.simulator.resources import ApiResource, Object

MAX_TEMPLATES = 8
MAX_TOPOLOGY = 1
FIXED = "field is immutable"
WORDS = ("Pod", "PodGroup")
"""The disruption modes of v1alpha2; later versions have objects."""
CHOICES = ("all", "single")


def default_group(resource: ApiResource, group: Object, priority_classes: PriorityClasses) -> None:
    """Set the priority of the class that a new group names, or of the default class; raise if there is no such class.

    A group without a class keeps the priority that it came with, or gets 0.
    """
    spec = group.setdefault("spec", {})
    if not isinstance(spec, dict):
        return
    name = spec.get("priorityClassName") or ""
    found = priority_classes(name)
    if found is None and name:
        raise forbidden(resource, group["metadata"]["name"], f"no PriorityClass with name {name} was found")
    mode: Any = "Pod" if resource.version == "v1alpha2" else {"single": {}}
    spec.setdefault("disruptionMode", mode)
    if found is None:
        spec.setdefault("priority", 0)
        return
    if spec.get("priority") not in (None, found["value"]):
        why = f"the priority ({spec['priority']}) must not be provided: that of {name} is {found['value']}"
        raise forbidden(resource, group["metadata"]["name"], why)
    spec |= {"priorityClassName": found["metadata"]["name"], "priority": found["value"]}
    if resource.version != "v1alpha2":
        spec.setdefault("preemptionPolicy", found.get("preemptionPolicy") or "PreemptLowerPriority")


def pod_group_causes(group: Object) -> Iterator[Cause]:
    """Validate a PodGroup of v1alpha2."""
    spec = _spec(group)
    yield from policy_causes("spec.schedulingPolicy", spec.get("schedulingPolicy"))
    yield from _constraint_causes(spec)
    mode = spec.get("disruptionMode")
    if mode is not None and mode not in WORDS:
        yield unsupported_value("spec.disruptionMode", mode, WORDS)


def later_pod_group_causes(group: Object) -> Iterator[Cause]:
    """Validate a PodGroup of v1alpha3 or v1beta1."""
    spec = _spec(group)
    yield from policy_causes("spec.schedulingPolicy", spec.get("schedulingPolicy"))
    yield from _constraint_causes(spec)
    yield from _mode_causes(spec.get("disruptionMode"))
    if spec.get("parentCompositePodGroupName") and not spec.get("workloadRef"):
        yield required("spec.workloadRef")


def composite_group_causes(group: Object) -> Iterator[Cause]:
    spec = _spec(group)
    yield from policy_causes("spec.schedulingPolicy", spec.get("schedulingPolicy"), "minGroupCount")
    yield from _constraint_causes(spec)
    yield from _mode_causes(spec.get("disruptionMode"))
    if not spec.get("workloadRef"):
        yield required("spec.workloadRef")


def workload_causes(workload: Object) -> Iterator[Cause]:
    spec = _spec(workload)
    if spec.get("compositePodGroupTemplates"):
        return
    templates = spec.get("podGroupTemplates")
    if not templates:
        yield required("spec.podGroupTemplates")
        return
    expect_objects("spec.podGroupTemplates", templates, "slice of PodGroupTemplate")
    if len(templates) > MAX_TEMPLATES:
        yield invalid_value("spec.podGroupTemplates", len(templates), f"must have at most {MAX_TEMPLATES} items")
    for index, template in enumerate(templates):
        where = f"spec.podGroupTemplates[{index}]"
        if not template.get("name"):
            yield required(f"{where}.name")
        yield from policy_causes(f"{where}.schedulingPolicy", template.get("schedulingPolicy"))


def policy_causes(where: str, policy: Any, count: str = "minCount") -> Iterator[Cause]:
    """Exactly one policy must be set, and a gang needs a positive count."""
    expect(where, policy, dict, "PodGroupSchedulingPolicy")
    named = [name for name in ("basic", "gang") if (policy or {}).get(name) is not None]
    if len(named) != 1:
        yield invalid_value(where, ", ".join(named), "must specify exactly one of: `basic`, `gang`")
    elif named == ["gang"]:
        expect(f"{where}.gang", policy["gang"], dict, "GangSchedulingPolicy")
        yield from count_causes(f"{where}.gang.{count}", policy["gang"].get(count) or 0)


def coscheduling_group_causes(group: Object) -> Iterator[Cause]:
    """Validate a PodGroup of scheduling.x-k8s.io as its CustomResourceDefinition does."""
    spec = _spec(group)
    if spec.get("minMember") is not None:
        yield from count_causes("spec.minMember", spec["minMember"])
    timeout = spec.get("scheduleTimeoutSeconds")
    if timeout is not None and not _is_integer(timeout):
        yield invalid_value("spec.scheduleTimeoutSeconds", timeout, "must be of type integer")


def resized_group_causes(group: Object, old: Object) -> Iterator[Cause]:
    """Since v1alpha3 the minimum of a gang may change, and nothing else."""
    if _without_count(group) != _without_count(old):
        yield forbidden_value("spec", f"{FIXED}, except for the minimum of a gang")


def count_causes(where: str, count: Any) -> Iterator[Cause]:
    if not _is_integer(count):
        raise cannot_unmarshal(where, count, "int32")
    if count < 1:
        yield invalid_value(where, count, "must be greater than or equal to 1")


def _mode_causes(mode: Any) -> Iterator[Cause]:
    if mode is None:
        return
    expect("spec.disruptionMode", mode, dict, "DisruptionMode")
    if len([name for name in CHOICES if mode.get(name) is not None]) != 1:
        yield invalid_value("spec.disruptionMode", ", ".join(mode), "must specify exactly one of: `all`, `single`")


def _constraint_causes(spec: Object) -> Iterator[Cause]:
    levels: Sequence[Object] = (spec.get("schedulingConstraints") or {}).get("topology") or ()
    if len(levels) > MAX_TOPOLOGY:
        yield invalid_value("spec.schedulingConstraints.topology", len(levels), "must have at most 1 items")
    for index, level in enumerate(levels):
        if not level.get("key"):
            yield required(f"spec.schedulingConstraints.topology[{index}].key")


def _without_count(group: Object) -> Object:
    spec = deepcopy(_spec(group))
    gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}
    for name in ("minCount", "minGroupCount"):
        gang.pop(name, None)
    return spec


def _spec(obj: Object) -> Object:
    spec = obj.setdefault("spec", {})
    if not isinstance(spec, dict):
        raise cannot_unmarshal("spec", spec, "Spec")
    return spec


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
