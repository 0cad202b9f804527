--- Qwen3-MoE (Yang et al. 2025): Llama with norms of q and k, and in each layer but the first `dense` ones many small
-- experts.
local llama = require "orrery.models.llama"

local defaults = { layers = 48, embed = 2048, heads = 32, kv_heads = 4, head_dim = 128, mlp = 6144, expert_mlp = 768,
                   vocab = 151936, theta = 1e6, eps = 1e-6, tied = false, std = 0.02, embed_std = false, fused = true,
                   loss_tile = -1, experts = 128, top_k = 8, dense = 0, renormalise = true, capacity = false,
                   max_capacity = false, parts = 1, overflow = "drop", drop = "position", dispatch = "slab",
                   expert_blocks = 0, balance = false }

--- qwen3_moe { layers = 48, embed = 2048, heads = 32, kv_heads = 4, expert_mlp = 768, experts = 128, top_k = 8 }
return function(options)
  local config = require "orrery.models.options"("qwen3_moe", options, defaults)
  config.qk_norm = true
  return llama(config)
end
