--- Every model of the library traces, trains, and says where each of its params lies in a published checkpoint.
local o = require "orrery"

local sizes = {
  gpt = { layers = 2, embed = 12, heads = 3, vocab = 17, seq = 4 },
  llama = { layers = 2, embed = 12, heads = 6, kv_heads = 2, mlp = 20, vocab = 17 },
  qwen2 = { layers = 2, embed = 12, heads = 6, kv_heads = 2, mlp = 20, vocab = 17 },
  mixtral = { layers = 2, embed = 12, heads = 6, kv_heads = 2, mlp = 20, vocab = 17, experts = 4 },
  qwen3_moe = { layers = 2, embed = 12, heads = 6, kv_heads = 2, head_dim = 2, mlp = 20, expert_mlp = 8, vocab = 17,
                experts = 6, top_k = 3, dense = 1 },
}
local data = o.data.text {}
for name, size in pairs(sizes) do
  for _, tied in ipairs { true, false } do
    size.tied = tied
    local model = require("orrery.models." .. name)(size)
    local program = o.trace(name, data.signature, function(batch) return model:loss(batch.tokens, batch.targets) end)
    program:train_with(o.optim.sgd { lr = o.lr.linear { peak = 0.1, warmup = 2, floor = 0.01 }, clip = 1 })
    program:weights(model:tensors())                             -- refuses a param that is missing or unknown
    assert(program:text():find("program " .. name, 1, true))
    program:compile()
  end
end
print "ok"
