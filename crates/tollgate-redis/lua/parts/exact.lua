--[[
  exact.lua: arithmetic on integers below 2^53, and instants.

  Needs: now, max_clock_skew
  Gives: EXACT_MAX, WIDTH_MAX_US, ARGS_MAX, quotient, moment, ttl_ms, functions of Lua by short names
]]

local ceil, fmod, max, min = math.ceil, math.fmod, math.max, math.min
local find, format, match = string.find, string.format, string.match

local EXACT_MAX = 9007199254740992

-- The longest period, 366 days.
local WIDTH_MAX_US = 31622400000000

-- Lua passes at most some thousand arguments to a command.
local ARGS_MAX = 1000

-- floor(a / b)
local function quotient(a, b)
  return (a - fmod(a, b)) / b
end

-- The instant at which units are counted when the last spending was at ts, and whether the clock
-- stepped back so far that the state must be moved to now (G4).
local function moment(ts)
  if now >= ts then
    return now, false
  elseif ts - now > max_clock_skew then
    return now, true
  end
  return ts, false
end

-- The TTL of what counts for so many microseconds more (G5).
local function ttl_ms(duration_us)
  return format('%.0f', ceil(duration_us / 1000) + 5000)
end

