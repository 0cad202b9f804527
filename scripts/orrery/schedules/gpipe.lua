--- GPipe (Huang et al. 2019): all micro-batches forward, then all backward. Rank 0 of 2, 4 micro-batches:
--   F0 F1 F2 F3 B0 B1 B2 B3
-- Bubble (p-1)/(m+p-1); stores the activations of m micro-batches.
return function(p, m)
  local order = {}
  for i = 0, m - 1 do order[#order + 1] = "F" .. i end
  for i = 0, m - 1 do order[#order + 1] = "B" .. i end
  local ranks = {}
  for r = 1, p do ranks[r] = table.concat(order, " ") end
  return ranks
end
