"""Which cluster an API server is of."""

import msgspec

from shared.errors import ClusterError, UserError
from shared.kube.client import KubeClient
from shared.kube.errors import Forbidden

PATH = "/api/v1/namespaces/kube-system"


class _Metadata(msgspec.Struct, frozen=True):
    uid: str = ""


class _Namespace(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_DECODER = msgspec.json.Decoder(_Namespace)


async def cluster_uid(client: KubeClient) -> str:
    """The uid of the namespace kube-system, by which clusters are commonly told apart.

    ClusterError if the server does not say, UserError if it does not let us look.
    """
    try:
        raw = await client.get(PATH)
    except Forbidden as cause:
        raise UserError(f"{cause}; the right to get namespace kube-system tells clusters apart") from cause
    try:
        uid = "" if raw is None else _DECODER.decode(raw).metadata.uid
    except msgspec.DecodeError as cause:
        raise ClusterError(f"{client.server}: namespace kube-system cannot be read: {cause}") from cause
    if not uid:
        raise ClusterError(f"{client.server}: there is no namespace kube-system, by which clusters are told apart")
    return uid
