--- Every op and method with wrong arguments raises an error with a text; none of them ends the process.
local native = require "orrery.native"
local o = require "orrery"

local signature = {
  x = o.array("f32", { { "batch", 4 }, { "seq", 3 }, { "embed", 6 } }), y = o.array("f32", { { "embed", 6 }, 2 }),
  t = o.array("i32", { { "batch", 4 }, { "seq", 3 } }), s = o.array("f32", {}), u = o.array("u8", { 4 }),
}
local calls, refused = 0, 0

local function attempt(f, ...)
  calls = calls + 1
  local fine, message = pcall(f, ...)
  if not fine then
    refused = refused + 1
    assert(#tostring(message) > 10, "an error without a text")
  end
end

o.trace("garbage", signature, function(b)
  local arguments = {
    b.x, b.y, b.t, b.s, b.u, 0, -1, 2.5, 0 / 0, 1 << 40, "embed", "nowhere", "", true, {}, { 1 }, { -3 }, print,
    { dim = "seq" }, { dim = 1, start = -1, size = 99 }, { dims = { "seq", "seq" } }, { 1 << 60, 1 << 60 },
    { shape = { 1 } }, { dtype = "f99" }, { p = 2 }, { { "a", 0 } }, { "batch", { "b", -5 } },
  }
  local names = native.methods "orrery.value"
  for name in pairs(native.ops()) do names[#names + 1] = name end
  for _, name in ipairs(names) do
    for _, self in ipairs { b.x, b.y, b.t, b.s, b.u } do
      local found, method = pcall(function() return self[name] end)
      if found then
        attempt(method)
        attempt(method, self)
        for i, first in ipairs(arguments) do
          attempt(method, self, first)
          attempt(method, first)
          attempt(method, self, first, arguments[(i * 7) % #arguments + 1])
          attempt(method, self, arguments[(i * 5) % #arguments + 1], first, { 1 }, first)
        end
      end
    end
  end
  for _, value in ipairs(arguments) do
    attempt(function() return b.x + value end)
    attempt(function() return value / b.x end)
    attempt(function() return b.x ^ value end)
    attempt(o.param, value)
    attempt(o.param, { name = value, shape = value, init = value })
    attempt(o.scope, value, value)
    attempt(o.constant, value, value)
    attempt(o.nn.linear, b.x, value, value)
    attempt(o.nn.attention, b.x, { heads = value })
  end
  return b.s
end)
for _, value in ipairs { 1, "x", true, {}, { {} }, { { name = 3 } }, print } do
  attempt(o.trace, value, value, value)
  attempt(o.trace, "t", value, print)
  attempt(o.array, value, value)
  attempt(o.data.text, value)
  attempt(o.data.text, { path = value })
  attempt(o.data.text, { batch = value, seq = value })
  attempt(require("orrery.strategy").define, value, value, value)
  attempt(o.strategy.data, value)
  attempt(o.optim.adamw, value)
  attempt(o.lr.cosine, value)
end
assert(calls > 20000 and refused > 10000, calls .. " calls, " .. refused .. " refused")
print "ok"
