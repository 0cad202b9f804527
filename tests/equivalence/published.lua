--- A published folder's model with AdamW as tests/transformers has it, on a mesh that the test chooses.
local o = require "orrery"

local opt = o.options { zero = { 0, "stage over dp" }, multiple = { 128, "of the table's rows" },
                        mtp_weight = { 0.0, "of multi-token prediction" } }
local data = o.data.text {}
local model, published = o.published.model(o.config.checkpoint.load, {
  seq = data.seq, multiple = opt.multiple, more = opt.mtp_weight > 0 and { mtp_weight = opt.mtp_weight } or nil,
})
local program = o.trace(published.type, data.signature, function(batch)
  return model:loss(batch.tokens, batch.targets)
end)
program:train_with(o.optim.adamw { lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1, clip = 1.0 })
program:weights(model:tensors())
program:parallel {
  o.strategy.pipeline { axis = "pp" },
  o.strategy.tensor { axis = "tp" },
  o.strategy.data { axis = "dp", zero = opt.zero },
}
program:compile()
