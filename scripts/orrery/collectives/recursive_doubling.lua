--- Recursive doubling: ranks whose numbers differ in one bit exchange all their data; log2 P messages of S bytes.
-- Ranks beyond the last power of two first send their data to a partner and get the result at the end.
local collective = require "orrery.collective"

local function all_reduce(ranks)
  local core = 1
  while 2 * core <= ranks do core = 2 * core end
  local steps = { {} }
  for r = core, ranks - 1 do steps[1][r - core + 1] = collective.reduce(0, r, r - core) end
  local bit = 1
  while bit < core do
    local step = {}
    for r = 0, core - 1 do step[r + 1] = collective.reduce(0, r, r ~ bit) end
    steps[#steps + 1] = step
    bit = 2 * bit
  end
  local last = {}
  for r = core, ranks - 1 do last[r - core + 1] = collective.copy(0, r - core, r) end
  steps[#steps + 1] = last
  return { chunks = 1, steps = steps }
end

return { all_reduce = all_reduce }
