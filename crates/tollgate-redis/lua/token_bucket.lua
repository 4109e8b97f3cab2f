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

-- The integer that a field holds, or nil. Fields of our own have digits only and stay below 2^53;
-- tonumber alone would also take "0x10", "1e3", " 7 " and "nan".
local function integer(field)
  local number = field and find(field, '^%d+$') and tonumber(field)
  if number and number < EXACT_MAX then
    return number
  end
  return nil
end

-- floor(level * scale / old_scale), or the level of a full bucket if that is less: the tokens of
-- another quota stay (G11). Whole tokens and the part of a token are carried over apart.
local function carried_over(level, old_scale, scale, burst)
  local part = fmod(level, old_scale)
  local tokens = (level - part) / old_scale
  if tokens >= burst then
    return burst * scale
  end
  local product = part * scale
  if product < EXACT_MAX then
    return tokens * scale + (product - fmod(product, old_scale)) / old_scale
  end
  -- The product is not exact. It is made bit by bit, from the highest bit of scale, and divided at
  -- each, so that nothing passes 2 * old_scale.
  local bit = 1
  while bit * 2 <= scale do
    bit = bit * 2
  end
  local bits, whole, rest = scale, 0, 0
  while bit >= 1 do
    whole, rest = whole * 2, rest * 2
    if rest >= old_scale then
      whole, rest = whole + 1, rest - old_scale
    end
    if bits >= bit then
      bits, rest = bits - bit, rest + part
      if rest >= old_scale then
        whole, rest = whole + 1, rest - old_scale
      end
    end
    bit = bit / 2
  end
  return tokens * scale + whole
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
  local at = ARGS_BEFORE_CHARGES + ARGS_PER_CHARGE * (i - 1)
  local units_per_tick, scale = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local tick_us, burst = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local need, shadow = tonumber(ARGV[at + 5]) * scale, ARGV[at + 6] == '1'
  local level_max = burst * scale
  local level, ts, stored, repaired = level_max, now, false, false

  local fields = redis.pcall('HMGET', key, 'level', 'scale', 'ts')
  if fields.err then
    if not find(fields.err, 'WRONGTYPE', 1, true) then
      return fields
    end
    return redis.error_reply('CORRUPT ' .. i .. ' type ' .. redis.call('TYPE', key).ok)
  end
  -- A hash without any of the fields is somebody else's, not an absent bucket.
  if fields[1] or fields[2] or fields[3] or redis.call('EXISTS', key) == 1 then
    local old_level, old_scale, old_ts = integer(fields[1]), integer(fields[2]), integer(fields[3])
    local wrong = (not old_level and 'level')
      or ((not old_scale or old_scale < 1 or old_scale > SCALE_MAX) and 'scale')
      or (not old_ts and 'ts')
    if wrong then
      return redis.error_reply('CORRUPT ' .. i .. ' field ' .. wrong)
    end
    stored = true
    if old_scale ~= scale then
      old_level = carried_over(old_level, old_scale, scale, burst)
    end
    if old_level < level_max then
      if now < old_ts then
        repaired = old_ts - now > max_clock_skew
        level, ts = old_level, repaired and now or old_ts
      else
        local elapsed = now - old_ts
        local ticks = (elapsed - fmod(elapsed, tick_us)) / tick_us
        local gained = ticks * units_per_tick
        -- A product that is rounded still compares right: what is missing is at most 2^53.
        if gained < level_max - old_level then
          level, ts = old_level + gained, old_ts + ticks * tick_us
        end
      end
    end
  end

  local fits = need <= level
  admitted = admitted and (fits or shadow)
  charges[i] = {
    units_per_tick = units_per_tick, scale = scale, tick_us = tick_us, level_max = level_max,
    need = need, fits = fits, shadow = shadow,
    level = level, ts = ts, stored = stored, repaired = repaired,
  }
end

local reply = { now }
for i, key in ipairs(KEYS) do
  local charge = charges[i]
  local level, ts, need, fits = charge.level, charge.ts, charge.need, charge.fits
  local writes = charge.repaired
  if operation == 'refund' then
    fits = true
    -- Not `level + need >= level_max`: that sum could pass 2^53.
    if need >= charge.level_max - level then
      level, ts, writes = charge.level_max, now, false
      if charge.stored then
        redis.call('DEL', key)
      end
    elseif need > 0 then
      level, writes = level + need, true
    end
  elseif operation == 'spend' and fits and need > 0 and (admitted or charge.shadow) then
    -- What a tick that would fill the bucket has gathered has no place in it (G1).
    if ts < now and charge.level_max - level <= charge.units_per_tick then
      ts = now
    end
    level, writes = level - need, true
  end
  if writes then
    redis.call('HSET', key, 'level', format('%.0f', level),
      'scale', format('%.0f', charge.scale), 'ts', format('%.0f', ts))
    local ticks = ceil((charge.level_max - level) / charge.units_per_tick)
    local full_ms = ceil((ticks * charge.tick_us + (ts - now)) / 1000)
    redis.call('PEXPIRE', key, format('%.0f', full_ms + TTL_MARGIN_MS))
  end
  local at = 3 * i - 1
  reply[at], reply[at + 1], reply[at + 2] = fits and 1 or 0, level, ts
end
return reply
