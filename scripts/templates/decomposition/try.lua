--- Trains a small model with the ring attention of sundial.
local o   = require "orrery"
local gpt = require "orrery.models.gpt"

local data = o.data.file {}
local model = gpt { layers = 2, embed = 32, heads = 4, vocab = data.vocab, seq = data.seq }
local program = o.trace("try", data.signature, function(batch)
  return model:loss(batch.tokens, batch.targets)
end)
program:train_with(o.optim.adamw { lr = 1e-2 })
program:parallel { require "sundial" { axis = "cp" } }
program:compile():train(data)
