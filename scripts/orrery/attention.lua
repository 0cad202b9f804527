--- Attention in other ops. by_ops: x:attention as separate ops, scores, mask, softmax, products; its backward pass
-- stores the softmax [B, H, T, S] in the compute type, as was usual before FlashAttention (Dao et al. 2022).
-- Shapes: B batch, T seq, S keys, H heads, G kv_heads, R = H / G share, D head_dim.
local native = require "orrery.native"
local dims = require "orrery.dims"

--- Returns score [..., T, S] with -1e30 where a query does not see the key, and a list of masks: a query sees a key
-- where all are 1. Masks are u8 [T, S], or of documents [B, 1, 1, T, S]. Softmax turns -1e30 to 0 unless a query sees
-- no key.
local function masked(score, options)
  local time, keys = { "seq", score:dim "seq" }, { "keys", score:dim "keys" }
  local function place(dim) return native.iota { shape = { time, keys }, dim = dim, dtype = "f32" } end
  local function sides(x)                                 -- i32 [B, T] -> f32 [B, 1, 1, T, 1], [B, 1, 1, 1, S]
    x = x:cast "f32"
    return x:reshape { "batch", 1, 1, time, 1 }, x:reshape { "batch", 1, 1, 1, keys }
  end
  local row, column
  if options.documents then row, column = sides(options.positions) else row, column = place(1), place(2) end
  local unseen, masks = native.constant(-1e30), {}
  local function keep(mask)
    masks[#masks + 1] = mask
    score = mask:select(score, unseen)
  end
  if options.documents then
    local own, other = sides(options.documents)
    keep(own:equal(other))
    keep(own:greater_equal(0))
  end
  if options.causal then keep(column:less_equal(row)) end
  if (options.window or 0) > 0 then keep(row:less(column + options.window)) end
  return score, masks
end

--- q [B, T, H, D], k and v [B, S, G, D] -> [B, T, H, D]. The R heads of a group are stacked as rows. options: causal,
-- window, documents and positions (i32 [B, T]; S = T), drop (a function applied to the softmax).
local function by_ops(q, k, v, options)
  local time, keys, heads, groups = q:dim "seq", k:dim "seq", q:dim "heads", k:dim "kv_heads"
  local share, window = heads // groups, options.window or 0
  if window > 0 and not options.causal then
    native.fail(("attention: window = %d needs causal attention: give causal = true, or leave it out"):format(window))
  end
  local function by_group(x)                              -- [B, S, G, D] -> [B, G, S, D]
    return x:reshape { "batch", { "keys", keys }, "kv_heads", "head_dim" }
      :transpose { "batch", "kv_heads", "keys", "head_dim" }
  end
  q = q:reshape { "batch", "seq", { "kv_heads", groups }, { "share", share }, "head_dim" }
    :transpose { "batch", "kv_heads", "share", "seq", "head_dim" }
    :reshape { "batch", "kv_heads", { "rows", share * time }, "head_dim" }
  local score = q:matmul(by_group(k), { trans_b = true }):scale(q:dim "head_dim" ^ -0.5)
    :reshape { "batch", "kv_heads", { "share", share }, { "seq", time }, "keys" }
  local masks
  if options.causal or options.documents then score, masks = masked(score, options) end
  local p = score:softmax()
  for _, mask in ipairs(options.documents and masks or {}) do      -- a query that sees no key has a softmax of 0
    p = mask:select(p, native.constant(0))
  end
  p = options.drop(p)
  return p:reshape { "batch", "kv_heads", { "rows", share * time }, "keys" }:matmul(by_group(v))
    :reshape { "batch", "kv_heads", { "share", share }, { "seq", time }, "head_dim" }
    :transpose { "batch", "seq", "kv_heads", "share", "head_dim" }
    :reshape { "batch", "seq", { "heads", heads }, "head_dim" }
end

--- o [B, T, H, D] of a softmax that also has the logits of sinks [H], which have no value, as in gpt-oss: o times the
-- share that the keys have of the sum. lse [B, H, T] is the log of the keys' sum.
local function with_sinks(o, lse, sinks)
  local share = (lse - sinks:reshape { "heads", 1 }):sigmoid():transpose { "batch", "seq", "heads" }
  return o * share:reshape { "batch", "seq", "heads", 1 }
end

--- `size` elements of x along a dim, from `start`.
local function part(x, dim, start, size) return x:slice { dim = dim, start = start, size = size } end

--- x [B, T, H, D] with pairs of neighbours -> the same with the first of each pair in the first half, as rope has it.
local function halves(x)
  local pairs_of = x:dim "head_dim" // 2
  local heads = dims.of(x, 3)
  return x:reshape { "batch", "seq", heads, { "pairs", pairs_of }, { "pair", 2 } }:transpose { 1, 2, 3, 5, 4 }
    :reshape { "batch", "seq", heads, { "head_dim", 2 * pairs_of } }
end

--- Multi-head latent attention of x [B, T, C]; see nn.latent_attention. N nope_dim, P rope_dim, V v_dim.
local function latent(nn, x, o)
  local embed, plain = { x.dims[#x.shape], x.shape[#x.shape] }, { bias = false, std = o.std }
  local biased = { bias = o.bias or false, std = o.std }
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
  if (o.scale or 1) ~= 1 then q = q:scale(o.scale) end              -- q [B, T, H, N + P]
  local kv = nn.linear(x, "kv_a", { "kv_rank", o.kv_rank + o.rope_dim }, biased)
  local shared = turned(part(kv, "kv_rank", o.kv_rank, o.rope_dim)
    :reshape { "batch", "seq", 1, { "head_dim", o.rope_dim } })
  kv = nn.linear(nn.rmsnorm(part(kv, "kv_rank", 0, o.kv_rank), "kv_a_norm", o.eps), "kv_b",
    { "kv_heads", heads * (o.nope_dim + o.v_dim) }, plain)
    :reshape { "batch", "seq", { "kv_heads", heads }, { "head_dim", o.nope_dim + o.v_dim } }
  -- Here shared, the rotated key, is [B, T, 1, P] and kv [B, T, H, N + V]. Ones [H, 1] give each head the shared key.
  local ones = native.iota { shape = { { "kv_heads", heads } }, dim = 1, dtype = "f32" }:scale(0) + 1
  local k = part(kv, "head_dim", 0, o.nope_dim):concat(shared * ones:reshape { "kv_heads", 1 },
    { dim = "head_dim" })                                            -- [B, T, H, N + P]
  local y = q:attention(k, part(kv, "head_dim", o.nope_dim, o.v_dim),
    { causal = true, documents = o.documents, positions = o.positions })
  return nn.linear(y:reshape { "batch", "seq", { "heads", heads * o.v_dim } }, "o", embed,
    { bias = o.bias or false, std = o.std_out or o.std })
end

return { by_ops = by_ops, with_sinks = with_sinks, part = part, latent = latent }
