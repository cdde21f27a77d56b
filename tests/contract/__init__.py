"""What Flotilla relies on in an API server, tested on the simulator, or on a real server.

    FLOTILLA_TEST_KUBECONFIG=~/.kube/config make test ARGS=tests/contract

With the variable the same tests run on that server. They need a user with all rights, and only the API server: no
controllers, kubelets or nodes. Everything that they create is in a namespace of their own or, if it is cluster-scoped,
has its name as a prefix, and is deleted at the end.
"""
