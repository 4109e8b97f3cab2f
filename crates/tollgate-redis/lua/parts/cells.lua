--[[
  cells.lua: sliding windows, and sliding logs, which are windows with cells of 1 us.

  Needs:  call, now, integer, exact.lua, stored.lua
  Gives:  make_cells, which gives the reader of a charge
  ARGV    limit     most units that count at once, 1 .. 2^31-1
          width_us  width of a cell, 1 .. 366 days
          span      for how many cells a unit counts, its own included
  Stored  hash: width, that of its cells in microseconds; ts, the instant of the last spending;
          used, the units of all entries, at least 1; and the entries head .. tail, oldest first,
          each in the field of its number as <index>:<units>, where index = floor(instant / width).
          All decimal integers
  Work    what is allowed passes over the oldest entries that no longer count and drops them. A
          denial reads as many entries as must leave first. A state of cells of another width is
          read whole, at most 10000 entries, and is rewritten when something is spent
]]

local function make_cells()
  local ENTRIES_MAX = 10000

  -- Reads some entries from a number on, and the newest one.
  local function read_entries(charge, from)
    local upto = min(from + charge.chunk - 1, charge.tail)
    charge.chunk = min(charge.chunk * 4, ARGS_MAX)
    local numbers = {}
    for number = from, upto do
      numbers[#numbers + 1] = number
    end
    if upto < charge.tail and not charge.units[charge.tail] then
      numbers[#numbers + 1] = charge.tail
    end
    local texts = call('HMGET', charge.key, unpack(numbers))
    for place, number in ipairs(numbers) do
      local index, units = match(texts[place] or '', '^(%d+):(%d+)$')
      index, units = integer(index), integer(units)
      if not index or not units or units < 1 or index > charge.newest then
        corrupt(charge.i, 'field ' .. number)
        return
      end
      charge.index[number], charge.units[number] = index, units
    end
  end

  -- Makes sure that an entry is read. False if it is none.
  local function has(charge, number)
    if not charge.units[number] then
      read_entries(charge, number)
    end
    return not parts.failure
  end

  -- Puts the entries in cells of the width in force. Units that may lie in two of them count in the
  -- later one, but not later than the last spending, so that nothing is admitted too early.
  local function convert(charge, old_width)
    local index, units, count, total = {}, {}, 0, 0
    for number = charge.head, charge.tail do
      if not has(charge, number) then
        return
      end
      local last_us = charge.index[number] * old_width + (old_width - 1)
      local at = quotient(min(last_us, charge.ts), charge.width)
      if count == 0 or index[count] ~= at then
        count = count + 1
        index[count], units[count] = at, 0
      end
      units[count] = units[count] + charge.units[number]
      total = total + charge.units[number]
    end
    charge.index, charge.units, charge.head, charge.tail = index, units, 1, count
    charge.used, charge.is_converted = total, true
  end

  -- Passes over the entries that no longer count. After a step of the clock those count on that
  -- counted at the last spending.
  local function pass_expired(charge)
    local current = quotient(charge.repaired and charge.ts or charge.effective, charge.width)
    charge.first = charge.head
    while charge.first <= charge.tail and has(charge, charge.first)
      and charge.index[charge.first] + charge.span <= current do
      charge.used = charge.used - charge.units[charge.first]
      charge.first = charge.first + 1
    end
    if charge.used < 0 or (charge.used == 0) ~= (charge.first > charge.tail) then
      corrupt(charge.i, 'field used')
    end
  end

  -- The time until the units of a cell stop to count. No sum on the way passes 2^53.
  local function until_end(charge, index)
    return max(0, (index * charge.width - now) + charge.span * charge.width)
  end

  local function current_index(charge)
    return quotient(charge.effective, charge.width)
  end

  -- Whether what was spent at an instant counts.
  local function counts(charge, instant)
    local index, current = quotient(instant, charge.width), current_index(charge)
    return index <= current and current < index + charge.span
  end

  local function spend(charge, cost)
    charge.used, charge.spent = charge.used + cost, cost
    charge.reset_us = until_end(charge, current_index(charge))
    charge.change = charge.repaired and 'replace' or 'edit'
  end

  local function keep(charge)
    if charge.used > 0 then
      -- After a step of the clock all that counts is in one cell at now.
      local newest = charge.repaired and current_index(charge) or charge.index[charge.tail]
      charge.reset_us = until_end(charge, newest)
    end
    charge.change = charge.repaired and (charge.used > 0 and 'replace' or 'remove')
  end

  local function deny(charge, cost)
    keep(charge)
    local too_many = charge.used + cost - charge.limit
    charge.retry_us = charge.reset_us
    if charge.repaired or too_many >= charge.used then
      return
    end
    local freed, number = 0, charge.first
    while freed < too_many and number <= charge.tail and has(charge, number) do
      freed = freed + charge.units[number]
      charge.retry_us = until_end(charge, charge.index[number])
      number = number + 1
    end
    if freed < too_many then
      corrupt(charge.i, 'field used')
    end
  end

  -- Takes the oldest units away: they leave soonest, so nothing is admitted too early.
  local function refund(charge, cost)
    keep(charge)
    local given = min(cost, charge.used)
    if given == 0 then
      return
    end
    charge.used = charge.used - given
    if charge.used == 0 then
      charge.reset_us, charge.change = 0, 'remove'
    elseif not charge.repaired then
      charge.change = 'edit'
      while given > 0 and charge.first <= charge.tail and has(charge, charge.first) do
        local taken = min(given, charge.units[charge.first])
        given = given - taken
        charge.units[charge.first] = charge.units[charge.first] - taken
        if charge.units[charge.first] > 0 then
          charge.changed = charge.first
        else
          charge.first = charge.first + 1
        end
      end
      if charge.first > charge.tail then
        corrupt(charge.i, 'field used')
      end
    end
  end

  local function judge(charge, action, cost)
    if action == 'take' then
      cost = min(cost, max(0, charge.limit - charge.used))
      action = 'spend'
    end
    if action == 'spend' and cost > 0 then
      spend(charge, cost)
      return true
    elseif action == 'deny' then
      deny(charge, cost)
    elseif action == 'refund'
      or (action == 'give_back' or action == 'undo') and counts(charge, charge.since) then
      refund(charge, cost)
    else
      keep(charge)
    end
    return false
  end

  local function answer(charge)
    return charge.used, charge.reset_us, charge.retry_us or 0
  end

  local function entry(charge, number)
    return format('%.0f:%.0f', charge.index[number], charge.units[number])
  end

  -- Writes all fields and the entries first .. tail.
  local function write_all(charge)
    if charge.stored or charge.is_other then
      call('DEL', charge.key)
    end
    local fields = {
      'width', format('%.0f', charge.width), 'ts', format('%.0f', charge.effective),
      'used', format('%.0f', charge.used),
      'head', format('%.0f', charge.first), 'tail', format('%.0f', charge.tail),
    }
    for number = charge.first, charge.tail do
      fields[#fields + 1], fields[#fields + 2] = format('%.0f', number), entry(charge, number)
      if #fields >= ARGS_MAX or number == charge.tail then
        call('HSET', charge.key, unpack(fields))
        fields = {}
      end
    end
  end

  -- Drops the entries head .. first - 1 and writes the fields that change.
  local function write_changed(charge)
    local fields = { 'ts', format('%.0f', charge.effective), 'used', format('%.0f', charge.used) }
    local function set(field, text)
      fields[#fields + 1], fields[#fields + 2] = field, text
    end
    if charge.first > charge.head then
      set('head', format('%.0f', charge.first))
      for from = charge.head, charge.first - 1, ARGS_MAX do
        local numbers = {}
        for number = from, min(from + ARGS_MAX, charge.first) - 1 do
          numbers[#numbers + 1] = format('%.0f', number)
        end
        call('HDEL', charge.key, unpack(numbers))
      end
    end
    if charge.spent then
      set('tail', format('%.0f', charge.tail))
    end
    if charge.changed then
      set(format('%.0f', charge.changed), entry(charge, charge.changed))
    end
    call('HSET', charge.key, unpack(fields))
  end

  local function write(charge)
    if charge.change == 'remove' then
      call('DEL', charge.key)
      return
    end
    local current = current_index(charge)
    local starts_afresh = charge.change == 'replace' or charge.first > charge.tail
    if starts_afresh then
      charge.first, charge.tail, charge.index, charge.units = 1, 1, { current }, { charge.used }
    elseif charge.spent then
      if charge.index[charge.tail] ~= current then
        charge.tail = charge.tail + 1
        charge.index[charge.tail], charge.units[charge.tail] = current, 0
      end
      charge.units[charge.tail] = charge.units[charge.tail] + charge.spent
      charge.changed = charge.tail
    end
    if starts_afresh or charge.is_converted then
      write_all(charge)
    else
      write_changed(charge)
    end
    call('PEXPIRE', charge.key, ttl_ms(charge.reset_us))
  end

  return function(i, key, at, cost)
    local charge = {
      i = i, key = key, cost = cost, next_arg = at + 3,
      judge = judge, answer = answer, write = write,
      limit = tonumber(ARGV[at]), width = tonumber(ARGV[at + 1]), span = tonumber(ARGV[at + 2]),
      used = 0, effective = now, reset_us = 0, first = 1, head = 1, tail = 0,
      chunk = 4, index = {}, units = {},
    }
    local fields = redis.pcall('HMGET', key, 'width', 'ts', 'used', 'head', 'tail')
    if fields.err then
      charge.is_other = parts.is_other(i, key, fields)
    elseif fields[1] or fields[2] or fields[3] or fields[4] or fields[5]
      or call('EXISTS', key) == 1 then
      local width, ts, used = integer(fields[1]), integer(fields[2]), integer(fields[3])
      local head, tail = integer(fields[4]), integer(fields[5])
      local wrong = ((not width or width < 1 or width > WIDTH_MAX_US) and 'width')
        or (not ts and 'ts') or ((not used or used < 1) and 'used') or (not head and 'head')
        or ((not tail or tail < head or tail - head >= ENTRIES_MAX) and 'tail')
      if wrong then
        charge.is_other = parts.is_other(i, key, wrong)
      else
        charge.stored, charge.ts, charge.used = true, ts, used
        charge.head, charge.tail, charge.newest = head, tail, quotient(ts, width)
        charge.effective, charge.repaired = moment(ts)
        if width ~= charge.width then
          convert(charge, width)
        end
        if not parts.failure then
          pass_expired(charge)
        end
      end
    end
    charge.fits = cost == 0 or charge.used + cost <= charge.limit
    return charge
  end
end

