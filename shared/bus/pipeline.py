"""PipelineIdentity: which pipeline a process belongs to, and whose messages it accepts.

Two pipelines with one prefix on one NATS would depose each other's leaders, whose epochs come from different clusters.
So every message names its sender's pipeline in a header, and receivers refuse those of another one. This guards against
mistakes; it is no secret and proves nothing.
"""

import asyncio
import re
from collections.abc import Mapping

from shared.bus.errors import Refusal, Refused

PIPELINE_HEADER = "Flotilla-Pipeline"
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}/[A-Za-z0-9._-]{1,128}")


def pipeline_id(cluster: str, namespace: str) -> str:
    """`cluster`: the uid of its namespace kube-system. `namespace`: that of the leaders' Leases."""
    return f"{cluster}/{namespace}"


def same_cluster(pipeline: str, other: str) -> bool:
    """Whether these two identities differ at most in the namespace of the Leases."""
    return pipeline.partition("/")[0] == other.partition("/")[0]


def described(pipeline: str) -> str:
    """As text."""
    cluster, _, namespace = pipeline.partition("/")
    return f"the pipeline of cluster {cluster} with its Leases in namespace {namespace}"


class PipelineIdentity:
    """`id`: empty until known. A process that never joins, such as the command line, adopts the first one it hears.

    A message without the header is accepted: its sender is of the last release.
    """

    def __init__(self) -> None:
        self.id = ""
        self.foreign = asyncio.Event()
        """Set whenever a message of another pipeline was refused."""

    def admit(self, headers: Mapping[str, str] | None) -> None:
        """Raises Refused if the message is of another pipeline."""
        sender = headers.get(PIPELINE_HEADER) if headers else None
        if sender is None or sender == self.id:
            return
        if not _ID.fullmatch(sender):
            raise Refused(Refusal.PIPELINE, f"{PIPELINE_HEADER} {sender[:32]!r} is none")
        if not self.id:
            self.id = sender
            return
        self.foreign.set()
        raise Refused(Refusal.PIPELINE, f"it is of {described(sender)}; this is {described(self.id)}")
