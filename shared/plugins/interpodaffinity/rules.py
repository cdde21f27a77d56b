"""Rules: what one pod asks of others, and what others' terms mean for it, whichever nodes they are on.

Everything comes down to counts by topology key: what a pod on a node adds to the counts of that node's domains.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal

import msgspec

from shared.config.args import InterPodAffinityArgs
from shared.model.load import PodLoad, PodTerm, pod_terms
from shared.model.objects import Pod
from shared.model.selectors import label_selector_matches

Aspect = Literal["affinity", "anti", "symmetric", "score", "contributions"]
"""What is counted of the pods in a domain.

`affinity`: those that match all of the pod's required affinity. `anti`: matches of its required anti-affinity.
`symmetric`: required anti-affinity of others that matches the pod. `score`: the weights of all that speaks for the
domain, less that of what speaks against it. `contributions`: the number of these weights.
"""

Count = tuple[Aspect, str]
"""An aspect and the topology key by which it is counted."""

Effect = Mapping[Count, int]
"""What a pod adds to the counts of the domains that its node is in."""

Matcher = Callable[[str, Mapping[str, str]], bool]
"""Does this namespace, with these labels, belong to a pod that is meant?"""

NOTHING: Effect = {}
MOST_REMEMBERED = 512
"""So many loads does a class remember the effect of."""


class Rules:
    """Two with the same `identity` say the same.

    `namespaces`: what the namespace selectors of the pod's own terms resolve to, in the order of `selecting_terms`.
    `labels`: those of the pod's namespace.
    """

    def __init__(
        self, pod: Pod, args: InterPodAffinityArgs, namespaces: Sequence[Sequence[str]], labels: Mapping[str, str]
    ) -> None:
        self.namespace = pod.namespace
        self.pod_labels = pod.metadata.labels
        self.terms = own_terms(pod)
        self.affinity_keys = _keys(self.terms, "affinity")
        self.anti_keys = _keys(self.terms, "anti")
        self.scores = has_say(self.terms, args)
        self._namespaces = namespaces
        self._namespace_labels = labels
        self._hard_weight = args.hard_pod_affinity_weight
        self.own = self._own_counts(_matchers(self.terms, namespaces)) if self.terms else {}
        self.is_first_of_its_kind = bool(self.affinity_keys) and self._matches_its_own_affinity()
        self._effects: dict[int, tuple[PodLoad, Effect]] = {}

    @cached_property
    def identity(self) -> bytes:
        asks = (self.namespace, self.pod_labels, self.terms, self._namespaces)
        return _ENCODER.encode((asks, self._namespace_labels, self._hard_weight, self.scores))

    @cached_property
    def of_itself(self) -> Effect:
        """What another pod of the same kind means."""
        return self.effect(PodLoad(namespace=self.namespace, labels=self.pod_labels, terms=self.terms))

    def effect(self, load: PodLoad) -> Effect:
        """Of a pod with this load; worked out once for each load object."""
        known = self._effects.get(id(load))
        if known is None:
            if len(self._effects) >= MOST_REMEMBERED:
                self._effects.clear()
            effect = self._own_effect(load.namespace, load.labels)
            for term in load.terms:
                _add(effect, self.of_term(term))
            known = self._effects[id(load)] = (load, effect or NOTHING)
        return known[1]

    def of_term(self, term: PodTerm) -> Effect:
        """What it means that another pod carries this term."""
        return self._meaning(term) if self._is_meant_by(term) else NOTHING

    # Inside

    def _own_counts(self, terms: Sequence[tuple[PodTerm, Matcher]]) -> dict[Count, list[tuple[Matcher, int]]]:
        """For each count, which pods raise it by how much."""
        own: dict[Count, list[tuple[Matcher, int]]] = {}
        required = [matches for term, matches in terms if term.kind == "affinity" and not term.weight]
        for key in self.affinity_keys:
            own["affinity", key] = [(_all(required), 1)]
        for term, matches in terms:
            if term.weight and self.scores:
                own.setdefault(("score", term.topology_key), []).append((matches, _signed_weight(term)))
                own.setdefault(("contributions", term.topology_key), []).append((matches, 1))
            elif term.kind == "anti" and not term.weight:
                own.setdefault(("anti", term.topology_key), []).append((matches, 1))
        return own

    def _matches_its_own_affinity(self) -> bool:
        return ("affinity", self.affinity_keys[0]) in self._own_effect(self.namespace, self.pod_labels)

    def _own_effect(self, namespace: str, labels: Mapping[str, str]) -> dict[Count, int]:
        effect: dict[Count, int] = {}
        for count, parts in self.own.items():
            for matches, amount in parts:
                if matches(namespace, labels):
                    effect[count] = effect.get(count, 0) + amount
        return effect

    def _meaning(self, term: PodTerm) -> Effect:
        """What a term counts for, if it matches."""
        if term.kind == "anti" and not term.weight:
            return {("symmetric", term.topology_key): 1}
        weight = _signed_weight(term) if term.weight else self._hard_weight
        if not weight or not self.scores:
            return NOTHING
        return {("score", term.topology_key): weight, ("contributions", term.topology_key): 1}

    def _is_meant_by(self, term: PodTerm) -> bool:
        in_namespace = self.namespace in term.namespaces or label_selector_matches(
            term.namespace_selector, self._namespace_labels
        )
        return in_namespace and label_selector_matches(term.selector, self.pod_labels)


def own_terms(pod: Pod) -> tuple[PodTerm, ...]:
    return pod_terms(pod) if pod.spec.affinity is not None else ()


def selecting_terms(terms: Iterable[PodTerm]) -> list[PodTerm]:
    """Those for which it must be looked up which namespaces their selector means.

    One that a namespace without labels satisfies means all namespaces, known or not.
    """
    return [term for term in terms if term.namespace_selector is not None and not _means_all_namespaces(term)]


def has_say(terms: Iterable[PodTerm], args: InterPodAffinityArgs) -> bool:
    """Whether preferences count for a pod with these terms of its own."""
    return not args.ignore_preferred_terms_of_existing_pods or any(term.weight for term in terms)


def _keys(terms: Iterable[PodTerm], kind: Literal["affinity", "anti"]) -> tuple[str, ...]:
    """The topology keys of the required ones."""
    return tuple(sorted({term.topology_key for term in terms if term.kind == kind and not term.weight}))


def _matchers(terms: Sequence[PodTerm], namespaces: Sequence[Sequence[str]]) -> list[tuple[PodTerm, Matcher]]:
    looked_up = dict(zip(map(id, selecting_terms(terms)), namespaces, strict=True))
    return [(term, _matcher(term, looked_up.get(id(term), ()))) for term in terms]


def _matcher(term: PodTerm, selected: Iterable[str]) -> Matcher:
    selector = term.selector
    if term.namespace_selector is not None and _means_all_namespaces(term):
        return lambda namespace, labels: label_selector_matches(selector, labels)
    among = frozenset(term.namespaces) | frozenset(selected)
    return lambda namespace, labels: namespace in among and label_selector_matches(selector, labels)


def _means_all_namespaces(term: PodTerm) -> bool:
    return label_selector_matches(term.namespace_selector, {})


def _all(matchers: Sequence[Matcher]) -> Matcher:
    return lambda namespace, labels: all(matches(namespace, labels) for matches in matchers)


def _signed_weight(term: PodTerm) -> int:
    return term.weight if term.kind == "affinity" else -term.weight


def _add(total: dict[Count, int], effect: Effect) -> None:
    for count, amount in effect.items():
        total[count] = total.get(count, 0) + amount


_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
