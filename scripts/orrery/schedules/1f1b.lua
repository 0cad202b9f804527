--- One forward, one backward (Narayanan et al. 2019): only as many micro-batches in flight as fill the pipeline.
-- Rank 0 of 2, 4 micro-batches:
--   F0 F1 B0 F2 B1 F3 B2 B3
-- Bubble (p-1)/(m+p-1); rank s stores the activations of min(p-s, m) micro-batches.
return function(p, m)
  local ranks = {}
  for s = 0, p - 1 do
    local order, warm = {}, math.min(p - 1 - s, m)
    for i = 0, warm - 1 do order[#order + 1] = "F" .. i end
    for i = 0, m - 1 do
      if warm + i < m then order[#order + 1] = "F" .. warm + i end
      order[#order + 1] = "B" .. i
    end
    ranks[s + 1] = table.concat(order, " ")
  end
  return ranks
end
