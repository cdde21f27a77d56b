"""Scheduler Policy files, which kube-scheduler read until v1.22, as a profile of today."""
