"""Replays how kube-scheduler v1.36 reads configuration files: golden cases with the text of a file as `input`.

Compares the failing stage, the configuration with defaults, validation errors by path, type and value, the plugins and
weights at each extension point, and the written file. Only kube-scheduler's own plugins exist here.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shared.config.building import kube_scheduler_plugins
from shared.config.problems import InvalidConfigFile, Stage
from shared.config.reading import defaulted_text, finish
from shared.config.struct_codec import encode
from testing.inprocess.cases import Difference

GOOD: Final = "good"

Case = Mapping[str, Any]


def is_case(case: object) -> bool:
    """Whether a case is about a file, and not about a cluster."""
    match case:
        case {"name": str(), "input": str(), "decode_error": _, "defaulted": _, "build_error": _, **others}:
            return isinstance(others.get("validation"), list) and {"plugins", "written"} <= others.keys()
    return False


def differences(case: Case) -> Iterator[Difference]:
    stage: str = GOOD
    if case["decode_error"] is not None:
        stage = Stage.DECODE
    elif case["validation"]:
        stage = Stage.VALIDATE
    elif case["build_error"] is not None:
        stage = Stage.BUILD
    errors = [{"path": e["path"], "type": e["type"], "value": e["value"]} for e in case["validation"]]
    expected = {"stage": stage, "defaulted": case["defaulted"], "validation": errors}
    expected |= {"plugins": case["plugins"], "written": case["written"]}
    got = _got(case["input"])
    for what, wanted in expected.items():
        if wanted != got[what]:
            yield Difference(case["name"], "-", what, wanted, got[what])


def _got(text: str) -> dict[str, Any]:
    got: dict[str, Any] = {"stage": GOOD, "defaulted": None, "validation": [], "plugins": None, "written": None}
    try:
        defaulted = defaulted_text(text)
        got["defaulted"] = encode(defaulted)
        file = finish(defaulted, kube_scheduler_plugins())
    except InvalidConfigFile as wrong:
        got["stage"] = wrong.stage
        if wrong.stage is Stage.VALIDATE:
            got["validation"] = [{"path": p.path, "type": p.type, "value": p.value} for p in wrong.problems]
        return got
    plugins = {
        name: {str(point): [{"name": ref.name, "weight": ref.weight} for ref in refs] for point, refs in points.items()}
        for name, points in file.plugins.items()
    }
    return got | {"plugins": plugins, "written": file.written}
