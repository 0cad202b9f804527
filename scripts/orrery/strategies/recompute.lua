--- Recomputation: the backward pass makes forward values again instead of keeping them: those of each numbered block
-- (h.0, h.1, ...), or of `scopes`; all ops, or some `kinds`. The Lua twin of plugins/strategy/recompute.
local native = require "orrery.native"
local strategy = require "orrery.strategy"

local function block_of(scope)                       -- "h.3.attn" -> "h.3"
  local path = {}
  for part in scope:gmatch "[^.]+" do
    path[#path + 1] = part
    if part:find "^%d+$" then return table.concat(path, ".") end
  end
end

return strategy.define("recompute", { scopes = {}, kinds = {} }, function(program, _, options)
  local scopes, seen = {}, {}
  for _, scope in ipairs(options.scopes) do scopes[#scopes + 1] = scope end
  if #scopes == 0 then
    for _, scope in ipairs(program:scopes()) do
      local block = block_of(scope)
      if block and not seen[block] then
        seen[block] = true
        scopes[#scopes + 1] = block
      end
    end
  end
  if #scopes == 0 then
    native.fail("strategy recompute: the program has no numbered block (a scope such as h.0)\n  name what to "
      .. "recompute in `scopes`")
  end
  for _, scope in ipairs(scopes) do program:recompute(scope, #options.kinds > 0 and options.kinds or nil) end
end)
