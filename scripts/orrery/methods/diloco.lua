--- DiLoCo (Douillard et al. 2023, "DiLoCo: Distributed Low-Communication Training of Language Models"): islands train
-- on their own from shared outer params for `every` steps; then an outer step of SGD with Nesterov momentum moves the
-- outer params by the mean of what the islands moved away, and all begin again from these.
local islands = require "orrery.islands"
local native = require "orrery.native"
local numbers = require "orrery.numbers"

--- methods.diloco(program, { optimizer = o.optim.adamw {}, every = 50, lr = 0.7, momentum = 0.9 }): takes the place of
-- program:train_with. `lr` and `momentum` are those of the outer step. Or `outer`: an optimizer for that step, as
-- o.optim.adamw { name = "outer", clip = false }. Its gradient is what the islands moved away, its step number that of
-- training, and a norm of its gradients is over the arrays of all islands.
return function(program, options)
  local every, lr, momentum = options.every or 50, options.lr or 0.7, options.momentum or 0.9
  numbers.must(numbers.integer("diloco: every", every, 1))
  numbers.must(numbers.number("diloco: lr", lr, 0))
  numbers.must(numbers.number("diloco: momentum", momentum, 0, 1))
  if options.outer and (options.lr or options.momentum) then
    native.fail("diloco: lr and momentum have no effect with outer; give them to that optimizer")
  end
  local function inner(update)
    options.optimizer(update)
    islands.count(update)
  end
  local function keep(update)
    for p in update:params() do update:set(update:state(p, "outer"), p * 1) end
  end
  program:also("first", function(update)                       -- the first step leaves the initial params
    inner(update)
    keep(update)
  end)
  program:also("inner", inner)
  program:also(options.outer and "back" or "outer", function(update)
    local mean = islands.meet(update)
    for p in update:params() do
      local outer = update:state(p, "outer")
      local away = mean(outer - p, p)
      if options.outer then                                    -- `outer` has the gradient until `keep`
        update:set(outer, away)
        update:set(p, outer)
      else
        update:set(p, islands.outer_step(update, p, outer, away, lr, momentum))
      end
    end
  end)
  if options.outer then
    program:also("outer", function(update)
      for p in update:params() do update:gradient(p, update:state(p, "outer")) end
      update:count(native.constant(1))
      options.outer(update)
    end)
    program:also("keep", keep)
  end
  local rest, meet = every > 1 and ("inner*%d "):format(every - 1) or "", options.outer and "back outer keep" or "outer"
  program:round(("first %s%s, then inner*%d %s"):format(rest, meet, every, meet))
end
