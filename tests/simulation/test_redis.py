"""The simulated Redis runs scripts as the real one does."""

from testing.simulation.redis import Redis


def run(text: str, keys: tuple[str, ...] = (), arguments: tuple[str, ...] = (), redis: Redis | None = None) -> object:
    server = redis or Redis(lambda: 0.0)
    return server.execute(("EVAL", text, len(keys), *keys, *arguments))


def test_values_come_back_as_redis_gives_them() -> None:
    assert run("return {'done', 3, 2.7, nil, 'lost'}") == [b"done", 3, 2]
    assert run("return redis.call('GET', 'nothing')") is None
    assert run("return redis.call('GET', KEYS[1]) or 'none'", ("k",)) == b"none"


def test_control_and_arithmetic() -> None:
    text = """
    local function sum(from, last)
      local total = 0
      for number = from, last, 2 do total = total + number end  -- every other
      return total
    end
    local found = sum(1, tonumber(ARGV[1]))
    if found > 24 then return {'much', found} elseif found == 9 then return 'nine' else return #ARGV[1] .. '!' end
    """
    assert run(text, (), ("5",)) == b"nine"
    assert run(text, (), ("9",)) == [b"much", 25]
    assert run(text, (), ("3",)) == b"1!"


def test_hashes() -> None:
    redis = Redis(lambda: 0.0)
    run("redis.call('HSET', KEYS[1], unpack(ARGV, 1, 4))", ("h",), ("a", "1", "b", "2"), redis)
    assert run("return redis.call('HMGET', KEYS[1], 'a', 'c')", ("h",), (), redis) == [b"1", None]
    assert run("return redis.call('HVALS', KEYS[1])", ("h",), (), redis) == [b"1", b"2"]


def test_a_roll_back_restores_earlier_data_under_a_new_run_id() -> None:
    now = 0.0
    redis = Redis(lambda: now)
    for second in range(5):
        now = float(second)
        run("redis.call('SET', KEYS[1], ARGV[1])", ("k",), (str(second),), redis)
    before = redis.execute(("INFO", "server"))
    redis.roll_back(1.5)
    assert redis.execute(("GET", "k")) == b"2"
    assert redis.execute(("INFO", "server")) != before
