"""Which processes a pipeline consists of."""

import pytest

from shared.errors import UserError
from tools.supervisor.options import SINGLE, PipelineOptions


def test_standbys_of_each_service_of_which_one_leads() -> None:
    plain, doubled = PipelineOptions().services(), PipelineOptions(standbys=True).services()
    assert {name: doubled[name] for name in doubled.keys() - plain.keys()} == {
        f"{name}-standby": name for name in SINGLE
    }
    assert plain.items() <= doubled.items()


@pytest.mark.parametrize("options", [{"workers": 0}, {"binders": 0}, {"workers": 10_000}])
def test_impossible_numbers_of_processes_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(UserError):
        PipelineOptions(**options).services()  # type: ignore[arg-type]
