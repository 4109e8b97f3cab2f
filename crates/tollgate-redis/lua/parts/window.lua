--[[
  window.lua: fixed windows, aligned to multiples of the period since the Unix epoch.

  Needs:  call, now, integer, exact.lua, stored.lua
  Gives:  make_window, which gives the reader of a charge
  ARGV    limit      most units in a window, 1 .. 2^31-1
          period_us  length of a window, 1 .. 366 days
  Stored  hash of decimal integers: used, the units spent in the window that contains ts, at least
          1; ts, the instant of the last spending
]]

local function make_window()
  local function window_end(charge)
    return charge.period_us - fmod(charge.effective, charge.period_us) + (charge.effective - now)
  end

  local function is_same(charge, instant)
    return quotient(instant, charge.period_us) == quotient(charge.effective, charge.period_us)
  end

  local function judge(charge, action, cost)
    local before, takes = charge.used, false
    if action == 'take' then
      cost = min(cost, max(0, charge.limit - charge.used))
      action = 'spend'
    end
    if action == 'spend' then
      charge.used, takes = before + cost, cost > 0
    elseif action == 'refund'
      or (action == 'give_back' or action == 'undo') and is_same(charge, charge.since) then
      charge.used = before - min(before, cost)
    elseif action == 'deny' then
      charge.retry_us = window_end(charge)
    end
    if charge.used ~= before or charge.repaired then
      charge.change = charge.used > 0 and 'store' or charge.stored and 'remove'
    end
    return takes
  end

  local function answer(charge)
    return charge.used, charge.used > 0 and window_end(charge) or 0, charge.retry_us or 0
  end

  local function write(charge)
    if charge.change == 'remove' or charge.is_other then
      call('DEL', charge.key)
    end
    if charge.change == 'store' then
      call('HSET', charge.key, 'used', format('%.0f', charge.used),
        'ts', format('%.0f', charge.effective))
      call('PEXPIRE', charge.key, ttl_ms(window_end(charge)))
    end
  end

  return function(i, key, at, cost)
    local charge = {
      key = key, cost = cost, next_arg = at + 2, judge = judge, answer = answer, write = write,
      limit = tonumber(ARGV[at]), period_us = tonumber(ARGV[at + 1]), used = 0, effective = now,
    }
    local fields = redis.pcall('HMGET', key, 'used', 'ts', 'width')
    if fields.err then
      charge.is_other = parts.is_other(i, key, fields)
    elseif fields[1] or fields[2] or fields[3] or call('EXISTS', key) == 1 then
      local used, ts = integer(fields[1]), integer(fields[2])
      local wrong = ((not used or used < 1) and 'used') or (not ts and 'ts')
        -- Cells have a width, and so does nothing with the other two fields that is ours.
        or (fields[3] and 'width')
      if wrong then
        charge.is_other = parts.is_other(i, key, wrong)
      else
        charge.stored = true
        charge.effective, charge.repaired = moment(ts)
        if charge.repaired or is_same(charge, ts) then
          charge.used = used
        end
      end
    end
    charge.fits = cost == 0 or charge.used + cost <= charge.limit
    return charge
  end
end

