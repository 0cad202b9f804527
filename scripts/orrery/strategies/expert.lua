--- Expert parallelism: the ranks of some axes share the experts of a mixture. Params with a dim `experts` are stored
-- split over the axes, and so are the slabs [.., experts, slots, width] between dispatch and combine, and their
-- gradients. The axes may split the batch or the sequence as well: tokens then travel to their experts and back by
-- all-to-alls, which propagation derives. plugins/strategy/expert gives the same program.
local native, strategy = require "orrery.native", require "orrery.strategy"
local S = strategy.S

local function refuse(text, ...) native.fail("strategy expert: " .. text:format(...)) end

--- "2, 4 or 8 would divide": numbers of ranks above 1 that divide a number of experts, up to eight of them.
local function choices(experts)
  local all = {}
  for n = 2, experts do
    if experts % n == 0 and #all < 8 then all[#all + 1] = tostring(n) end
  end
  if #all == 0 then return "no number of ranks above 1 divides" end
  local last = table.remove(all)
  return ("%s%s ranks would divide"):format(#all > 0 and table.concat(all, ", ") .. " or " or "", last)
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
        native.fail(("strategy expert must come before other strategies in program:parallel: %s is split over %s "
          .. "already"):format(p.name, axis))
      end
    end
  end
end

--- Refuses groups of tokens of dispatch's x [.., T, D] that earlier splits of the sequence tear apart.
local function require_groups(program, mesh, op)
  local ranks, text, seen = 1, {}, {}
  for x in program:inputs() do
    for _, split in ipairs(x:splits()) do
      if x.dims[split.dim] == "seq" and not seen[split.axis] and mesh:size(split.axis) > 1 then
        seen[split.axis], ranks = true, ranks * mesh:size(split.axis)
        text[#text + 1] = ("%s=%d"):format(split.axis, mesh:size(split.axis))
      end
    end
  end
  local x = op.inputs[1]
  for d, name in ipairs(x.dims) do
    local groups = d < #x.shape - 1 and x.shape[d] or 1
    if name == "seq" and groups % ranks ~= 0 then
      refuse("%s would tear groups of tokens of %s apart: %d of a row are not a multiple of %d\n  give the mixture a "
        .. "multiple of %d groups of a row (parts = %d)", table.concat(text, " and "), op.scope, groups, ranks, ranks,
        ranks)
    end
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
    for dim, name in ipairs(p.dims) do
      if name == "experts" then
        local n = p.shape[dim]
        if n % ranks ~= 0 then
          refuse("cannot split the %d experts of %s over %s: %d is not a multiple of %d\n  %s", n, p.name, over, n,
            ranks, choices(n))
        end
        refuse_later(p, axes)
        split(p, dim, "store")
        found = true
      end
    end
  end
  if not found then
    refuse("no param has a dim named experts, so that %s splits nothing\n  name the dim of the experts of a mixture "
      .. "experts, or remove the strategy or its axes", over)
  end
  for _, op in ipairs(program:ops()) do
    -- Slabs are [.., E, S, D] for E experts of S slots, loads [.., E]. `use` says that an axis which splits experts is
    -- meant to: an op that reads the value by group asks for an all-to-all over it, where the axis splits groups.
    if op.kind == "dispatch" then
      require_groups(program, mesh, op)
      split(op.outputs[1], #op.outputs[1].shape - 2, "store")
    elseif op.kind == "combine" then split(op.inputs[1], #op.inputs[1].shape - 2, "use")
    elseif op.kind == "grouped_matmul" and #op.inputs[1].shape > 2 then
      split(op.inputs[3], #op.inputs[3].shape, "use")
    end
  end
end)
