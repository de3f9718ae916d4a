-- Grants provider calls: a token bucket under an exact window of the last second. See rate.py for the proof.
-- KEYS  1 state of the bucket (hash)   2 grants of the last second (list of "expiry:count", oldest first)
-- ARGV  1 limit a second   2 tokens wanted   3 percent of the bucket kept from this priority   4 1 for HIGH, else 0
--       5 tokens that make it worth asking again   6 clock in microseconds for tests, empty for the server's own
-- Returns {granted, microseconds until it is worth asking again}.

local SECOND = 1000000
local QUANTUM = 4000 -- Expiries are rounded up to this, so the list holds at most 251 entries whatever the limit.
local LONGEST_PAUSE = 3600 * SECOND
local GRACE = 50000 -- How long a HIGH caller that was told to come back may be late and still come first.
local KEPT_MILLISECONDS = 60000

local limit, want = tonumber(ARGV[1]), tonumber(ARGV[2])
local reserve, is_high, enough = tonumber(ARGV[3]), ARGV[4] == '1', tonumber(ARGV[5])
local now = tonumber(ARGV[6])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * SECOND + tonumber(time[2])
end

local capacity = math.floor((2 + limit / 10) * SECOND) -- Millionths of a token.
local rate = limit * 98 / 100 -- Tokens a second, which is millionths of a token a microsecond.
local kept = math.floor(capacity * reserve / 100)
local headroom = math.floor(limit * 5 / 100 * reserve / 100)

local function text(number)
  return string.format('%.0f', number) -- Lua's own tostring drops digits after the fourteenth.
end

local function within(value, low, high)
  local number = tonumber(value)
  if number and number >= low and number <= high then
    return number
  end
  return nil
end

local function expiry_after(instant)
  return (math.floor((instant + SECOND) / QUANTUM) + 1) * QUANTUM
end

local function parse(entry)
  local expiry, count = string.match(entry, '^(%d+):(%d+)$')
  expiry = within(expiry, 0, now + 2 * SECOND)
  count = within(count, 1, 1e9)
  return expiry, count
end

local level, at, used, paused, urgent = capacity, now, 0, 0, 0
local is_broken = false

local state = redis.pcall('HMGET', KEYS[1], 'level', 'at', 'used', 'paused', 'urgent')
if state.err then
  is_broken = true
elseif state[2] then
  at = within(state[2], 0, now + SECOND)
  level = within(state[1], -capacity * 1000, 1e15)
  used = within(state[3], 0, 1e12)
  paused = within(state[4], 0, now + LONGEST_PAUSE) or 0
  urgent = within(state[5], 0, now + 2 * SECOND) or 0
  is_broken = not (at and level and used)
end

-- What left the window, oldest first.
local is_readable = true
while not is_broken and is_readable do
  local entries = redis.pcall('LRANGE', KEYS[2], 0, 31)
  if entries.err or (#entries > 0 and not state[2]) then
    is_broken = true -- A key of another type, or grants without a state.
    break
  end
  local gone = 0
  for _, entry in ipairs(entries) do
    local expiry, count = parse(entry)
    is_readable = expiry and count
    if not is_readable or expiry > now then
      break
    end
    gone = gone + 1
    used = used - count
  end
  if gone > 0 then
    redis.call('LTRIM', KEYS[2], gone, -1)
  end
  if is_readable and gone == #entries then
    used = 0 -- A sum that does not agree with an empty window would block for ever.
  end
  if gone < 32 then
    break
  end
end

if is_broken then
  -- Nobody can tell what was granted, so count it as the whole limit, right now: one second later all is well.
  redis.call('DEL', KEYS[1], KEYS[2])
  redis.call('RPUSH', KEYS[2], text(expiry_after(now)) .. ':' .. text(limit))
  level, at, used, paused, urgent = 0, now, limit, paused or 0, 0
elseif not is_readable or used < 0 then
  -- Another hand wrote into the window: keep what can be read, and count it anew.
  local entries = redis.call('LRANGE', KEYS[2], 0, -1)
  redis.call('DEL', KEYS[2])
  used = 0
  for _, entry in ipairs(entries) do
    local expiry, count = parse(entry)
    if expiry and count and expiry > now then
      redis.call('RPUSH', KEYS[2], entry)
      used = used + count
    end
  end
end

now = math.max(now, at) -- A clock that stepped back a little stands still instead.
local since = math.min(math.max(at, paused), now) -- Nothing flows in during a pause.
level = math.max(0, math.min(capacity, math.floor(level + (now - since) * rate)))

local granted, wait = 0, 0
if paused > now then
  level = 0
  wait = paused - now
elseif urgent > now and not is_high then
  wait = urgent - now
else
  local free = limit - headroom - used
  granted = math.max(0, math.min(want, free, math.floor((level - kept) / SECOND)))
  if granted > 0 then
    level = level - granted * SECOND
    used = used + granted
    local expiry = expiry_after(now)
    local last = redis.call('LINDEX', KEYS[2], -1)
    local last_expiry, last_count
    if last then
      last_expiry, last_count = parse(last)
    end
    if last_expiry == expiry and last_count then
      redis.call('LSET', KEYS[2], -1, text(expiry) .. ':' .. text(last_count + granted))
    else
      redis.call('RPUSH', KEYS[2], text(expiry) .. ':' .. text(granted))
    end
  end
  if granted < want then
    local next_count = math.min(want - granted, enough)
    wait = math.max(0, math.ceil((kept + next_count * SECOND - level) / rate))
    local missing = next_count - (limit - headroom - used)
    if missing > 0 then
      for _, entry in ipairs(redis.call('LRANGE', KEYS[2], 0, 63)) do
        local expiry, count = parse(entry)
        if expiry and count then
          wait = math.max(wait, expiry - now)
          missing = missing - count
        end
        if missing <= 0 then
          break
        end
      end
    end
  end
  if is_high then
    urgent = granted < want and now + math.min(wait, SECOND) + GRACE or 0
  end
end

redis.call('HSET', KEYS[1], 'level', text(level), 'at', text(now), 'used', text(used),
  'paused', text(paused), 'urgent', text(urgent))
redis.call('PEXPIRE', KEYS[1], text(KEPT_MILLISECONDS + math.max(0, paused - now) / 1000))
redis.call('PEXPIRE', KEYS[2], text(KEPT_MILLISECONDS))
return {granted, math.ceil(wait)}
