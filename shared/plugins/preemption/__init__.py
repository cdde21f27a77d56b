"""DefaultPreemption: pods of lower priority make way for one that no node has room for."""
