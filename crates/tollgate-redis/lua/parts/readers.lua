--[[
  readers.lua: the algorithms by their names.

  Needs: make_window, make_cells, make_slots
  Gives: parts.read
]]

local makers = {
  fixed_window = make_window, sliding_window = make_cells, sliding_log = make_cells,
  concurrency = make_slots,
}
local readers = {}

-- Reads what the key of charge i holds, and gives the charge; nil if there is no such algorithm.
-- Its arguments begin at ARGV[at]. A charge has the fields cost, fits and next_arg, and after it
-- was judged `change`, which is set if there is something to write; and the functions
--   judge(charge, action, cost)  spend | take | refund | give_back | undo | renew | release | keep
--                                | deny: what becomes of the charge; true if it takes units.
--                                give_back and undo return what was spent at charge.since
--   answer(charge)               used, microseconds until nothing is used, microseconds until a
--                                denied cost fits
--   write(charge)                carries the change out
function parts.read(kind, i, key, at, cost)
  local maker = makers[kind]
  if not maker then
    return nil
  end
  readers[maker] = readers[maker] or maker()
  return readers[maker](i, key, at, cost)
end

