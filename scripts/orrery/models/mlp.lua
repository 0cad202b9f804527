--- A language model without attention: each position sees its own token only. For tests of layouts and kernels.
-- Shapes: B batch, T seq, C embed, M mlp, V vocab.
local nn = require "orrery.nn"

local MLP = {}
MLP.__index = MLP

local defaults = { layers = 2, embed = 64, mlp = 256, vocab = 256 }

--- tokens i32 [B, T] -> logits [B, T, V]
function MLP:logits(tokens)
  local c = self.config
  local x_BTC = nn.embedding(tokens, "table", { "vocab", c.vocab }, { "embed", c.embed }, 0.1)
  for i = 0, c.layers - 1 do
    x_BTC = x_BTC + nn.scope("layers." .. i, nn.mlp, x_BTC, { mlp = c.mlp })
  end
  return nn.linear(x_BTC, "head", { "vocab", c.vocab })
end

--- tokens, targets i32 [B, T] -> sum of the losses f32 [], their count f32 []
function MLP:loss(tokens, targets) return self:logits(tokens):cross_entropy(targets) end

--- mlp { layers = 2, embed = 64, mlp = 256, vocab = 256 }
return function(options)
  return setmetatable({ config = require "orrery.models.options"("mlp", options, defaults) }, MLP)
end
