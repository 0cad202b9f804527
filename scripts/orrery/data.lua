--- Where the inputs of a program come from: o.data.NAME { ... } is the plugin data/NAME. No data is read in Lua.
local native = require "orrery.native"

local data = {}

local given = setmetatable({}, { __mode = "k" })  -- options of each source that was made
local of_tokens = { "seq", "vocab", "token_bytes", "separator", "field", "documents" }

--- The source of a file at `path`: documents where the options ask for them, else what its name says.
local function kind_of(path, options)
  if options.documents then return "documents" end
  return path:find("%.bin$") and "tokens" or "text"
end

--- A call's options that apply to a file at `path`. A text has no token_bytes, lines of JSON have no separator.
local function of_file(path, options)
  local of = { path = path, seq = options.seq, vocab = options.vocab }
  local lines = path:find("%.jsonl$")
  if path:find("%.bin$") then of.token_bytes = options.token_bytes end
  if options.documents and not lines then of.separator = options.separator end
  if options.documents and lines then of.field = options.field end
  return of
end

--- The options of a mixture's sources; the first source that has a key sets it.
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
  of.validation, of.documents = 0, options.documents
  return data.file(of)
end

--- A source for evaluation at `path`: the call's options without the core's, so it is read like the training data.
local function evaluated(name, options, path)
  if name == "mixture" then return held_out_file(path, of_parts(options)) end
  local copy = {}
  for key, value in pairs(options or {}) do copy[key] = value end
  copy.documents = name == "documents" or nil
  if name == "text" or name == "tokens" or name == "documents" then return held_out_file(path, copy) end
  copy.path, copy.batch, copy.validation, copy.seed = path, nil, 0, nil
  return native.data(name, copy)
end

--- The configuration's validation_path, unless the call sets the validation itself.
local function validation_path(options)
  local path = native.config.data.validation_path
  if path and path ~= "" and (not options or options.validation == nil) then return path end
end

--- `place`: the key of [data] that has the list of sources; `held_out`: the data for evaluation, for such a list.
local function make(name, options, place, held_out)
  local path = not held_out and validation_path(options)
  if path then held_out = evaluated(name, options, path) end
  local made, own = native.data(name, options, place, held_out), { documents = name == "documents" or nil }
  for key, value in pairs(options or {}) do own[key] = value end
  given[made] = own
  return made
end

local function source(_, name)
  return function(options) return make(name, options) end
end

data = setmetatable({
  text = source(nil, "text"),        -- text by bytes
  tokens = source(nil, "tokens"),    -- a token file of u16 or u32, a pair of Megatron's or a file of llm.c's
  arrays = source(nil, "arrays"),    -- named arrays of a safetensors file, a .npy or a folder of .npy
  documents = source(nil, "documents"),  -- documents packed in rows, with the position of each token in its own
  mixture = source(nil, "mixture"),  -- { { source, weight }, ... }: samples of several sources
}, { __index = source })

--- A token file when the path ends in .bin, otherwise text by bytes; the mixture of data.mix when no path is given.
-- `documents` = true: packed documents of these files. The other options are those of the chosen source.
function data.file(options)
  local all = {}
  for key, value in pairs(options or {}) do all[key] = value end
  local path = all.path or native.config.data.path or ""
  local mix = not all.path and native.data_mix()
  if mix then
    for i, entry in ipairs(mix) do
      all[i] = { native.data(kind_of(entry[2], all), of_file(entry[2], all)), entry[1] }
    end
    local evaluate = validation_path(all)
    local held_out = evaluate and held_out_file(evaluate, all) or nil
    for _, key in ipairs(of_tokens) do all[key] = nil end
    return make("mixture", all, "mix", held_out)
  end
  local kind = kind_of(path, all)
  all.documents = nil
  return make(kind, all)
end

return data
