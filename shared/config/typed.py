"""From the tree of a configuration that was built to the types that services take."""

from collections.abc import Mapping

from shared.config.args import DEFAULT_ARGS
from shared.config.building import Built
from shared.config.points import ExtensionPoint, PluginRef
from shared.config.schema import Tree, TypedArgs
from shared.config.structs import (
    ClientConnection,
    ExtenderConfig,
    ExtenderTls,
    KubeSchedulerConfig,
    LeaderElection,
    ManagedResource,
    ProfileConfig,
)
from shared.config.typedargs import args_struct


def typed_config(built: Built, tree: Tree) -> KubeSchedulerConfig:
    """`tree`: the configuration with its defaults, of which `built` is what is in force."""
    completed = built.completed
    return KubeSchedulerConfig(
        profiles=tuple(
            _profile(profile, _args(tree["profiles"][i]) | _args(profile), built.plugins[profile["schedulerName"]])
            for i, profile in enumerate(completed["profiles"])
        ),
        percentage_of_nodes_to_score=completed["percentageOfNodesToScore"] or 0,
        pod_initial_backoff_seconds=completed["podInitialBackoffSeconds"],
        pod_max_backoff_seconds=completed["podMaxBackoffSeconds"],
        parallelism=completed["parallelism"],
        leader_election=_leader_election(completed["leaderElection"]),
        client_connection=_client_connection(completed["clientConnection"]),
        extenders=tuple(_extender(extender) for extender in completed["extenders"] or ()),
        enable_profiling=completed["enableProfiling"],
        enable_contention_profiling=completed["enableContentionProfiling"],
        delay_cache_until_active=completed["delayCacheUntilActive"],
    )


def _profile(tree: Tree, args: Mapping[str, object], running: Mapping[str, tuple[PluginRef, ...]]) -> ProfileConfig:
    plugins = {point: running[point] for point in ExtensionPoint}
    return ProfileConfig(tree["schedulerName"], tree["percentageOfNodesToScore"], plugins, {**DEFAULT_ARGS, **args})


def _args(profile: Tree) -> dict[str, object]:
    return {
        entry["name"]: args_struct(entry["args"]) if isinstance(entry["args"], TypedArgs) else entry["args"]
        for entry in profile["pluginConfig"] or ()
        if entry["args"] is not None
    }


def _leader_election(tree: Tree) -> LeaderElection:
    return LeaderElection(
        leader_elect=tree["leaderElect"],
        lease_duration=tree["leaseDuration"].seconds,
        renew_deadline=tree["renewDeadline"].seconds,
        retry_period=tree["retryPeriod"].seconds,
        resource_lock=tree["resourceLock"],
        resource_name=tree["resourceName"],
        resource_namespace=tree["resourceNamespace"],
    )


def _client_connection(tree: Tree) -> ClientConnection:
    return ClientConnection(
        kubeconfig=tree["kubeconfig"],
        accept_content_types=tree["acceptContentTypes"],
        content_type=tree["contentType"],
        qps=tree["qps"],
        burst=tree["burst"],
    )


def _extender(tree: Tree) -> ExtenderConfig:
    tls: Tree | None = tree["tlsConfig"]
    return ExtenderConfig(
        url_prefix=tree["urlPrefix"],
        filter_verb=tree["filterVerb"],
        prioritize_verb=tree["prioritizeVerb"],
        weight=tree["weight"],
        bind_verb=tree["bindVerb"],
        preempt_verb=tree["preemptVerb"],
        enable_https=tree["enableHTTPS"],
        tls=None if tls is None else _tls(tls),
        http_timeout=tree["httpTimeout"].seconds,
        node_cache_capable=tree["nodeCacheCapable"],
        managed_resources=tuple(
            ManagedResource(resource["name"], resource["ignoredByScheduler"])
            for resource in tree["managedResources"] or ()
        ),
        ignorable=tree["ignorable"],
    )


def _tls(tree: Tree) -> ExtenderTls:
    return ExtenderTls(
        insecure=tree["insecure"],
        server_name=tree["serverName"],
        cert_file=tree["certFile"],
        key_file=tree["keyFile"],
        ca_file=tree["caFile"],
        cert_data=tree["certData"] or b"",
        key_data=tree["keyData"] or b"",
        ca_data=tree["caData"] or b"",
    )
