--[[
  slots.lua: concurrency limits. Each slot in use is a lease that ends by itself.

  Needs:  call, now, max_clock_skew, exact.lua, stored.lua
  Gives:  make_slots, which gives the reader of a charge
  ARGV    limit     most slots in use at once, 1 .. 10000
          lease_us  how long a slot is held unless it is renewed, 1 ms .. 1 day
          ticket    whose slots these are, 32 lower-case hex digits; empty: they are only judged
  Stored  sorted set with one member for each slot in use, scored with the instant at which its
          lease ends: <ticket> for the first slot of a ticket, <ticket>:2, <ticket>:3 ... for more
  Work    logarithmic in the slots in use, times the cost where slots are taken or given back.
          After a step of the clock, or when lease_us was shortened, the leases that last too long
          are rewritten once
]]

local function make_slots()
  local INSTANT_MAX = EXACT_MAX - 1
  local SLOTS_MAX = 10000
  local after_now = format('(%.0f', now)

  local function after(instant)
    return format('(%.0f', instant)
  end

  local function until_instant(instant)
    return max(0, (instant or 0) - now)
  end

  local function member(charge, unit)
    return unit == 1 and charge.ticket or charge.ticket .. ':' .. unit
  end

  -- How many slots the ticket holds. Its members are numbered without a gap.
  local function held_units(charge)
    local most, too_many = 1, 2
    while too_many <= SLOTS_MAX and call('ZSCORE', charge.key, member(charge, too_many)) do
      most, too_many = too_many, too_many * 2
    end
    while too_many - most > 1 do
      local middle = quotient(most + too_many, 2)
      if middle <= SLOTS_MAX and call('ZSCORE', charge.key, member(charge, middle)) then
        most = middle
      else
        too_many = middle
      end
    end
    return most
  end

  -- The last end of a lease that has not ended, up to a bound, or nil.
  local function last_upto(charge, bound)
    local found =
      call('ZREVRANGEBYSCORE', charge.key, bound, after_now, 'WITHSCORES', 'LIMIT', 0, 1)
    return found[2] and tonumber(found[2])
  end

  -- How many leases last too long, and are seen as ending when one that is made now does.
  local function too_long_units(charge)
    return call('ZCOUNT', charge.key, after(charge.latest), '+inf')
  end

  -- The last end of all leases, or nil.
  local function last(charge)
    if charge.used == 0 then
      return nil
    elseif charge.has_too_long then
      return max(last_upto(charge, format('%.0f', charge.latest)) or 0, charge.ends)
    end
    return charge.last_end
  end

  -- The last end of the leases of other tickets, or nil. This ticket's are so many.
  local function last_of_others(charge, units)
    local own = charge.held_until
    local own_text = format('%.0f', own)
    local found = last_upto(charge, charge.has_too_long and format('%.0f', charge.latest) or '+inf')
    if found == own and call('ZCOUNT', charge.key, own_text, own_text) == units then
      found = last_upto(charge, after(own))
    end
    if charge.has_too_long
      and too_long_units(charge) > (own > charge.latest and units or 0) then
      found = max(found or 0, charge.ends)
    end
    return found
  end

  -- The time until so many units more are free, if nothing is renewed or given back.
  local function until_freed(charge, units)
    units = min(units, charge.used)
    if units <= 0 then
      return 0
    end
    if charge.has_too_long then
      -- Those that last too long end together, after those that end by then anyway.
      local sooner = call('ZCOUNT', charge.key, after_now, format('%.0f', charge.ends))
      local shortened = too_long_units(charge)
      if units > sooner + shortened then
        units = units - shortened
      elseif units > sooner then
        return until_instant(charge.ends)
      end
    end
    local rank = call('ZCARD', charge.key) - charge.used + units - 1
    return until_instant(tonumber(call('ZRANGE', charge.key, rank, rank, 'WITHSCORES')[2]))
  end

  local function keep(charge)
    charge.reset_us = until_instant(last(charge))
    charge.change = charge.has_too_long and 'shorten'
  end

  local function hold(charge, units)
    charge.reset_us = until_instant(max(last(charge) or 0, charge.ends))
    charge.change, charge.units, charge.hold_until = 'hold', units, charge.ends
    -- A clock that is a little back does not shorten what it renews.
    if charge.held_until and charge.held_until <= charge.latest then
      charge.hold_until = max(charge.ends, charge.held_until)
    end
  end

  local function release(charge)
    charge.units = held_units(charge)
    local others = last_of_others(charge, charge.units)
    charge.used, charge.reset_us = charge.used - charge.units, until_instant(others)
    charge.change = others and 'release' or 'remove'
  end

  local function judge(charge, action, cost)
    if action == 'take' then
      cost = min(cost, max(0, charge.limit - charge.used))
      action = cost > 0 and 'spend' or 'keep'
    end
    if (action == 'spend' and charge.ticket or action == 'renew') and charge.held_until then
      hold(charge, held_units(charge))
    elseif action == 'spend' and charge.ticket then
      hold(charge, cost)
      charge.used = charge.used + cost
      return true
    elseif (action == 'release' or action == 'undo') and charge.held_until then
      release(charge)
    else
      -- Without a ticket nobody could give slots back, so they are only judged; and they are given
      -- back by their ticket, never by number.
      keep(charge)
      if action == 'deny' then
        charge.retry_us = until_freed(charge, charge.used + cost - charge.limit)
      end
    end
    return false
  end

  local function answer(charge)
    return charge.used, charge.reset_us, charge.retry_us or 0
  end

  -- Gives members an end, or takes them away.
  local function set(key, members, ends)
    local per_call = ends and ARGS_MAX / 2 or ARGS_MAX
    for from = 1, #members, per_call do
      local args = {}
      for place = from, min(from + per_call - 1, #members) do
        if ends then
          args[#args + 1] = format('%.0f', ends)
        end
        args[#args + 1] = members[place]
      end
      call(ends and 'ZADD' or 'ZREM', key, unpack(args))
    end
  end

  local function write(charge)
    local key, change = charge.key, charge.change
    if change == 'remove' or charge.is_other then
      call('DEL', key)
    end
    if change == 'remove' then
      return
    end
    if charge.has_too_long then
      set(key, call('ZRANGEBYSCORE', key, after(charge.latest), '+inf'), charge.ends)
    end
    if change ~= 'shorten' then
      if charge.has_ended then
        call('ZREMRANGEBYSCORE', key, '-inf', format('%.0f', now))
      end
      local members = {}
      for unit = 1, charge.units do
        members[unit] = member(charge, unit)
      end
      set(key, members, change == 'hold' and charge.hold_until)
    end
    local last_end = charge.ends
    if change ~= 'hold' or (charge.last_end or 0) > last_end then
      last_end = tonumber(call('ZRANGE', key, -1, -1, 'WITHSCORES')[2])
    end
    call('PEXPIRE', key, ttl_ms(until_instant(last_end)))
  end

  return function(i, key, at, cost)
    local ticket = ARGV[at + 2]
    local ends = min(now + tonumber(ARGV[at + 1]), INSTANT_MAX)
    local charge = {
      key = key, cost = cost, next_arg = at + 3, judge = judge, answer = answer, write = write,
      limit = tonumber(ARGV[at]), ticket = ticket ~= '' and ticket, used = 0,
      -- When a lease ends that is made now, and the latest end that a clock skew explains.
      ends = ends, latest = min(ends + max_clock_skew, INSTANT_MAX),
    }
    local first = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
    if first.err then
      charge.is_other = parts.is_other(i, key, first)
    elseif first[1] then
      local last_one = call('ZRANGE', key, -1, -1, 'WITHSCORES')
      local first_end = lease_end(first[1], first[2])
      local last_end = lease_end(last_one[1], last_one[2])
      if not first_end or not last_end then
        corrupt(i, 'member')
        return charge
      end
      charge.last_end = last_end
      charge.has_ended, charge.has_too_long = first_end <= now, last_end > charge.latest
      if not charge.has_ended then
        charge.used = call('ZCARD', key)
      elseif last_end > now then
        charge.used = call('ZCOUNT', key, after_now, '+inf')
      end
      local held_until = charge.ticket and call('ZSCORE', key, ticket)
      held_until = held_until and tonumber(held_until)
      charge.held_until = held_until and held_until > now and held_until
    end
    charge.lacks_lease = not charge.held_until
    charge.fits = cost == 0 or charge.held_until or charge.used + cost <= charge.limit
    return charge
  end
end

