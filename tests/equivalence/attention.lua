--- One layer of attention between an embedding and a head, in every form that nn.attention has.
local o = require "orrery"
local nn = o.nn

local opt = o.options {
  fused    = { true, "one op" },
  causal   = { true, "a position sees none behind it" },
  window   = { 0, "keys that a position sees; 0: all" },
  kv_heads = { 4, "heads of keys and values" },
  zero     = { 0, "stage over dp" },
  sequence = { false, "tp also splits what lies around" },
}

local data = o.data.text {}
local program = o.trace("attention", data.signature, function(batch)
  local vocab, embed = { "vocab", 40 }, { "embed", 32 }
  local x = nn.embedding(batch.tokens, "table", vocab, embed, 0.5)
  nn.scope("layers.0", function()
    x = x + nn.scope("attn", nn.attention, nn.rmsnorm(x, "norm"), {
      heads = 4, kv_heads = opt.kv_heads, causal = opt.causal, window = opt.window, fused = opt.fused,
      rope = 10000.0, bias = false,
      std = 0.3,
    })
  end)
  return nn.linear(x, "head", vocab):cross_entropy(batch.targets)
end)
program:train_with(o.optim.adamw { lr = 1e-3, clip = 1.0 })
program:parallel {
  o.strategy.tensor { axis = "tp", sequence = opt.sequence },
  o.strategy.data { axis = "dp", zero = opt.zero },
}
program:compile()
