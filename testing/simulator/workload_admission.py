"""Admission of Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs: defaults, and what a template must be.

A workload without a template is accepted, unlike by a real server: it makes no pods.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from testing.simulator.errors import Cause, invalid_value
from testing.simulator.metadata import expect
from testing.simulator.pod_admission import check_shape, complete_spec, pod_causes
from testing.simulator.resources import ApiResource, Object, builtin
from testing.simulator.selectors import selector_test

DEPLOYMENTS = builtin("deployments", "apps")
STATEFUL_SETS = builtin("statefulsets", "apps")
DAEMON_SETS = builtin("daemonsets", "apps")
JOBS = builtin("jobs", "batch")
_UIDS = ("batch.kubernetes.io/controller-uid", "controller-uid")
_NAMES = ("batch.kubernetes.io/job-name", "job-name")


def default_workload(resource: ApiResource, obj: Object) -> None:
    """Set the defaults of a new workload; those of a Job include its selector and labels."""
    spec: Object = obj["spec"]
    if resource is DEPLOYMENTS:
        strategy: Object = spec.get("strategy") or {}
        spec["strategy"] = strategy
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            strategy["rollingUpdate"] = {
                "maxUnavailable": "25%",
                "maxSurge": "25%",
                **(strategy.get("rollingUpdate") or {}),
            }
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)
    elif resource in (STATEFUL_SETS, DAEMON_SETS):
        rolling = {"partition": 0} if resource is STATEFUL_SETS else {"maxUnavailable": 1, "maxSurge": 0}
        update: Object = spec.get("updateStrategy") or {}
        spec["updateStrategy"] = update
        if update.setdefault("type", "RollingUpdate") == "RollingUpdate":
            update["rollingUpdate"] = {**rolling, **(update.get("rollingUpdate") or {})}
        spec.setdefault("revisionHistoryLimit", 10)
        if resource is STATEFUL_SETS:
            spec.setdefault("podManagementPolicy", "OrderedReady")
    elif resource is JOBS:
        if "completions" not in spec and "parallelism" not in spec:
            spec["completions"] = 1
        spec.setdefault("parallelism", 1)
        spec.setdefault("backoffLimit", 6)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        template = spec.get("template")
        if not spec.get("manualSelector") and isinstance(template, dict):
            uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
            metadata = template["metadata"] = template.get("metadata") or {}
            own = {**dict.fromkeys(_UIDS, uid), **dict.fromkeys(_NAMES, name)}
            metadata["labels"] = {**(metadata.get("labels") or {}), **own}
            spec["selector"] = {"matchLabels": {_UIDS[0]: uid}}


def template_causes(obj: Object) -> Iterator[Cause]:
    spec = obj["spec"]
    for name in ("replicas", "parallelism", "completions"):
        count = spec.get(name)
        expect(f"spec.{name}", count, int, "int32")
        if count is not None and count < 0:
            yield invalid_value(f"spec.{name}", count, "must be greater than or equal to 0")
    template: Any = spec.get("template")
    expect("spec.template", template, dict, "PodTemplateSpec")
    if not template or "spec" not in template:
        return
    check_shape(template)
    pod = msgspec.json.decode(msgspec.json.encode(template))
    complete_spec(pod["spec"])
    yield from (cause._replace(field=f"spec.template.{cause.field}") for cause in pod_causes(pod))
    labels = (template.get("metadata") or {}).get("labels") or {}
    selector = spec.get("selector")
    expect("spec.selector", selector, dict, "LabelSelector")
    if not selector or not selector_test(selector)(labels):
        yield invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
