--[[
  batch.lua: spends for many requests in one atomic step, one after the other, as apply.lua would.

  It knows token buckets and leaky buckets, and only spends. What it cannot decide it leaves to
  apply.lua: a key that holds something else, and a bucket that another quota wrote. README.md is
  the contract.

  Needs: integer
]]

-- In the reply: a bucket that is absent, and a step that was not decided.
local FULL, UNDECIDED = 'f', '?'
local TTL_MARGIN_MS, TTL_SLACK_MIN_MS, TTL_SLACK_MAX_MS = 5000, 10000, 86400000

local KEYS, ARGV, call, pcall = KEYS, ARGV, redis.call, redis.pcall
local ceil, fmod, format, min = math.ceil, math.fmod, string.format, math.min
local concat = table.concat

local now, max_clock_skew = tonumber(ARGV[2]), tonumber(ARGV[3])
local is_servers_time = not now
if is_servers_time then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local now_ms, now_text = (now - fmod(now, 1000)) / 1000, format(DIGITS, now)

local quotas, arg_at = {}, 5
for number = 1, tonumber(ARGV[4]) do
  local scale = tonumber(ARGV[arg_at + 1])
  quotas[number] = {
    units_per_tick = tonumber(ARGV[arg_at]), scale = scale, scale_text = ARGV[arg_at + 1],
    tick_us = tonumber(ARGV[arg_at + 2]), level_max = tonumber(ARGV[arg_at + 3]) * scale,
  }
  arg_at = arg_at + 4
end

-- The level and ts of the bucket at a key brought up to now, whether that is to be stored in any case
-- because a clock was set back, and until when it is kept; then level and ts as they are stored, or
-- FULL for an absent bucket. Or nil if this quota did not write it.
local function read(key, quota)
  local level_max = quota.level_max
  local fields = pcall('HMGET', key, 'level', 'scale', 'ts', 'expires')
  local level, ts = integer(fields[1]), integer(fields[3])
  if not level or not ts or fields[2] ~= quota.scale_text then
    -- A hash without any of the fields is somebody else's, not an absent bucket.
    if fields.err or fields[1] or fields[2] or fields[3] or call('EXISTS', key) == 1 then
      return nil
    end
    return level_max, now, false, false, FULL, FULL
  end
  local expires, level_text, ts_text = fields[4], fields[1], fields[3]
  if level >= level_max then
    return level_max, now, false, expires, level_text, ts_text
  elseif now < ts then
    local is_repaired = ts - now > max_clock_skew
    return level, is_repaired and now or ts, is_repaired, expires, level_text, ts_text
  end
  local elapsed, tick_us = now - ts, quota.tick_us
  local ticks = (elapsed - fmod(elapsed, tick_us)) / tick_us
  local gained = ticks * quota.units_per_tick
  -- A product that is rounded still compares right: what is missing is at most 2^53.
  if gained >= level_max - level then
    return level_max, now, false, expires, level_text, ts_text
  end
  return level + gained, ts + ticks * tick_us, false, expires, level_text, ts_text
end

-- Spends cost units as often as they were granted, which is at least once; returns level and ts.
local function spend(quota, level, ts, units)
  -- What a tick that would fill the bucket has gathered has no place in it (G1).
  if ts < now and quota.level_max - level <= quota.units_per_tick then
    ts = now
  end
  return level - units, ts
end

local function write(key, quota, level, ts, expires)
  local ticks = ceil((quota.level_max - level) / quota.units_per_tick)
  local full_ms = ceil((ticks * quota.tick_us + (ts - now)) / 1000)
  local ttl_ms = full_ms + TTL_MARGIN_MS
  local level_text, ts_text = format(DIGITS, level), ts == now and now_text or format(DIGITS, ts)
  if is_servers_time then
    if (expires and tonumber(expires) or 0) >= now_ms + ttl_ms then
      call('HSET', key, 'level', level_text, 'ts', ts_text)
      return
    end
    -- With some slack, so that the next writes need not see to it.
    ttl_ms = ttl_ms + TTL_SLACK_MIN_MS + min((full_ms - fmod(full_ms, 8)) / 8, TTL_SLACK_MAX_MS)
    call('HSET', key, 'level', level_text, 'scale', quota.scale_text, 'ts', ts_text,
      'expires', format('%.0f', now_ms + ttl_ms))
  else
    call('HSET', key, 'level', level_text, 'scale', quota.scale_text, 'ts', ts_text)
    if expires then
      call('HDEL', key, 'expires')
    end
  end
  call('PEXPIRE', key, format('%.0f', ttl_ms))
end

local states, touched, reply, reply_at, key_at = {}, {}, { now_text }, 2, 1
local own, needs = {}, {}
local args = #ARGV

-- One run of steps that are alike after the other.
while arg_at <= args do
  local steps, times = tonumber(ARGV[arg_at]), tonumber(ARGV[arg_at + 1])
  local count, are_alone = tonumber(ARGV[arg_at + 2]), ARGV[arg_at + 3] == '1'
  local charges_at = arg_at + 4
  arg_at = charges_at + 3 * count

  if are_alone then
    -- Each charges one bucket that nobody else charges in this call.
    local quota = quotas[tonumber(ARGV[charges_at])]
    local need = tonumber(ARGV[charges_at + 1]) * quota.scale
    for at = key_at, key_at + steps - 1 do
      local key = KEYS[at]
      local level, ts, is_changed, expires, level_text, ts_text = read(key, quota)
      if level then
        reply[reply_at], reply[reply_at + 1] = level_text, ts_text
        -- How often the cost fits. It is at most the burst, so nothing passes 2^53.
        local fits = (level - fmod(level, need)) / need
        local spent = fits < times and fits or times
        if spent > 0 then
          level, ts = spend(quota, level, ts, spent * need)
        end
        if spent > 0 or is_changed then
          write(key, quota, level, ts, expires)
        end
      else
        reply[reply_at], reply[reply_at + 1] = UNDECIDED, UNDECIDED
      end
      reply_at = reply_at + 2
    end
    key_at, steps = key_at + steps, 0
  end

  for _ = 1, steps do
    local admitted, known = times, true
    for i = 1, count do
      local key, at = KEYS[key_at + i - 1], charges_at + 3 * (i - 1)
      local quota = quotas[tonumber(ARGV[at])]
      local state = states[key]
      if state == nil then
        local level, ts, is_changed, expires, level_text, ts_text = read(key, quota)
        state = level and {
          quota = quota, level = level, ts = ts, is_changed = is_changed, expires = expires,
          level_text = level_text, ts_text = ts_text,
        }
        states[key] = state or false
        touched[#touched + 1] = key
      end
      if not state or state.quota ~= quota then
        known = false
      else
        local need = tonumber(ARGV[at + 1]) * quota.scale
        local fits = (state.level - fmod(state.level, need)) / need
        if ARGV[at + 2] == '1' then
          own[i] = fits < times and fits or times
        else
          own[i] = nil
          admitted = fits < admitted and fits or admitted
        end
        needs[i] = need
      end
    end

    for i = 1, count do
      local state = states[KEYS[key_at + i - 1]]
      if known then
        if not state.level_text then
          state.level_text, state.ts_text = format(DIGITS, state.level), format(DIGITS, state.ts)
        end
        reply[reply_at], reply[reply_at + 1] = state.level_text, state.ts_text
        -- A shadow charge spends as often as it fits, whatever the others say.
        local spent = own[i] or admitted
        if spent > 0 then
          state.level, state.ts = spend(state.quota, state.level, state.ts, spent * needs[i])
          state.is_changed, state.level_text = true, nil
        end
      else
        reply[reply_at], reply[reply_at + 1] = UNDECIDED, UNDECIDED
      end
      reply_at = reply_at + 2
    end
    key_at = key_at + count
  end
end

for _, key in ipairs(touched) do
  local state = states[key]
  if state and state.is_changed then
    write(key, state.quota, state.level, state.ts, state.expires)
  end
end
-- One text costs the server and its client less than an array of integers.
return concat(reply, ' ')
