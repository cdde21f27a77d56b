"""Golden cases of configuration files: stage, defaults, errors and plugins as in kube-scheduler v1.36."""

import random
from pathlib import Path
from typing import Any

import pytest

from shared.config.kubernetes_yaml import write_yaml
from shared.config.problems import InvalidConfigFile
from shared.config.reading import read_config_text
from testing.inprocess.config_cases import differences, is_case
from testing.inprocess.conformance import read_cases

FILE = Path(__file__).parents[1] / "conformance" / "data" / "config-file.jsonl.gz"
CASES = list(read_cases(FILE))
MUTATIONS = 4


def test_all_golden_cases_are_present() -> None:
    assert len(CASES) == 155
    assert all(is_case(case) for case in CASES)
    assert not is_case({"name": "a cluster", "objects": {}})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_golden_case(case: dict[str, Any]) -> None:
    assert [str(difference) for difference in differences(case)] == []


def test_differences_are_reported() -> None:
    case = CASES[0] | {"written": None, "decode_error": "some"}
    assert [difference.what for difference in differences(case)] == ["stage", "written"]


@pytest.mark.parametrize("case", [case for case in CASES if case["written"]], ids=lambda case: case["name"])
def test_written_files_run_the_same_plugins(case: dict[str, Any]) -> None:
    """Merging lists of multiPoint with the defaults again changes nothing."""
    first = read_config_text(case["input"])
    again = read_config_text(write_yaml(first.written))
    assert again.plugins == first.plugins
    assert again.config.profiles[0].plugins == first.config.profiles[0].plugins


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_damaged_files_are_refused_with_one_line_errors(case: dict[str, Any]) -> None:
    rng = random.Random(case["name"])
    for _ in range(MUTATIONS):
        text = _damaged(case["input"], rng)
        try:
            read_config_text(text)
        except InvalidConfigFile as wrong:
            assert wrong.problems
            assert all(line and "\n" not in line for line in wrong.lines())


def _damaged(text: str, rng: random.Random) -> str:
    """Remove, repeat or change some characters or lines."""
    lines = text.split("\n")
    for _ in range(rng.randint(1, 3)):
        i = rng.randrange(len(lines))
        match rng.randrange(5):
            case 0:
                lines[i] = ""
            case 1:
                lines.insert(i, lines[i])
            case 2:
                lines[i] = f"  {lines[i]}"
            case 3:
                head, colon, _ = lines[i].partition(":")
                value = rng.choice(["null", "[]", "{}", "-1", "1.5", "yes", "'*'", "[null]", "{a: [b]}", "99999999999"])
                lines[i] = f"{head}{colon} {value}"
            case _:
                at = rng.randint(0, len(lines[i]))
                lines[i] = lines[i][:at] + rng.choice("{}[]&*!|>:#-'\" \t\x00é") + lines[i][at:]
    return "\n".join(lines)
