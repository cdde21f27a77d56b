"""A client of HTTP/1.1 that costs little: kept connections, deadlines, TLS, proxies. It knows nothing of Kubernetes."""
