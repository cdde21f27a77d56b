"""The whole configuration: what services get, and how errors are reported."""

from pathlib import Path
from typing import Any

import pytest

from shared.config.document import read_config
from shared.config.kubernetes_yaml import write_yaml
from shared.config.problems import ErrorType, InvalidConfigFile, Stage
from shared.config.reading import ConfigFile, load_config, read_config_text, read_config_values
from shared.config.structs import (
    EFFECTS,
    ClientConnection,
    ExtenderConfig,
    ExtenderTls,
    LeaderElection,
    ManagedResource,
)
from shared.errors import InvalidConfig
from tests.config import pem

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def read(**fields: Any) -> ConfigFile:
    return read_config_text(write_yaml({**HEAD, **fields}))


def refused(text: str | None = None, **fields: Any) -> InvalidConfigFile:
    with pytest.raises(InvalidConfigFile) as caught:
        read_config_text(write_yaml({**HEAD, **fields}) if text is None else text)
    return caught.value


# Fields


def test_defaults() -> None:
    config = read().config
    assert config.percentage_of_nodes_to_score == 0
    assert (config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds) == (1, 10)
    assert config.parallelism == 16
    assert config.extenders == ()
    assert config.leader_election == LeaderElection(True, 15.0, 10.0, 2.0, "leases", "kube-scheduler", "kube-system")
    assert config.client_connection == ClientConnection("", "", "application/vnd.kubernetes.protobuf", 50, 100)
    assert (config.enable_profiling, config.enable_contention_profiling) == (True, True)
    assert not config.delay_cache_until_active
    assert config == load_config(None)


def test_every_field_is_read() -> None:
    config = read(
        parallelism=3,
        percentageOfNodesToScore=40,
        podInitialBackoffSeconds=2,
        podMaxBackoffSeconds=60,
        enableProfiling=False,
        delayCacheUntilActive=True,
        leaderElection={"leaderElect": False, "leaseDuration": "1m", "resourceName": "mine"},
        clientConnection={"kubeconfig": "/etc/k", "qps": 0.1, "burst": 7, "contentType": "application/json"},
    ).config
    assert (config.parallelism, config.percentage_of_nodes_to_score) == (3, 40)
    assert (config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds) == (2, 60)
    assert (config.enable_profiling, config.enable_contention_profiling) == (False, False)
    assert config.delay_cache_until_active
    assert config.leader_election == LeaderElection(False, 60.0, 10.0, 2.0, "leases", "mine", "kube-system")
    assert config.client_connection == ClientConnection("/etc/k", "", "application/json", 0.1, 7)


def test_extenders() -> None:
    file = read(
        extenders=[
            {
                "urlPrefix": "https://host/x",
                "filterVerb": "f",
                "preemptVerb": "e",
                "prioritizeVerb": "p",
                "weight": 5,
                "bindVerb": "b",
                "enableHTTPS": True,
                "tlsConfig": {"caData": pem.base64(pem.CERTIFICATE), "serverName": "extender"},
                "httpTimeout": "250ms",
                "nodeCacheCapable": True,
                "managedResources": [
                    {"name": "example.com/a"},
                    {"name": "example.com/b", "ignoredByScheduler": True},
                ],
                "ignorable": True,
            },
            {"urlPrefix": "http://other"},
        ]
    )
    assert file.config.extenders == (
        ExtenderConfig(
            url_prefix="https://host/x",
            filter_verb="f",
            preempt_verb="e",
            prioritize_verb="p",
            weight=5,
            bind_verb="b",
            enable_https=True,
            tls=ExtenderTls(server_name="extender", ca_data=pem.CERTIFICATE.encode()),
            http_timeout=0.25,
            node_cache_capable=True,
            managed_resources=(ManagedResource("example.com/a"), ManagedResource("example.com/b", True)),
            ignorable=True,
        ),
        ExtenderConfig(url_prefix="http://other", weight=0, http_timeout=5.0),
    )
    fit = file.config.profiles[0].args["NodeResourcesFit"]
    assert getattr(fit, "ignored_resources", None) == ("example.com/b",)
    assert file.written["extenders"][1]["httpTimeout"] == "5s"


def test_private_keys_are_hidden() -> None:
    assert "secret" not in repr(ExtenderTls(key_data=b"secret"))
    wrong = refused(extenders=[{"urlPrefix": "u", "tlsConfig": {"keyData": "secret!"}}])
    assert "secret" not in str(wrong)
    assert "extenders[0].tlsConfig.keyData: must be base64" in str(wrong)


# Keys and certificates


def tls(**fields: Any) -> dict[str, Any]:
    return {"urlPrefix": "https://a", "tlsConfig": fields}


PAIR = {"certData": pem.base64(pem.CERTIFICATE), "keyData": pem.base64(pem.KEY)}


@pytest.mark.parametrize(
    "extender",
    [
        tls(caData=pem.base64(pem.CERTIFICATE)),
        tls(**PAIR),
        tls(insecure=True, certData=pem.base64("no certificate")),
        tls(serverName="s"),
        # Nothing asks for TLS, so the file is not read.
        tls(keyFile="/no/such"),
    ],
)
def test_usable_tls_settings(extender: dict[str, Any]) -> None:
    assert len(read(extenders=[extender]).config.extenders) == 1


@pytest.mark.parametrize(
    ("extender", "told"),
    [
        (tls(caData=pem.base64("none")), "caData: must have at least one certificate in PEM"),
        (tls(caFile="/no/such"), "caFile: must be a file that can be read, not '/no/such' (No such file or directory)"),
        (tls(caFile="a\x00b"), "caFile: must be a file that can be read"),
        (tls(caFile="/ca", insecure=True), "insecure: cannot be true where there is a caData or caFile"),
        (tls(**PAIR | {"keyData": pem.base64(pem.OTHER_KEY)}), "certData: must be a certificate in PEM that matches"),
        (tls(**PAIR | {"certData": pem.base64("none")}), "certData: must be a certificate in PEM that matches the key"),
        (tls(certFile="/no/cert", keyFile="/no/key"), "certFile: must be a file that can be read"),
    ],
)
def test_unusable_tls_settings(extender: dict[str, Any], told: str) -> None:
    wrong = refused(extenders=[extender])
    assert wrong.stage is Stage.BUILD
    assert wrong.lines()[0].startswith(f"extenders[0].tlsConfig.{told}")


def test_certificate_files_are_read(tmp_path: Path) -> None:
    for name, text in (("ca", pem.CERTIFICATE), ("cert", pem.CERTIFICATE), ("key", pem.KEY)):
        (tmp_path / name).write_text(text)
    files = {f"{name}File": str(tmp_path / name) for name in ("ca", "cert", "key")}
    assert read(extenders=[tls(**files)]).config.extenders[0].tls == ExtenderTls(
        ca_file=files["caFile"], cert_file=files["certFile"], key_file=files["keyFile"]
    )
    (tmp_path / "ca").write_text("nothing")
    assert "caFile: must have at least one certificate" in str(refused(extenders=[tls(**files)]))


# Faults


def test_all_errors_have_path_value_and_what_is_allowed() -> None:
    wrong = refused(
        paralelism=1,
        podMaxBackoffSeconds="10",
        leaderElection={"leaseDuration": 15},
        profiles=[{"schedulerName": 1, "plugins": {"score": {"enabled": [{"nme": "x"}]}}}],
        extenders={"urlPrefix": "u"},
    )
    assert wrong.stage is Stage.DECODE
    assert [line.split(";")[0] for line in wrong.lines()] == [
        "paralelism: unknown field (did you mean parallelism?)",
        'podMaxBackoffSeconds: must be a whole number from -9223372036854775808 to 9223372036854775807, not "10"',
        'leaderElection.leaseDuration: must be a duration in quotes or with a unit, like "15s", not 15',
        "profiles[0].schedulerName: must be a string (in quotes where YAML would take it for something else), not 1",
        "profiles[0].plugins.score.enabled[0].nme: unknown field (did you mean name?)",
        'extenders: must be a list, not {"urlPrefix":"u"}',
    ]


def test_a_failing_stage_ends_reading() -> None:
    late: dict[str, Any] = {"profiles": [{"plugins": {"score": {"enabled": [{"name": "Nope"}]}}}]}
    assert refused(**late).stage is Stage.BUILD
    assert refused(**late, parallelism=0).stage is Stage.VALIDATE
    assert refused(**late, parallelism=0, foo=1).stage is Stage.DECODE


def test_error_lines_are_printable() -> None:
    fields: dict[str, Any] = {"a\nb\x1b[31m": 1, "parallelism": "c\nd"}
    wrong = refused(**fields)
    assert [line.partition(" field")[0].partition(" whole")[0] for line in wrong.lines()] == [
        "a b\\x1b[31m: unknown",
        "parallelism: must be a",
    ]
    assert all(line.isprintable() for line in wrong.lines())


def test_long_values_are_cut() -> None:
    (line,) = refused(parallelism="x" * 10_000).lines()
    assert len(line) < 300
    assert line.endswith("...")


@pytest.mark.parametrize(
    ("fields", "path", "fault", "value"),
    [
        ({"parallelism": 0}, "parallelism", ErrorType.INVALID, 0),
        ({"clientConnection": {"burst": -1}}, "clientConnection.burst", ErrorType.INVALID, -1),
        ({"leaderElection": {"retryPeriod": "-1s"}}, "leaderElection.retryPeriod", ErrorType.INVALID, "-1s"),
        ({"leaderElection": {"renewDeadline": "15s"}}, "leaderElection.leaseDuration", ErrorType.INVALID, "15s"),
        (
            {"leaderElection": {"resourceLock": "endpoints"}},
            "leaderElection.resourceLock",
            ErrorType.INVALID,
            "endpoints",
        ),
        ({"podInitialBackoffSeconds": 20}, "podMaxBackoffSeconds", ErrorType.INVALID, 10),
        ({"profiles": [{"schedulerName": ""}]}, "profiles[0].schedulerName", ErrorType.REQUIRED, ""),
        ({"extenders": [{"prioritizeVerb": "p"}]}, "extenders[0].weight", ErrorType.INVALID, 0),
        (
            {"extenders": [{"bindVerb": "b"}, {"bindVerb": "b"}]},
            "extenders",
            ErrorType.INVALID,
            "found 2 extenders implementing bind",
        ),
        (
            {"extenders": [{"managedResources": [{"name": "cpu"}]}]},
            "extenders[0].managedResources[0].name",
            ErrorType.INVALID,
            "cpu",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "VolumeBinding", "args": {"shape": [{"score": 3}]}}]}]},
            "profiles[0].pluginConfig[0].args.shape",
            ErrorType.INVALID,
            [{"Utilization": 0, "Score": 3}],
        ),
    ],
)
def test_validation_errors_have_path_type_and_value(
    fields: dict[str, Any], path: str, fault: ErrorType, value: object
) -> None:
    wrong = refused(**fields)
    assert wrong.stage is Stage.VALIDATE
    assert [(problem.path, problem.type, problem.value) for problem in wrong.problems] == [(path, fault, value)]


def test_leader_election_is_not_validated_where_it_is_off() -> None:
    assert not read(leaderElection={"leaderElect": False, "retryPeriod": "-1s"}).config.leader_election.leader_elect


@pytest.mark.parametrize(
    ("args", "ok"),
    [
        ({"apiVersion": "kubescheduler.config.k8s.io/v1"}, True),
        ({"apiVersion": "kubescheduler.config.k8s.io/"}, True),
        ({"apiVersion": "", "kind": ""}, True),
        ({"apiVersion": None, "kind": None}, True),
        ({"kind": "NodeAffinityArgs"}, True),
        ({"apiVersion": "kubescheduler.config.k8s.io/v1beta3"}, False),
        ({"apiVersion": "v1"}, False),
        ({"apiVersion": "a/b/c"}, False),
        ({"apiVersion": 1}, False),
        ({"kind": "NodeAffinity"}, False),
    ],
)
def test_arguments_may_have_api_version_and_kind(args: dict[str, Any], ok: bool) -> None:
    fields: dict[str, Any] = {"profiles": [{"pluginConfig": [{"name": "NodeAffinity", "args": args}]}]}
    if ok:
        read(**fields)
    else:
        assert refused(**fields).problems[0].path.startswith("profiles[0].pluginConfig[0].args.")


def test_the_internal_version_has_go_names_and_no_defaults() -> None:
    internal = {**HEAD, "apiVersion": "kubescheduler.config.k8s.io/__internal"}
    wrong = refused(write_yaml({**internal, "Parallelism": 4, "ClientConnection": {"QPS": 1}}))
    assert [problem.path for problem in wrong.problems] == ["profiles", "podInitialBackoffSeconds"]
    assert [problem.path for problem in refused(write_yaml({**internal, "parallelism": 4})).problems] == ["parallelism"]


def test_repeated_json_keys_are_reported() -> None:
    text = '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", %s}'
    wrong = refused(text % '"leaderElection": {"leaderElect": true, "leaderElect": false}')
    assert wrong.lines() == ["leaderElection.leaderElect: is given twice"]
    # The arguments of an out-of-tree plugin are passed through.
    read_config_text(text % '"profiles": [{"pluginConfig": [{"name": "Own", "args": {"a": 1, "a": 2}}]}]')


def test_docs_list_the_effect_of_each_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    table = "\n".join(f"| `{field}` | {effect} |" for field, effect in EFFECTS.items())
    assert f"| field | here |\n|---|---|\n{table}\n" in page


# Files


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(write_yaml({**HEAD, "podMaxBackoffSeconds": 30}))
    assert load_config(read_config(str(path))).pod_max_backoff_seconds == 30
    path.write_text(write_yaml({**HEAD, "parallelism": -1, "podMaxBackoffSeconds": -1}))
    with pytest.raises(InvalidConfigFile) as caught:
        load_config(read_config(str(path)))
    faults = [
        "parallelism: must be at least 1, not -1",
        "podMaxBackoffSeconds: must be at least podInitialBackoffSeconds (1), not -1",
    ]
    assert caught.value.lines() == [f"{path}: {fault}" for fault in faults]
    assert str(caught.value) == f"{path}: {'; '.join(faults)}"
    assert read_config(None) is None
    with pytest.raises(InvalidConfig, match="cannot be read: No such file"):
        read_config(str(tmp_path / "none"))


def test_plain_values_need_no_kind() -> None:
    assert read_config_values({"parallelism": 2}).config.parallelism == 2
    with pytest.raises(InvalidConfig, match="must be a map"):
        read_config_values([])
