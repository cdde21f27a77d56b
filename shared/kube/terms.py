"""Terms: numbers that only rise, taken from a Lease object; every message carries its sender's.

Taking a term deposes whoever held the last one: what the old holder still says is of an older epoch, and everybody
refuses it. So two processes of the same name can never both be believed, without either knowing of the other.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

from shared.errors import ClusterError
from shared.kube.client import KubeClient
from shared.kube.errors import Refused
from shared.kube.notes import micro_time

NAMESPACE = "kube-system"
MOST_ATTEMPTS = 20
"""Each lost to somebody who took a term meanwhile."""
NOMINAL_DURATION = 15
"""Seconds, for those who look at the Lease: it must say something positive. The term does not end with it."""


async def take_term(client: KubeClient, name: str, holder: str, *, namespace: str = NAMESPACE) -> int:
    """The next term of this name: the Lease's `leaseTransitions` after raising it by one; the first is 1.

    The server sees to it that no two get the same (optimistic concurrency). A call whose outcome is unknown raises; the
    number it may have used up is skipped by the next.
    """
    folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    for _ in range(MOST_ATTEMPTS):
        found = await client.get(f"{folder}/{name}")
        if found is None:
            method, path, lease = "POST", folder, _new_lease(namespace, name)
        else:
            method, path, lease = "PUT", f"{folder}/{name}", _lease(found, name)
        term = _raise_term(lease, name, holder)
        answer = await client.call(method, path, msgspec.json.encode(lease))
        if answer.ok:
            return term
        if answer.status not in (404, 409):
            raise Refused(client.server, f"{method} {path}", answer.status, answer.message)
    raise ClusterError(f"{client.server}: Lease {namespace}/{name}: somebody else takes one term after the other")


def _new_lease(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {},
    }


def _lease(raw: bytes, name: str) -> dict[str, Any]:
    """Kept whole, so that what others have written into it stays."""
    try:
        lease = msgspec.json.decode(raw, type=dict[str, Any])
        lease["spec"] = msgspec.convert(lease.get("spec") or {}, dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError) as cause:
        raise ClusterError(f"Lease {name}: not a Lease: {cause}") from cause
    return lease


def _raise_term(lease: dict[str, Any], name: str, holder: str) -> int:
    spec = lease["spec"]
    before = spec.get("leaseTransitions") or 0
    if not isinstance(before, int) or before < 0:
        raise ClusterError(f"Lease {name}: spec.leaseTransitions: {before!r} is no term")
    now = micro_time(datetime.now(UTC).timestamp())
    spec |= {
        "holderIdentity": holder,
        "leaseTransitions": before + 1,
        "acquireTime": now,
        "renewTime": now,
        "leaseDurationSeconds": NOMINAL_DURATION,
    }
    return before + 1
