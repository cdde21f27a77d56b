"""What the decisions of a round mean for one class of pods by way of affinity, and what its summary will then be."""

from collections.abc import Iterator
from typing import Any

from flotilla.plugin import Tracker
from flotilla.results import MAX_NODE_SCORE, NodeDomains, Range
from shared.model.load import PodLoad
from shared.model.wellknown import HOSTNAME
from shared.plugins.interpodaffinity.rules import Aspect, Rules
from shared.plugins.interpodaffinity.summary import Domains, Summary, domains_of, merged


class AffinityTracker(Tracker):
    """Starts from nodes that the shards let the pod onto: of what rejects, only what the round adds is looked at.

    What it says about scores is an estimate: it does not know the raw scores of all nodes, so it takes it that the
    range of raw scores only ever widens.
    """

    def __init__(self, rules: Rules, summary: Summary, scores: Range | None) -> None:
        self.touched = False
        self._rules = rules
        self._before = summary
        self._first = rules.is_first_of_its_kind and not summary.get("matches")
        self._matches = 0
        self._scored = False
        self._shunned = False
        self._more: dict[Aspect, dict[str, Domains]] = {}
        self._has_range = scores is not None
        # Without a range nothing is scored yet: all nodes score 0.
        self._range = self._range_now = scores or (0, 0)

    def admits(self, place: NodeDomains) -> bool:
        if self._counts_more("symmetric", place) or self._counts_more("anti", place):
            return False
        if not (self._first and self._matches):
            return True
        # There was no match anywhere: what there is now came in this round.
        more = self._more.get("affinity", {})
        return all(
            key in place.domains and more.get(key, {}).get(place.domains[key]) for key in self._rules.affinity_keys
        )

    def concerns(self, load: PodLoad) -> bool:
        return bool(self._rules.effect(load))

    def placed(self, class_id: str, load: PodLoad, place: NodeDomains) -> None:
        effect = self._rules.effect(load)
        if not effect:
            return
        scored = False
        for (aspect, key), amount in effect.items():
            value = place.domains.get(key)
            if value is None:
                continue
            if aspect == "contributions":
                self._scored = True
                continue
            self._note(aspect, key, value)
            domains = self._more.setdefault(aspect, {}).setdefault(key, {})
            domains[value] = domains.get(value, 0) + amount
            if aspect == "affinity" and self._rules.is_first_of_its_kind:
                self._matches += amount
            elif aspect == "symmetric":
                self._shunned = True
            scored |= aspect == "score"
        if scored:
            self._widen(place)

    def shift(self, place: NodeDomains, own: int) -> int:
        if "score" not in self._more:
            return 0
        start = self._start(place)
        counted = start + own * self._of_one_more(place)
        return _scaled(start + self._change(place), self._range_now) - _scaled(counted, self._range)

    def summary(self) -> Any:
        more: Summary = {"labels": self._before.get("labels", {})}
        counts = {aspect: dict(self._public(by_key)) for aspect, by_key in self._more.items()}
        more["counts"] = {aspect: by_key for aspect, by_key in counts.items() if by_key}
        more["matches"] = self._matches
        more["scored"] = self._scored
        more["shunned"] = self._shunned
        if "namespaces" in self._before:
            more["namespaces"] = self._before["namespaces"]
        return merged(self._before, more)

    # Inside

    def _counts_more(self, aspect: Aspect, place: NodeDomains) -> bool:
        by_key = self._more.get(aspect)
        return by_key is not None and any(place.domains.get(key) in domains for key, domains in by_key.items())

    def _note(self, aspect: Aspect, key: str, value: str) -> None:
        """Does the first pod that counts in a domain change what is said? A score changes with every one."""
        if aspect == "score":
            self.touched |= self._has_range
        elif not domains_of(self._before, aspect, key).get(value):
            self.touched = True

    def _start(self, place: NodeDomains) -> int:
        """The raw score that the node had, as far as it is known here."""
        low, high = self._range
        if low == high:
            return low
        return sum(
            domains.get(place.domains[key], 0)
            for key, domains in self._before.get("counts", {}).get("score", {}).items()
            if key in place.domains
        )

    def _of_one_more(self, place: NodeDomains) -> int:
        of_itself = self._rules.of_itself.items()
        return sum(amount for (aspect, key), amount in of_itself if aspect == "score" and key in place.domains)

    def _change(self, place: NodeDomains) -> int:
        by_key = self._more.get("score", {})
        return sum(domains.get(place.domains[key], 0) for key, domains in by_key.items() if key in place.domains)

    def _widen(self, place: NodeDomains) -> None:
        low, high = self._range_now
        now = self._start(place) + self._change(place)
        self._range_now = (min(low, now), max(high, now))

    def _public(self, by_key: dict[str, Domains]) -> Iterator[tuple[str, Domains]]:
        """Without the hostnames that only one node has."""
        for key, domains in by_key.items():
            if key != HOSTNAME:
                yield key, domains
                continue
            shared = {v: count for v, count in domains.items() if v in self._before.get("hostnames", ())}
            if shared:
                yield key, shared


def _scaled(raw: int, of: Range) -> int:
    low, high = of
    return 0 if low >= high else int(MAX_NODE_SCORE * ((min(max(raw, low), high) - low) / (high - low)))
