"""The features of a node that a pod cannot do without.

Of the features that nodes of v1.36 declare, two matter to pods that are to come; the others only to pods that run.
"""

from shared.model.objects import Pod

RESTART_ALL = "RestartAllContainers"


def required_features(pod: Pod) -> tuple[str, ...]:
    """The features without which a node cannot run the pod, sorted."""
    spec, features = pod.spec, []
    containers = (*spec.containers, *spec.init_containers)
    if any(rule.action == RESTART_ALL for container in containers for rule in container.restart_policy_rules):
        features.append("RestartAllContainersOnContainerExits")
    if spec.host_network and spec.host_users is False:
        features.append("UserNamespacesHostNetworkSupport")
    return tuple(features)
