--[[
  integer.lua: reading what is stored.

  Gives: integer
]]

-- The integer that a stored text holds, or nil. Texts of our own have digits only and stay below
-- 2^53; tonumber alone would also take "0x10", "1e3", " 7 " and "nan".
local function integer(text)
  local number = text and text:find('^%d+$') and tonumber(text)
  if number and number < 9007199254740992 then
    return number
  end
  return nil
end

