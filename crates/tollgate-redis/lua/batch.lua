--[[
  batch.lua: spends for many requests in one atomic step, one after the other, as apply.lua would.

  It knows token buckets and leaky buckets, and only spends. What it cannot decide it leaves to
  apply.lua: a key that holds something else, and a bucket that another quota wrote. README.md is
  the contract.

  Needs: integer
]]

local TTL_MARGIN_MS = 5000

local call, ceil, fmod, format = redis.call, math.ceil, math.fmod, string.format

local now, max_clock_skew = tonumber(ARGV[2]), tonumber(ARGV[3])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local quotas, arg_at = {}, 5
for number = 1, tonumber(ARGV[4]) do
  local scale = tonumber(ARGV[arg_at + 1])
  quotas[number] = {
    units_per_tick = tonumber(ARGV[arg_at]), scale = scale, scale_text = ARGV[arg_at + 1],
    tick_us = tonumber(ARGV[arg_at + 2]), level_max = tonumber(ARGV[arg_at + 3]) * scale,
  }
  arg_at = arg_at + 4
end

-- The bucket at a key brought up to now, or false if it is not one that this quota wrote.
local function read(key, quota)
  local level_max = quota.level_max
  local fields = redis.pcall('HMGET', key, 'level', 'scale', 'ts')
  if fields.err then
    return false
  elseif not (fields[1] or fields[2] or fields[3]) then
    -- A hash without any of the fields is somebody else's, not an absent bucket.
    return call('EXISTS', key) == 0 and { quota = quota, level = level_max, ts = now }
  end
  local level, ts = integer(fields[1]), integer(fields[3])
  if not level or not ts or fields[2] ~= quota.scale_text then
    return false
  elseif level >= level_max then
    return { quota = quota, level = level_max, ts = now, stored = true }
  elseif now < ts then
    local repaired = ts - now > max_clock_skew
    return {
      quota = quota, level = level, ts = repaired and now or ts, changed = repaired, stored = true,
    }
  end
  local elapsed, tick_us = now - ts, quota.tick_us
  local ticks = (elapsed - fmod(elapsed, tick_us)) / tick_us
  local gained = ticks * quota.units_per_tick
  -- A product that is rounded still compares right: what is missing is at most 2^53.
  if gained >= level_max - level then
    return { quota = quota, level = level_max, ts = now, stored = true }
  end
  return { quota = quota, level = level + gained, ts = ts + ticks * tick_us, stored = true }
end

local states, touched, reply, reply_at, key_at = {}, {}, { now }, 2, 1
local own, needs = {}, {}
local args = #ARGV
while arg_at <= args do
  local times, count = tonumber(ARGV[arg_at]), tonumber(ARGV[arg_at + 1])
  local admitted, known = times, true
  arg_at = arg_at + 2

  for i = 1, count do
    local key, quota = KEYS[key_at], quotas[tonumber(ARGV[arg_at])]
    local state = states[key]
    if state == nil then
      state = read(key, quota)
      states[key] = state
      touched[#touched + 1] = key
    end
    if not state or state.quota ~= quota then
      known = false
    else
      local need = tonumber(ARGV[arg_at + 1]) * quota.scale
      -- How often the cost fits. It is at most the burst, so nothing passes 2^53.
      local fits = (state.level - fmod(state.level, need)) / need
      if ARGV[arg_at + 2] == '1' then
        own[i] = fits < times and fits or times
      else
        own[i] = nil
        admitted = fits < admitted and fits or admitted
      end
      needs[i] = need
    end
    key_at, arg_at = key_at + 1, arg_at + 3
  end

  for i = 1, count do
    local state = states[KEYS[key_at - count + i - 1]]
    if known then
      reply[reply_at], reply[reply_at + 1] = state.level, state.ts
      -- A shadow charge spends as often as it fits, whatever the others say.
      local spent = own[i] or admitted
      if spent > 0 then
        local quota = state.quota
        -- What a tick that would fill the bucket has gathered has no place in it (G1).
        if state.ts < now and quota.level_max - state.level <= quota.units_per_tick then
          state.ts = now
        end
        state.level, state.changed = state.level - spent * needs[i], true
      end
    else
      reply[reply_at], reply[reply_at + 1] = -1, -1
    end
    reply_at = reply_at + 2
  end
end

for _, key in ipairs(touched) do
  local state = states[key]
  if state and state.changed then
    local quota, level, ts = state.quota, state.level, state.ts
    if state.stored then
      call('HSET', key, 'level', format('%.0f', level), 'ts', format('%.0f', ts))
    else
      call('HSET', key, 'level', format('%.0f', level), 'scale', quota.scale_text,
        'ts', format('%.0f', ts))
    end
    local ticks = ceil((quota.level_max - level) / quota.units_per_tick)
    local full_ms = ceil((ticks * quota.tick_us + (ts - now)) / 1000)
    call('PEXPIRE', key, format('%.0f', full_ms + TTL_MARGIN_MS))
  end
end
return reply
