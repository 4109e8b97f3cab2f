--[[
  carried_over.lua: a bucket under another quota (G11).

  Needs: exact.lua
  Gives: parts.carried_over
]]

-- floor(level * scale / old_scale), or the level of a full bucket if that is less. Whole tokens and
-- the part of a token are carried over apart.
function parts.carried_over(level, old_scale, scale, burst)
  local part = fmod(level, old_scale)
  local tokens = (level - part) / old_scale
  if tokens >= burst then
    return burst * scale
  end
  local product = part * scale
  if product < EXACT_MAX then
    return tokens * scale + quotient(product, old_scale)
  end
  -- The product is not exact. It is made bit by bit, from the highest bit of scale, and divided at
  -- each, so that nothing passes 2 * old_scale.
  local bit = 1
  while bit * 2 <= scale do
    bit = bit * 2
  end
  local bits, whole, rest = scale, 0, 0
  while bit >= 1 do
    whole, rest = whole * 2, rest * 2
    if rest >= old_scale then
      whole, rest = whole + 1, rest - old_scale
    end
    if bits >= bit then
      bits, rest = bits - bit, rest + part
      if rest >= old_scale then
        whole, rest = whole + 1, rest - old_scale
      end
    end
    bit = bit / 2
  end
  return tokens * scale + whole
end

