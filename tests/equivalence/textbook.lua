--- Models of the textbooks: a dense mixture of experts, a recurrent network unrolled over time, an encoder.
local o = require "orrery"
local nn, strategy = o.nn, require "orrery.strategy"

local opt = o.options {
  model = { "mixture", "mixture, recurrent or encoder" },
  zero  = { 0, "1, 2 or 3: what is split over dp" },
}

--- x [B, T, C] -> [B, T, C]: each expert's output times a gate of its own, a number per token.
local function mixture(x)
  local y = x
  for e = 1, 2 do
    local expert = nn.linear(nn.linear(x, "up" .. e, { "mlp", 48 }):tanh(), "down" .. e, { "embed", 32 })
    y = y + expert * nn.linear(x, "gate" .. e, { "gate", 1 }):sigmoid()
  end
  return y
end

--- x [B, T, C] -> [B, T, H]: h = tanh(x w + h u), one token after the other (Elman 1990).
local function recurrent(x)
  local states, h = {}, nil
  for t = 0, x:dim "seq" - 1 do
    local z = nn.linear(x:slice { dim = "seq", start = t, size = 1 }, "input", { "mlp", 24 })
    if h then
      z = z + nn.linear(h:reshape { "batch", "seq", { "state", 24 } }, "state", { "mlp", 24 }, { bias = false })
    end
    h = z:tanh()
    states[#states + 1] = h
  end
  states[#states + 1] = { dim = "seq" }
  return h.concat(table.unpack(states))
end

--- x [B, T, C] -> [B, T, C]: two blocks in which every token sees all (Vaswani et al. 2017), pre-norm.
local function encoder(x)
  for i = 0, 1 do
    nn.scope("layers." .. i, function()
      x = x + nn.scope("attn", nn.attention, nn.layernorm(x, "ln_1"), { heads = 4, rope = 10000.0, causal = false })
      x = x + nn.scope("mlp", nn.mlp, nn.layernorm(x, "ln_2"), { mlp = 48 })
    end)
  end
  return x
end

local models = { mixture = mixture, recurrent = recurrent, encoder = encoder }

local wide = strategy.define("wide", { axis = "tp" }, function(program, _, options)
  for p in program:params() do
    for d, name in ipairs(p.dims) do
      if name == "mlp" then p:store { [options.axis] = strategy.S(d) } end
    end
  end
end)

local data = o.data.text {}
local program = o.trace(opt.model, data.signature, function(batch)
  local x = nn.embedding(batch.tokens, "table", { "vocab", 40 }, { "embed", 32 }, 0.5)
  x = models[opt.model](x)
  return nn.linear(x, "head", { "vocab", 40 }):cross_entropy(batch.targets)
end)
program:train_with(o.optim.sgd { lr = 0.1, momentum = 0.9, clip = 1 })
program:parallel(require "spread"(opt, {}, opt.model ~= "encoder" and wide {} or nil))
program:compile()
