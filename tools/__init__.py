"""What people run beside the services: the command line, the supervisor, benchmarks."""
