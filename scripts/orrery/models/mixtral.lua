--- Mixtral (Jiang et al. 2024): Llama with a mixture of experts in each layer; a token's two best experts share its
-- weight of 1.
local llama = require "orrery.models.llama"

local defaults = { layers = 32, embed = 4096, heads = 32, kv_heads = 8, head_dim = 0, mlp = 14336, vocab = 32000,
                   window = 0, theta = 1e6, eps = 1e-5, tied = false, std = 0.02, embed_std = false, fused = true,
                   loss_tile = -1, experts = 8, top_k = 2, capacity = false, max_capacity = false, parts = 1,
                   overflow = "drop", drop = "position", dispatch = "slab", expert_blocks = 0, balance = false }

--- mixtral { layers = 32, embed = 4096, heads = 32, kv_heads = 8, mlp = 14336, experts = 8, top_k = 2 }
return function(options)
  return llama(require "orrery.models.options"("mixtral", options, defaults))
end
