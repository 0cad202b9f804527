--- Where the inputs of a program come from: o.data.NAME { ... } is the plugin data/NAME. Nothing is read in Lua.
local native = require "orrery.native"

local function source(_, name)
  return function(options) return native.data(name, options) end
end

local data = setmetatable({
  text = source(nil, "text"),        -- one token a byte
  tokens = source(nil, "tokens"),    -- a token file of u16 or u32, as `orrery tokenize` writes
  arrays = source(nil, "arrays"),    -- named arrays of a safetensors file, a .npy or a folder of .npy
}, { __index = source })

--- A token file when the path ends in .bin, otherwise text by bytes. options as for both, path (data.path).
function data.file(options)
  local path = options and options.path or native.config.data.path
  if path and path:find("%.bin$") then return data.tokens(options) end
  return data.text(options)
end

return data
