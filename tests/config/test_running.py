"""Property tests: which plugins run at the points, for any lists in a file."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.config.building import kube_scheduler_plugins
from shared.config.plugin_lists import DEFAULT_PLUGINS, DEFAULT_POINTS, PLACEMENT_POINTS
from shared.config.points import EVERY_PLUGIN, POINTS_IN_ORDER
from shared.config.problems import InvalidConfigFile, Stage
from shared.config.reading import ConfigFile, read_config_values

NAMES = sorted(DEFAULT_POINTS)


def of_point(point: str) -> list[str]:
    return [name for name in NAMES if point in DEFAULT_POINTS[name] | PLACEMENT_POINTS.get(name, frozenset())]


def plugins(names: list[str]) -> st.SearchStrategy[list[dict[str, Any]]]:
    plugin = st.fixed_dictionaries({"name": st.sampled_from(names)}, optional={"weight": st.integers(0, 100)})
    return st.lists(plugin, max_size=4, unique_by=lambda entry: str(entry["name"])) if names else st.just([])


def disabled(names: list[str]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(st.sampled_from([*names, EVERY_PLUGIN, "Unknown"]).map(lambda name: {"name": name}), max_size=3)


POINTS = [p for p in POINTS_IN_ORDER if p not in ("queueSort", "bind", "postBind", "permit", "placementGenerate")]
LISTS = st.fixed_dictionaries(
    {},
    optional={
        point: st.fixed_dictionaries({"enabled": plugins(of_point(point)), "disabled": disabled(of_point(point))})
        for point in POINTS
    }
    | {"multiPoint": st.fixed_dictionaries({"enabled": plugins(NAMES), "disabled": disabled(NAMES)})},
)


def read(lists: dict[str, Any]) -> ConfigFile | None:
    try:
        return read_config_values({"profiles": [{"plugins": lists}]}, kube_scheduler_plugins())
    except InvalidConfigFile as wrong:
        assert wrong.stage is Stage.BUILD
        # The lists are such that only these two can be missing.
        assert {problem.path for problem in wrong.problems} <= {
            "profiles[0].plugins.queueSort",
            "profiles[0].plugins.bind",
        }
        return None


@given(LISTS)
def test_expansion_rules(lists: dict[str, Any]) -> None:
    file = read(lists)
    if file is None:
        return
    (running,) = file.plugins.values()
    multi = lists.get("multiPoint", {})
    off = {entry["name"] for entry in multi.get("disabled", ())}
    enabled_everywhere = {entry["name"] for entry in multi.get("enabled", ())}
    if EVERY_PLUGIN not in off:
        enabled_everywhere |= {ref.name for ref in DEFAULT_PLUGINS if ref.name not in off}
    for point in POINTS_IN_ORDER:
        at_point = lists.get(point, {})
        names = [ref.name for ref in running[point]]
        specific = [entry["name"] for entry in at_point.get("enabled", ())]
        kept_out = {entry["name"] for entry in at_point.get("disabled", ())}
        expected = set(specific)
        if EVERY_PLUGIN not in kept_out:
            expected |= {name for name in enabled_everywhere if name in of_point(point)} - kept_out
        assert set(names) == expected
        assert len(names) == len(expected)
        assert set(specific) != set(names) or EVERY_PLUGIN not in kept_out or names == specific
        weighs = point in ("score", "placementScore")
        assert all(bool(ref.weight) == weighs for ref in running[point])


@given(LISTS)
def test_written_lists_run_the_same(lists: dict[str, Any]) -> None:
    file = read(lists)
    if file is not None:
        again = read_config_values(file.written, kube_scheduler_plugins())
        assert again.plugins == file.plugins
        assert again.config == file.config
