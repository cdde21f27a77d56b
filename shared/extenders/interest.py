"""Which extenders are to be asked about a pod, in which order, and for how long."""

from collections.abc import Iterable, Iterator, Sequence

from shared.config.structs import ExtenderConfig
from shared.model.objects import Container, Pod

DEFAULT_TIMEOUT = 5.0
"""Seconds that a call may take where the configuration names no time-out."""


def in_order(extenders: Iterable[ExtenderConfig]) -> tuple[ExtenderConfig, ...]:
    """Those that may fail come last: whoever must answer has spoken before."""
    return tuple(sorted(extenders, key=lambda extender: extender.ignorable))


def is_interested(extender: ExtenderConfig, pod: Pod) -> bool:
    """Whether the pod asks for a resource that the extender manages; one that manages none is asked about all pods."""
    if not extender.managed_resources:
        return True
    managed = {resource.name for resource in extender.managed_resources}
    return not managed.isdisjoint(_resources((*pod.spec.containers, *pod.spec.init_containers)))


def interested(extenders: Iterable[ExtenderConfig], pod: Pod) -> tuple[ExtenderConfig, ...]:
    return tuple(extender for extender in extenders if is_interested(extender, pod))


def binder_of(extenders: Sequence[ExtenderConfig], pod: Pod) -> ExtenderConfig | None:
    """The extender that binds this pod; None if it is bound like any other."""
    return next((extender for extender in extenders if extender.bind_verb and is_interested(extender, pod)), None)


def timeout_of(extender: ExtenderConfig) -> float:
    return extender.http_timeout or DEFAULT_TIMEOUT


def _resources(containers: Iterable[Container]) -> Iterator[str]:
    for container in containers:
        yield from container.resources.requests
        yield from container.resources.limits
