"""Which pod groups and workloads are refused."""

from typing import Any

from testing.simulator.errors import Cause, forbidden_value, invalid_value, required
from testing.simulator.metadata import cannot_unmarshal
from testing.simulator.resources import Object

MOST_TEMPLATES = 8
IMMUTABLE = "field is immutable"


def pod_group_causes(group: Object) -> list[Cause]:
    """Of scheduling.k8s.io."""
    return policy_causes("spec.schedulingPolicy", _part(group, "spec").get("schedulingPolicy"))


def workload_causes(workload: Object) -> list[Cause]:
    templates = _part(workload, "spec").get("podGroupTemplates")
    if not templates:
        return [required("spec.podGroupTemplates")]
    if not isinstance(templates, list) or not all(isinstance(template, dict) for template in templates):
        raise cannot_unmarshal("spec.podGroupTemplates", templates, "slice of PodGroupTemplate")
    causes: list[Cause] = []
    if len(templates) > MOST_TEMPLATES:
        message = f"must have at most {MOST_TEMPLATES} items"
        causes.append(invalid_value("spec.podGroupTemplates", len(templates), message))
    for index, template in enumerate(templates):
        where = f"spec.podGroupTemplates[{index}]"
        if not template.get("name"):
            causes.append(required(f"{where}.name"))
        causes += policy_causes(f"{where}.schedulingPolicy", template.get("schedulingPolicy"))
    return causes


def policy_causes(where: str, policy: Any) -> list[Cause]:
    """Exactly one policy, and no gang of nobody."""
    if policy is None:
        policy = {}
    if not isinstance(policy, dict):
        raise cannot_unmarshal(where, policy, "PodGroupSchedulingPolicy")
    named = [name for name in ("basic", "gang") if policy.get(name) is not None]
    if len(named) != 1:
        return [invalid_value(where, ", ".join(named), "must specify exactly one of: `basic`, `gang`")]
    gang = policy.get("gang")
    if gang is None:
        return []
    if not isinstance(gang, dict):
        raise cannot_unmarshal(f"{where}.gang", gang, "GangSchedulingPolicy")
    return _count_causes(f"{where}.gang.minCount", gang.get("minCount") or 0)


def coscheduling_group_causes(group: Object) -> list[Cause]:
    """Of scheduling.x-k8s.io: as its definition has it."""
    spec = _part(group, "spec")
    causes = [] if spec.get("minMember") is None else _count_causes("spec.minMember", spec["minMember"])
    timeout = spec.get("scheduleTimeoutSeconds")
    if timeout is not None and not _is_integer(timeout):
        causes.append(invalid_value("spec.scheduleTimeoutSeconds", timeout, "must be of type integer"))
    return causes


def fixed_spec_causes(obj: Object, old: Object) -> list[Cause]:
    """Nothing that groups and workloads of scheduling.k8s.io are to be may change."""
    return [] if obj.get("spec") == old.get("spec") else [forbidden_value("spec", IMMUTABLE)]


def _count_causes(where: str, count: Any) -> list[Cause]:
    if not _is_integer(count):
        raise cannot_unmarshal(where, count, "int32")
    return [] if count >= 1 else [invalid_value(where, count, "must be greater than or equal to 1")]


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _part(obj: Object, name: str) -> Object:
    part = obj.setdefault(name, {})
    if not isinstance(part, dict):
        raise cannot_unmarshal(name, part, name.capitalize())
    return part
