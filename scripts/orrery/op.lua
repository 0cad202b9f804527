--- Ops of plugins: o.op.NAME(x, ...) calls the op NAME like a method of x.
local native = require "orrery.native"

return setmetatable({}, { __index = function(_, name) return native.op(name) end })
