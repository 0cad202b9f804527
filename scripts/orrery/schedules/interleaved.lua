--- Interleaved 1F1B (Narayanan et al. 2021): each rank runs v chunks, and chunk c of rank r is stage c p + r; groups of
-- p micro-batches pass one chunk, then the next. Rank 0 of 2, 4 micro-batches, 2 chunks:
--   F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3
-- Bubble (p-1)/(v m+p-1); rank s stores min(v m, 2(p-s-1)+(v-1)p+1) activations of chunks. p must divide m.
local function interleaved(p, m, v)
  if m % p ~= 0 then
    error(("%d micro-batches are not divisible by the pipeline's %d ranks"):format(m, p))
  end
  local function fragment(kind, k, chunk)
    local name = kind .. k // (p * v) * p + k % p
    return chunk > 0 and name .. "." .. chunk or name
  end
  local function F(k) return fragment("F", k, k % (p * v) // p) end
  local function B(k) return fragment("B", k, v - 1 - k % (p * v) // p) end
  local ranks = {}
  for s = 0, p - 1 do
    local order, all = {}, v * m
    local warm = math.min(2 * (p - s - 1) + (v - 1) * p, all)
    for k = 0, warm - 1 do order[#order + 1] = F(k) end
    for k = 0, all - 1 do
      if warm + k < all then order[#order + 1] = F(warm + k) end
      order[#order + 1] = B(k)
    end
    ranks[s + 1] = table.concat(order, " ")
  end
  return ranks
end

return { min_chunks = 2, order = interleaved }          -- with one chunk a rank it would be 1f1b
