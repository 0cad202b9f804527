--- Expert parallelism: the ranks of some axes share the experts of a mixture. Params with a dim `experts` are stored
-- split over the axes, and so are the slabs [.., experts, slots, width] between dispatch and combine, rows
-- [.., expert_blocks, slots, width] that travel to blocks of experts, and their gradients. The axes may split the batch
-- or the sequence as well: tokens then travel to their experts and back by all-to-alls, which propagation derives.
-- plugins/strategy/expert gives the same program.
local native, strategy = require "orrery.native", require "orrery.strategy"
local S, find_dim = strategy.S, strategy.find_dim

local function refuse(text, ...) native.fail("strategy expert: " .. text:format(...)) end

--- "use ep = 2, 4 or 8": numbers of ranks above 1 that divide a number of experts, up to eight of them.
local function choices(experts, axes)
  local all = {}
  for n = 2, experts do
    if experts % n == 0 and #all < 8 then all[#all + 1] = tostring(n) end
  end
  local names, last = table.concat(axes, " and "), table.remove(all)
  if not last then return ("remove %s from the axes of the strategy"):format(names) end
  local sizes = (#all > 0 and table.concat(all, ", ") .. " or " or "") .. last
  return #axes == 1 and ("use %s = %s"):format(names, sizes) or ("use %s of %s ranks together"):format(names, sizes)
end

--- The axes of more than one rank, in the order in which they split experts: those that split the sequence come last,
-- innermost first, because an all-to-all takes the innermost axis of a dim first.
local function in_order(program, mesh, names)
  local all, listed, inner = {}, {}, {}
  for _, axis in ipairs(names) do listed[axis] = mesh:size(axis) > 1 end
  for x in program:inputs() do
    for _, split in ipairs(x:splits()) do
      if listed[split.axis] then
        listed[split.axis] = false
        table.insert(inner, 1, split.axis)
      end
    end
  end
  for _, axis in ipairs(names) do
    if listed[axis] then all[#all + 1] = axis end
  end
  return table.move(inner, 1, #inner, #all + 1, all)
end

--- Refuses to run after a strategy that has split the param over one of the axes.
local function refuse_later(p, axes)
  for _, split in ipairs(p:splits()) do
    for _, axis in ipairs(axes) do
      if split.axis == axis then
        native.fail(("strategy expert must come before the strategy in program:parallel that splits %s over %s")
          :format(p.name, axis))
      end
    end
  end
end

--- The dim of slabs that is split over ranks: experts, or blocks of experts; nil of other values.
local function shared_dim(x)
  return find_dim(x, "batch") and (find_dim(x, "experts") or find_dim(x, "expert_blocks"))
end

--- Refuses groups of tokens of slabs [batch, seq (groups of a row)?, experts, ..] that earlier splits of the sequence
-- tear apart.
local function require_groups(program, mesh, op, slabs)
  local ranks, text, seen = 1, {}, {}
  for x in program:inputs() do
    for _, split in ipairs(x:splits()) do
      if x.dims[split.dim] == "seq" and not seen[split.axis] and mesh:size(split.axis) > 1 then
        seen[split.axis], ranks = true, ranks * mesh:size(split.axis)
        text[#text + 1] = ("%s=%d"):format(split.axis, mesh:size(split.axis))
      end
    end
  end
  local seq = find_dim(slabs, "seq")
  local groups = seq and slabs.shape[seq] or 1
  if groups % ranks ~= 0 then
    local split = #text == 1 and "splits" or "split"
    refuse("%s %s a group of tokens of %s between ranks: rows have %d group%s, expected a multiple of %d\n  set "
      .. "parts of nn.moe (script.parts) to a multiple of %d", table.concat(text, " and "), split, op.scope, groups,
      groups == 1 and "" or "s", ranks, ranks)
  end
end

return strategy.define("expert", { axes = { "ep" } }, function(program, mesh, options)
  local axes = in_order(program, mesh, strategy.axes("expert", options.axes))
  if #axes == 0 then return end
  local ranks, text = 1, {}
  for _, axis in ipairs(axes) do
    ranks = ranks * mesh:size(axis)
    text[#text + 1] = ("%s=%d"):format(axis, mesh:size(axis))
  end
  local over, found = table.concat(text, " and "), false
  local function split(x, dim, mark)
    for _, axis in ipairs(axes) do x[mark](x, { [axis] = S(dim) }) end
  end
  for p in program:params() do
    local dim = find_dim(p, "experts")
    if dim then
      local n = p.shape[dim]
      if n % ranks ~= 0 then
        refuse("cannot split the %d experts of %s over %s: %d is not a multiple of %d\n  %s", n, p.name, over, n, ranks,
          choices(n, axes))
      end
      refuse_later(p, axes)
      split(p, dim, "store")
      found = true
    end
  end
  if not found then
    refuse("the mesh has %s, but the model has no experts (no param has a dim named \"experts\")\n  choose a model "
      .. "with experts, or remove %s from the mesh or from the axes of the strategy", over, table.concat(axes, " and "))
  end
  -- Slabs are [batch.., experts, slots, width], loads [batch.., experts], rows [batch.., expert_blocks, slots, width].
  -- `use` marks a read as split by experts on purpose: lint then does not call the all-to-all to a reader by group
  -- IMPLICIT.
  for _, op in ipairs(program:ops()) do
    local slabs, weighed
    for _, y in ipairs(op.outputs) do
      if not slabs and shared_dim(y) then slabs = y end
    end
    if slabs then
      local dim = shared_dim(slabs)
      require_groups(program, mesh, op, slabs)
      local n = slabs.shape[dim]
      if n % ranks ~= 0 then
        refuse("%s has %d blocks of experts, expected a multiple of %d for %s\n  set blocks of nn.moe "
          .. "(script.expert_blocks) to a multiple of %d", op.scope, n, ranks, over, ranks)
      end
      split(slabs, dim, "store")
      split(slabs, dim, "use")
      for _, x in ipairs(op.inputs) do
        weighed = weighed or find_dim(x, "experts") and not find_dim(x, "batch")
      end
      for _, x in ipairs(weighed and op.inputs or {}) do
        if find_dim(x, "batch") and x.shape[dim] == slabs.shape[dim] then split(x, dim, "use") end
      end
    end
  end
end)
