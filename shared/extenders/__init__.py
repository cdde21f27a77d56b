"""Scheduler extenders: webhooks that filter, score, preempt and bind, as kube-scheduler v1.36 asks them."""
