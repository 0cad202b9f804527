--- Ops that plugins bring: o.op.NAME(x, ...) is the op NAME, called as a method of x is.
local native = require "orrery.native"

return setmetatable({}, { __index = function(_, name) return native.op(name) end })
