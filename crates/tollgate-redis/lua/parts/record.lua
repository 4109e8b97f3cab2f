--[[
  record.lua: notes under the ticket of an operation, so that it is settled later or not repeated.

  Needs:  call, now, integer, exact.lua, stored.lua
  Gives:  parts.read_record, parts.write_record
  Stored  string <units>:<since>:<ends>, decimal integers: what was reserved or refunded at since;
          it stands while now < ends
]]

-- The units of the record of charge i and the instant of its making, if there is one that stands.
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
  local units, since, ends = match(text, '^(%d+):(%d+):(%d+)$')
  units, since, ends = integer(units), integer(since), integer(ends)
  if not units or not since or not ends then
    corrupt(i, 'record')
    return nil
  end
  if now < ends then
    return units, since
  end
end

function parts.write_record(key, units, duration_us)
  local ends = min(now + duration_us, EXACT_MAX - 1)
  call('SET', key, format('%.0f:%.0f:%.0f', units, now, ends), 'PX', ttl_ms(duration_us))
end

