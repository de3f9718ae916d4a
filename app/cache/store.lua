-- Keep a value that was read under a lease, if the lease still stands. KEYS: entry.
-- ARGV: token, value, lifetime in ms, what the reading took in ms. Returns 1 when it was kept.
if redis.call('HGET', KEYS[1], 'lease') ~= ARGV[1] then
  return 0
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'value', ARGV[2], 'expires', now + ARGV[3], 'delta', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
