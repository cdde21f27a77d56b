"""Extenders: their weights, who binds, and the resources that they manage."""

from collections.abc import Iterator, Sequence

from shared.config.names import is_extended_resource, label_key_faults
from shared.config.problems import Fault, Problem, invalid
from shared.config.schema import Tree


def extender_problems(extenders: Sequence[Tree]) -> Iterator[Problem]:
    """Everything that is wrong with them; a resource may be managed by one of them only."""
    managed: set[str] = set()
    for i, extender in enumerate(extenders):
        if extender["prioritizeVerb"] and extender["weight"] <= 0:
            reason = "must be at least 1 where there is a prioritizeVerb"
            yield invalid(f"extenders[{i}].weight", extender["weight"], reason)
        for j, resource in enumerate(extender["managedResources"] or ()):
            path, name = f"extenders[{i}].managedResources[{j}].name", resource["name"]
            yield from _resource_problems(path, name)
            if name in managed:
                reason = f"{name!r} is managed twice; a resource can be listed once"
                yield Problem(path, Fault.INVALID, name, reason)
            managed.add(name)
    binders = [f"extenders[{i}]" for i, extender in enumerate(extenders) if extender["bindVerb"]]
    if len(binders) > 1:
        value = f"found {len(binders)} extenders implementing bind"
        reason = f"only one extender can have a bindVerb, but {', '.join(binders)} have one"
        yield Problem("extenders", Fault.INVALID, value, reason)


def _resource_problems(path: str, name: str) -> Iterator[Problem]:
    faults = label_key_faults(name)
    for fault in faults:
        yield Problem(path, Fault.INVALID, name, f"{name!r} is not a resource name: {fault}")
    if not faults and not is_extended_resource(name):
        reason = f"{name!r} is not an extended resource: it must be DOMAIN/NAME with a domain outside kubernetes.io"
        yield Problem(path, Fault.INVALID, name, reason)
