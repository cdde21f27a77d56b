"""Times and sizes that several services must agree on. Those of one service stand beside the code that uses them."""

MAX_BYTES = 8 << 20
"""Of a message's body: the limit of an embedded NATS server less the headers."""
HEADER_BYTES = 1024
"""More than our headers; NATS counts them with the body."""
MAX_BODY = MAX_BYTES - HEADER_BYTES
"""Bytes of a body that can be sent."""
HALF_A_MESSAGE = MAX_BYTES // 2
"""Bytes for the part of a message that its sender counts; names and numbers around it need less than the other half."""

MAX_PLACEMENT_BYTES = 6 << 20
"""Of what one placement decides about volumes and devices: it must fit in a message with its pod, and all that is said
of the pod's class."""

MAX_GANG = 1 << 13
"""Pods decided together: one ask may have nearly all of them as given, and one commit decides them. As many evictions
may be ordered for them at once."""

BEAT_INTERVAL = 0.5
"""Seconds between two heartbeats of a worker or a binder."""

CONDITION_SECONDS = 5.0
"""Minimum seconds between two writes of a condition whose status and reason are unchanged; the latest message is
written."""

PREEMPTION_TIMEOUT = 30.0
"""Seconds for which the queue holds a preemptor back until its victims are evicted; then it retries the pod."""
