--[[
  stored.lua: tells what is ours from what is not.

  Needs: call, integer, exact.lua
  Gives: corrupt, lease_end, parts.is_other, parts.failure
]]

-- Notes that the key of charge i holds what is not ours. The script then ends with that error,
-- before its first write.
local function corrupt(i, what)
  parts.failure = parts.failure or redis.error_reply('CORRUPT ' .. i .. ' ' .. what)
end

-- When a lease ends, if a member of a sorted set and its score can be one.
local function lease_end(member, score)
  local ticket, unit = match(member, '^([0-9a-f]+)(.*)$')
  return ticket and #ticket == 32 and (unit == '' or find(unit, '^:%d+$')) and integer(score)
end

-- Tells whether the key of charge i holds the whole state of another one of our algorithms and
-- nothing else: a rule whose algorithm changes starts afresh. Otherwise it is corrupt. `wrong` is
-- the field that the charge's own algorithm misses, or the error of reading it.
function parts.is_other(i, key, wrong)
  local type = 'hash'
  if wrong.err then
    if not find(wrong.err, 'WRONGTYPE', 1, true) then
      parts.failure = parts.failure or wrong
      return false
    end
    type = call('TYPE', key).ok
    wrong = 'type ' .. type
  else
    wrong = 'field ' .. wrong
  end
  if type == 'zset' then
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')
    if lease_end(first[1], first[2]) and lease_end(last[1], last[2]) then
      return true
    end
  elseif type == 'hash' then
    local fields = call('HMGET', key, 'ts', 'level', 'scale', 'used', 'width', 'head', 'tail',
      'expires')
    local ts, level, scale = integer(fields[1]), integer(fields[2]), integer(fields[3])
    local used, width = integer(fields[4]), integer(fields[5])
    local head, tail = integer(fields[6]), integer(fields[7])
    local count = call('HLEN', key)
    local is_bucket = level and scale and scale >= 1 and scale <= EXACT_MAX / 2
      and count == (fields[8] and 4 or 3)
    local is_window = used and used >= 1 and count == 2
    local is_cells = used and used >= 1 and width and width >= 1 and width <= WIDTH_MAX_US
      and head and tail and head <= tail and count == 6 + tail - head
    if ts and (is_bucket or is_window or is_cells) then
      return true
    end
  end
  corrupt(i, wrong)
  return false
end

