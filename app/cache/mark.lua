-- A writer is about to change what an entry was read from: drop the entry with its lease, and let nobody keep
-- another until the writer is done, or its mark is out of date. KEYS: entry, marks of writers. ARGV: token, ms.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('DEL', KEYS[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
