-- Frees the guards of a batch of claims, each only if it is still held by that claim.
-- KEYS  one a delivery      ARGV  one a key: "token:owner:"
-- Returns how many were freed.
local freed = 0
for i, key in ipairs(KEYS) do
  local held = redis.pcall('GET', key)
  if type(held) == 'string' and string.sub(held, 1, #ARGV[i]) == ARGV[i] then
    freed = freed + redis.call('DEL', key)
  end
end
return freed
