-- Counts the starts of a batch of pieces of work.
-- KEYS  one a piece      ARGV  1 time to live in milliseconds
-- Returns the number of starts of each, this one included.
local counts = {}
for i, key in ipairs(KEYS) do
  local count = redis.pcall('INCR', key)
  if type(count) ~= 'number' or count < 1 then
    redis.call('SET', key, '1')
    count = 1
  end
  redis.call('PEXPIRE', key, ARGV[1])
  counts[i] = count
end
return counts
