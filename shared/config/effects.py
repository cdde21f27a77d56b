"""What becomes of each top-level field of a file in Flotilla, and notes on those that nothing follows from."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class Effect(NamedTuple):
    """`what` a field does here; with `idle`, what there is instead of it."""

    what: str
    idle: bool = False

    def __str__(self) -> str:
        return f"has no meaning here: {self.what}" if self.idle else self.what


EFFECTS: Final[Mapping[str, Effect]] = {
    "profiles": Effect("all of it, as in kube-scheduler"),
    "extenders": Effect("all of it, as in kube-scheduler"),
    "percentageOfNodesToScore": Effect("0 means all nodes; from 1 to 99, each shard keeps to its share"),
    "podInitialBackoffSeconds": Effect("how long the queue lets a pod rest after its first failed attempt"),
    "podMaxBackoffSeconds": Effect("how long it lets a pod rest at most"),
    "parallelism": Effect("run as many workers as the cluster needs", idle=True),
    "leaderElection": Effect("for a Lease of each service of which one leads; resourceName has no meaning"),
    "clientConnection": Effect(
        "`kubeconfig` where no setting names one or a server; `qps` and `burst`, where they are given, for each process"
    ),
    "enableProfiling": Effect("there are no profiling endpoints", idle=True),
    "enableContentionProfiling": Effect("there are no profiling endpoints", idle=True),
    "delayCacheUntilActive": Effect("a service lists the cluster when it starts", idle=True),
}


def idle_notes(given: Mapping[str, Any]) -> list[str]:
    """A line for each field that a file gives and that means nothing here."""
    return [f"{field}: {effect}" for field, effect in EFFECTS.items() if effect.idle and given.get(field) is not None]
