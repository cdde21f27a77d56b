"""Follows what the decisions of a round mean for one class of pods by way of affinity, and predicts its summary."""

from typing import Any

from flotilla.plugin import Tracker
from flotilla.results import MAX_NODE_SCORE, NodeDomains, Range
from shared.model.load import PodLoad
from shared.model.wellknown import HOSTNAME
from shared.plugins.interpodaffinity.rules import AffinitySummary, Aspect, Domains, Rules, domains_of, merged


class AffinityTracker(Tracker):
    """Starts from nodes that the shards found feasible, so only what the round adds can reject.

    Scores are an estimate: the raw scores of other nodes are not known here, so the range of raw scores is assumed only
    to widen.
    """

    def __init__(self, rules: Rules, summary: AffinitySummary, scores: Range | None) -> None:
        self.touched = False
        self._rules = rules
        self._before = summary
        self._first = rules.may_be_first and not summary.get("matches")
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
        # There was no match anywhere: all there are now came in this round.
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
            # The first pod that counts in a domain changes the answer; a score changes with every one.
            if aspect == "score":
                self.touched |= self._has_range
            elif not domains_of(self._before, aspect, key).get(value):
                self.touched = True
            domains = self._more.setdefault(aspect, {}).setdefault(key, {})
            domains[value] = domains.get(value, 0) + amount
            if aspect == "affinity" and self._rules.may_be_first:
                self._matches += amount
            elif aspect == "symmetric":
                self._shunned = True
            scored |= aspect == "score"
        if scored:
            low, high = self._range_now
            now = self._start(place) + self._change(place)
            self._range_now = (min(low, now), max(high, now))

    def shift(self, place: NodeDomains, own: int) -> int:
        if "score" not in self._more:
            return 0
        start = self._start(place)
        of_itself = self._rules.effect_of_itself.items()
        of_one_more = sum(amount for (aspect, key), amount in of_itself if aspect == "score" and key in place.domains)
        counted = start + own * of_one_more
        return _scaled(start + self._change(place), self._range_now) - _scaled(counted, self._range)

    def summary(self) -> Any:
        hostnames = self._before.get("hostnames", ())  # those that only one node has are left out
        more: AffinitySummary = {
            "counts": {
                aspect: {
                    key: {v: n for v, n in domains.items() if v in hostnames} if key == HOSTNAME else domains
                    for key, domains in by_key.items()
                }
                for aspect, by_key in self._more.items()
            },
            "labels": self._before.get("labels", {}),
            "matches": self._matches,
            "scored": self._scored,
            "shunned": self._shunned,
        }
        if "namespaces" in self._before:
            more["namespaces"] = self._before["namespaces"]
        return merged(self._before, more)

    def _counts_more(self, aspect: Aspect, place: NodeDomains) -> bool:
        by_key = self._more.get(aspect)
        return by_key is not None and any(place.domains.get(key) in domains for key, domains in by_key.items())

    def _start(self, place: NodeDomains) -> int:
        """The raw score that the node had, as far as the summary shows it."""
        low, high = self._range
        if low == high:
            return low
        return sum(
            domains.get(place.domains[key], 0)
            for key, domains in self._before.get("counts", {}).get("score", {}).items()
            if key in place.domains
        )

    def _change(self, place: NodeDomains) -> int:
        by_key = self._more.get("score", {})
        return sum(domains.get(place.domains[key], 0) for key, domains in by_key.items() if key in place.domains)


def _scaled(raw: int, of: Range) -> int:
    low, high = of
    return 0 if low >= high else int(MAX_NODE_SCORE * ((min(max(raw, low), high) - low) / (high - low)))
