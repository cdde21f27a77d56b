"""The controllers of Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs, and what removes what they own."""
