"""Whether services can be made of the scheduler's configuration, before anything starts."""

from shared.config.document import read_config
from shared.config.settings import Settings
from shared.plugins.frameworks import load_frameworks


def check_config(settings: Settings) -> None:
    """UserError with all that is wrong in the file, or in what a plugin of a package makes of its part."""
    load_frameworks(read_config(settings.config))
