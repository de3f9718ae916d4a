-- Takes the guards of a batch of claims, each only if it is free or held by an older claim.
-- KEYS  one a delivery
-- ARGV  1 time to live in milliseconds, then a pair for each key: lease token, holder ("token:owner:nonce")
-- Returns 1 or 0 for each key.
local granted = {}
local marks = redis.call('MGET', unpack(KEYS)) -- Of a key of another type it says that there is none.
for i, key in ipairs(KEYS) do
  local token, holder, held = tonumber(ARGV[2 * i]), ARGV[2 * i + 1], marks[i]
  local held_token = nil
  if held then
    held_token = tonumber(string.match(held, '^(%d+):.'))
  end
  -- A value that is no guard of ours says nothing, so it is written over. Our own holder comes back when
  -- the client repeats a call whose answer was lost.
  if held_token and held_token >= token and held ~= holder then
    granted[i] = 0
    if redis.call('PTTL', key) < 0 then
      redis.call('PEXPIRE', key, ARGV[1])
    end
  else
    redis.call('SET', key, holder, 'PX', ARGV[1])
    granted[i] = 1
  end
end
return granted
