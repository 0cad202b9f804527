--- Attention of DeepSeek-V3's models, in ops.
-- Shapes: B batch, T seq, C embed, H heads, D head_dim.
local native = require "orrery.native"

--- x [B, T, H, D] with pairs of neighbours -> the same with the first of each pair in the first half, as rope has it.
local function halves(x)
  local pairs_of = x:dim "head_dim" // 2
  local heads = x.dims[3] ~= "" and { x.dims[3], x.shape[3] } or x.shape[3]
  return x:reshape { "batch", "seq", heads, { "pairs", pairs_of }, { "pair", 2 } }:transpose { 1, 2, 3, 5, 4 }
    :reshape { "batch", "seq", heads, { "head_dim", 2 * pairs_of } }
end

--- Multi-head latent attention of x [B, T, C]; see nn.latent_attention.
return function(nn, x, o)
  local embed, plain = { x.dims[#x.shape], x.shape[#x.shape] }, { bias = false, std = o.std }
  local biased = { bias = o.bias or false, std = o.std }
  local function part(y, dim, start, size) return y:slice { dim = dim, start = start, size = size } end
  local function turned(y)
    if o.interleaved then y = halves(y) end
    return y:rope(o.rope)
  end
  local width, heads = o.nope_dim + o.rope_dim, o.heads
  local q = x
  if o.q_rank then
    q = nn.rmsnorm(nn.linear(x, "q_a", { "q_rank", o.q_rank }, biased), "q_a_norm", o.eps)
  end
  q = nn.linear(q, o.q_rank and "q_b" or "q", { "heads", heads * width }, plain)
    :reshape { "batch", "seq", { "heads", heads }, { "head_dim", width } }
  q = part(q, "head_dim", 0, o.nope_dim):concat(turned(part(q, "head_dim", o.nope_dim, o.rope_dim)),
    { dim = "head_dim" })
  if (o.scale or 1) ~= 1 then q = q:scale(o.scale) end
  local kv = nn.linear(x, "kv_a", { "kv_rank", o.kv_rank + o.rope_dim }, biased)
  local shared = turned(part(kv, "kv_rank", o.kv_rank, o.rope_dim)
    :reshape { "batch", "seq", 1, { "head_dim", o.rope_dim } })
  kv = nn.linear(nn.rmsnorm(part(kv, "kv_rank", 0, o.kv_rank), "kv_a_norm", o.eps), "kv_b",
    { "kv_heads", heads * (o.nope_dim + o.v_dim) }, plain)
    :reshape { "batch", "seq", { "kv_heads", heads }, { "head_dim", o.nope_dim + o.v_dim } }
  local of_each = native.iota { shape = { { "kv_heads", heads } }, dim = 1, dtype = "f32" }:scale(0) + 1
  local k = part(kv, "head_dim", 0, o.nope_dim):concat(shared * of_each:reshape { "kv_heads", 1 },
    { dim = "head_dim" })
  local y = q:attention(k, part(kv, "head_dim", o.nope_dim, o.v_dim),
    { causal = true, documents = o.documents, positions = o.positions })
  return nn.linear(y:reshape { "batch", "seq", { "heads", heads * o.v_dim } }, "o", embed,
    { bias = o.bias or false, std = o.std_out or o.std })
end
