--- Streaming DiLoCo (Douillard et al. 2025): as DiLoCo, but by fragments of layers, at different times. What is sent of
-- one is on its way for `tau` steps, while islands train on; then each mixes the new outer params with its own.
local islands = require "orrery.islands"
local numbers = require "orrery.numbers"

--- methods.streaming(program, { optimizer = o.optim.adamw {}, every = 50, fragments = 4, tau = 5, alpha = 0.5 }): takes
-- the place of program:train_with. `alpha`: weight of an island's own params in the mix; `lr`, `momentum` as of diloco.
return function(program, options)
  local every, fragments, tau = options.every or 50, options.fragments or 4, options.tau or 5
  local alpha, lr, momentum = options.alpha or 0.5, options.lr or 0.7, options.momentum or 0.9
  numbers.must(numbers.integer("streaming: fragments", fragments, 1))
  numbers.must(numbers.integer("streaming: tau", tau, 1))
  numbers.must(numbers.integer("streaming: every", every, math.max(fragments, tau)))
  numbers.must(numbers.number("streaming: alpha", alpha, 0, 1))
  numbers.must(numbers.number("streaming: lr", lr, 0))
  numbers.must(numbers.number("streaming: momentum", momentum, 0, 1))
  local function inner(update)
    options.optimizer(update)
    for k = 1, fragments do islands.count(update, k) end
  end
  program:also("first", function(update)
    inner(update)
    for p in update:params() do update:set(update:state(p, "outer"), p * 1) end  -- the initial params
  end)
  program:also("inner", inner)
  for k = 1, fragments do
    local function each(update, make)
      local of = islands.fragments(update, fragments)
      for p in update:params() do if of[p.name] == k then make(p, update:state(p, "sent")) end end
    end
    program:also("send" .. k, function(update)
      local send = islands.send(update, k)
      each(update, function(p, sent) send(sent, update:state(p, "outer") - p, p) end)
    end)
    program:also("receive" .. k, function(update)
      local mean = islands.arrive(update, k)
      each(update, function(p, sent)
        local outer = islands.outer_step(update, p, update:state(p, "outer"), mean(sent, p), lr, momentum)
        update:set(p, p * alpha + outer * (1 - alpha))
      end)
    end)
  end
  local function round(first)                                  -- `every` steps; first: nothing has been sent before
    local text, steps = first and { "first" } or {}, first and -1 or 0
    for step = 1, every do
      local after = {}
      for _, name in ipairs { "receive", "send" } do
        for k = 1, fragments do
          local since = step - k * every // fragments - (name == "receive" and tau or 0)
          if since == 0 or (since % every == 0 and not first) then after[#after + 1] = name .. k end
        end
      end
      steps = steps + 1
      if steps > 0 and (after[1] or step == every) then text[#text + 1] = ("inner*%d"):format(steps) end
      if after[1] then text[#text + 1], steps = table.concat(after, " "), 0 end
    end
    return table.concat(text, " ")
  end
  program:round(round(true) .. ", then " .. round(false))
end
