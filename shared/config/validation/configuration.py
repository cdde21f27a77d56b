"""The whole configuration, in the order in which kube-scheduler checks it."""

from collections.abc import Collection, Iterator

from shared.config.problems import Problem, invalid, required
from shared.config.schema import Tree
from shared.config.validation.extenders import extender_problems
from shared.config.validation.profiles import percentage_problems, profiles_problems


def configuration_problems(tree: Tree, removed: Collection[str]) -> list[Problem]:
    """Everything that is wrong. `removed`: plugins that a v1 file must not name at a point or give arguments."""
    return list(_problems(tree, removed))


def _problems(tree: Tree, removed: Collection[str]) -> Iterator[Problem]:
    if tree["clientConnection"]["burst"] < 0:
        yield invalid("clientConnection.burst", tree["clientConnection"]["burst"], "must be at least 0")
    if tree["leaderElection"]["leaderElect"]:
        yield from _leader_election_problems(tree["leaderElection"], "leaderElection")
    if tree["parallelism"] <= 0:
        yield invalid("parallelism", tree["parallelism"], "must be at least 1")
    yield from profiles_problems(tree["profiles"], removed)
    yield from percentage_problems(tree, "")
    yield from _backoff_problems(tree)
    yield from extender_problems(tree["extenders"] or [])


def _leader_election_problems(tree: Tree, path: str) -> Iterator[Problem]:
    for field in ("leaseDuration", "renewDeadline", "retryPeriod"):
        if tree[field] <= 0:
            yield invalid(f"{path}.{field}", str(tree[field]), "must be longer than 0s")
    if tree["leaseDuration"] <= tree["renewDeadline"]:
        # The value that is told is the other one, as kube-scheduler does.
        deadline = str(tree["renewDeadline"])
        reason = f"must be longer than renewDeadline ({deadline}), not {tree['leaseDuration']}"
        yield invalid(f"{path}.leaseDuration", deadline, "")._replace(reason=reason)
    for field in ("resourceLock", "resourceNamespace", "resourceName"):
        if not tree[field]:
            yield required(f"{path}.{field}", "is needed, and is empty")
    if tree["resourceLock"] != "leases":
        yield invalid(f"{path}.resourceLock", tree["resourceLock"], "must be leases")


def _backoff_problems(tree: Tree) -> Iterator[Problem]:
    initial, most = tree["podInitialBackoffSeconds"], tree["podMaxBackoffSeconds"]
    if initial <= 0:
        yield invalid("podInitialBackoffSeconds", initial, "must be at least 1")
    if most < initial:
        yield invalid("podMaxBackoffSeconds", most, f"must be at least podInitialBackoffSeconds ({initial})")
