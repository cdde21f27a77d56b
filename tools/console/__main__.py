"""python -m tools.console: the console, with settings from the environment and from flags."""

import sys

from shared.config.sources import settings_of_process
from tools.console.serving import serve

if __name__ == "__main__":
    sys.exit(serve(settings_of_process("console")))
