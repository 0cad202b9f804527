--- x:attention as separate ops: scores, mask, softmax, products. The backward pass stores the softmax [B, H, T, S] in
-- the compute type, as was usual before FlashAttention (Dao et al. 2022).
-- Shapes: B batch, T seq, S keys, H heads, G kv_heads, R = H / G share, D head_dim.
local native = require "orrery.native"

--- score [..., T, S] where a query sees the key, otherwise -1e30, which softmax turns to 0.
local function masked(score, window)
  local shape = { { "seq", score:dim "seq" }, { "keys", score:dim "keys" } }
  local function place(dim) return native.iota { shape = shape, dim = dim, dtype = "f32" } end
  local row, column = place(1), place(2)
  local unseen = native.constant(-1e30)
  score = column:less_equal(row):select(score, unseen)
  if window == 0 then return score end
  return row:less(column + window):select(score, unseen)
end

--- q [B, T, H, D], k and v [B, S, G, D] -> [B, T, H, D]. The R heads of a group are stacked as rows. options: causal,
-- window, drop (a function applied to the softmax).
return function(q, k, v, options)
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
  if options.causal then score = masked(score, window) end
  local p = options.drop(score:softmax())
  return p:reshape { "batch", "kv_heads", { "rows", share * time }, "keys" }:matmul(by_group(v))
    :reshape { "batch", "kv_heads", { "share", share }, { "seq", time }, "head_dim" }
    :transpose { "batch", "seq", "kv_heads", "share", "head_dim" }
    :reshape { "batch", "seq", { "heads", heads }, "head_dim" }
end
