"""What a configuration file says of connections to the API server: its `clientConnection`.

Only what stands in the file counts. The defaults that kube-scheduler fills in (50 calls a second) are none of ours: how
much a server can bear it says itself, by priority and fairness and 429.
"""

from dataclasses import dataclass
from typing import Any

from shared.config.document import ConfigSource, DocumentFault, parse_document
from shared.config.structs import DEFAULT_BURST, DEFAULT_QPS
from shared.kube.bucket import TokenBucket


@dataclass(frozen=True, slots=True)
class GivenConnection:
    """`rate`: calls a second; None: as many as there are."""

    kubeconfig: str | None = None
    rate: float | None = None
    burst: int = DEFAULT_BURST

    def bucket(self) -> TokenBucket | None:
        return None if self.rate is None else TokenBucket(self.rate, self.burst)


NOTHING_GIVEN = GivenConnection()


def given_connection(source: ConfigSource | None) -> GivenConnection:
    """Of a file that was found to be without faults; what is wrong with it, `load_config` says."""
    try:
        document = None if source is None else parse_document(source.text).value
    except DocumentFault:
        return NOTHING_GIVEN
    given: Any = document.get("clientConnection") if isinstance(document, dict) else None
    if not isinstance(given, dict):
        return NOTHING_GIVEN
    qps, burst = given.get("qps") or 0, given.get("burst") or 0
    limited = bool(qps or burst) and qps >= 0
    return GivenConnection(
        kubeconfig=given.get("kubeconfig") or None,
        rate=float(qps or DEFAULT_QPS) if limited else None,
        burst=burst or DEFAULT_BURST,
    )
