"""What Flotilla relies on in an API server: held against the simulator, or against a real one if there is one to ask.

    FLOTILLA_TEST_KUBECONFIG=~/.kube/config make test ARGS=tests/contract

With the variable set the same tests ask that server instead. They need somebody who may do everything, and nothing of
the cluster but its API server: no controllers, kubelets or nodes. All that they make is in a namespace of their own or,
where it is in none, has its name as a prefix, and is deleted in the end.
"""
