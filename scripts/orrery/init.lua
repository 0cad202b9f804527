--- The library of training scripts: `local o = require "orrery"`. Types for editors are in meta.lua.
local native = require "orrery.native"
local nn = require "orrery.nn"

return {
  config   = native.config,                 -- the resolved configuration, read-only
  options  = native.options,                -- the script's own options, set by [script] and --set script.KEY=VALUE
  trace    = native.trace,                  -- records a function as a program
  array    = native.array,                  -- one input of a signature
  param    = native.param,
  state    = native.state,                  -- an array that no optimizer owns, which the model reads and sets
  scope    = native.scope,
  constant = native.constant,
  iota     = native.iota,                   -- indices along a dim
  random   = nn.random,                     -- random numbers, the same on every mesh
  concat   = nn.concat,                     -- o.concat({ a, b, c }, { dim = "seq" })
  stack    = nn.stack,                      -- along a new dim
  step     = native.step,
  training = native.training,
  decompose = native.decompose,             -- replaces ops by others where an axis splits what they read
  codec    = native.codec,                  -- what messages carry in place of arrays: encode and decode, in Lua
  capacity = native.capacity,               -- o.capacity { 1, 1.5, 2 }: one of several sizes, each with its program
  overflow = native.overflow,               -- o.overflow(load, limit): the step runs again with a larger capacity
  result   = native.result,                 -- o.result(name, value): a number that every step reports; with a count, an
                                            -- average, which every evaluation reports, too
  data     = require "orrery.data",
  op       = require "orrery.op",                    -- o.op.swish_gate(x, g): ops of C++ plugins by name
  nn       = nn,
  optim    = require "orrery.optim",
  lr       = require "orrery.lr",
  published = require "orrery.published",             -- published models, by their config.json
  methods  = setmetatable({}, { __index = function(_, name) return require("orrery.methods." .. name) end }),
  islands  = require "orrery.islands",                -- parts of methods: counts and means of islands
  strategy = require "orrery.strategy".plugins,      -- o.strategy.data { axis = "dp" }: C++ plugins by name
  strategies = require "orrery.strategy".twins,      -- o.strategies.data { axis = "dp" }: strategies written in Lua
}
