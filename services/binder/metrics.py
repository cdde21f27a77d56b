"""The binder's metrics, under kube-scheduler's names where it has the same, and the traces of attempts."""

from dataclasses import dataclass

from services.binder.events import (
    AttemptEnded,
    Call,
    DeviceWaitEnded,
    Done,
    PermitWaitEnded,
    Refused,
    Result,
)
from services.binder.eviction_state import EvictionEnded
from services.binder.extension_points import Durations
from shared.framework.metering import PluginMeter
from shared.kube.event_writer import EventMetrics
from shared.plugins.devices.pre_bind import ClaimCreated
from shared.telemetry.counter import Sum
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import AttributeValue, Tracer

POINT_SECONDS = tuple(0.0001 * 2**i for i in range(12))
PLUGIN_SECONDS = tuple(0.00001 * 2**i for i in range(20))
"""From kube-scheduler's shortest; up to 5 s, as API calls are included."""
PERMIT_SECONDS = tuple(0.001 * 2**i for i in range(15))
DEVICE_SECONDS = tuple(0.1 * 2**i for i in range(14))
VICTIMS = tuple(float(2**i) for i in range(7))
EVICTION_SECONDS = tuple(0.01 * 2**i for i in range(20))


class BinderMetrics:
    def __init__(self, metrics: Metrics) -> None:
        points = metrics.histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency of an extension point with all its plugins, their API calls included.",
            ("extension_point", "status", "profile"),
            POINT_SECONDS,
        )
        plugins = metrics.histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Duration of a plugin, at PreBind and Bind with its API calls; at other points of a tenth of the pods.",
            ("plugin", "extension_point", "status"),
            PLUGIN_SECONDS,
        )
        waits = metrics.histogram(
            "scheduler_permit_wait_duration_seconds", "Time that pods wait for permits.", ("result",), PERMIT_SECONDS
        )
        calls = metrics.counter("flotilla_bind_calls_total", "Calls that bind, by result.", ("result",))
        self.call_seconds = metrics.histogram("flotilla_bind_call_duration_seconds", "Latency of calls that bind.")
        self.held = metrics.gauge("flotilla_binder_held", "Binding orders that are under way.")
        self.refused = metrics.counter("flotilla_binder_refused_total", "Refused orders and other problems.")
        self.events = EventMetrics(metrics)
        self.statuses_joined = metrics.counter(
            "flotilla_statuses_joined_total",
            "Conditions and nominations that were written together with a later one of the pod.",
        )
        self.victims = metrics.histogram("scheduler_preemption_victims", "Victims of a preemption.", buckets=VICTIMS)
        evictions = metrics.histogram(
            "scheduler_preemption_goroutines_duration_seconds",
            "Time to evict all victims of a pod.",
            ("result",),
            EVICTION_SECONDS,
        )
        evicted = metrics.counter(
            "scheduler_preemption_goroutines_execution_total", "Evictions of all victims of a pod.", ("result",)
        )
        self._device_waits = metrics.counter(
            "scheduler_dra_bindingconditions_allocations_total",
            "Waits for binding conditions of devices, counted for each driver of an attempt.",
            ("profile", "driver", "status"),
        )
        self._device_seconds = metrics.histogram(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Time that pods wait for binding conditions of their devices.",
            ("profile", "driver", "status"),
            DEVICE_SECONDS,
        )
        self._claims_created = metrics.counter(
            "scheduler_resourceclaim_creates_total", "Requests to create claims for extended resources.", ("status",)
        )
        self._points = points
        self._plugins = plugins
        self._waits = waits
        self._evictions = evictions
        self._evicted = evicted
        self._calls: dict[type[Result], Sum] = {kind: calls.labels(kind.__name__.lower()) for kind in (Done, Refused)}
        self._unknown = calls.labels("unknown")

    def took(self, durations: Durations) -> None:
        for histogram, seconds_of in ((self._points, durations.of_points), (self._plugins, durations.of_plugins)):
            for labels, seconds in seconds_of.items():
                histogram.labels(*labels).observe_all(seconds)
            seconds_of.clear()

    def plugins_timed(self, meter: PluginMeter) -> None:
        """At points where plugins make no calls."""
        while meter.timings:
            timing = meter.timings.popleft()
            self._plugins.labels(timing.plugin, timing.point, timing.status).observe(timing.seconds)

    def permit_wait_ended(self, ended: PermitWaitEnded) -> None:
        self._waits.labels(ended.code).observe(ended.seconds)

    def device_wait_ended(self, ended: DeviceWaitEnded) -> None:
        for driver in ended.drivers:
            self._device_waits.labels(ended.profile, driver, ended.result).inc()
            self._device_seconds.labels(ended.profile, driver, ended.result).observe(ended.seconds)

    def claim_created(self, created: ClaimCreated) -> None:
        self._claims_created.labels("success" if created.ok else "failure").inc()

    def called(self, result: Result, seconds: float) -> None:
        self._calls.get(type(result), self._unknown).inc()
        self.call_seconds.observe(seconds)

    def eviction_ended(self, ended: EvictionEnded) -> None:
        result = "error" if ended.failed else "success"
        self._evictions.labels(result).observe(ended.seconds)
        self._evicted.labels(result).inc()


@dataclass(frozen=True, slots=True)
class _CallSpan:
    name: str
    began: float
    ended: float
    failed: str


class BindSpans:
    """Records a span for each attempt in its pod's trace, with one below it for each call."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._calls: dict[tuple[str, int], list[_CallSpan]] = {}

    @property
    def enabled(self) -> bool:
        return self._tracer.enabled

    def called(self, call: Call, result: Result, began: float, ended: float) -> None:
        """The attempt must not have ended: its end is what drops the call."""
        failed = "" if isinstance(result, Done) else result.message
        self._calls.setdefault((call.uid, call.attempt), []).append(_CallSpan(call.name, began, ended, failed))

    def ended(self, end: AttemptEnded, now: float) -> None:
        order, tracer = end.order, self._tracer
        calls = self._calls.pop((order.uid, order.attempt), [])
        pod = tracer.pod(order.uid)
        if not (pod.sampled or end.reason):
            return
        context = tracer.child(pod)
        attributes: dict[str, AttributeValue] = {"pod": order.key, "node": order.node, "attempt": order.attempt}
        tracer.record("bind", context, end.began, now, parent=pod, attributes=attributes, failed=end.reason)
        for call in calls:  # all calls of a failed attempt, whether the pod is sampled or not
            inside = tracer.child(context)
            tracer.record(call.name, inside, call.began, call.ended, parent=context, failed=call.failed)
