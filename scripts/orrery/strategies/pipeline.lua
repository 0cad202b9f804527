--- Pipeline parallelism: the ranks of an axis run stages of the model, micro-batches pass through them.
-- The row of layers is cut where the largest cost of a stage is smallest, or as `layers` lists. The Lua twin of
-- plugins/strategy/pipeline.
local native = require "orrery.native"
local strategy = require "orrery.strategy"

--- The layers of each stage: a dynamic program over (stages so far, layers so far). With `squares` the smallest sum of
-- squared costs, otherwise the smallest largest cost; none above `bound`.
local function best(cut, bound, squares)
  local n = #cut.sums - 1
  local known, from = { [0] = 0 }, {}
  for stage = 0, cut.stages - 1 do
    local last = stage == cut.stages - 1
    local next_known, origin = {}, {}
    for to = 0, n do
      for at = 0, to do
        local empty = at == to and not (cut.ends and (stage == 0 or last))
        if known[at] and not empty then
          local cost = cut.sums[to + 1] - cut.sums[at + 1]
          if stage == 0 then cost = cost + cut.before end
          if last then cost = cost + cut.behind end
          local total = squares and known[at] + cost * cost or math.max(known[at], cost)
          if cost <= bound and total < (next_known[to] or math.huge) then
            next_known[to], origin[to] = total, at
          end
        end
      end
    end
    known, from[stage] = next_known, origin
  end
  local counts, to = {}, n
  for stage = cut.stages - 1, 0, -1 do
    local at = from[stage][to] or 0
    counts[stage + 1], to = to - at, at
  end
  return known[n] or math.huge, counts
end

local function balanced(row, stages, ends)
  local cut = { sums = { 0.0 }, stages = stages, ends = ends, before = row[1].flops, behind = row[#row].flops }
  for i = 2, #row - 1 do cut.sums[i] = cut.sums[i - 1] + row[i].flops end
  if ends then
    cut.before = cut.sums[#cut.sums] / (#row - 2)
    cut.behind = cut.before
  end
  local bound = best(cut, math.huge, false) * (1 + 1e-9)
  local _, counts = best(cut, bound, true)
  return counts
end

local function fail(text, ...) error(("pipeline: " .. text):format(...), 0) end

local defaults = { axis = "pp", schedule = "1f1b", microbatches = 0, chunks = 0, ends = false, layers = {} }

return strategy.define("pipeline", defaults, function(program, mesh, options)
  local p = mesh:size(options.axis)
  if p == 1 then return end
  if options.microbatches > 0 then program:microbatches(options.microbatches) end
  local chunks = options.chunks
  if chunks == 0 then chunks = native.chunks_needed(options.schedule, options.axis) end
  program:pipeline { axis = options.axis, schedule = options.schedule, chunks = chunks }
  local row, stages, counts = program:layers(), p * chunks, options.layers
  if #counts > 0 then
    local sum = 0
    for _, count in ipairs(counts) do
      sum = sum + count
      if count < 0 then sum = -1 break end
    end
    if #counts ~= stages or sum ~= #row - 2 then
      fail("layers lists %d stages of %d layers in all; the model has %d layers, the pipeline %d stages", #counts, sum,
        #row - 2, stages)
    end
  else
    if #row - 2 < math.max(options.ends and stages - 2 or stages, 1) then
      fail("the model has %d layers, too few for %d stages; use fewer ranks on %s or fewer chunks", #row - 2, stages,
        options.axis)
    end
    counts = balanced(row, stages, options.ends)
  end
  local layer = 2
  for stage, count in ipairs(counts) do
    for _ = 1, count do
      program:stage(row[layer].scope, stage - 1)
      layer = layer + 1
    end
  end
end)
