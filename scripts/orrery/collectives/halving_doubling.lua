--- Recursive halving and doubling: 2 log2 P steps and the minimum of bytes, 2 S (P-1)/P, when P is a power of two.
-- Ranks beyond the last power of two first send their data to a partner and get the result at the end.
local collective = require "orrery.collective"

local function all_reduce(ranks)
  local core = 1
  while 2 * core <= ranks do core = 2 * core end
  local steps = {}
  local function step(moves) steps[#steps + 1] = moves end
  --- Adds moves of `count` chunks from `first` on to a step.
  local function range(moves, move, first, count, from, to)
    for c = first, first + count - 1 do moves[#moves + 1] = move(c, from, to) end
  end
  local before, after = {}, {}
  for r = core, ranks - 1 do
    range(before, collective.reduce, 0, core, r, r - core)
    range(after, collective.copy, 0, core, r - core, r)
  end
  step(before)
  local distance = core // 2
  while distance >= 1 do
    local moves = {}
    for r = 0, core - 1 do
      range(moves, collective.reduce, (r ~ distance) // distance * distance, distance, r, r ~ distance)
    end
    step(moves)
    distance = distance // 2
  end
  distance = 1
  while distance < core do
    local moves = {}
    for r = 0, core - 1 do range(moves, collective.copy, r // distance * distance, distance, r, r ~ distance) end
    step(moves)
    distance = 2 * distance
  end
  step(after)
  return { chunks = core, steps = steps }
end

return { all_reduce = all_reduce }
