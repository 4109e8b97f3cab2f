--[[
  token_bucket.lua: charges the token buckets of one request in one atomic step, all or none.

  KEYS[i]   the bucket of charge i, one hash each; no key twice
  ARGV[1]   operation: spend | look | refund
  ARGV[2]   now, integer microseconds since the Unix epoch, 0 .. 2^53-1; empty: redis TIME
  ARGV[3]   max_clock_skew, integer microseconds, 0 .. 2^53-1
  ARGV      then six integers for each key:
              units_per_tick  what one tick adds to the level, 1 .. 2^53
              scale           the level of one token, 1 .. 2^52
              tick_us         length of a tick: 1, 10, 100 ... 1000000
              burst           most tokens, 1 .. 2^31-1; burst * scale is at most 2^53
              cost            tokens, 0 .. burst + 1; more than the burst never fits
              shadow          1: judged and counted, never denies; else 0
  Reply     { now, then for each key: fits 0 | 1, level, ts }   integers only, after the operation;
            a full bucket has level = burst * scale and ts = now
  Errors    CORRUPT <i> type <type>    key i is not a hash
            CORRUPT <i> field <name>   key i is a hash with no such field, or none that a bucket has
            nothing was written
  Writes    only after every read and every judgement: a bucket that spent or was refunded, with a
            TTL of at least the time until it is full; a bucket that a refund fills is deleted; a
            bucket from the future beyond max_clock_skew gets ts = now. Nothing else: a denial and a
            look are free
  Stored    hash of decimal integers: level, scale, ts; tokens = level / scale at ts
  Time      redis TIME unless given; every number that decides is an integer of at most 2^53
  Version   1   (bump when KEYS, ARGV, reply or stored form change)
]]

local EXACT_MAX = 9007199254740992
local SCALE_MAX = EXACT_MAX / 2
local ARGS_BEFORE_CHARGES = 3
local ARGS_PER_CHARGE = 6

-- Beyond 2^53 ms (285,000 years) the TTL is rounded, by less than this margin takes up.
local TTL_MARGIN_MS = 5000

local ceil, find, fmod, format = math.ceil, string.find, math.fmod, string.format

-- floor(a / b). fmod is exact, and so is the division of a multiple.
local function quotient(a, b)
  return (a - fmod(a, b)) / b
end

-- The integer that a field holds, or nil. Fields of our own have digits only and stay below 2^53;
-- tonumber alone would also take "0x10", "1e3", " 7 " and "nan".
local function integer(field)
  local number = field and find(field, '^%d+$') and tonumber(field)
  if number and number < EXACT_MAX then
    return number
  end
  return nil
end

-- floor(part * scale / old_scale) for part < old_scale. Where the product would pass 2^53, it is
-- multiplied bit by bit and reduced by old_scale at each, so that nothing passes 2 * old_scale.
local function rescaled_part(part, old_scale, scale)
  local product = part * scale
  if product < EXACT_MAX then
    return quotient(product, old_scale)
  end
  local bit = 1
  while bit * 2 <= scale do
    bit = bit * 2
  end
  local whole, rest = 0, 0
  while bit >= 1 do
    whole, rest = whole * 2, rest * 2
    if rest >= old_scale then
      whole, rest = whole + 1, rest - old_scale
    end
    if scale >= bit then
      scale, rest = scale - bit, rest + part
      if rest >= old_scale then
        whole, rest = whole + 1, rest - old_scale
      end
    end
    bit = bit / 2
  end
  return whole
end

-- min(floor(level * scale / old_scale), level_max): the tokens of another quota, capped (G11).
local function carried_over(level, old_scale, charge)
  if old_scale ~= charge.scale then
    local tokens = quotient(level, old_scale)
    if tokens >= charge.burst then
      return charge.level_max
    end
    local part = rescaled_part(fmod(level, old_scale), old_scale, charge.scale)
    level = tokens * charge.scale + part
  end
  return math.min(level, charge.level_max)
end

-- Sets the charge's level and ts to what the stored state has become at `now`.
local function refill(charge, level, ts, now, max_clock_skew)
  if level >= charge.level_max then
    return
  end
  if now < ts then
    charge.level = level
    charge.repaired = ts - now > max_clock_skew
    charge.ts = charge.repaired and now or ts
    return
  end
  local ticks = quotient(now - ts, charge.tick_us)
  local gained = ticks * charge.units_per_tick
  -- A product that is rounded still compares right: what is missing is at most 2^53.
  if gained < charge.level_max - level then
    charge.level, charge.ts = level + gained, ts + ticks * charge.tick_us
  end
end

local function store(charge, now)
  redis.call('HSET', charge.key, 'level', format('%.0f', charge.level),
    'scale', format('%.0f', charge.scale), 'ts', format('%.0f', charge.ts))
  local ticks = ceil((charge.level_max - charge.level) / charge.units_per_tick)
  local full_ms = ceil((ticks * charge.tick_us + (charge.ts - now)) / 1000)
  redis.call('PEXPIRE', charge.key, format('%.0f', full_ms + TTL_MARGIN_MS))
end

local operation, now, max_clock_skew = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if #ARGV ~= ARGS_BEFORE_CHARGES + ARGS_PER_CHARGE * #KEYS then
  return redis.error_reply('ERR token_bucket.lua takes 3 arguments and 6 for each key')
end
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

local charges = {}
local admitted = true

for i, key in ipairs(KEYS) do
  local fields = redis.pcall('HMGET', key, 'level', 'scale', 'ts')
  if fields.err then
    if not find(fields.err, 'WRONGTYPE', 1, true) then
      return fields
    end
    return redis.error_reply('CORRUPT ' .. i .. ' type ' .. redis.call('TYPE', key).ok)
  end
  local at = ARGS_BEFORE_CHARGES + ARGS_PER_CHARGE * (i - 1)
  local scale, burst = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 4])
  local charge = {
    key = key,
    units_per_tick = tonumber(ARGV[at + 1]),
    scale = scale,
    tick_us = tonumber(ARGV[at + 3]),
    burst = burst,
    need = tonumber(ARGV[at + 5]) * scale,
    shadow = ARGV[at + 6] == '1',
    level_max = burst * scale,
    level = burst * scale,
    ts = now,
    repaired = false,
    stored = false,
  }
  -- A hash without any of the fields is somebody else's, not an absent bucket.
  if fields[1] or fields[2] or fields[3] or redis.call('EXISTS', key) == 1 then
    local level, old_scale, ts = integer(fields[1]), integer(fields[2]), integer(fields[3])
    local wrong = (not level and 'level')
      or ((not old_scale or old_scale < 1 or old_scale > SCALE_MAX) and 'scale')
      or (not ts and 'ts')
    if wrong then
      return redis.error_reply('CORRUPT ' .. i .. ' field ' .. wrong)
    end
    charge.stored = true
    refill(charge, carried_over(level, old_scale, charge), ts, now, max_clock_skew)
  end
  charge.fits = charge.need <= charge.level
  admitted = admitted and (charge.fits or charge.shadow)
  charges[i] = charge
end

local reply = { now }
for _, charge in ipairs(charges) do
  local fits = charge.fits
  if operation == 'refund' then
    fits = true
    -- Not `level + need >= level_max`: that sum could pass 2^53.
    if charge.need >= charge.level_max - charge.level then
      charge.level, charge.ts = charge.level_max, now
      if charge.stored then
        redis.call('DEL', charge.key)
      end
    elseif charge.need > 0 or charge.repaired then
      charge.level = charge.level + charge.need
      store(charge, now)
    end
  elseif operation == 'spend' and fits and charge.need > 0 and (admitted or charge.shadow) then
    charge.level = charge.level - charge.need
    store(charge, now)
  elseif charge.repaired then
    store(charge, now)
  end
  reply[#reply + 1] = fits and 1 or 0
  reply[#reply + 1] = charge.level
  reply[#reply + 1] = charge.ts
end
return reply
