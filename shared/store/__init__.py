"""The snapshot's state in Redis: one writer, fenced by its epoch; workers read their shards. See docs/redis.md."""
