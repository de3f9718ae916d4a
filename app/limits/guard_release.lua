-- Frees the guards of a batch of claims, each only if it is still held by that claim.
-- KEYS  one a delivery      ARGV  one a key: "token:owner:"
-- Returns how many were freed.
local marks = redis.call('MGET', unpack(KEYS))
local own = {}
for i, held in ipairs(marks) do
  if held and string.sub(held, 1, #ARGV[i]) == ARGV[i] then
    own[#own + 1] = KEYS[i]
  end
end
return #own > 0 and redis.call('UNLINK', unpack(own)) or 0
