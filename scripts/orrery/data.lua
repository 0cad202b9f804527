--- Where the inputs of a program come from: o.data.NAME { ... } is the plugin data/NAME. Nothing is read in Lua.
local native = require "orrery.native"

local data = {}

local given = setmetatable({}, { __mode = "k" })  -- options, by the source that was made with them
local of_tokens = { "seq", "vocab", "token_bytes" }

--- The options of a file of its own among those of a call. Text has no bytes of a token.
local function of_file(path, options)
  local of = { path = path }
  for _, key in ipairs(of_tokens) do of[key] = options[key] end
  if not path:find("%.bin$") then of.token_bytes = nil end
  return of
end

--- What the sources of a mixture were given, the first that has a key.
local function of_parts(parts)
  local of = {}
  for _, part in ipairs(parts or {}) do
    local own = type(part) == "table" and given[part[1]] or {}
    for _, key in ipairs(of_tokens) do
      if of[key] == nil then of[key] = own[key] end
    end
  end
  return of
end

local function held_out_file(path, options)
  local of = of_file(path, options)
  of.validation = 0
  return data.file(of)
end

--- The options without what is the core's, with another path: what is evaluated is made as what is trained on.
local function evaluated(name, options, path)
  if name == "mixture" then return held_out_file(path, of_parts(options)) end
  if name == "text" or name == "tokens" then return held_out_file(path, options or {}) end  -- by its own name
  local copy = {}
  for key, value in pairs(options or {}) do copy[key] = value end
  copy.path, copy.batch, copy.validation, copy.seed = path, nil, 0, nil
  return native.data(name, copy)
end

--- The file that the configuration has evaluated, unless the call says what is.
local function validation_path(options)
  local path = native.config.data.validation_path
  if path and path ~= "" and (not options or options.validation == nil) then return path end
end

--- `place`: the key of [data] that a list of sources is from; `held_out`: what is evaluated, for such a list.
local function make(name, options, place, held_out)
  local path = not held_out and validation_path(options)
  if path then held_out = evaluated(name, options, path) end
  local made = native.data(name, options, place, held_out)
  given[made] = options
  return made
end

local function source(_, name)
  return function(options) return make(name, options) end
end

data = setmetatable({
  text = source(nil, "text"),        -- one token a byte
  tokens = source(nil, "tokens"),    -- a token file of u16 or u32, a pair of Megatron's or a file of llm.c's
  arrays = source(nil, "arrays"),    -- named arrays of a safetensors file, a .npy or a folder of .npy
  mixture = source(nil, "mixture"),  -- { { source, weight }, ... }: samples of several sources
}, { __index = source })

--- A token file when the path ends in .bin, otherwise text by bytes; the mixture of data.mix where no path is given.
--- options as for these.
function data.file(options)
  local path = options and options.path or native.config.data.path
  local mix = not (options and options.path) and native.data_mix()
  if mix then
    local all = {}
    for key, value in pairs(options or {}) do all[key] = value end
    for i, entry in ipairs(mix) do
      local name = entry[2]:find("%.bin$") and "tokens" or "text"
      all[i] = { native.data(name, of_file(entry[2], all)), entry[1] }
    end
    local evaluate = validation_path(all)
    local held_out = evaluate and held_out_file(evaluate, all) or nil
    all.seq, all.vocab, all.token_bytes = nil, nil, nil
    return make("mixture", all, "mix", held_out)
  end
  if path and path:find("%.bin$") then return data.tokens(options) end
  return data.text(options)
end

return data
