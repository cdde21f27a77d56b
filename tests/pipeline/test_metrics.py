"""What every service counts while pods are scheduled, by the names that dashboards know."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from testing.builders import node
from tests.pipeline.corner import Corner, a_corner, unfit
from tests.pipeline.support import until, value_of
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio

PODS = 30
MAX_SERIES = 300
"""Of one service, without the buckets of histograms."""
WORKER = [
    "flotilla_worker_nodes",
    "flotilla_worker_answer_duration_seconds_count",
    "scheduler_plugin_evaluation_total",
    "scheduler_plugin_execution_duration_seconds_count",
]
COUNTED = {
    "watcher": ["flotilla_watch_events_total", "flotilla_watch_listings_total", "rest_client_requests_total"],
    "queue": [
        "scheduler_pending_pods",
        "scheduler_unschedulable_pods",
        "scheduler_queue_incoming_pods_total",
        "scheduler_schedule_attempts_total",
        "scheduler_pod_scheduling_attempts_count",
        "scheduler_pod_scheduling_sli_duration_seconds_count",
    ],
    "cycle": [
        "scheduler_scheduling_attempt_duration_seconds_count",
        "scheduler_scheduling_algorithm_duration_seconds_count",
        "scheduler_preemption_attempts_total",
        "flotilla_rounds_total",
        "flotilla_workers",
    ],
    "worker-0": WORKER,
    "worker-1": WORKER,
    "snapshot": ["scheduler_cache_size", "flotilla_commit_decisions_total"],
    "binder-0": [
        "scheduler_framework_extension_point_duration_seconds_count",
        "scheduler_plugin_execution_duration_seconds_count",
        "flotilla_bind_calls_total",
        "rest_client_request_duration_seconds_count",
    ],
}
EVERYWHERE = ["flotilla_bus_messages_total", "process_cpu_seconds_total", "process_resident_memory_bytes"]
PROFILE = {"profile": "default-scheduler"}


async def test_every_service_counts_and_no_label_grows_with_the_cluster() -> None:
    async with Pipeline.running(PipelineOptions()) as pipeline, a_corner(pipeline, "counted") as corner:
        await a_run(corner)

        async def shown() -> bool:
            counted = "scheduler_schedule_attempts_total"
            scheduled = await value(pipeline, "queue", counted, result="scheduled", **PROFILE)
            rejected = await value(pipeline, "queue", counted, result="unschedulable", **PROFILE)
            searched = await value(pipeline, "cycle", "scheduler_preemption_attempts_total")
            return scheduled == PODS and min(rejected, searched) >= 1

        # The condition of the pod is written by a binder, and may be seen before the services' next counts.
        await until(shown, "the attempts are not counted")
        assert await value(pipeline, "queue", "scheduler_pending_pods", queue="unschedulable") == 1
        assert await value(pipeline, "queue", "scheduler_unschedulable_pods", plugin="NodeResourcesFit", **PROFILE) == 1
        assert await value(pipeline, "snapshot", "flotilla_commit_decisions_total") == PODS
        assert await value(pipeline, "cycle", "flotilla_workers") == 2
        assert await value(pipeline, "cycle", "scheduler_scheduling_algorithm_duration_seconds_count") == PODS
        ran = {"plugin": "DefaultBinder", "extension_point": "Bind", "status": "Success"}
        assert await value(pipeline, "binder-0", "scheduler_plugin_execution_duration_seconds_count", **ran) == PODS
        for service, plugin, point in (
            ("queue", "SchedulingGates", "PreEnqueue"),
            ("worker-0", "NodeResourcesFit", "PreFilter"),
            ("worker-0", "NodeResourcesFit", "PreScore"),
            ("binder-0", "VolumeBinding", "Reserve"),
        ):
            timed = {"plugin": plugin, "extension_point": point, "status": "Success"}
            assert await value(pipeline, service, "scheduler_plugin_execution_duration_seconds_count", **timed) >= 1
        forbidden = {pod["metadata"]["uid"] for pod in (await corner.cluster.get("/api/v1/pods"))["items"]}
        for service, wanted in COUNTED.items():
            await counts(pipeline, service, [*wanted, *EVERYWHERE], forbidden)


async def a_run(corner: Corner) -> None:
    await corner.has_nodes(*(node(f"metered-{i}").capacity(cpu=4, memory="8Gi") for i in range(20)))
    await corner.cluster.create(*(corner.pod(f"metered-{i}").request(cpu="100m") for i in range(PODS)))
    for i in range(PODS):
        await corner.lands(f"metered-{i}")
    await corner.cluster.create(corner.pod("metered-big").request(cpu=5))
    await corner.is_unschedulable("metered-big", unfit(20, "20 Insufficient cpu"))
    corner.left = {"metered-big"}


async def value(pipeline: Pipeline, service: str, name: str, **labels: str) -> float:
    answer = await pipeline.ask(service, "/metrics")
    return 0.0 if answer is None else value_of(answer.body, name, **labels)


async def counts(pipeline: Pipeline, service: str, wanted: list[str], forbidden: set[str]) -> None:
    answer = await pipeline.ask(service, "/metrics")
    assert answer is not None
    samples = [s for family in text_string_to_metric_families(answer.body) for s in family.samples]
    assert not {*wanted} - {sample.name for sample in samples}, service
    assert len([sample for sample in samples if not sample.name.endswith("_bucket")]) < MAX_SERIES
    values = {value for sample in samples for value in sample.labels.values()}
    assert not [value for value in values if value in forbidden or "metered" in value or "counted" in value]
