--- Local SGD (Stich 2019, "Local SGD Converges Fast and Communicates Little"): islands train on their own, and all take
-- the mean of their params after every `every` steps. States of the optimizer stay with each island.
local islands = require "orrery.islands"
local numbers = require "orrery.numbers"

--- methods.local_sgd(program, { optimizer = o.optim.adamw {}, every = 10 }): takes the place of program:train_with.
return function(program, options)
  local every = options.every or 10
  numbers.must(numbers.integer("local_sgd: every", every, 1))
  program:also("inner", function(update)
    options.optimizer(update)
    islands.count(update)
  end)
  program:also("mean", function(update)
    local mean = islands.meet(update)
    for p in update:params() do update:set(p, mean(p)) end
  end)
  program:round(("inner*%d mean"):format(every))
end
