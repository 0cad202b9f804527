--- A binomial tree: up to rank 0 and down again, 2 log2 P steps; few messages, but the root sends S log2 P.
local collective = require "orrery.collective"

local function all_reduce(ranks)
  local up, down = {}, {}
  local bit = 1
  while bit < ranks do
    local rise, fall = {}, {}
    for r = bit, ranks - 1, 2 * bit do
      rise[#rise + 1] = collective.reduce(0, r, r - bit)
      fall[#fall + 1] = collective.copy(0, r - bit, r)
    end
    up[#up + 1] = rise
    table.insert(down, 1, fall)
    bit = 2 * bit
  end
  table.move(down, 1, #down, #up + 1, up)
  return { chunks = 1, steps = up }
end

return { all_reduce = all_reduce }
