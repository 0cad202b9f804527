--- GPT with an optimizer written in Lua.
local o = require "orrery"

local opt = o.options {
  optimizer = { "lion", "lion, muon, nesterov, adamw, adafactor or rmsprop" },
  zero      = { 0, "1, 2 or 3: what is split over dp" },
  sequence  = { false, "tp also splits what lies between the blocks" },
}

local data = o.data.text {}
local model = require "orrery.models.gpt" { layers = 1, embed = 32, heads = 4, mlp = 48, vocab = 40, seq = 8 }
local program = o.trace("gpt", data.signature, function(batch) return model:loss(batch.tokens, batch.targets) end)
program:train_with(require "updates"[opt.optimizer](1e-3))
program:parallel(require "spread"(opt, {}))
program:compile()
