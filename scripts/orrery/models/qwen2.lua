--- Qwen2 (Yang et al. 2024): Llama with biases in q, k and v, and a tied head in the small sizes.
local llama = require "orrery.models.llama"

local defaults = { layers = 24, embed = 896, heads = 14, kv_heads = 2, head_dim = 0, mlp = 4864, vocab = 151936,
                   theta = 1e6, eps = 1e-6, tied = true, std = 0.02, fused = true,
                   loss_tile = -1 }

--- qwen2 { layers = 24, embed = 896, heads = 14, kv_heads = 2, mlp = 4864, vocab = 151936, tied = true }
return function(options)
  local config = require "orrery.models.options"("qwen2", options, defaults)
  config.qkv_bias = true
  return llama(config)
end
