--- The collective sundial: each rank is home to one chunk. All send it theirs, it adds them and sends all the sum.
-- Two steps and 2 S (P-1)/P bytes a rank: for messages that latency rules, between ranks that all reach each other.
local collective = require "orrery.collective"

-- A function of the number of ranks that returns { chunks = , steps = }. A step is a list of moves that go at the same
-- time: reduce(chunk, from, to) adds, copy(chunk, from, to) overwrites. Ranks and chunks count from 0. Each rank starts
-- with its own contribution to every chunk, and ends with every chunk holding each contribution exactly once.
local function all_reduce(ranks)
  local gather, spread = {}, {}
  for home = 0, ranks - 1 do
    for other = 0, ranks - 1 do
      if other ~= home then
        gather[#gather + 1] = collective.reduce(home, other, home)
        spread[#spread + 1] = collective.copy(home, home, other)
      end
    end
  end
  return { chunks = ranks, steps = { gather, spread } }
end

return { all_reduce = all_reduce }
