"""Writes the dashboards: python -m tools.dashboards."""

import sys
from pathlib import Path

from tools.dashboards.grafana import file_name, made
from tools.dashboards.pages import DASHBOARDS

FOLDER = Path(__file__).resolve().parents[2] / "k8s" / "monitoring" / "dashboards"


def main() -> int:
    for dashboard in DASHBOARDS:
        (FOLDER / file_name(dashboard)).write_text(made(dashboard))
    return 0


if __name__ == "__main__":
    sys.exit(main())
