--[[
  integer.lua: reading what is stored, and writing it.

  Gives: integer, DIGITS
]]

local find, tonumber = string.find, tonumber

-- The integer that a stored text holds, or nil. Texts of our own have digits only and stay below
-- 2^53; tonumber alone would also take "0x10", "1e3", " 7 " and "nan".
local function integer(text)
  local number = text and find(text, '^%d+$') and tonumber(text)
  if number and number < 9007199254740992 then
    return number
  end
  return nil
end

-- How an integer below 2^53 is written. The first costs a third of the other, but on some machines
-- it is 32 bits wide.
local DIGITS = string.format('%d', 9007199254740991) == '9007199254740991' and '%d' or '%.0f'

