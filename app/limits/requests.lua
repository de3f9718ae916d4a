-- Takes requests out of a sliding window that never holds more than its limit. See requests.py for the proof.
-- KEYS  1 the window: a MessagePack array of expiry, count, expiry, count …, oldest first
-- ARGV  1 limit   2 wanted   3 length of the window   4 slot   5 how long what is granted may lie about
--       6 clock for tests, empty for the server's own        (times in microseconds)
-- Returns {granted, left, microseconds until some of what is used comes back}.
local limit, want = tonumber(ARGV[1]), tonumber(ARGV[2])
local window, slot, hold = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local now = tonumber(ARGV[6])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local entries = {}
local raw = redis.pcall('GET', KEYS[1])
if type(raw) == 'string' then
  local is_packed, found = pcall(cmsgpack.unpack, raw)
  if is_packed and type(found) == 'table' then
    entries = found
  end
elseif raw and raw.err then
  redis.call('DEL', KEYS[1])
end

-- What nobody of ours wrote counts for nothing: a broken window blocks nobody. So does an expiry that a clock
-- which has since been put back wrote, beyond twice the longest.
local kept, used, latest = {}, 0, now + 2 * (window + hold + slot)
for i = 1, #entries - 1, 2 do
  local expiry, count = tonumber(entries[i]), tonumber(entries[i + 1])
  if expiry and count and expiry > now and expiry <= latest and count >= 1 and count <= 1e9 then
    kept[#kept + 1] = expiry
    kept[#kept + 1] = count
    used = used + count
  end
end

local granted = math.max(0, math.min(want, limit - used))
if granted > 0 then
  local expiry = (math.floor((now + hold) / slot) + 1) * slot + window
  if kept[#kept - 1] == expiry then
    kept[#kept] = kept[#kept] + granted
  else
    kept[#kept + 1] = expiry
    kept[#kept + 1] = granted
  end
end
local lifetime = math.ceil((window + hold + 2 * slot) / 1000)
redis.call('SET', KEYS[1], cmsgpack.pack(kept), 'PX', string.format('%.0f', lifetime))
return {granted, math.max(0, limit - used - granted), kept[1] and math.ceil(kept[1] - now) or 0}
