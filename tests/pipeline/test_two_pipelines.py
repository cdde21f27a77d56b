"""A second pipeline on the first one's NATS is refused, and the first one goes on."""

import pytest

from services.supervisor.options import PipelineOptions
from services.supervisor.pipeline import Pipeline
from shared.config.settings import Settings
from shared.errors import UserError
from tests.servers import nats_server


@pytest.mark.asyncio
async def test_a_second_pipeline_on_the_same_nats_is_refused_and_the_first_goes_on() -> None:
    async with nats_server() as nats:
        options = PipelineOptions(settings=Settings(), nats_url=nats.url)
        async with Pipeline.running(options) as first:
            with pytest.raises(UserError, match=r"is used by the pipeline of cluster .* set --prefix"):
                async with Pipeline.running(options):
                    raise AssertionError
            assert await first.unready() == {}
