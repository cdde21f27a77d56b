"""Which extenders to ask about a pod, in which order, and what their answers mean. Nothing here does I/O.

A talk is a generator: it yields calls to make at the same time, is sent the result of each, in order, and returns the
result of all. `ExtenderClient.converse` runs talks with real extenders.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from flotilla.results import Status, error, unresolvable, unschedulable
from shared.config.structs import ExtenderConfig
from shared.errors import ClusterError
from shared.extenders import wire
from shared.extenders.wire import BadAnswer, FilterAnswer, MetaVictims, Victims
from shared.model.objects import Container, Pod

MAX_PRIORITY = 10
MAX_NODE_SCORE = 100
PLUGIN = "Extender"
"""The plugin name under which a pod's rejection by extenders is recorded."""

T = TypeVar("T")


class ExtenderFailed(ClusterError):
    """An extender did not do what it was asked to. `maybe_done`: it may have done it all the same."""

    def __init__(self, message: str, *, maybe_done: bool = False) -> None:
        self.maybe_done = maybe_done
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Call:
    extender: ExtenderConfig
    verb: str
    body: bytes


Talk = Generator[Sequence[Call], Sequence[bytes | ExtenderFailed], T]


@dataclass(frozen=True, slots=True)
class Subject:
    """A pod that extenders are asked about, as JSON. `nodes` gives the JSON of nodes by their names, in order."""

    pod: bytes
    nodes: Callable[[Sequence[str]], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What extenders decide about a pod's feasible nodes.

    `added`: the nodes that are left, with what to add to the score of each. `rejected`: why others are not; a node in
    neither was dropped without a reason. `failure`: the attempt fails. `troubles`: of ignorable extenders, for the log.
    """

    added: Mapping[str, int] = field(default_factory=dict)
    rejected: Mapping[str, Status] = field(default_factory=dict)
    failure: Status | None = None
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reduced:
    """The candidates of a preemption that are left, or why it fails."""

    candidates: Mapping[str, Victims] = field(default_factory=dict)
    failure: Status | None = None
    troubles: tuple[str, ...] = ()


def name_of(extender: ExtenderConfig) -> str:
    """Its URL, without a password that may be in it."""
    scheme, separator, rest = extender.url_prefix.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def judge(extenders: Iterable[ExtenderConfig], subject: Subject, names: Sequence[str]) -> Talk[Judgement]:
    """Filters one after the other, each asked about what the one before left; then all priorities at the same time.

    `extenders`: those that are interested in the pod, in order. A single node that is left needs no priority.
    """
    extenders = tuple(extenders)
    left, rejected, troubles = list(names), dict[str, Status](), list[str]()
    known = frozenset(names)
    for extender in extenders:
        if not extender.filter_verb or not left:
            continue
        (raw,) = yield [Call(extender, extender.filter_verb, _node_request(extender, subject, left))]
        try:
            answer, passed = _filtered(extender, raw, left)
        except ExtenderFailed as cause:
            if not extender.ignorable:
                return Judgement(failure=error(str(cause)), troubles=tuple(troubles))
            troubles.append(str(cause))
            continue
        rejected |= _statuses(answer, known)
        left = passed
    added = dict.fromkeys(left, 0)
    if len(left) > 1:
        troubles += yield from _prioritize(extenders, subject, added)
    return Judgement(added, rejected, None, tuple(troubles))


def _prioritize(
    extenders: Iterable[ExtenderConfig], subject: Subject, added: dict[str, int]
) -> Generator[Sequence[Call], Sequence[bytes | ExtenderFailed], list[str]]:
    """An extender that fails adds nothing."""
    asked = [extender for extender in extenders if extender.prioritize_verb]
    if not asked:
        return []
    names = list(added)
    answers = yield [Call(each, each.prioritize_verb, _node_request(each, subject, names)) for each in asked]
    troubles: list[str] = []
    for extender, raw in zip(asked, answers, strict=True):
        try:
            scores = _read(extender, extender.prioritize_verb, raw, wire.scores)
        except ExtenderFailed as cause:
            troubles.append(str(cause))
            continue
        for host, score in scores.items():
            if host in added:
                added[host] += score * extender.weight * (MAX_NODE_SCORE // MAX_PRIORITY)
    return troubles


def bind(extender: ExtenderConfig, body: bytes) -> Talk[None]:
    """Returns once the pod is bound; raises ExtenderFailed where it is not, or may not be."""
    (raw,) = yield [Call(extender, extender.bind_verb, body)]
    refusal = _read(extender, extender.bind_verb, raw, wire.bind_error, maybe_done=True)
    if refusal:
        raise ExtenderFailed(refusal)


def preempt(extenders: Iterable[ExtenderConfig], pod: bytes, candidates: Mapping[str, Victims]) -> Talk[Reduced]:
    """Each extender with a preempt verb is asked about the candidates that the one before left.

    `extenders`: those that are interested in the pod, in order.
    """
    troubles: list[str] = []
    for extender in extenders:
        if not extender.preempt_verb or not candidates:
            continue
        body = wire.preempt_request(pod, candidates, by_uid=extender.node_cache_capable)
        (raw,) = yield [Call(extender, extender.preempt_verb, body)]
        try:
            answer = _read(extender, extender.preempt_verb, raw, wire.preempt_answer)
            candidates = _reduced(extender, answer, candidates)
        except ExtenderFailed as cause:
            if not extender.ignorable:
                return Reduced(failure=error(str(cause)), troubles=tuple(troubles))
            troubles.append(str(cause))
    return Reduced(candidates, None, tuple(troubles))


def _reduced(
    extender: ExtenderConfig, answer: Mapping[str, MetaVictims], candidates: Mapping[str, Victims]
) -> dict[str, Victims]:
    reduced: dict[str, Victims] = {}
    for node, victims in answer.items():
        if node not in candidates:
            raise ExtenderFailed(f"extender {name_of(extender)}: node {node!r} is none of the candidates")
        known = {victim.uid: victim for victim in candidates[node].pods}
        for uid in victims.uids:
            if uid not in known:
                raise ExtenderFailed(
                    f"extender: {name_of(extender)} claims to preempt pod (UID: {uid}) on node: {node}, "
                    "but the pod is not found on that node"
                )
        reduced[node] = Victims(tuple(known[uid] for uid in victims.uids), victims.violations)
    for node in [node for node, victims in reduced.items() if not victims.pods]:
        if not extender.ignorable:
            raise ExtenderFailed(f'expected at least one victim pod on node "{node}"')
        del reduced[node]
    return {node: reduced[node] for node in candidates if node in reduced}


def _node_request(extender: ExtenderConfig, subject: Subject, names: Sequence[str]) -> bytes:
    if extender.node_cache_capable:
        return wire.node_request(subject.pod, names)
    return wire.whole_node_request(subject.pod, subject.nodes(names))


def _filtered(
    extender: ExtenderConfig, raw: bytes | ExtenderFailed, asked: Sequence[str]
) -> tuple[FilterAnswer, list[str]]:
    """The answer, and the nodes that are left, in the order in which they were asked about."""
    by_name = extender.node_cache_capable
    answer = _read(extender, extender.filter_verb, raw, lambda raw: wire.filter_answer(raw, by_name=by_name))
    if answer.error:
        raise ExtenderFailed(answer.error)
    passed = set(answer.passed or ())
    strangers = passed.difference(asked)
    if strangers:
        raise ExtenderFailed(
            f'extender "{name_of(extender)}" claims a filtered node "{min(strangers)}" '
            "which is not found in the input node list"
        )
    return answer, [name for name in asked if name in passed]


def _statuses(answer: FilterAnswer, known: frozenset[str]) -> dict[str, Status]:
    """The statuses of nodes that were in the request; UnschedulableAndUnresolvable takes precedence."""
    failed = {name: unschedulable(reason).by(PLUGIN) for name, reason in answer.failed.items() if name in known}
    final = {name: unresolvable(reason).by(PLUGIN) for name, reason in answer.unresolvable.items() if name in known}
    return failed | final


def _read(
    extender: ExtenderConfig,
    verb: str,
    raw: bytes | ExtenderFailed,
    read: Callable[[bytes], T],
    *,
    maybe_done: bool = False,
) -> T:
    if isinstance(raw, ExtenderFailed):
        raise raw
    try:
        return read(raw)
    except BadAnswer as cause:
        raise ExtenderFailed(f"extender {name_of(extender)}: {verb}: {cause}", maybe_done=maybe_done) from cause


DEFAULT_TIMEOUT = 5.0
"""Seconds for a call where the configuration has no timeout."""


def in_order(extenders: Iterable[ExtenderConfig]) -> tuple[ExtenderConfig, ...]:
    """Extenders that may fail come last."""
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
