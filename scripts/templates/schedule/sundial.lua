--- The schedule sundial: all forward, then all backward, newest first. Rank 0 of 2, 3 micro-batches:
--   F0 F1 F2 B2 B1 B0
-- A function of the ranks of the pipeline, the micro-batches and the chunks (stages of a rank) that returns each rank's
-- order. F is forward, B backward, W the weights' part of it where it is a fragment of its own; "F3.1" is chunk 1.
-- Where stages do not lie round-robin, return also { { stages of rank 0 by chunk }, ... }.
return function(p, m, v)
  if v ~= 1 then error(("sundial: one stage a rank, not %d"):format(v)) end
  local order = {}
  for i = 0, m - 1 do order[#order + 1] = "F" .. i end
  for i = m - 1, 0, -1 do order[#order + 1] = "B" .. i end
  local ranks = {}
  for r = 1, p do ranks[r] = table.concat(order, " ") end
  return ranks
end
