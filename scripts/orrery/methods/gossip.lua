--- Gossip on a ring (Lian et al. 2017, "Can Decentralized Algorithms Outperform Centralized Algorithms?"): after every
-- `every` steps each island takes the mean of its params and those of both neighbours, in two messages.
local islands = require "orrery.islands"
local numbers = require "orrery.numbers"

--- methods.gossip(program, { optimizer = o.optim.adamw {}, every = 1 }): takes the place of program:train_with.
return function(program, options)
  local every = options.every or 1
  numbers.must(numbers.integer("gossip: every", every, 1))
  program:also("inner", function(update)
    options.optimizer(update)
    islands.count(update)
  end)
  program:also("mix", function(update)
    islands.meet(update)
    for p in update:params() do
      local ring = p.dims[1]
      update:set(p, (p + p:roll { dim = ring, by = 1 } + p:roll { dim = ring, by = -1 }) * (1 / 3))
    end
  end)
  program:round(("inner*%d mix"):format(every))
end
