--- GPT-2 (Radford et al. 2019): pre-LN blocks, learned positions, tanh GELU, head tied to the token table.
-- Shapes: B batch, T seq, C embed, H heads, D head_dim, M mlp, V vocab.
local nn, attention, as_published = require "orrery.nn", require "orrery.attention", require "orrery.as_published"

local GPT = {}
GPT.__index = GPT

local defaults = { layers = 12, embed = 768, heads = 12, vocab = 50257, seq = 1024, mlp = false, dropout = 0.0,
                   eps = 1e-5, tied = true, fused = true, rows = 0, loss_tile = -1 }

--- tokens i32 [B, T] -> x [B, T, C], the head's weight and its options for nn.logits. `packed`:
-- { documents = , positions = , places = }, i32 [B, T], for packed documents or tokens in another order than in the
-- text; places, which dropout masks depend on, may be left out
function GPT:head(tokens, packed)
  local c = self.config
  local vocab, embed = { "vocab", math.max(c.rows, c.vocab) }, { "embed", c.embed }
  local mask = c.rows > c.vocab and nn.words_only(vocab, c.vocab)
  local std, std_out = 0.02, 0.02 / math.sqrt(2 * c.layers)           -- residual projections start smaller
  if tokens:dim("seq") > c.seq then
    error(("gpt: sequences of %d tokens, but the model has %d positions"):format(tokens:dim("seq"), c.seq), 2)
  end
  local rows, positions = { "positions", c.seq }, nil
  if packed then positions = nn.embedding(packed.positions, "wpe", rows, embed, std)
  else
    positions = nn.table("wpe", rows, embed, std)
    if tokens:dim("seq") < c.seq then
      positions = attention.part(positions, "positions", 0, tokens:dim("seq"))
    end
    positions = positions:reshape { { "seq", tokens:dim("seq") }, "embed" }
  end
  local options = { heads = c.heads, fused = c.fused, dropout = c.dropout, std = std, std_out = std_out }
  local places = packed and rawget(packed, "places")
  if packed then
    options.documents, options.positions, options.places = packed.documents, packed.positions, places
  end
  local x_BTC = nn.dropout(nn.embedding(tokens, "wte", vocab, embed, std, c.vocab) + positions, c.dropout, places)
  for i = 0, c.layers - 1 do
    nn.scope("h." .. i, function()
      x_BTC = x_BTC + nn.scope("attn", nn.attention, nn.layernorm(x_BTC, "ln_1", c.eps), options)
      x_BTC = x_BTC + nn.scope("mlp", nn.mlp, nn.layernorm(x_BTC, "ln_2", c.eps),
        { mlp = c.mlp or 4 * c.embed, dropout = c.dropout, places = places, std = std, std_out = std_out })
    end)
  end
  x_BTC = nn.layernorm(x_BTC, "ln_f", c.eps)
  if not c.tied then
    return x_BTC, nn.table("lm_head", embed, vocab, std), { bias = mask, scope = "lm_head" }
  end
  local table = nn.table("wte", vocab, embed, std)
  return x_BTC, table, { bias = mask, trans_b = true }
end

--- tokens i32 [B, T] -> logits [B, T, V]. `packed`: see head.
function GPT:logits(tokens, packed) return nn.logits(self:head(tokens, packed)) end

--- tokens, targets i32 [B, T] -> sum of the losses f32 [], their count f32 []. `packed`: see head.
function GPT:loss(tokens, targets, packed)
  local x_BTC, weight, options = self:head(tokens, packed)
  return nn.loss(x_BTC, weight, targets, self.config.loss_tile, options)
end

--- The tensors of a published checkpoint (safetensors): a list of { param, tensor, transpose = , part = }.
-- `part` = { dim, index, count }: the index-th of `count` equal pieces along that dim of the tensor as stored.
-- `padded` = { dim, count }: the tensor has that size along the dim, the param is larger.
-- Published GPT-2 weights are [in, out] like ours. Names may lack `prefix`, as in files of the model without a head.
-- Tensors for no param must match `ignore` (* is any letters) or be bit-equal `copies`; others are an error.
-- `published`: what `orrery export` writes with them.
function GPT:tensors()
  local list = { ignore = { "*.attn.bias", "*.attn.masked_bias" }, prefix = "transformer.",     -- causal masks
                 published = self.published or as_published.gpt(self.config) }
  local words = self.config.rows > self.config.vocab and { 1, self.config.vocab } or nil
  local function add(param, tensor, part, padded)
    list[#list + 1] = { param = param, tensor = list.prefix .. (tensor or param), part = part, padded = padded }
  end
  add("wte.weight", nil, nil, words)
  add("wpe.weight")
  for i = 0, self.config.layers - 1 do
    local h = ("h.%d."):format(i)
    for _, kind in ipairs { "weight", "bias" } do
      for index, name in ipairs { "q", "k", "v" } do
        add(h .. "attn." .. name .. "." .. kind, h .. "attn.c_attn." .. kind,
          { kind == "weight" and 2 or 1, index, 3 })
      end
      add(h .. "attn.o." .. kind, h .. "attn.c_proj." .. kind)
      add(h .. "mlp.up." .. kind, h .. "mlp.c_fc." .. kind)
      add(h .. "mlp.down." .. kind, h .. "mlp.c_proj." .. kind)
      add(h .. "ln_1." .. kind)
      add(h .. "ln_2." .. kind)
    end
  end
  add("ln_f.weight")
  add("ln_f.bias")
  if self.config.tied then
    list.copies = { ["lm_head.weight"] = "transformer.wte.weight" }
  else
    list[#list + 1] = { param = "lm_head.weight", tensor = "lm_head.weight", transpose = true, padded = words }
  end
  return list
end

--- gpt { layers = 12, embed = 768, heads = 12, vocab = 50257, seq = 1024, mlp = 4 * embed, dropout = 0, tied = true,
--   fused = true, rows = vocab }; fused = false: attention as separate ops; rows: of wte, `vocab` of them have a word;
--   loss_tile: see nn.loss
return function(options)
  return setmetatable({ config = require "orrery.models.options"("gpt", options, defaults) }, GPT)
end
