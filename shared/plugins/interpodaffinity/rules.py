"""Rules: what one pod requires of others, and what others' terms mean for it, on any node.

Everything comes down to counts by topology key: what a pod on a node adds to the counts of that node's domains. A
summary has the counts of a set of nodes, in a form that adds up over shards.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal, TypedDict

import msgspec

from shared.cluster.topology import merge_counts
from shared.config.args import InterPodAffinityArgs
from shared.model.load import PodLoad, PodTerm, pod_terms
from shared.model.objects import Pod
from shared.model.selectors import label_selector_matches

Aspect = Literal["affinity", "anti", "symmetric", "score", "contributions"]
"""What is counted of the pods in a domain.

`affinity`: pods that match all of the pod's required affinity. `anti`: matches of its required anti-affinity.
`symmetric`: required anti-affinity of others that matches the pod. `score`: the weights of all that speaks for the
domain, less that of what speaks against it. `contributions`: the number of these weights.
"""

Count = tuple[Aspect, str]
"""An aspect and the topology key by which it is counted."""

Effect = Mapping[Count, int]
"""What a pod adds to the counts of the domains that its node is in."""

Matcher = Callable[[str, Mapping[str, str]], bool]
"""Whether pods of this namespace with these labels match."""

Domains = dict[str, int]
"""By value of a topology key."""

NO_EFFECT: Effect = {}
NO_DOMAINS: Domains = {}
MAX_EFFECTS = 512
"""Loads whose effects a class caches."""

_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


class Rules:
    """Two with the same `identity` are equal.

    `namespaces`: what the namespace selectors of the pod's own terms resolve to, in the order of `selecting_terms`.
    `labels`: those of the pod's namespace.
    """

    def __init__(
        self, pod: Pod, args: InterPodAffinityArgs, namespaces: Sequence[Sequence[str]], labels: Mapping[str, str]
    ) -> None:
        self.namespace = pod.namespace
        self.pod_labels = pod.metadata.labels
        self.terms = own_terms(pod)
        self.affinity_keys = _required_keys(self.terms, "affinity")
        self.anti_keys = _required_keys(self.terms, "anti")
        self.scores = uses_preferences(self.terms, args)
        self._namespaces = namespaces
        self._namespace_labels = labels
        self._hard_weight = args.hard_pod_affinity_weight
        self.own = self._own_counts() if self.terms else {}
        self.may_be_first = bool(self.affinity_keys) and (
            ("affinity", self.affinity_keys[0]) in self._own_effect(self.namespace, self.pod_labels)
        )
        """Whether the pod matches its own required affinity: it may go anywhere if no other pod does."""
        self._effects: dict[int, tuple[PodLoad, Effect]] = {}

    @cached_property
    def identity(self) -> bytes:
        asks = (self.namespace, self.pod_labels, self.terms, self._namespaces)
        return _ENCODER.encode((asks, self._namespace_labels, self._hard_weight, self.scores))

    @cached_property
    def effect_of_itself(self) -> Effect:
        """The effect of another pod of the same kind."""
        return self.effect(PodLoad(namespace=self.namespace, labels=self.pod_labels, terms=self.terms))

    def effect(self, load: PodLoad) -> Effect:
        """The effect of a pod with this load, computed once for each load object."""
        known = self._effects.get(id(load))
        if known is None:
            if len(self._effects) >= MAX_EFFECTS:
                self._effects.clear()
            effect = self._own_effect(load.namespace, load.labels)
            for term in load.terms:
                for count, amount in self.of_term(term).items():
                    effect[count] = effect.get(count, 0) + amount
            known = self._effects[id(load)] = (load, effect or NO_EFFECT)
        return known[1]

    def of_term(self, term: PodTerm) -> Effect:
        """The effect of another pod's term."""
        in_namespace = self.namespace in term.namespaces or label_selector_matches(
            term.namespace_selector, self._namespace_labels
        )
        if not in_namespace or not label_selector_matches(term.selector, self.pod_labels):
            return NO_EFFECT
        if term.kind == "anti" and not term.weight:
            return {("symmetric", term.topology_key): 1}
        weight = _signed_weight(term) if term.weight else self._hard_weight
        if not weight or not self.scores:
            return NO_EFFECT
        return {("score", term.topology_key): weight, ("contributions", term.topology_key): 1}

    def _own_counts(self) -> dict[Count, list[tuple[Matcher, int]]]:
        """For each count, which pods raise it by how much."""
        resolved = dict(zip(map(id, selecting_terms(self.terms)), self._namespaces, strict=True))
        terms = [(term, _matcher(term, resolved.get(id(term), ()))) for term in self.terms]
        required = [matches for term, matches in terms if term.kind == "affinity" and not term.weight]

        def all_match(namespace: str, labels: Mapping[str, str]) -> bool:
            return all(matches(namespace, labels) for matches in required)

        own: dict[Count, list[tuple[Matcher, int]]] = {
            ("affinity", key): [(all_match, 1)] for key in self.affinity_keys
        }
        for term, matches in terms:
            if term.weight and self.scores:
                own.setdefault(("score", term.topology_key), []).append((matches, _signed_weight(term)))
                own.setdefault(("contributions", term.topology_key), []).append((matches, 1))
            elif term.kind == "anti" and not term.weight:
                own.setdefault(("anti", term.topology_key), []).append((matches, 1))
        return own

    def _own_effect(self, namespace: str, labels: Mapping[str, str]) -> dict[Count, int]:
        effect: dict[Count, int] = {}
        for count, parts in self.own.items():
            for matches, amount in parts:
                if matches(namespace, labels):
                    effect[count] = effect.get(count, 0) + amount
        return effect


def own_terms(pod: Pod) -> tuple[PodTerm, ...]:
    return pod_terms(pod) if pod.spec.affinity is not None else ()


def selecting_terms(terms: Iterable[PodTerm]) -> list[PodTerm]:
    """The terms whose namespace selector must be resolved."""
    return [term for term in terms if term.namespace_selector is not None and not _applies_everywhere(term)]


def uses_preferences(terms: Iterable[PodTerm], args: InterPodAffinityArgs) -> bool:
    """Whether preferences count for a pod with these terms of its own."""
    return not args.ignore_preferred_terms_of_existing_pods or any(term.weight for term in terms)


def _required_keys(terms: Iterable[PodTerm], kind: Literal["affinity", "anti"]) -> tuple[str, ...]:
    return tuple(sorted({term.topology_key for term in terms if term.kind == kind and not term.weight}))


def _matcher(term: PodTerm, selected: Iterable[str]) -> Matcher:
    selector = term.selector
    if term.namespace_selector is not None and _applies_everywhere(term):
        return lambda namespace, labels: label_selector_matches(selector, labels)
    among = frozenset(term.namespaces) | frozenset(selected)
    return lambda namespace, labels: namespace in among and label_selector_matches(selector, labels)


def _applies_everywhere(term: PodTerm) -> bool:
    """A selector that a namespace without labels satisfies applies to all namespaces, known or not."""
    return label_selector_matches(term.namespace_selector, {})


def _signed_weight(term: PodTerm) -> int:
    return term.weight if term.kind == "affinity" else -term.weight


# Summaries


class AffinitySummary(TypedDict, total=False):
    """Zeros, false and empty values are left out.

    `counts`: by aspect, topology key and value; without hostnames that only one node has: that node's shard knows them.
    `matches`: all that count for the pod's affinity, in domains of any key, only if the pod could be the first of its
    kind. `shunned`: some pod's anti-affinity matches the pod somewhere. `scored`: something speaks for or against some
    domain. `hostnames`: those that several nodes have. `labels`: those of the pod's namespace. `namespaces`: what the
    namespace selectors of the pod's terms resolve to.
    """

    counts: dict[Aspect, dict[str, Domains]]
    matches: int
    shunned: bool
    scored: bool
    hostnames: list[str]
    labels: dict[str, str]
    namespaces: list[list[str]]


def domains_of(summary: AffinitySummary, aspect: Aspect, key: str) -> Domains:
    of_aspect = summary["counts"].get(aspect) if "counts" in summary else None
    return NO_DOMAINS if of_aspect is None else of_aspect.get(key, NO_DOMAINS)


def merged(one: AffinitySummary, other: AffinitySummary) -> AffinitySummary:
    total: AffinitySummary = {}
    counts: dict[Aspect, dict[str, Domains]] = {}
    ours, theirs = one.get("counts", {}), other.get("counts", {})
    for aspect in sorted({*ours, *theirs}):
        for key in sorted({*ours.get(aspect, ()), *theirs.get(aspect, ())}):
            sums = merge_counts(domains_of(one, aspect, key), domains_of(other, aspect, key))
            domains = {value: count for value, count in sums.items() if count}
            if domains:
                counts.setdefault(aspect, {})[key] = domains
    if counts:
        total["counts"] = counts
    matches = one.get("matches", 0) + other.get("matches", 0)
    if matches:
        total["matches"] = matches
    if one.get("shunned") or other.get("shunned"):
        total["shunned"] = True
    if one.get("scored") or other.get("scored"):
        total["scored"] = True
    # All shards see the same of these, but not at the same moment.
    hostnames = {*one.get("hostnames", ()), *other.get("hostnames", ())}
    if hostnames:
        total["hostnames"] = sorted(hostnames)
    labels = max(one.get("labels", {}), other.get("labels", {}), key=lambda labels: sorted(labels.items()))
    if labels:
        total["labels"] = labels
    if "namespaces" in one and "namespaces" in other:
        pairs = zip(one["namespaces"], other["namespaces"], strict=True)
        total["namespaces"] = [sorted({*here, *there}) for here, there in pairs]
    return total
