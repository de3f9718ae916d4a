-- What a reader finds under a key. KEYS: entry, marks of writers.
-- ARGV: token for a lease, its length in ms, how early to recompute (-ln of a random number).
-- Returns {'busy'} | {'lease'} | {'wait', token of the holder} | {'hit', value} | {'early', value}.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if redis.call('ZCOUNT', KEYS[2], now, '+inf') > 0 then
  return {'busy'}
end
local held = redis.call('HMGET', KEYS[1], 'value', 'expires', 'delta', 'lease', 'until')
local is_leased = held[4] and tonumber(held[5]) > now
if held[1] then
  if is_leased or now + tonumber(held[3]) * tonumber(ARGV[3]) < tonumber(held[2]) then
    return {'hit', held[1]}
  end
  redis.call('HSET', KEYS[1], 'lease', ARGV[1], 'until', now + ARGV[2])
  return {'early', held[1]}
end
if is_leased then
  return {'wait', held[4]}
end
redis.call('HSET', KEYS[1], 'lease', ARGV[1], 'until', now + ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'lease'}
