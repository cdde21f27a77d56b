"""The dashboards."""

from tools.dashboards.model import (
    BYTES,
    COUNT,
    RATE,
    SECONDS,
    SHARE,
    Dashboard,
    Query,
    graph,
    level,
    quantile,
    rate,
    single,
)

SCHEDULED = 'sum(flotilla:attempts:rate5m{result="scheduled"})'
ACTIVE = 'sum(flotilla:pending_pods:sum{queue="active"})'
UNSCHEDULABLE = 'sum(flotilla:pending_pods:sum{queue="unschedulable"})'
P99 = "flotilla:scheduling_sli_seconds:p99_5m"
WORKERS = "max(flotilla_workers)"
DEFECTS = "sum(increase(flotilla_core_failures_total[1d]))"

OVERVIEW = Dashboard(
    "overview",
    "Flotilla: overview",
    (
        (
            "Now",
            (
                single("Scheduled", "Pods bound a second, over 5 minutes.", SCHEDULED, RATE),
                single("Active", "Pods that wait for their turn; near 0 unless many come at once.", ACTIVE),
                single("Fit nowhere", "Pods that no node admits: flotilla queue --group-by reason.", UNSCHEDULABLE),
                single("p99 until bound", "From when a pod is first active until it is bound.", P99, SECONDS, 10),
                single("Workers", "Workers that hold shards; without any, nothing is decided.", WORKERS),
                single("Defects", "Unexpected exceptions in a day: report them.", DEFECTS, COUNT, 1),
            ),
        ),
        (
            "Pods",
            (
                graph(
                    "Attempts",
                    "Attempts a second by result. Errors should be 0.",
                    Query("flotilla:attempts:rate5m", "{{result}}"),
                    unit=RATE,
                ),
                graph(
                    "Pending pods",
                    "By queue. Gated pods wait for a gate, unschedulable ones for an event.",
                    Query("flotilla:pending_pods:sum", "{{queue}}"),
                    level("flotilla_queue_pods", "place"),
                ),
                graph(
                    "Until bound",
                    "From when a pod is first active until it is seen bound.",
                    Query("flotilla:scheduling_sli_seconds:p50_5m", "p50"),
                    Query("flotilla:scheduling_sli_seconds:p99_5m", "p99"),
                    unit=SECONDS,
                ),
                graph(
                    "Rejected by plugin",
                    "Pods that each plugin rejected at their last attempt.",
                    level("scheduler_unschedulable_pods", "plugin"),
                ),
                graph(
                    "Preemption",
                    "Pods for which victims were searched, and victims, a second.",
                    rate("scheduler_preemption_attempts_total", legend="searches"),
                    rate("scheduler_preemption_victims_sum", legend="victims"),
                    unit=RATE,
                ),
                graph(
                    "In the cache",
                    "Nodes, pods and other objects that the snapshot holds.",
                    level("scheduler_cache_size", "type", how="max"),
                ),
            ),
        ),
        (
            "Processes",
            (
                graph(
                    "Leaders",
                    "1 while the service has a leader.",
                    level("leader_election_master_status", "name", how="max"),
                ),
                graph("CPU", "Cores by service.", rate("process_cpu_seconds_total", "service")),
                graph(
                    "Memory",
                    "The largest process of each service.",
                    level("process_resident_memory_bytes", "service", how="max"),
                    unit=BYTES,
                ),
            ),
        ),
    ),
)

DECISIONS = Dashboard(
    "decisions",
    "Flotilla: decisions",
    (
        (
            "Rounds",
            (
                graph(
                    "Rounds",
                    "Rounds a second, and pods that the cycle holds.",
                    rate("flotilla_rounds_total", legend="rounds"),
                    level("flotilla_cycle_pods"),
                ),
                graph(
                    "Duration of the algorithm",
                    "From a round's first ask to its commit, by the pods that got a node.",
                    quantile(0.5, "scheduler_scheduling_algorithm_duration_seconds"),
                    Query("flotilla:algorithm_seconds:p99_5m", "p99 of 5 minutes"),
                    unit=SECONDS,
                ),
                graph(
                    "Duration of attempts",
                    "From a pod's leaving the queue to its outcome.",
                    quantile(0.99, "scheduler_scheduling_attempt_duration_seconds", "result"),
                    unit=SECONDS,
                ),
                graph(
                    "Conflicts",
                    "The share of decisions that were refused, as the state had changed; a few per cent at most.",
                    Query("flotilla:commit_conflicts:ratio5m", "conflicts"),
                    unit=SHARE,
                ),
                graph(
                    "Victims",
                    "The time until all victims of a pod were told to go.",
                    quantile(0.99, "scheduler_preemption_goroutines_duration_seconds", "result"),
                    unit=SECONDS,
                ),
                graph(
                    "Faults of workers",
                    "Answers that were wrong when they were given; always 0.",
                    rate("flotilla_worker_faults_total", "worker", "reason"),
                ),
            ),
        ),
        (
            "Workers",
            (
                graph(
                    "Answers",
                    "From an ask's arrival to the answer. The slowest worker sets the pace.",
                    quantile(0.99, "flotilla_worker_answer_duration_seconds", "instance"),
                    unit=SECONDS,
                ),
                graph(
                    "Plugins",
                    "One run for all changed nodes of a worker, of plugins that judge many at once.",
                    quantile(
                        0.99,
                        "scheduler_plugin_execution_duration_seconds",
                        "plugin",
                        "extension_point",
                        only='{extension_point=~"Filter|Score"}',
                    ),
                    unit=SECONDS,
                ),
                graph(
                    "Evaluations",
                    "Classes of pods judged a second, by extension point, summed over plugins and workers.",
                    rate("scheduler_plugin_evaluation_total", "extension_point"),
                    unit=RATE,
                ),
                graph("Nodes", "Nodes of each worker's shards.", level("flotilla_worker_nodes", "instance")),
                graph(
                    "Reloads",
                    "Shards loaded whole; some after each change of workers.",
                    rate("flotilla_worker_reloads_total", "instance"),
                ),
            ),
        ),
        (
            "Queue",
            (
                graph(
                    "Incoming pods",
                    "Pods added to a queue a second, by event.",
                    rate("scheduler_queue_incoming_pods_total", "queue", "event"),
                    unit=RATE,
                ),
                graph(
                    "Hints",
                    "Queueing hints a second, by plugin and answer.",
                    rate("scheduler_queueing_hint_execution_duration_seconds_count", "plugin", "hint"),
                    unit=RATE,
                ),
                graph(
                    "Events",
                    "The time that handling an event takes.",
                    quantile(0.99, "scheduler_event_handling_duration_seconds"),
                    unit=SECONDS,
                ),
            ),
        ),
    ),
)

BINDING = Dashboard(
    "binding",
    "Flotilla: binding",
    (
        (
            "Bindings",
            (
                graph(
                    "Bind calls",
                    "A second, by result.",
                    rate("flotilla_bind_calls_total", "result"),
                    unit=RATE,
                ),
                graph(
                    "Duration of bind calls",
                    "The API server's time for one binding.",
                    quantile(0.5, "flotilla_bind_call_duration_seconds"),
                    Query("flotilla:bind_call_seconds:p99_5m", "p99 of 5 minutes"),
                    unit=SECONDS,
                ),
                graph(
                    "Orders",
                    "Under way at binders, and waiting for one; those that wait should be 0.",
                    level("flotilla_binder_held"),
                    level("flotilla_orders_waiting", how="max"),
                ),
                graph(
                    "Extension points",
                    "All plugins of a point, their API calls included.",
                    quantile(0.99, "scheduler_framework_extension_point_duration_seconds", "extension_point"),
                    unit=SECONDS,
                ),
                graph(
                    "Permits",
                    "How long pods wait for permits, by how that ended.",
                    quantile(0.99, "scheduler_permit_wait_duration_seconds", "result"),
                    unit=SECONDS,
                ),
                graph(
                    "Devices",
                    "How long pods wait for binding conditions of their devices.",
                    quantile(0.99, "scheduler_dra_bindingconditions_wait_duration_seconds", "driver", "status"),
                    unit=SECONDS,
                ),
            ),
        ),
        (
            "API server",
            (
                graph(
                    "Calls",
                    "A second, by method and status.",
                    rate("rest_client_requests_total", "method", "code"),
                    unit=RATE,
                ),
                graph(
                    "Duration of calls",
                    "By verb, retries included.",
                    quantile(0.99, "rest_client_request_duration_seconds", "verb"),
                    unit=SECONDS,
                ),
                graph(
                    "Events",
                    "Waiting, and dropped or failed a second. Events yield to bindings.",
                    level("flotilla_events_waiting"),
                    rate("flotilla_events_dropped_total", "reason"),
                    rate("flotilla_events_failed_total", legend="failed"),
                ),
            ),
        ),
    ),
)

MESSAGES = Dashboard(
    "messages",
    "Flotilla: messages and watches",
    (
        (
            "Watches",
            (
                graph(
                    "Objects",
                    "Received from the API server a second, by kind.",
                    rate("flotilla_watch_events_total", "kind"),
                    unit=RATE,
                ),
                graph(
                    "Lag",
                    "From reading an event to publishing it.",
                    quantile(0.99, "flotilla_watch_lag_seconds"),
                    unit=SECONDS,
                ),
                graph(
                    "Trouble",
                    "A second: failed lists and watches, unreadable objects, time in which nothing was read.",
                    rate("flotilla_watch_troubles_total", "kind"),
                    rate("flotilla_watch_unreadable_total", legend="unreadable"),
                    rate("flotilla_watch_held_up_seconds_total", legend="held up"),
                ),
            ),
        ),
        (
            "Messages",
            (
                graph(
                    "Messages",
                    "Sent a second, by subject.",
                    rate("flotilla_bus_messages_total", "subject", only='{direction="out"}'),
                    unit=RATE,
                ),
                graph(
                    "Bytes",
                    "Sent a second, by subject.",
                    rate("flotilla_bus_bytes_total", "subject", only='{direction="out"}'),
                    unit="Bps",
                ),
                graph(
                    "Requests",
                    "From a request to its answer; a Take waits for pods.",
                    quantile(0.99, "flotilla_bus_request_duration_seconds", "subject"),
                    unit=SECONDS,
                ),
                graph(
                    "Lost",
                    "Not sent, or dropped as too many waited; always 0.",
                    rate("flotilla_bus_dropped_total", "subject", legend="not sent: {{subject}}"),
                    rate("flotilla_bus_overflown_total", "subject", legend="dropped: {{subject}}"),
                ),
                graph(
                    "Unanswered",
                    "Requests without an answer; some at every start.",
                    rate("flotilla_bus_unanswered_total", "subject", "reason"),
                ),
                graph(
                    "Connections",
                    "Lost connections to NATS a second, and refused messages.",
                    rate("flotilla_bus_connection_losses_total", legend="lost connections"),
                    rate("flotilla_bus_refused_total", "reason"),
                    rate("flotilla_bus_forbidden_total", "subject", legend="forbidden: {{subject}}"),
                ),
            ),
        ),
        (
            "State",
            (
                graph(
                    "Clocks",
                    "How far the API server's clock is ahead of each process's; beyond 2.5 s it is wrong.",
                    level("flotilla_api_clock_offset_seconds", "instance", how="max"),
                    unit=SECONDS,
                    signed=True,
                ),
                graph(
                    "Closed nodes",
                    "Nodes that get no further pods; always 0.",
                    level("flotilla_closed_nodes", how="max"),
                ),
                graph(
                    "Retry history",
                    "Failed writes to Redis, and records dropped, a second.",
                    rate("flotilla_queue_memory_failures_total", legend="failed"),
                    rate("flotilla_queue_memory_dropped_total", legend="dropped"),
                ),
            ),
        ),
    ),
)

DASHBOARDS = (OVERVIEW, DECISIONS, BINDING, MESSAGES)
