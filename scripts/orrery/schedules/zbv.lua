--- ZBV (Qi et al. 2024): two chunks per rank in a V: rank r runs stages r and 2p-1-r, so the last rank runs two
-- consecutive stages. Rank 1 of 2, 3 micro-batches:
--   F0 F0.1 F1 F1.1 B0.1 W0.1 F2 B0 W0 F2.1 B1.1 W1.1 B1 B2.1 B2 W1 W2.1 W2
-- Bubble (p-1)/(6m+p-1) from m = 2p-1 on, and none between a rank's first and last fragment; 2p activations of chunks.
local function vee(p, m)
  local ranks, stages = {}, {}
  for r = 0, p - 1 do
    local order, done = {}, {}
    -- Plans for at least as many micro-batches as fill the V; fragments of missing ones are left out.
    local n = math.max(m, 2 * p - 1)
    local function count(kind, chunk) return done[kind .. chunk] or 0 end
    local function run(kind, chunk)
      local i = count(kind, chunk)
      done[kind .. chunk] = i + 1
      if i < m then order[#order + 1] = kind .. i .. (chunk > 0 and "." .. chunk or "") end
    end
    for _ = 1, 2 * (p - r) - 1 do run("F", 0) end
    for _ = 1, r do run("F", 1) run("F", 0) end
    for _ = 1, p - r do run("F", 1) run("B", 1) run("W", 1) end
    while count("F", 1) < count("F", 0) or count("F", 0) < n do
      if count("F", 0) < n then run("F", 0) end
      run("B", 0) run("W", 0)
      run("F", 1) run("B", 1) run("W", 1)
    end
    for _ = 1, r do run("B", 0) run("B", 1) end
    for _ = 1, p - r do run("B", 0) run("W", 0) end
    while count("W", 1) < n do run("W", 1) end
    while count("W", 0) < n do run("W", 0) end
    ranks[r + 1] = table.concat(order, " ")
    stages[r + 1] = { r, 2 * p - 1 - r }
  end
  return ranks, stages
end

return { chunks = 2, order = vee }                  -- with another number of chunks there is no V
