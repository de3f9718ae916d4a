-- Stops all grants of one provider and channel for a while; a longer pause that already runs stays.
-- KEYS  1 state of the bucket (hash)
-- ARGV  1 microseconds   2 clock in microseconds for tests, empty for the server's own
local SECOND = 1000000
local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * SECOND + tonumber(time[2])
end
local state = redis.pcall('HMGET', KEYS[1], 'at', 'paused', 'used')
if state.err then
  redis.call('DEL', KEYS[1])
  state = {false, false, false}
end
local ends = now + tonumber(ARGV[1])
local earlier = tonumber(state[2])
if earlier and earlier > ends and earlier <= now + 3600 * SECOND then
  ends = earlier
end
-- The bucket starts empty afterwards: a provider that throttled us must not be met by a burst.
redis.call('HSET', KEYS[1], 'level', '0', 'paused', string.format('%.0f', ends),
  'at', state[1] or string.format('%.0f', now), 'used', state[3] or '0')
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', 60000 + (ends - now) / 1000))
return 1
