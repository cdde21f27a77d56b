"""Queueing hints: may what has just happened make a pod schedulable that a plugin has rejected?

One module a plugin, or a few that are akin. A hint takes the pod, the object before and now, and the cluster's objects
as they are after the event; one that raises counts as yes. As many pods may be asked about as are waiting, so a hint
looks at the little that matters and keeps nothing.
"""
