--- ZB-H1 (Qi et al. 2023): 1F1B with weight gradients in the bubble; rank s delays each by s micro-batches. Rank 1 of
-- 2, 4 micro-batches:
--   F0 B0 F1 B1 W0 F2 B2 W1 F3 B3 W2 W3
-- Bubble (p-1)/(3m+p-1); every rank stores p activations.
return function(p, m)
  local ranks = {}
  for s = 0, p - 1 do
    local order, warm = {}, math.min(p - 1 - s, m)
    for i = 0, warm - 1 do order[#order + 1] = "F" .. i end
    for i = 0, m - 1 do
      if warm + i < m then order[#order + 1] = "F" .. warm + i end
      order[#order + 1] = "B" .. i
      if i >= s then order[#order + 1] = "W" .. i - s end
    end
    for i = math.max(m - s, 0), m - 1 do order[#order + 1] = "W" .. i end
    ranks[s + 1] = table.concat(order, " ")
  end
  return ranks
end
