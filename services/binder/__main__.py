"""python -m services.binder: the binder, with settings from the environment and from flags.

For benchmarks of all other services, FLOTILLA_BENCHMARK_WITHOUT_API_CALLS=1
makes a binder that binds nothing and reports that it did.
"""

import os
import sys
from functools import partial

from services.binder import service
from shared.config.sources import settings_of_process
from shared.runtime import host

WITHOUT_API_CALLS = "FLOTILLA_BENCHMARK_WITHOUT_API_CALLS"

main = partial(service.main, api_calls=os.environ.get(WITHOUT_API_CALLS) != "1")

if __name__ == "__main__":
    sys.exit(host("binder", settings_of_process("binder"), main))
