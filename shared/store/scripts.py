"""Lua scripts: each is one atomic step in Redis. A script that writes first checks that it may.

An answer is a list that begins with a word: done, deposed (and the newer epoch), lost, schema (and which one), pipeline
(and the owner). Sequence numbers stay text, because they exceed what a Lua number holds exactly. Nothing is written
before the checks, and `meta` last, so that an interrupted write does not count as done.
"""

import hashlib
from dataclasses import dataclass, field

from shared.terms import MAX_AHEAD


@dataclass(frozen=True, slots=True)
class Script:
    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


_POSSIBLE = """
-- A term that is years ahead of the present leader's was never led; what names it counts as unknown.
local function is_possible(term) return (tonumber(term) or 1e99) <= tonumber(ARGV[PRESENT]) + AHEAD end
""".replace("AHEAD", str(MAX_AHEAD))

FENCE = Script(
    _POSSIBLE.replace("PRESENT", "3")
    + """
-- KEYS: meta, ledger, answer. ARGV: schema, oldest readable schema, epoch, history of the server, pipeline or ''.
-- What another history has left may miss the last that was written, so it counts as lost until FINISH. So does a ledger
-- of which something is gone.
local found = redis.call('HMGET', KEYS[1], 'schema', 'epoch', 'lost', 'history', 'pipeline', 'entries', 'watch',
  'seq', 'shard_count')
if found[1] then
  local schema = tonumber(found[1])
  if not schema or schema > tonumber(ARGV[1]) or schema < tonumber(ARGV[2]) then return {'schema', found[1]} end
end
if found[5] and ARGV[5] ~= '' and found[5] ~= ARGV[5] then return {'pipeline', found[5]} end
if found[2] and not is_possible(found[2]) then found[2] = false end
if found[2] and tonumber(found[2]) >= tonumber(ARGV[3]) then return {'deposed', found[2]} end
local emptied = found[6] and tonumber(found[6]) ~= redis.call('HLEN', KEYS[2])
local lost = (found[3] or not found[2] or found[4] ~= ARGV[4] or emptied) and 1 or 0
redis.call('HSET', KEYS[1], 'schema', ARGV[1], 'epoch', ARGV[3], 'history', ARGV[4])
if ARGV[5] ~= '' then redis.call('HSET', KEYS[1], 'pipeline', ARGV[5]) end
if lost == 1 then redis.call('HSET', KEYS[1], 'lost', '1') end
redis.call('HDEL', KEYS[1], 'seq', 'run', 'write', 'watch')
local ledger, answer = redis.call('HVALS', KEYS[2]), redis.call('GET', KEYS[3]) or ''
return {'done', found[2] or '0', ledger, answer, lost, found[7] or '', found[8] or '0', found[9] or '0'}
"""
)

_GUARD = """
local found = redis.call('HMGET', KEYS[1], 'epoch', 'run', 'write', 'shard_count', 'entries')
if not found[1] or tonumber(found[1]) < tonumber(ARGV[1]) then return {'lost'} end
if tonumber(found[1]) > tonumber(ARGV[1]) then return {'deposed', found[1]} end
"""

_GUARD_RUN = (
    _GUARD
    + """
local write = tonumber(found[3] or '-1')
if found[2] ~= ARGV[2] or write < tonumber(ARGV[3]) or write > tonumber(ARGV[4]) then return {'lost'} end
if write == tonumber(ARGV[4]) then return {'done'} end
if tonumber(found[5] or '-1') ~= redis.call('HLEN', KEYS[3]) then return {'lost'} end
"""
)

CLAIM = Script(
    _POSSIBLE.replace("PRESENT", "1")
    + """
-- What the queue has remembered: from here on no earlier queue writes it.
-- KEYS: term, pipeline. ARGV: epoch, pipeline or ''.
local whose = redis.call('GET', KEYS[2])
if whose and ARGV[2] ~= '' and whose ~= ARGV[2] then return {'pipeline', whose} end
local found = redis.call('GET', KEYS[1])
if found and is_possible(found) and tonumber(found) > tonumber(ARGV[1]) then return {'deposed', found} end
redis.call('SET', KEYS[1], ARGV[1])
if ARGV[2] ~= '' then redis.call('SET', KEYS[2], ARGV[2]) end
return {'done'}
"""
)

REMEMBER = Script("""
-- KEYS: term, records. ARGV: epoch, how many arguments set; these: field, value, ...; what is removed.
local found = redis.call('GET', KEYS[1])
if found and tonumber(found) > tonumber(ARGV[1]) then return {'deposed', found} end
local last = 2 + tonumber(ARGV[2])
if last > 2 then redis.call('HSET', KEYS[2], unpack(ARGV, 3, last)) end
if #ARGV > last then redis.call('HDEL', KEYS[2], unpack(ARGV, last + 1)) end
redis.call('SET', KEYS[1], ARGV[1])
return {'done'}
""")

BEGIN = Script(
    """
-- Empties the shards, those of the count before as well, and the other keys; until FINISH there is no state to be read.
-- KEYS: meta, ledger, others. ARGV: epoch, run, shard count, prefix.
"""
    + _GUARD
    + """
redis.call('HDEL', KEYS[1], 'seq')
for shard = 0, math.max(tonumber(found[4] or '0'), tonumber(ARGV[3])) - 1 do
  redis.call('UNLINK', ARGV[4] .. ':nodes:' .. shard, ARGV[4] .. ':pods:' .. shard)
end
for number = 3, #KEYS do redis.call('UNLINK', KEYS[number]) end
local entries = redis.call('HLEN', KEYS[2])
if found[5] and tonumber(found[5]) ~= entries then redis.call('HSET', KEYS[1], 'lost', '1') end
redis.call('HSET', KEYS[1], 'run', ARGV[2], 'write', '0', 'shard_count', ARGV[3], 'entries', entries)
return {'done'}
"""
)

CONTINUE = Script(
    """
-- As BEGIN, but the shards stay: the state of the term before is complete, and this term continues it.
-- KEYS: meta, ledger, next ledger. ARGV: epoch, run, shard count.
"""
    + _GUARD
    + """
if found[4] ~= ARGV[3] then return {'lost'} end
redis.call('HDEL', KEYS[1], 'seq')
redis.call('UNLINK', KEYS[3])
redis.call('HSET', KEYS[1], 'run', ARGV[2], 'write', '0', 'entries', redis.call('HLEN', KEYS[2]))
return {'done'}
"""
)

APPLY = Script(
    """
-- KEYS: meta, answer, ledger, hashes. ARGV: epoch, run, last write known done, number of this write, seq or '',
-- answer or '', how far the leader has read the watch; then for each hash how many arguments set and how many remove,
-- and these: field, value, ...; field, ...
"""
    + _GUARD_RUN
    + """
local function spread(command, key, from, last)
  for start = from, last, 4000 do
    redis.call(command, key, unpack(ARGV, start, math.min(start + 3999, last)))
  end
end
local at = 8
for number = 4, #KEYS do
  local sets, removes = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  spread('HSET', KEYS[number], at + 2, at + 1 + sets)
  spread('HDEL', KEYS[number], at + 2 + sets, at + 1 + sets + removes)
  at = at + 2 + sets + removes
end
if ARGV[6] ~= '' then redis.call('SET', KEYS[2], ARGV[6]) end
if ARGV[5] ~= '' then redis.call('HSET', KEYS[1], 'seq', ARGV[5]) end
redis.call('HSET', KEYS[1], 'entries', redis.call('HLEN', KEYS[3]), 'watch', ARGV[7], 'write', ARGV[4])
-- Lua keeps the arguments of many scripts, and finds each string among all that look like it: names are much alike.
if #ARGV > 1000 then collectgarbage() end
return {'done'}
"""
)

NAME = Script(
    """
-- The last step of a transaction that has filled a new key: it gets its name, or goes.
-- KEYS: meta, answer, ledger, the new key, its name. ARGV: as the first seven of APPLY.
local function refusal()
"""
    + _GUARD_RUN
    + """
end
local refused = refusal()
if refused then
  redis.call('UNLINK', KEYS[4])
  return refused
end
redis.call('RENAME', KEYS[4], KEYS[5])
redis.call('HSET', KEYS[1], 'write', ARGV[4])
return {'done'}
"""
)

FINISH = Script(
    """
-- KEYS: meta, answer, ledger, next ledger. ARGV: as the first seven of APPLY, how many entries there are.
"""
    + _GUARD_RUN
    + """
if redis.call('HLEN', KEYS[4]) ~= tonumber(ARGV[8]) then return {'lost'} end
if redis.call('EXISTS', KEYS[4]) == 1 then
  redis.call('RENAME', KEYS[4], KEYS[3])
else
  redis.call('UNLINK', KEYS[3])
end
if ARGV[6] ~= '' then redis.call('SET', KEYS[2], ARGV[6]) else redis.call('UNLINK', KEYS[2]) end
redis.call('HDEL', KEYS[1], 'lost')
redis.call('HSET', KEYS[1], 'seq', ARGV[5], 'entries', ARGV[8], 'watch', ARGV[7], 'write', ARGV[4])
return {'done'}
"""
)
