--- DiLoCo (Douillard et al. 2023, "DiLoCo: Distributed Low-Communication Training of Language Models"): islands train
-- on their own from shared outer params for `every` steps; then an outer step of SGD with Nesterov momentum moves the
-- outer params by the mean of what the islands moved away, and all begin again from these.
local islands = require "orrery.islands"
local numbers = require "orrery.numbers"

local function option(name, value, least, below)
  numbers.must(numbers.number("diloco: " .. name, value, least, below))
  return value
end

--- methods.diloco(program, { optimizer = o.optim.adamw {}, every = 50, lr = 0.7, momentum = 0.9 }): takes the place of
-- program:train_with. `lr` and `momentum` are those of the outer step.
return function(program, options)
  local every = options.every or 50
  numbers.must(numbers.integer("diloco: every", every, 1))
  local lr, momentum = option("lr", options.lr or 0.7, 0), option("momentum", options.momentum or 0.9, 0, 1)
  local function inner(update)
    options.optimizer(update)
    islands.count(update)
  end
  program:also("first", function(update)                       -- the first step leaves the initial params
    inner(update)
    for p in update:params() do update:set(update:state(p, "outer"), p * 1) end
  end)
  program:also("inner", inner)
  program:also("outer", function(update)
    local mean = islands.meet(update)
    for p in update:params() do
      local outer = update:state(p, "outer")
      update:set(p, islands.outer_step(update, p, outer, outer - mean(p), lr, momentum))
    end
  end)
  local rest = every > 1 and ("inner*%d "):format(every - 1) or ""
  program:round(("first %souter, then inner*%d outer"):format(rest, every))
end
