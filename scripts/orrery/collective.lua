--- The building blocks of a collective algorithm: chunks that go from one rank to another. A module that [collectives]
-- names returns a table with any of all_reduce, all_gather and reduce_scatter, each a function of the number of ranks
-- that returns { chunks = n, steps = { { move, ... }, ... } }. Ranks and chunks count from 0. In all_gather and
-- reduce_scatter the chunks are those of all blocks, rank 0's first. Moves of one step run concurrently: a copy is
-- stored at once, a reduction at the end of the step. Tables are proved before a rank starts.
local native = require "orrery.native"

return {
  copy = native.copy_chunk,       -- copy(chunk, from, to): rank `to` gets the chunk as rank `from` has it
  reduce = native.reduce_chunk,   -- reduce(chunk, from, to): adds the chunk to that of rank `to`
}
