"""Functions of the API server's authorizer. They are declared, so that errors name them, but no selector has one."""

from shared.cel.declarations import FunctionDeclaration, function, member
from shared.cel.types import BOOL, STRING, CelType, TypeKind

_AUTHORIZER = CelType(TypeKind.STRUCT, "kubernetes.authorization.Authorizer")
_PATH_CHECK = CelType(TypeKind.STRUCT, "kubernetes.authorization.PathCheck")
_GROUP_CHECK = CelType(TypeKind.STRUCT, "kubernetes.authorization.GroupCheck")
_RESOURCE_CHECK = CelType(TypeKind.STRUCT, "kubernetes.authorization.ResourceCheck")
_DECISION = CelType(TypeKind.STRUCT, "kubernetes.authorization.Decision")

FUNCTIONS: list[FunctionDeclaration] = [
    function("path", member("authorizer_path", [_AUTHORIZER, STRING], _PATH_CHECK)),
    function("group", member("authorizer_group", [_AUTHORIZER, STRING], _GROUP_CHECK)),
    function("serviceAccount", member("authorizer_serviceaccount", [_AUTHORIZER, STRING, STRING], _AUTHORIZER)),
    function("resource", member("groupcheck_resource", [_GROUP_CHECK, STRING], _RESOURCE_CHECK)),
    function("subresource", member("resourcecheck_subresource", [_RESOURCE_CHECK, STRING], _RESOURCE_CHECK)),
    function("namespace", member("resourcecheck_namespace", [_RESOURCE_CHECK, STRING], _RESOURCE_CHECK)),
    function("name", member("resourcecheck_name", [_RESOURCE_CHECK, STRING], _RESOURCE_CHECK)),
    function(
        "check",
        member("pathcheck_check", [_PATH_CHECK, STRING], _DECISION),
        member("resourcecheck_check", [_RESOURCE_CHECK, STRING], _DECISION),
    ),
    function("errored", member("decision_errored", [_DECISION], BOOL)),
    function("error", member("decision_error", [_DECISION], STRING)),
    function("allowed", member("decision_allowed", [_DECISION], BOOL)),
    function("reason", member("decision_reason", [_DECISION], STRING)),
    function("fieldSelector", member("authorizer_fieldselector", [_RESOURCE_CHECK, STRING], _RESOURCE_CHECK)),
    function("labelSelector", member("authorizer_labelselector", [_RESOURCE_CHECK, STRING], _RESOURCE_CHECK)),
]
