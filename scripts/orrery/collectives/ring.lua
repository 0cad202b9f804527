--- A ring: each rank sends to one neighbour and receives from the other; the minimum of bytes, 2 S (P-1)/P.
local collective = require "orrery.collective"

--- One round: in step s rank r sends chunk r + first - s to rank r + 1.
local function round(steps, ranks, move, first)
  for s = 0, ranks - 2 do
    local step = {}
    for r = 0, ranks - 1 do
      step[#step + 1] = move((r + first - s) % ranks, r, (r + 1) % ranks)
    end
    steps[#steps + 1] = step
  end
  return steps
end

local function all_reduce(ranks)
  local steps = round({}, ranks, collective.reduce, 0)
  return { chunks = ranks, steps = round(steps, ranks, collective.copy, 1) }
end

local function reduce_scatter(ranks)   -- rank r ends with chunk r
  return { chunks = ranks, steps = round({}, ranks, collective.reduce, -1) }
end

local function all_gather(ranks)
  return { chunks = ranks, steps = round({}, ranks, collective.copy, 0) }
end

return { all_reduce = all_reduce, reduce_scatter = reduce_scatter, all_gather = all_gather }
