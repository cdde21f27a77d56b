"""PodTopologySpread keeps the pods that a selector matches evenly spread over the domains of node labels."""
