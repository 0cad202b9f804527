--- Ring attention: sundial { axis = "cp" } splits the sequence over the axis and decomposes attention and its gradient.
-- Each rank keeps its queries. Blocks of keys and values travel around the ring, one rank further at each step, and the
-- results of the steps are merged. A roll is added before the attention that it overlaps with.
-- Shapes: q and o [B, T, H, D], k and v [B, S, G, D], lse [B, H, T], documents and positions [B, T] and [B, S].
local o, strategy = require "orrery", require "orrery.strategy"
local S = strategy.S

--- Whether the axis splits the sequence of q, k and v, and no other axis does.
local function splits_sequence(op)
  for i = 1, 3 do
    local axes = {}
    for _, split in ipairs(op.inputs[i]:splits()) do
      if split.dim == 2 then axes[#axes + 1] = split.axis end
    end
    if #axes ~= 1 or axes[1] ~= op.axis then return false end
  end
  return true
end

--- Calls visit(inputs, attributes, step) with the keys of each block in turn, the rank's own first. `index`: the number
-- of the first operand of the four that have documents and positions, where the op has them.
local function around(op, add, index, visit)
  local inputs, attributes, block = op.inputs, op.attributes, op.inputs[2].shape[2] // op.size
  local indexed = inputs[index + 3] ~= nil
  attributes.blocks = op.size
  for step = 1, op.size do
    local after = { table.unpack(inputs) }
    for _, i in ipairs(step == op.size and {} or indexed and { 2, 3, index + 2, index + 3 } or { 2, 3 }) do
      after[i] = add("roll", { inputs[i] }, { dim = 2, by = block })
    end
    if not indexed then attributes.rolled = (step - 1) * block end
    visit(inputs, attributes, step)
    inputs = after
  end
end

local function attention(op, add)
  if not splits_sequence(op) then return false end
  local y, lse
  around(op, add, 4, function(inputs, attributes, step)
    local part, part_lse = add("attention", inputs, attributes)
    if step == 1 then y, lse = part, part_lse
    else y, lse = add("merge", { y, lse, part, part_lse }) end   -- f32
  end)
  add("cast", { y }, { dtype = op.outputs[1].dtype }, { op.outputs[1] })
  add("reshape", { lse }, { shape = lse.shape }, { op.outputs[2] })
  return true
end

--- Given lse of all keys, the gradient over one block is a term of the whole. The terms of dk and dv travel with their
-- block; the last roll brings them home, to those that the rank has computed for its own.
local function attention_grad(op, add)
  if not splits_sequence(op) then return false end
  local block, dq, own, travel = op.inputs[2].shape[2] // op.size, nil, nil, {}
  around(op, add, 7, function(inputs, attributes, step)
    local terms = { add("attention_grad", inputs, attributes) }
    dq, own = dq and add("add", { dq, terms[1] }) or terms[1], own or terms
    for i = 2, step == 1 and 0 or 3 do
      local sum = travel[i] and add("add", { travel[i], terms[i] }) or terms[i]
      travel[i] = add("roll", { sum }, { dim = 2, by = block })
    end
  end)
  add("reshape", { dq }, { shape = dq.shape }, { op.outputs[1] })
  for i = 2, 3 do add("add", { own[i], travel[i] }, {}, { op.outputs[i] }) end
  return true
end

--- Splits the sequence of inputs, and marks keys and values as read in parts.
local split = strategy.define("sundial", { axis = "cp" }, function(program, mesh, options)
  if mesh:size(options.axis) == 1 then return end
  for x in program:inputs() do
    for _, dim in ipairs(x.dims) do
      if dim == "seq" then x:store { [options.axis] = S "seq" } end
    end
  end
  for _, op in ipairs(program:ops()) do
    for i = 2, op.kind:match "^attention" and 3 or 0 do op.inputs[i]:use { [options.axis] = S(2) } end
  end
end)

return function(options)
  local axis = options and options.axis or "cp"
  o.decompose { op = "attention", axis = axis, parts = attention }
  o.decompose { op = "attention_grad", axis = axis, parts = attention_grad }
  return split(options)
end
