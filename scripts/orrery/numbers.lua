--- Checks of numeric options, because an optimizer with a nan trains without an error. Each returns the value, or nil
-- and what is wrong with it.
local native = require "orrery.native"

local numbers = {}

--- Throws `problem` at the script's line when the value is nil.
function numbers.must(value, problem)
  if value == nil then native.fail(problem) end
end

local function wrong(what, value, expected)
  return nil, ("%s is %s, expected %s"):format(what, value ~= value and "nan" or tostring(value), expected)
end

local function finite(value) return type(value) == "number" and value - value == 0 end

--- A finite number of at least `least`, and below `below` if given.
function numbers.number(what, value, least, below)
  if finite(value) and value >= least and not (below and value >= below) then return value end
  return wrong(what, value, below and ("a number from %s to below %s"):format(least, below)
    or ("a number of at least %s"):format(least))
end

--- An integer of at least `least`; 2.0 is 2.
function numbers.integer(what, value, least)
  local whole = type(value) == "number" and math.tointeger(value)
  if whole and whole >= least then return whole end
  return wrong(what, value, ("an integer of at least %d"):format(least))
end

--- A finite number above 0.
function numbers.positive(what, value)
  if finite(value) and value > 0 then return value end
  return wrong(what, value, "a number above 0")
end

return numbers
