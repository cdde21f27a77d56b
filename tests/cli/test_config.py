"""flotilla config: its output and exit codes."""

import io
import json
import sys
from pathlib import Path

import pytest

from shared.config.reading import read_config_text
from shared.config.struct_codec import fields_of
from shared.config.structs import EFFECTS, KubeSchedulerConfiguration
from tools.cli.main import main

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def ended(*arguments: str) -> int:
    try:
        return main(arguments)
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "scheduler.yaml"


def test_a_valid_file_is_ok(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(HEAD + "podMaxBackoffSeconds: 30\n")
    assert ended("config", "validate", str(file)) == 0
    assert capsys.readouterr() == (f"{file}: ok\n", "")


def test_every_error_is_printed_and_the_exit_code_is_2(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(HEAD + "parallelism: 0\npodInitialBackoffSeconds: 20\nprofiles:\n- schedulerName: ''\n")
    assert ended("config", "validate", str(file)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        f"{file}: parallelism: must be at least 1, not 0",
        f"{file}: profiles[0].schedulerName: is needed, and is empty: each of several profiles must have one",
        f"{file}: podMaxBackoffSeconds: must be at least podInitialBackoffSeconds (20), not 10",
        f"{file}: note: parallelism: has no meaning here: run as many workers as the cluster needs",
    ]


def test_errors_of_all_stages_are_found_at_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown fields and wrong types, values out of range, and plugins that do not exist."""
    file.write_text(
        HEAD
        + """\
podInitialBackofSeconds: 3
podMaxBackoffSeconds: "7"
parallelism: -1
profiles:
- schedulerName: a
  plugins:
    score:
      enabled: [{name: imagelocality, weight: 2}, {name: NodeName}]
      disabled: [{name: TaintTolerations}, {name: NodeName}]
  pluginConfig:
  - {name: InterPodAffinity, args: {hardPodAffinityWeight: 101}}
  - {name: NodeResourcesFitt, args: {}}
- schedulerName: a
"""
    )
    assert ended("config", "validate", str(file)) == 2
    errors = [line.removeprefix(f"{file}: ") for line in capsys.readouterr().err.splitlines()]
    starts = (
        "podInitialBackofSeconds: unknown field (did you mean podInitialBackoffSeconds?)",
        "podMaxBackoffSeconds: must be a whole number",
        "parallelism: must be at least 1, not -1",
        "profiles[0].pluginConfig[0].args.hardPodAffinityWeight: ",
        "profiles[1].schedulerName: ",
        "profiles[0].plugins.score.enabled[0]: there is no plugin 'imagelocality' (did you mean ImageLocality?)",
        "profiles[0].plugins.score.enabled[1]: plugin 'NodeName' does not run at score",
        "note: parallelism: has no meaning here",
        "note: profiles[0].plugins.score.disabled[0]: there is no plugin 'TaintTolerations' (did you mean",
        "note: profiles[0].plugins.score.disabled[1]: plugin 'NodeName' does not run at score, so this disables",
        "note: profiles[0].pluginConfig[1].name: there is no plugin 'NodeResourcesFitt' (did you mean NodeRes",
    )
    assert [each for each in starts if not any(line.startswith(each) for line in errors)] == []
    assert len(errors) == len(starts)


def test_a_file_without_a_version_is_examined_all_the_same(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("parallelism: 0\n")
    assert ended("config", "validate", str(file)) == 2
    said = capsys.readouterr().err
    assert "kind: is missing" in said
    assert "apiVersion: is missing" in said
    assert "parallelism: must be at least 1, not 0" in said
    file.write_text("kind: Deployment\nspec: {}\n")
    assert ended("config", "validate", str(file)) == 2
    assert "spec" not in capsys.readouterr().err  # another kind has other fields


def test_a_typo_in_disabled_is_a_note_as_kube_scheduler_accepts_it(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(HEAD + "profiles:\n- plugins: {multiPoint: {disabled: [{name: ImageLocalty}]}}\n")
    assert ended("config", "validate", str(file)) == 0
    said = capsys.readouterr()
    assert said.out == f"{file}: ok\n"
    assert "disabled[0]: there is no plugin 'ImageLocalty' (did you mean ImageLocality?), so this" in said.err


def test_fields_without_effect_are_noted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(HEAD + "parallelism: 8\nenableProfiling: false\nextenders: null\n")
    assert ended("config", "validate", str(file)) == 0
    said = capsys.readouterr()
    assert said.out == f"{file}: ok\n"
    assert [line.partition(": ")[2] for line in said.err.splitlines()] == [
        "note: parallelism: has no meaning here: run as many workers as the cluster needs",
        "note: enableProfiling: has no meaning here: there are no profiling endpoints",
    ]


def test_every_field_is_documented() -> None:
    assert set(EFFECTS) == {field.key for field in fields_of(KubeSchedulerConfiguration)}


def test_a_file_may_come_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a: 1\n")))
    assert ended("config", "validate", "-") == 2
    assert "standard input: kind: is missing; it must be KubeSchedulerConfiguration\n" in capsys.readouterr().err


def test_validate_takes_feature_gates_from_the_flag_or_the_variable(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(HEAD)
    assert ended("config", "validate", str(file), "--feature-gates", "KMSv1=true,Zyx=true") == 2
    assert "--feature-gates: there is no feature gate 'Zyx' in v1.36" in capsys.readouterr().err
    monkeypatch.setenv("FLOTILLA_FEATURE_GATES", "ComponentFlagz=false")
    assert ended("config", "validate", str(file)) == 0
    assert "note: ComponentFlagz has no effect" in capsys.readouterr().err
    monkeypatch.setenv("FLOTILLA_FEATURE_GATES", "ComponentFlagz")
    assert ended("config", "show") == 2
    assert "FLOTILLA_FEATURE_GATES: ComponentFlagz has no value" in capsys.readouterr().err


def test_the_defaults_are_shown_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("config", "show") == 0
    text = capsys.readouterr().out
    assert text.startswith(HEAD)
    assert read_config_text(text).written == read_config_text(HEAD).written
    assert ended("config", "show", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == read_config_text(HEAD).written


def test_show_prints_the_file_with_defaults(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(HEAD + "extenders:\n- urlPrefix: http://x\n")
    assert ended("config", "show", str(file)) == 0
    assert "extenders:\n- urlPrefix: http://x\n  httpTimeout: 5s\n" in capsys.readouterr().out


@pytest.mark.parametrize("action", ["validate", "show", "convert"])
def test_a_missing_file_is_reported(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("config", action, "/no/such") == 2
    assert capsys.readouterr() == ("", "flotilla: cannot read /no/such: No such file or directory\n")


@pytest.mark.parametrize("action", ["show", "convert"])
def test_an_invalid_file_is_named(action: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("- 1\n")
    assert ended("config", action, str(file)) == 2
    assert capsys.readouterr() == ("", f"{file}: the file must be a map, not [1]\n")


def test_a_policy_is_converted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(
        json.dumps({"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "HostName"}, {"name": "Odd"}]})
    )
    assert ended("config", "convert", str(file)) == 1
    said = capsys.readouterr()
    assert f"{file}: not carried over: predicates[1] (Odd): there is no such predicate\n" in said.err
    assert read_config_text(said.out).config.profiles[0].scheduler_name == "default-scheduler"


def test_a_conversion_that_drops_nothing_of_effect_succeeds(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["HostName", "CheckNodeDiskPressure"]
    file.write_text(
        json.dumps(
            {
                "kind": "Policy",
                "apiVersion": "v1",
                "alwaysCheckAllPredicates": True,
                "predicates": [{"name": name} for name in names],
            }
        )
    )
    assert ended("config", "convert", str(file)) == 0
    said = capsys.readouterr()
    assert "taints of nodes do its work" in said.err


def test_an_unsupported_extender_is_rejected(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(
        "kind: Policy\napiVersion: v1\nextenders:\n- {urlPrefix: a, bindVerb: b}\n- {urlPrefix: c, bindVerb: d}\n"
    )
    assert ended("config", "convert", str(file)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "only one extender can have a bindVerb" in said.err


def test_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["config"], ["config", "validate"], ["config", "show", "-o", "xml"], ["config", "check"]):
        assert ended(*arguments) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("action", [[], ["validate"], ["show"], ["convert"]])
def test_the_simulation_command_has_help(action: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("config", *action, "--help") == 0
    assert f"usage: flotilla config{''.join(f' {word}' for word in action)}" in capsys.readouterr().out
