--- Attention in other ops. by_ops: x:attention as separate ops, scores, mask, softmax, products; its backward pass
-- stores the softmax [B, H, T, S] in the compute type, as was usual before FlashAttention (Dao et al. 2022).
-- Shapes: B batch, T seq, S keys, H heads, G kv_heads, R = H / G share, D head_dim.
local native = require "orrery.native"

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

return { by_ops = by_ops, with_sinks = with_sinks }
