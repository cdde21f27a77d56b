"""Dashboards as Grafana imports them."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tools.dashboards.model import Dashboard, Panel, Query

COLUMNS = 24
HEIGHT, SMALL = 8, 4
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
TAG = "flotilla"


def made(dashboard: Dashboard) -> str:
    """The file that Grafana imports."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in dashboard.rows:
        panels.append(_row(title, len(panels) + 1, top))
        top += 1
        for panel, at in _laid_out(row, top):
            panels.append(_panel(panel, len(panels) + 1, at))
            top = max(top, at["y"] + at["h"])
    return json.dumps(_dashboard(dashboard, panels), indent=1) + "\n"


def queries(dashboard: Dashboard) -> Iterator[tuple[str, str]]:
    """Each query with the title of its panel."""
    for _, row in dashboard.rows:
        for panel in row:
            yield from ((panel.title, query.expr) for query in panel.queries)


def file_name(dashboard: Dashboard) -> str:
    return f"flotilla-{dashboard.name}.json"


def _dashboard(dashboard: Dashboard, panels: list[dict[str, Any]]) -> dict[str, Any]:
    source = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}
    link = {"title": "Flotilla", "type": "dashboards", "tags": [TAG], "asDropdown": True, "includeVars": True}
    return {
        "uid": f"flotilla-{dashboard.name}",
        "title": dashboard.title,
        "tags": [TAG],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source]},
        "links": [link],
        "panels": panels,
    }


def _laid_out(row: Sequence[Panel], top: int) -> Iterator[tuple[Panel, dict[str, int]]]:
    left = 0
    for panel in row:
        height = SMALL if panel.single else HEIGHT
        if left + panel.width > COLUMNS:
            left, top = 0, top + height
        yield panel, {"x": left, "y": top, "w": panel.width, "h": height}
        left += panel.width


def _row(title: str, number: int, top: int) -> dict[str, Any]:
    at = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": at, "panels": []}


def _panel(panel: Panel, number: int, at: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "text" if panel.bad is None else "green", "value": None}]
    if panel.bad is not None:
        steps.append({"color": "red", "value": panel.bad})
    defaults: dict[str, Any] = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}
    if not panel.single:
        defaults |= {"custom": {"fillOpacity": 10, "showPoints": "never"}} | ({} if panel.signed else {"min": 0})
    found = {
        "id": number,
        "type": "stat" if panel.single else "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": at,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [_target(query, chr(ord("A") + i)) for i, query in enumerate(panel.queries)],
    }
    if panel.single:
        return found | {"options": {"colorMode": "value", "reduceOptions": {"calcs": ["lastNotNull"]}}}
    return found | {"options": {"tooltip": {"mode": "multi", "sort": "desc"}, "legend": {"placement": "bottom"}}}


def _target(query: Query, letter: str) -> dict[str, Any]:
    return {"refId": letter, "datasource": SOURCE, "expr": query.expr, "legendFormat": query.legend or "__auto"}
