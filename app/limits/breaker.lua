-- The circuit breaker of one provider: one script, so that every step sees and repairs the state in the same way.
-- KEYS  1 state (hash)   2 names of all providers (sorted set)
-- ARGV  1 step: permit | report | give_back | look   2 provider   3 clock in microseconds for tests, or empty
--       4 window   5 least calls   6 failure ratio   7 refused in a row   8 open   9 open at most
--       10 probes at once   11 a probe is lost after        (times in microseconds)
--       12… permit: wanted, 1 for HIGH     report: ok, failed, refused, probes     give_back: probes
-- Returns {0 closed | 1 open | 2 half-open, granted, microseconds until it is worth asking again}.
-- Fields: until (present = tripped), open_for, out (probes under way), lost_at, bad (failed probes), row (refused
-- in a row), lower (last NORMAL or LOW caller), n<slot> ("ok:failed" of a tenth of the window).

local SECOND = 1000000
local CLOSED, OPEN, HALF_OPEN = 0, 1, 2
local ASK_AGAIN = 250000
local PATIENCE = 2 * SECOND -- After this long half-open, HIGH probes even if lower traffic is there but idle.

local step, provider, now = ARGV[1], ARGV[2], tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * SECOND + tonumber(time[2])
end
local window, least, ratio = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local refused_limit, open_for_first, open_cap = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local probe_limit, probe_time = tonumber(ARGV[10]), tonumber(ARGV[11])
local slot_length = window / 10

local function text(number)
  return string.format('%.0f', number)
end

local function within(value, low, high)
  local number = tonumber(value)
  if number and number >= low and number <= high then
    return number
  end
  return nil
end

local found = redis.pcall('HGETALL', KEYS[1])
if found.err then
  redis.call('DEL', KEYS[1])
  found = {}
end
local fields, slots = {}, {}
for i = 1, #found, 2 do
  local slot = string.match(found[i], '^n(%d+)$')
  if slot then
    slots[slot] = found[i + 1]
  else
    fields[found[i]] = found[i + 1]
  end
end

-- A time beyond what we ever write comes from a stepped clock or another hand: it counts as over.
local trips_until = fields['until'] and (within(fields['until'], 0, now + open_cap) or now)
local open_for = within(fields['open_for'], 1, open_cap) or open_for_first
local out = within(fields['out'], 0, 1000) or 0
local lost_at = within(fields['lost_at'], 0, now + probe_time) or 0
local bad = within(fields['bad'], 0, 1e9) or 0
local row = within(fields['row'], 0, 1e9) or 0
local lower = within(fields['lower'], 0, now) or 0

local function trip(length)
  open_for = math.min(length, open_cap)
  trips_until = now + open_for
  out, lost_at, bad, row, lower = 0, 0, 0, 0, 0
  slots = {}
end

local function close()
  trips_until = nil
  out, lost_at, bad, row, lower = 0, 0, 0, 0, 0
  slots = {}
end

local function fail_if_probes_are_over()
  if out == 0 and bad > 0 and trips_until and now >= trips_until then
    trip(open_for * 2)
  end
end

if trips_until and out > 0 and now >= lost_at then
  out = 0 -- Their worker is gone; the answers that did come decide.
  fail_if_probes_are_over()
end

local granted, wait = 0, 0
if step == 'permit' then
  local want, is_high = tonumber(ARGV[12]), ARGV[13] == '1'
  if not trips_until then
    granted = want
  else
    if not is_high then
      lower = now
    end
    if now < trips_until then
      wait = trips_until - now
    elseif is_high and now - lower < SECOND and now - trips_until < PATIENCE then
      wait = ASK_AGAIN
    else
      granted = math.max(0, math.min(want, probe_limit - out))
      if granted > 0 then
        out = out + granted
        lost_at = now + probe_time
      else
        wait = math.min(ASK_AGAIN, math.max(lost_at - now, 1000))
      end
    end
  end
elseif step == 'report' then
  local ok, failed, refused = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
  local probes = tonumber(ARGV[15])
  if not trips_until then
    local slot = text(math.floor(now / slot_length))
    local slot_ok, slot_failed = string.match(slots[slot] or '', '^(%d+):(%d+)$')
    slot_ok = (within(slot_ok, 0, 1e9) or 0) + ok
    slot_failed = (within(slot_failed, 0, 1e9) or 0) + failed + refused
    slots[slot] = text(slot_ok) .. ':' .. text(slot_failed)
    local all, wrong = 0, 0
    local kept = {}
    for name, value in pairs(slots) do
      local age = tonumber(slot) - tonumber(name)
      local good, not_good = string.match(value, '^(%d+):(%d+)$')
      if age >= 0 and age < 10 and good then
        kept[name] = value
        all = all + tonumber(good) + tonumber(not_good)
        wrong = wrong + tonumber(not_good)
      end
    end
    slots = kept
    row = ok > 0 and 0 or row + refused
    if row >= refused_limit or (all >= least and wrong >= all * ratio) then
      trip(open_for_first)
    end
  elseif probes > 0 then
    out = math.max(0, out - probes)
    if ok > 0 then
      close()
    else
      if now >= trips_until then
        bad = bad + failed + refused
      end
      fail_if_probes_are_over()
    end
  end
elseif step == 'give_back' then
  out = math.max(0, out - tonumber(ARGV[12]))
  fail_if_probes_are_over()
end

local state = CLOSED
if trips_until then
  state = now < trips_until and OPEN or HALF_OPEN
end
if step ~= 'look' then
  redis.call('DEL', KEYS[1])
  local record = {'row', text(row)}
  if trips_until then
    record = {'until', text(trips_until), 'open_for', text(open_for), 'out', text(out), 'lost_at', text(lost_at),
      'bad', text(bad), 'row', text(row), 'lower', text(lower)}
  end
  for name, value in pairs(slots) do
    record[#record + 1] = 'n' .. name
    record[#record + 1] = value
  end
  redis.call('HSET', KEYS[1], unpack(record))
  redis.call('PEXPIRE', KEYS[1], text((window + 2 * open_cap) / 1000 + 60000))
  if type(redis.pcall('ZADD', KEYS[2], text(now), provider)) ~= 'number' then
    redis.call('DEL', KEYS[2])
    redis.call('ZADD', KEYS[2], text(now), provider)
  end
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', text(now - 86400 * SECOND))
  redis.call('PEXPIRE', KEYS[2], '86400000')
end
return {state, granted, math.ceil(wait)}
