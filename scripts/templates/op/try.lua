--- Trains a small network whose activation is the plugin's op.
local o  = require "orrery"
local nn = require "orrery.nn"
local opt = o.options { zero = { 0, "stage of ZeRO over dp" } }

local data = o.data.file {}
local program = o.trace("try", data.signature, function(batch)
  local x = nn.embedding(batch.tokens, "wte", { "vocab", data.vocab }, { "embed", 32 })
  for i = 0, 1 do
    x = x + nn.scope("layers." .. i, function()
      local h = nn.linear(nn.layernorm(x, "ln"), "up", { "mlp", 64 })
      return nn.linear(o.op.sundial(h, { rate = 2 }), "down", { "embed", 32 })
    end)
  end
  return nn.linear(x, "head", { "vocab", data.vocab }):cross_entropy(batch.targets)
end)
program:train_with(o.optim.adamw { lr = 5e-3, decay = 0 })
program:parallel {
  o.strategy.tensor { axis = "tp" },
  o.strategy.data { axis = "dp", zero = opt.zero },
}
program:compile():train(data)
