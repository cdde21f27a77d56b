"""What the pods of a set of nodes are to one class of pods, in a form that adds up over shards.

Domains without a count are left out, and so are hostnames that only one node has: that node's shard knows them.
"""

from typing import TypedDict

from shared.cluster.topology import merge_counts
from shared.plugins.interpodaffinity.rules import Aspect

Domains = dict[str, int]
"""By value of a topology key."""


class Summary(TypedDict, total=False):
    """Whatever is 0, false or empty is left out.

    `counts`: by aspect, topology key and value. `matches`: all that count for the pod's affinity, in domains of any
    key, told only if the pod could be the first of its kind. `shunned`: some pod's anti-affinity matches the pod
    somewhere. `scored`: something speaks for or against some domain. `hostnames`: those that several nodes have.
    `labels`: those of the pod's namespace. `namespaces`: what the namespace selectors of the pod's terms resolve to.
    """

    counts: dict[Aspect, dict[str, Domains]]
    matches: int
    shunned: bool
    scored: bool
    hostnames: list[str]
    labels: dict[str, str]
    namespaces: list[list[str]]


NO_DOMAINS: Domains = {}


def domains_of(summary: Summary, aspect: Aspect, key: str) -> Domains:
    of_aspect = summary["counts"].get(aspect) if "counts" in summary else None
    return NO_DOMAINS if of_aspect is None else of_aspect.get(key, NO_DOMAINS)


def keys_of(summary: Summary, aspect: Aspect) -> set[str]:
    """The topology keys that some domain counts for."""
    return set(summary["counts"].get(aspect, ())) if "counts" in summary else set()


def merged(one: Summary, other: Summary) -> Summary:
    total: Summary = {}
    counts = merged_counts(one.get("counts", {}), other.get("counts", {}))
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
        total["namespaces"] = [sorted({*ours, *theirs}) for ours, theirs in pairs]
    return total


def merged_counts(
    one: dict[Aspect, dict[str, Domains]], other: dict[Aspect, dict[str, Domains]]
) -> dict[Aspect, dict[str, Domains]]:
    """The counts of both; sums of 0 are left out."""
    total: dict[Aspect, dict[str, Domains]] = {}
    for aspect in sorted({*one, *other}):
        ours, theirs = one.get(aspect, {}), other.get(aspect, {})
        by_key: dict[str, Domains] = {}
        for key in sorted({*ours, *theirs}):
            sums = merge_counts(ours.get(key, NO_DOMAINS), theirs.get(key, NO_DOMAINS))
            domains = {value: count for value, count in sums.items() if count}
            if domains:
                by_key[key] = domains
        if by_key:
            total[aspect] = by_key
    return total
