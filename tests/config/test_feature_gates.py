"""Feature gates: names and defaults of v1.36, and what may be set."""

from pathlib import Path

import pytest

from shared.config.feature_gates import (
    DEFAULT_GATES,
    DEPENDENCIES,
    KNOWN,
    Feature,
    FeatureGates,
    InvalidFeatureGates,
    Stage,
)
from shared.config.problems import InvalidConfigFile
from shared.config.reading import read_config_values
from shared.config.sources import InvalidSettings, settings_from

EXPECTED_NODE = "NominatedNodeNameForExpectation=false"
OFF = FeatureGates((("NominatedNodeNameForExpectation", False),))


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidFeatureGates) as wrong:
        FeatureGates.parse(text)
    return wrong.value.problems


def test_every_gate_has_one_stage_and_only_alpha_is_never_on_by_default() -> None:
    assert len(KNOWN) == 239
    assert {"CustomCPUCFSQuotaPeriod", "RuntimeClassInImageCriApi"} <= KNOWN.keys()  # not as the constants in Go
    assert not [name for name, gate in KNOWN.items() if gate.stage is Stage.ALPHA and gate.default]
    assert not [name for name, gate in KNOWN.items() if gate.stage is Stage.GA and not gate.default]
    assert {name for dependency in DEPENDENCIES for name in dependency} <= KNOWN.keys()


def test_without_any_each_gate_has_its_default() -> None:
    for gates in (DEFAULT_GATES, FeatureGates.parse(""), FeatureGates.parse(" , ")):
        assert [gates.enabled(feature) for feature in Feature] == [KNOWN[feature].default for feature in Feature]
        assert (str(gates), gates.effect(), gates.notes()) == ("", "defaults", [])


@pytest.mark.parametrize("value", ["0", "f", "F", "false", "False", "FALSE"])
def test_a_gate_is_turned_off(value: str) -> None:
    gates = FeatureGates.parse(f" NominatedNodeNameForExpectation = {value} ,")
    assert not gates.enabled(Feature.EXPECTED_NODE)
    assert str(gates) == gates.effect() == EXPECTED_NODE
    assert gates.notes() == []


@pytest.mark.parametrize("value", ["1", "t", "T", "true", "True", "TRUE"])
def test_the_last_value_of_a_gate_counts(value: str) -> None:
    gates = FeatureGates.parse(f"{EXPECTED_NODE},NominatedNodeNameForExpectation={value}")
    assert gates.enabled(Feature.EXPECTED_NODE)


def test_gates_with_the_same_effect_are_told_to_be_so() -> None:
    one = FeatureGates.parse("NominatedNodeNameForExpectation=true,OpportunisticBatching=false")
    assert one.effect() == DEFAULT_GATES.effect()
    assert OFF.effect() == EXPECTED_NODE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A", "A has no value: gates are set like A=true,B=false"),
        ("DynamicResourceAllocation=false", "DynamicResourceAllocation cannot be changed: v1.36 locks it on"),
        ("DynamicResourceAllocation=on", "DynamicResourceAllocation takes true or false, not 'on'"),
        ("DynamicResourcesAllocation=true", "there is no feature gate 'DynamicResourcesAllocation' in v1.36 (did you"),
        ("Zyx=true", "there is no feature gate 'Zyx' in v1.36"),
        ("SchedulerQueueingHints=false", "SchedulerQueueingHints cannot be changed: v1.36 locks it on"),
        ("GitRepoVolumeDriver=true", "GitRepoVolumeDriver cannot be changed: v1.36 locks it off"),
        ("SchedulerAsyncPreemption=false", "SchedulerAsyncPreemption cannot be turned off in Flotilla: victims are"),
        ("GangScheduling=true", "GangScheduling is on, but needs GenericWorkload, which is off"),
        ("DRAListTypeAttributes=true", "DRAListTypeAttributes cannot be turned on in Flotilla: Flotilla does not have"),
        ("GracefulNodeShutdown=false", "GracefulNodeShutdownBasedOnPodPriority is on, but needs GracefulNodeShutdown"),
    ],
)
def test_what_cannot_be_set_is_refused(text: str, expected: str) -> None:
    assert problems(text)[0].startswith(expected)


def test_everything_that_is_wrong_is_said() -> None:
    assert len(problems("A,Zyx=true,SidecarContainers=false")) == 3


def test_a_locked_gate_may_be_set_to_its_default() -> None:
    assert FeatureGates.parse("SidecarContainers=true").notes() == [
        "SidecarContainers is GA: it will be removed in a future release of Kubernetes",
        "SidecarContainers has no effect: it does not concern scheduling, or not as Flotilla does it",
    ]


def test_gates_of_other_components_have_a_note_and_no_effect() -> None:
    gates = FeatureGates.parse("KMSv1=true,ClearingNominatedNodeNameAfterBinding=false")
    assert [note.split(":")[0] for note in gates.notes()] == [
        "ClearingNominatedNodeNameAfterBinding has no effect",
        "KMSv1 is deprecated",
        "KMSv1 has no effect",
    ]


def test_the_gates_that_kube_scheduler_needs_for_gangs_are_accepted() -> None:
    names = ("GangScheduling", "GenericWorkload", "TopologyAwareWorkloadScheduling", "WorkloadAwarePreemption")
    said = FeatureGates.parse(",".join(f"{name}=true" for name in names)).notes()
    assert [note.split(":")[0] for note in said] == [f"{name} has no effect" for name in names]
    assert said[0].endswith("gangs are scheduled whenever the API server has pod groups")


def test_all_gates_of_a_stage_are_set_except_those_set_by_name() -> None:
    """Some gates of each stage are refused, so their names come with it."""
    refused = [problem.split()[0] for problem in problems("AllAlpha=true")]
    assert "DRAListTypeAttributes" in refused
    assert not {name for name in refused if KNOWN[name].stage is not Stage.ALPHA}
    spared = ",".join(f"{name}=false" for name in refused)
    dependent = ",".join(f"{name}=false" for name in ("WorkloadWithJob", "DRAResourcePoolStatus"))
    assert FeatureGates.parse(f"AllAlpha=true,{spared},{dependent}").enabled(Feature.EXPECTED_NODE)
    one_off = f"AllBeta=true,{EXPECTED_NODE},CoordinatedLeaderElection=false,DRADeviceTaintRules=false"
    assert not FeatureGates.parse(one_off).enabled(Feature.EXPECTED_NODE)


def test_gates_come_from_the_environment_the_flag_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"feature_gates: {EXPECTED_NODE}\n")
    assert settings_from({"FLOTILLA_FEATURE_GATES": EXPECTED_NODE}).feature_gates == OFF
    assert settings_from({}, {"feature_gates": EXPECTED_NODE}).feature_gates == OFF
    assert settings_from({}, {"settings": str(file)}).feature_gates == OFF
    with pytest.raises(InvalidSettings) as wrong:
        settings_from({"FLOTILLA_FEATURE_GATES": "Zyx=true,A"})
    assert wrong.value.lines() == [
        "FLOTILLA_FEATURE_GATES: A has no value: gates are set like A=true,B=false",
        "FLOTILLA_FEATURE_GATES: there is no feature gate 'Zyx' in v1.36",
    ]


def shape_of(gates: str, args: dict[str, object]) -> list[dict[str, int]] | None:
    """What VolumeBinding scores by, as `flotilla config show` prints it."""
    values = {"profiles": [{"pluginConfig": [{"name": "VolumeBinding", "args": args}]}]}
    written = read_config_values(values, None, FeatureGates.parse(gates)).written
    (found,) = (each["args"] for each in written["profiles"][0]["pluginConfig"] if each["name"] == "VolumeBinding")
    shape: list[dict[str, int]] | None = found.get("shape")
    return shape


SCORING = "StorageCapacityScoring=true"
POINTS: list[dict[str, int]] = [{"utilization": 0, "score": 3}, {"utilization": 80, "score": 9}]


def test_volume_binding_has_a_shape_only_with_its_gate() -> None:
    default = [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
    assert shape_of(SCORING, {}) == shape_of(SCORING, {"shape": []}) == default
    assert shape_of(SCORING, {"shape": POINTS}) == POINTS
    assert shape_of("", {}) is None


@pytest.mark.parametrize(
    ("gates", "shape", "path"),
    [
        ("", POINTS, "shape"),
        (SCORING, POINTS[::-1], "shape[1].utilization"),
        (SCORING, [{"score": 11}], "shape[0].score"),
    ],
)
def test_a_wrong_shape_is_refused(gates: str, shape: object, path: str) -> None:
    with pytest.raises(InvalidConfigFile) as wrong:
        shape_of(gates, {"shape": shape})
    assert [each.path for each in wrong.value.problems] == [f"profiles[0].pluginConfig[0].args.{path}"]
