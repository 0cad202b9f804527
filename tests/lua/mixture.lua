--- nn.moe in other ops: every expert computes every token, and choices are made by counting how many are larger. It has
-- no ids and no slots. Options, params and result as nn.moe, without overflow, balance and std.
-- Shapes: B batch, T seq, C embed, P parts, N tokens of a part, E experts, M mlp.
local o, nn = require "orrery", require "orrery.nn"

local function last(x) return #x.shape end
local function total(x, d) return x:sum { dims = { d }, keep = true } end

--- x [..., n] -> [..., n]: how many numbers of the row are larger, or equal and earlier.
local function rank(x)
  local shape, n = x.shape, x.shape[last(x)]
  local function with(a, b) return table.move({ a, b }, 1, 2, #shape, { table.unpack(shape, 1, #shape - 1) }) end
  local own, other = x:reshape(with(n, 1)), x:reshape(with(1, n))
  local function place(dim) return o.iota { shape = { n, n }, dim = dim, dtype = "f32" } end
  local before = other:equal(own):cast "f32" * place(2):less(place(1)):cast "f32" + other:greater(own):cast "f32"
  return before:sum { dims = { #shape + 1 } }
end

local function among(x, k) return rank(x):less(k):cast "f32" end

return function(x, c)
  local batch, seq, embed = table.unpack(x.shape)
  local parts, groups = c.parts or 1, c.groups or 1
  local tokens, count = seq // parts, c.experts
  local function param(name, ...) return nn.scope(name, nn.param, { name = "weight", shape = { ... } }) end
  local function bias(name, ...) return nn.scope(name, nn.param, { name = "bias", shape = { ... } }) end
  local E, C, M = { "experts", count }, { "embed", embed }, { "mlp", c.mlp }
  local logits = x:matmul(param("gate", C, { "router", count }))
  if c.router_bias then logits = logits + bias("gate", { "router", count }) end
  logits = logits:reshape { batch, parts, tokens, count }
  local function scored(y) return c.scores == "sigmoid" and y:sigmoid() or y:softmax() end
  local by = c.first == "top_k" and logits or scored(logits)
  local choice = c.correction and by + c.correction:reshape { count } or by
  if groups > 1 then
    local each = count // groups
    local grouped = choice:reshape { batch, parts, tokens, groups, each }
    local best = among((grouped * among(grouped, 2)):sum { dims = { 5 } }, c.top_groups)
    local open = best:reshape { batch, parts, tokens, groups, 1 }:greater(0)
    choice = open:select(grouped, o.constant(-1e30)):reshape { batch, parts, tokens, count }
  end
  local chosen = among(choice, c.top_k)                                  -- [B, P, N, E]
  local weight = by
  if c.first == "top_k" and c.scores == "sigmoid" then weight = logits:sigmoid()
  elseif c.first == "top_k" then
    local e = logits:exp() * chosen
    weight = e / total(e, 4)
  end
  weight = weight * chosen
  if c.renormalise then weight = weight / total(weight, 4) end
  weight = weight * (c.scale or 1)
  local slots = math.min(math.ceil((c.capacity or 1.25) * tokens * c.top_k / count), tokens)
  local before
  if c.drop == "weight" then                                             -- chosen tokens of more weight
    before = rank((weight - (chosen * -1 + 1)):transpose { 1, 2, 4, 3 }):transpose { 1, 2, 4, 3 }
  else
    before = chosen:cumsum(3, { exclusive = true })
  end
  weight = (weight * before:less(slots):cast "f32"):reshape { "batch", { "seq", seq }, count }
  local y
  for e = 0, count - 1 do
    local function product(h, name, from, to)
      local function of(w, ...) return w:slice { dim = 1, start = e, size = 1 }:reshape { ... } end
      h = h:matmul(of(param(name, E, from, to), from, to))
      return c.bias and h + of(bias(name, E, to), to) or h
    end
    local part = nn.scope("experts", function()
      local gate, up = product(x, "gate", C, M), product(x, "up", C, M)
      if not c.limit then return product(gate:silu() * up, "down", M, C) end
      local low = (up * -1 - c.limit):relu() + up                        -- at least -limit
      gate, up = gate - (gate - c.limit):relu(), low - (low - c.limit):relu()
      return product(gate / ((gate * -1.702):exp() + 1) * (up + 1), "down", M, C)
    end) * weight:slice { dim = 3, start = e, size = 1 }
    y = y and y + part or part
  end
  if c.shared then
    local wide = { "mlp", c.shared }
    local shared = nn.scope("shared_experts", function()
      local h = x:matmul(param("gate", C, wide)):silu() * x:matmul(param("up", C, wide))
      return h:matmul(param("down", wide, C))
    end)
    if c.shared_gate then shared = shared * x:matmul(param("shared_expert_gate", C, { "gates", 1 })):sigmoid() end
    y = y + shared
  end
  return y
end
