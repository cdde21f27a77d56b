"""Which devices a pod's claims get on a node, as kube-scheduler v1.36 decides it; pure functions and small classes.

- `offers`: devices of slices, prepared for comparisons; `pools`: the pools that a node can use.
- `state`: devices and capacity in use, changed one allocation at a time; `footprint`: whether a decision still fits.
- `requests`, `constraints`, `capacity`, `selectors`: what a claim asks for, and whether a device is right for it.
- `search`: the search for devices on one node; `results`: allocations as they are written, and their score.
- `allocator`: all of the cluster's devices, and searches that equal nodes and claims share.
- `extended`: extended resources backed by a class; `pod_claims`: the checks of DynamicResources around the search.
"""
