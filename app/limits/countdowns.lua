-- Reserves places for countdowns that are held in the memory of the workers of one queue.
-- KEYS  1 due times (sorted set: member = place, score = microseconds)
-- ARGV  1 places in all   2 prefix of new members   3 clock in microseconds for tests, empty for the server's own
--       4… microseconds until due, one a place
-- Returns 1 or 0 for each place.
local SECOND = 1000000
local LONGEST = 3600 * SECOND
local now = tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * SECOND + tonumber(time[2])
end
local function text(number)
  return string.format('%.0f', number)
end
if type(redis.pcall('ZCARD', KEYS[1])) ~= 'number' then
  redis.call('DEL', KEYS[1])
end
-- Past dues have left the workers' memory; a due beyond the longest countdown was written under a wrong clock.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. text(now + LONGEST), '+inf')
local free = tonumber(ARGV[1]) - redis.call('ZCARD', KEYS[1])
local reserved = {}
for i = 4, #ARGV do
  if free > 0 then
    local due = now + math.min(math.max(tonumber(ARGV[i]), 0), LONGEST)
    redis.call('ZADD', KEYS[1], text(due), ARGV[2] .. i)
    free = free - 1
    reserved[i - 3] = 1
  else
    reserved[i - 3] = 0
  end
end
redis.call('PEXPIRE', KEYS[1], text(LONGEST / 1000 + 60000))
return reserved
