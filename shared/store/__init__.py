"""The snapshot's state in Redis: one writer, fenced by its epoch; workers read their shards. docs/redis.md says how."""
