--[[
  apply.lua: applies one operation to the charges of one request in one atomic step.

  It is the end of the script, after the parts, and holds the token bucket and the leaky bucket. They
  are written out where they are needed, because in Redis a function is made anew by every call of
  the script and costs as much as a command's reply. README.md is the contract of the whole.

  Needs: integer, make_parts
]]

local DENIED, TAKEN, ALLOWED, NOTHING_TO_SETTLE = 0, 1, 2, 3
local EXACT_MAX = 9007199254740992
local TTL_MARGIN_MS, TTL_SLACK_MIN_MS, TTL_SLACK_MAX_MS = 5000, 10000, 86400000

local call, ceil, fmod, format = redis.call, math.ceil, math.fmod, string.format

local operation, now, max_clock_skew = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local is_servers_time = not now
if is_servers_time then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local spends = operation == 'spend' or operation == 'reserve'
local keeps_records = operation == 'reserve' or operation == 'settle' or operation == 'refund'
  or operation == 'undo'

local parts = keeps_records and make_parts(call, now, max_clock_skew)
local charges, count, key_at, arg_at = {}, 0, 1, 4
local admitted = true

-- First everything is read.
while KEYS[key_at] do
  local kind, key = ARGV[arg_at], KEYS[key_at]
  local shadow, cost = ARGV[arg_at + 1] == '1', tonumber(ARGV[arg_at + 2])
  local charge
  count = count + 1

  if kind == 'token_bucket' or kind == 'leaky_bucket' then
    local scale_text = ARGV[arg_at + 4]
    local units_per_tick, scale = tonumber(ARGV[arg_at + 3]), tonumber(scale_text)
    local tick_us, burst = tonumber(ARGV[arg_at + 5]), tonumber(ARGV[arg_at + 6])
    local level_max = burst * scale
    local level, ts, stored, repaired, wrong = level_max, now, false, false, nil

    local fields = redis.pcall('HMGET', key, 'level', 'scale', 'ts', 'expires')
    if fields.err then
      wrong = fields
    -- A hash without any of the fields is somebody else's, not an absent bucket.
    elseif fields[1] or fields[2] or fields[3] or call('EXISTS', key) == 1 then
      local old_level, old_ts = integer(fields[1]), integer(fields[3])
      local old_scale = fields[2] == scale_text and scale or integer(fields[2])
      wrong = (not old_level and 'level')
        or ((not old_scale or old_scale < 1 or old_scale > EXACT_MAX / 2) and 'scale')
        or (not old_ts and 'ts')
      if not wrong then
        stored = true
        if old_scale ~= scale then
          parts = parts or make_parts(call, now, max_clock_skew)
          old_level = parts.carried_over(old_level, old_scale, scale, burst)
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
    end
    charge = {
      key = key, cost = cost, shadow = shadow, is_leaky = kind == 'leaky_bucket',
      -- A product that is rounded still compares right: beyond the burst it is beyond every level.
      fits = cost * scale <= level, outcome = ALLOWED, change = repaired and 'store',
      units_per_tick = units_per_tick, scale = scale, tick_us = tick_us, level_max = level_max,
      level = level, ts = ts, stored = stored, scale_text = scale_text,
      expires = fields[4], has_scale = fields[2] == scale_text,
    }
    if wrong then
      parts = parts or make_parts(call, now, max_clock_skew)
      charge.is_other = parts.is_other(count, key, wrong)
    end
    arg_at = arg_at + 7
  else
    parts = parts or make_parts(call, now, max_clock_skew)
    charge = parts.read(kind, count, key, arg_at + 3, cost)
    if not charge then
      return redis.error_reply('ERR apply.lua knows no algorithm ' .. tostring(kind))
    end
    charge.shadow, charge.outcome = shadow, ALLOWED
    arg_at = charge.next_arg
  end

  if keeps_records then
    local ttl_us = ARGV[arg_at]
    if ttl_us ~= '' then
      key_at = key_at + 1
      charge.record_key, charge.record_ttl_us = KEYS[key_at], tonumber(ttl_us)
      charge.recorded, charge.since, charge.queue_end =
        parts.read_record(count, charge.record_key)
      if spends and charge.recorded then
        -- It was reserved before.
        charge.cost, charge.fits = 0, true
      end
    end
    arg_at = arg_at + 1
    if operation == 'undo' then
      charge.since = tonumber(ARGV[arg_at])
      arg_at = arg_at + 1
    end
  end
  if parts and parts.failure then
    return parts.failure
  end
  if operation == 'renew' then
    charge.fits = not charge.lacks_lease
  end
  admitted = admitted and (charge.fits or shadow)
  charges[count] = charge
  key_at = key_at + 1
end
if arg_at ~= #ARGV + 1 then
  return redis.error_reply('ERR apply.lua wants ' .. arg_at - 1 .. ' arguments, not ' .. #ARGV)
end

-- Then everything is judged. What judging has to read, it reads here.
for i = 1, count do
  local charge = charges[i]
  local action, cost, level = operation, charge.cost, charge.level

  if spends then
    if not charge.fits then
      action, charge.outcome = 'deny', DENIED
    elseif admitted or charge.shadow then
      action = cost > 0 and 'spend' or 'keep'
      charge.stores_record = charge.record_key and not charge.recorded and cost > 0
    else
      action = 'keep'
    end
  elseif operation == 'look' then
    action = charge.fits and 'keep' or 'deny'
    charge.outcome = charge.fits and ALLOWED or DENIED
  elseif operation == 'refund' then
    -- Under a ticket a refund is made once.
    action = charge.recorded and 'keep' or 'refund'
    charge.stores_record = charge.record_key and not charge.recorded and cost > 0
  elseif operation == 'settle' then
    -- A refund is recorded with no units, and cannot be settled.
    local reserved = charge.recorded and charge.recorded > 0 and charge.recorded
    charge.removes_record = reserved
    if not reserved then
      action, charge.outcome = 'keep', NOTHING_TO_SETTLE
    elseif cost > reserved then
      action, cost = 'take', cost - reserved
    elseif cost < reserved then
      action, cost = 'give_back', reserved - cost
    else
      action = 'keep'
    end
  elseif operation == 'renew' then
    -- Only a lease can be lacking.
    if charge.lacks_lease then
      action, charge.outcome = 'deny', DENIED
    elseif not admitted then
      action = 'keep'
    end
  elseif operation == 'undo' then
    charge.removes_record = charge.recorded
    -- A reservation without its record was settled meanwhile.
    action = charge.record_key and not charge.recorded and 'keep' or 'undo'
  elseif operation ~= 'release' and operation ~= 'take' then
    return redis.error_reply('ERR apply.lua knows no operation ' .. tostring(operation))
  end

  if not level then
    if charge:judge(action, cost) and spends then
      charge.outcome = TAKEN
    end
  elseif action == 'spend' or action == 'take' then
    local level_max, scale = charge.level_max, charge.scale
    if action == 'take' then
      -- Whether it fits or not, but no more than the whole tokens there are.
      cost = math.min(cost, (level - fmod(level, scale)) / scale)
    end
    if cost > 0 then
      if charge.is_leaky then
        charge.before_level, charge.before_ts = level, charge.ts
      end
      -- What a tick that would fill the bucket has gathered has no place in it (G1).
      if charge.ts < now and level_max - level <= charge.units_per_tick then
        charge.ts = now
      end
      charge.level, charge.change = level - cost * scale, 'store'
      charge.outcome = spends and TAKEN or ALLOWED
    end
  elseif action == 'give_back' and charge.is_leaky and parts.queue_end(charge) ~= charge.queue_end then
    -- Others queue behind that place, so it stays empty.
    action = 'keep'
  elseif action == 'refund' or action == 'give_back' or action == 'undo' then
    local given = cost * charge.scale
    -- Not `level + given >= level_max`: that sum could pass 2^53.
    if given >= charge.level_max - level then
      charge.level, charge.ts, charge.change = charge.level_max, now, charge.stored and 'remove'
    elseif given > 0 then
      charge.level, charge.change = level + given, 'store'
    end
  end
end
if parts and parts.failure then
  return parts.failure
end

-- Only then is anything written.
local reply, at = { now }, 2
for i = 1, count do
  local charge = charges[i]
  local level, ts, change = charge.level, charge.ts, charge.change
  reply[at] = charge.outcome
  if not level then
    reply[at + 1], reply[at + 2], reply[at + 3] = charge:answer()
    at = at + 4
    if change then
      charge:write()
    end
  else
    reply[at + 1], reply[at + 2] = level, ts
    at = at + 3
    if charge.is_leaky then
      reply[at], reply[at + 1] = charge.before_level or level, charge.before_ts or ts
      at = at + 2
    end
    if change == 'remove' or change and charge.is_other then
      call('DEL', charge.key)
    end
    if change == 'store' then
      local key, expires = charge.key, not charge.is_other and charge.expires
      local ticks = ceil((charge.level_max - level) / charge.units_per_tick)
      local full_ms = ceil((ticks * charge.tick_us + (ts - now)) / 1000)
      local ttl_ms, now_ms = full_ms + TTL_MARGIN_MS, (now - fmod(now, 1000)) / 1000
      local level_text, ts_text = format(DIGITS, level), format(DIGITS, ts)
      if is_servers_time and charge.has_scale
        and (expires and tonumber(expires) or 0) >= now_ms + ttl_ms then
        call('HSET', key, 'level', level_text, 'ts', ts_text)
      else
        if is_servers_time then
          -- With some slack, so that the next writes need not see to it.
          ttl_ms = ttl_ms + TTL_SLACK_MIN_MS
            + math.min((full_ms - fmod(full_ms, 8)) / 8, TTL_SLACK_MAX_MS)
          call('HSET', key, 'level', level_text, 'scale', charge.scale_text, 'ts', ts_text,
            'expires', format('%.0f', now_ms + ttl_ms))
        else
          call('HSET', key, 'level', level_text, 'scale', charge.scale_text, 'ts', ts_text)
          if expires then
            call('HDEL', key, 'expires')
          end
        end
        -- Beyond 2^53 ms (285,000 years) the TTL is rounded, by less than the margin takes up.
        call('PEXPIRE', key, format('%.0f', ttl_ms))
      end
    end
  end
  if charge.stores_record then
    parts.write_record(charge.record_key, operation == 'refund' and 0 or charge.cost,
      operation ~= 'refund' and charge.is_leaky and parts.queue_end(charge) or 0,
      charge.record_ttl_us)
  elseif charge.removes_record then
    call('DEL', charge.record_key)
  end
end
return reply
