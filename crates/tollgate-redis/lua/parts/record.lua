--[[
  record.lua: notes under the ticket of an operation, so that it is settled later or not repeated.

  Needs:  call, now, integer, exact.lua, stored.lua
  Gives:  parts.queue_end, parts.read_record, parts.write_record
  Stored  string <units>:<since>:<queue_end>:<ends>, decimal integers: what was reserved at since, 0
          for a refund; when the queue of a leaky bucket had drained after it, else 0; it stands
          while now < ends
]]

-- The instant at which the queue of a leaky bucket has drained.
function parts.queue_end(charge)
  local ticks = ceil((charge.level_max - charge.level) / charge.units_per_tick)
  return ticks == 0 and now or min(charge.ts + ticks * charge.tick_us, EXACT_MAX - 1)
end

-- The units of the record of charge i, the instant of its making and the end of its queue, if there is one that stands.
function parts.read_record(i, key)
  local text = redis.pcall('GET', key)
  if not text then
    return nil
  elseif type(text) == 'table' then
    if not find(text.err, 'WRONGTYPE', 1, true) then
      parts.failure = parts.failure or text
      return nil
    end
    text = ''
  end
  local units, since, queue_end, ends = match(text, '^(%d+):(%d+):(%d+):(%d+)$')
  units, since = integer(units), integer(since)
  queue_end, ends = integer(queue_end), integer(ends)
  if not units or not since or not queue_end or not ends then
    corrupt(i, 'record')
    return nil
  end
  if now < ends then
    return units, since, queue_end
  end
end

function parts.write_record(key, units, queue_end, duration_us)
  local ends = min(now + duration_us, EXACT_MAX - 1)
  call('SET', key, format('%.0f:%.0f:%.0f:%.0f', units, now, queue_end, ends), 'PX', ttl_ms(duration_us))
end

