--- Context parallelism: the ranks of an axis share each row's sequence. In attention each has all keys for a part of
-- the heads (method "heads"), gathers keys and values for its part of the queries ("gather"; keep = true: once for both
-- passes), or passes them around ("ring"). order: "zigzag" or "balanced", in which rows are read so that ranks have
-- equal parts of a causal mask. plugins/strategy/context gives the same program.
-- Shapes: q and o [B, T, H, D], k and v [B, S, G, D], statistics [B, H, T], documents and positions [B, T] and [B, S].
local native, strategy = require "orrery.native", require "orrery.strategy"
local R, S, find_dim = strategy.R, strategy.S, strategy.find_dim

local function refuse(text, ...) native.fail("strategy context: " .. text:format(...)) end

--- "cp of 2, 3 or 6 would divide": sizes of the axis that divide a number, up to eight of them.
local function choices(axis, size)
  local all = {}
  for n = 2, size do
    if size % n == 0 and #all < 8 then all[#all + 1] = n end
  end
  if #all == 0 then return ("no size of %s above 1 divides"):format(axis) end
  local last = table.remove(all)
  return ("%s of %s%d would divide"):format(axis, #all > 0 and table.concat(all, ", ") .. " or " or "", last)
end

--- Refuses to run after a strategy that splits the batch over this axis, or the sequence or heads over another one.
local function refuse_later(program, mesh, axis)
  local after = "strategy context must come before other strategies in program:parallel: "
  for x in program:inputs() do
    for _, split in ipairs(x:splits()) do
      if split.axis == axis and x.dims[split.dim] == "batch" then
        native.fail(after .. ("the batch is split over %s already"):format(axis))
      end
    end
    for _, op in ipairs(find_dim(x, "seq") and x:readers() or {}) do
      for _, y in ipairs(op.outputs) do
        for _, split in ipairs(y:splits()) do
          if y.dims[split.dim] == "seq" and split.axis ~= axis then
            native.fail(after .. ("seq is split by %s outside, by %s inside"):format(axis, split.axis))
          end
        end
      end
    end
  end
  for p in program:params() do
    for _, split in ipairs(p:splits()) do
      local heads = p.dims[split.dim] == "heads" or p.dims[split.dim] == "kv_heads"
      if heads and not split.gathered and mesh:size(split.axis) > 1 then
        native.fail(after .. ("seq is split by %s outside, by %s inside"):format(axis, split.axis))
      end
    end
  end
end

--- Refuses a ring inside of another split of the sequence: its ranks would not have blocks of the whole row.
local function refuse_inside(program, axis)
  for x in program:inputs() do
    for _, split in ipairs(x:splits()) do
      if split.axis ~= axis and x.dims[split.dim] == "seq" then
        refuse("a ring over %s must split seq outside, but %s splits it already; list the ring before it", axis,
          split.axis)
      end
    end
  end
end

--- Splits the dim `seq` of all inputs, and returns the first of them. Other values follow.
local function split_sequence(program, axis, n, order)
  local first, chunks = nil, order == "zigzag" and 2 * n or n
  for x in program:inputs() do
    local dim = find_dim(x, "seq")
    if dim then
      first = first or x
      local size = x.shape[dim]
      if size % chunks ~= 0 then
        refuse("cannot split seq of %s over %s=%d%s: rows of %d tokens are not a multiple of %d\n  %s, or rows of %d "
          .. "tokens", x.name, axis, n, chunks > n and " in zigzag order" or "", size, chunks,
          choices(axis, size // (chunks // n)), size // chunks * chunks + chunks)
      end
      x:store { [axis] = S(dim) }
    end
  end
  if not first then
    refuse("no input has a dim named seq, so that %s=%d splits nothing\n  name the dim of a row's tokens seq, "
      .. "or remove the axis", axis, n)
  end
  return first
end

--- Whether the op is attention, or its gradient: q, k, v, ... -> dq, dk, dv.
local function is_attention(op) return op.kind == "attention" or op.forward == "attention" and #op.outputs == 3 end

--- Splits operands and results of attention by heads, and what other ops make from the results by sequence again.
local function split_heads(op, axis, n)
  local q = op.inputs[1]
  local heads = q.shape[3]
  if heads % n ~= 0 then
    refuse("cannot split the %d heads of %s (%s) over %s=%d\n  %s, or give method = \"gather\", which splits no heads",
      heads, op.scope, op.origin, axis, n, choices(axis, heads))
  end
  for _, list in ipairs { op.inputs, op.outputs } do
    for _, x in ipairs(list) do
      local dim = #x.shape == 3 and 2 or 3
      if #x.shape == 2 then x:use { [axis] = R }
      elseif x.shape[dim] % n == 0 then x:store { [axis] = S(dim), optional = x.shape[dim] ~= heads } end
    end
  end
  for _, result in ipairs(op.outputs) do
    for _, reader in ipairs(#result.shape == 4 and result:readers() or {}) do
      for _, y in ipairs(is_attention(reader) and {} or reader.outputs) do
        local dim = find_dim(y, q.dims[2])
        if dim then y:store { [axis] = S(dim) } end
      end
    end
  end
end

--- Gathers keys and values (`as` R) where attention and its gradient read them, or for a ring leaves them split (S(2)),
-- which asks attention to pass them around. The sums of their gradients are scattered.
local function read_keys(op, axis, as, keep)
  for _, x in ipairs(op.inputs) do
    if #x.shape == 2 then x:use { [axis] = as } end
  end
  for i = 2, 3 do
    op.inputs[i]:use { [axis] = as, keep = keep and "step" or "fragment" }
    if #op.outputs == 3 then op.outputs[i]:store { [axis] = S(2), optional = true } end
  end
end

local defaults = { axis = "cp", method = "auto", order = "natural", keep = false }

return strategy.define("context", defaults, function(program, mesh, options)
  local axis, method, order, n = options.axis, options.method, options.order, mesh:size(options.axis)
  if order ~= "natural" and order ~= "zigzag" and order ~= "balanced" then
    refuse("order is \"%s\"; there are \"natural\", \"zigzag\" and \"balanced\"", order)
  end
  local given = method ~= "auto"
  if not given then method = order == "natural" and "heads" or "gather" end
  if method == "heads" and order ~= "natural" then
    refuse("order applies only to methods that split the queries in attention; with method \"heads\" every rank reads "
      .. "whole rows, and does the same work in natural order\n  leave order out, or give method = \"gather\" or "
      .. "\"ring\"")
  end
  if method ~= "heads" and method ~= "gather" and method ~= "ring" then
    refuse("method is \"%s\"; there are \"heads\" (heads are split in attention), \"gather\" (keys and values are "
      .. "gathered) and \"ring\" (keys and values are passed around)", method)
  end
  if method ~= "gather" and options.keep then
    refuse("keep applies only to what method \"gather\" gathers; leave it out, or give method = \"gather\"")
  end
  if n == 1 then return end
  refuse_later(program, mesh, axis)
  if method == "ring" then refuse_inside(program, axis) end
  local split, found = split_sequence(program, axis, n, order), false
  if order ~= "natural" then program:order(axis, order) end
  for _, op in ipairs(program:ops()) do
    found = found or is_attention(op)
    if is_attention(op) and method == "heads" then split_heads(op, axis, n)
    elseif is_attention(op) then read_keys(op, axis, method == "ring" and S(2) or R, options.keep) end
  end
  if not found and given then
    refuse("method = \"%s\" applies to op attention, which the program lacks; its ops that mix positions would gather "
      .. "the sequence\n  use attention (gpt.lua, llama.lua: script.fused = true), or leave method out", method)
  elseif not found then
    program:note(split, "has no op attention among its readers: method does nothing, and ops that mix positions gather "
      .. "the sequence")
  end
end)
