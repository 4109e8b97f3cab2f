--[[
  record.lua: notes under the ticket of an operation, so that it is settled later or not repeated.

  Needs:  call, now, integer, exact.lua, stored.lua
  Gives:  parts.read_record, parts.write_record
  Stored  string <units>:<ends>, decimal integers; it stands while now < ends
]]

-- The units of the record of charge i, if there is one that stands.
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
  local units, ends = match(text, '^(%d+):(%d+)$')
  units, ends = integer(units), integer(ends)
  if not units or not ends then
    corrupt(i, 'record')
    return nil
  end
  return now < ends and units or nil
end

function parts.write_record(key, units, duration_us)
  local ends = min(now + duration_us, EXACT_MAX - 1)
  call('SET', key, format('%.0f:%.0f', units, ends), 'PX', ttl_ms(duration_us))
end

