--- Trains a small network and sends its gradients over dp as a codec encodes them.
local o   = require "orrery"
local mlp = require "orrery.models.mlp"
local opt = o.options { codec = { require "sundial", "how gradients are sent over dp" } }

local data = o.data.file {}
local model = mlp { layers = 1, embed = 32, mlp = 64, vocab = data.vocab }
local program = o.trace("try", data.signature, function(batch)
  return model:loss(batch.tokens, batch.targets)
end)
program:train_with(o.optim.adamw { lr = 1e-2 })
program:parallel { o.strategies.data { axis = "dp", codec = opt.codec, feedback = opt.codec ~= "none" } }
program:compile():train(data)
