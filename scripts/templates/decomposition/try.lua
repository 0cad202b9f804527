--- Trains a small model with the ring attention of sundial.
local o     = require "orrery"
local llama = require "orrery.models.llama"

local data = o.data.file {}
local model = llama { layers = 2, embed = 32, heads = 4, kv_heads = 2, mlp = 64, vocab = data.vocab }
local program = o.trace("try", data.signature, function(batch)
  return model:loss(batch.tokens, batch.targets)
end)
program:train_with(o.optim.adamw { lr = 1e-2 })
program:parallel { require "sundial" { axis = "cp" } }
program:compile():train(data)
