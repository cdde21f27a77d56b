"""Where the API server has what binding looks at."""

from flotilla.results import ApiCall


def claim_path(key: str) -> str:
    """`key`: `namespace/name`."""
    namespace, _, name = key.partition("/")
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"


def volume_path(name: str) -> str:
    return f"/api/v1/persistentvolumes/{name}"


def node_path(name: str) -> str:
    return f"/api/v1/nodes/{name}"


def csi_node_path(name: str) -> str:
    return f"/apis/storage.k8s.io/v1/csinodes/{name}"


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def look_at(path: str) -> ApiCall:
    return ApiCall("GET", path, {})
