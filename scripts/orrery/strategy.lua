--- Strategies: `define` makes one from a Lua function; `plugins` and `twins` find the ones that are there.
local native = require "orrery.native"

local strategy = {
  define = native.define,   -- define(name [, defaults], function(program, mesh, options))
  S = native.S,             -- S "batch" or S(1): split that dim
  R = native.R,             -- a whole copy on every rank
  P = native.P,             -- of what an op computes: a part of the sum on every rank
}

--- strategy.plugins.NAME(options): the C++ plugin strategy/NAME.
strategy.plugins = setmetatable({}, {
  __index = function(_, name)
    return function(options) return native.strategy(name, options) end
  end,
})

--- strategy.twins.NAME(options): scripts/orrery/strategies/NAME.lua.
strategy.twins = setmetatable({}, {
  __index = function(_, name) return require("orrery.strategies." .. name) end,
})

return strategy
