"""PipelineIdentity: which pipeline a process is part of, and whose messages it takes.

Two pipelines under one prefix of one NATS would depose each other's leaders, whose epochs come from different clusters.
So every message names the pipeline of its sender in a header, and receivers refuse those of another one. This guards
against mistakes: it is no secret, and proves nothing.
"""

import asyncio
import re
from collections.abc import Mapping

from shared.bus.errors import Refusal, Refused

PIPELINE_HEADER = "Flotilla-Pipeline"
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}/[A-Za-z0-9._-]{1,128}")


def pipeline_id(cluster: str, namespace: str) -> str:
    """`cluster`: the uid of its namespace kube-system. `namespace`: where the Leases are that its leaders hold."""
    return f"{cluster}/{namespace}"


def same_cluster(pipeline: str, other: str) -> bool:
    """Whether these two identities differ at most in where the Leases are."""
    return pipeline.partition("/")[0] == other.partition("/")[0]


def described(pipeline: str) -> str:
    """For people."""
    cluster, _, namespace = pipeline.partition("/")
    return f"the pipeline of cluster {cluster} with its Leases in namespace {namespace}"


class PipelineIdentity:
    """`id`: empty until it is known. Whoever never joins one, as the command line, is part of the first that it hears.

    A message without the header is of a service of the last release, and taken.
    """

    def __init__(self) -> None:
        self.id = ""
        self.foreign = asyncio.Event()
        """Set whenever a message of another pipeline was refused."""

    def admit(self, headers: Mapping[str, str] | None) -> None:
        """Refused if the message is of another pipeline."""
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
