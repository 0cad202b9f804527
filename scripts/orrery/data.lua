--- Where training text comes from. Nothing is read in Lua.
local native = require "orrery.native"

local data = {
  text = native.text,        -- one token a byte
  tokens = native.tokens,    -- a token file of u16 or u32, as `orrery tokenize` writes
}

--- A token file when the path ends in .bin, otherwise text by bytes. options as for both, path (data.path).
function data.file(options)
  local path = options and options.path or native.config.data.path
  if path and path:find("%.bin$") then return native.tokens(options) end
  return native.text(options)
end

return data
