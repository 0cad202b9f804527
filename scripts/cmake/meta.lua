---@meta orrery
-- Types of the script library for editors (LuaCATS). Nothing here runs; tests/lua/test_meta.lua keeps it true: every
-- function and method is here and nothing else is. The build makes scripts/orrery/meta.lua of it, with the ops.

---@alias DType "f32" | "bf16" | "f16" | "i32" | "u8" | "i8"
---@alias Number number | Value      a number becomes a constant of the other operand's type
---@alias Dim string | integer       a logical name, or a number counted from 1
---@alias NewDim string | integer | { [1]: string, [2]: integer }   keep a dim, an unnamed size, a named size
---@alias Rate number | fun(step: Value): Value

---@class TrainOptions
---@field steps? integer
---@field evaluate_every? integer
---@field evaluate_batches? integer
---@field checkpoint_every? integer
---@field log_every? integer

---@class ParamSpec
---@field name string
---@field shape ({ [1]: string, [2]: integer } | integer)[]
---@field init? { kind: string, scale?: number }
---@field dtype? DType

---@class DataOptions
---@field path? string
---@field batch? integer
---@field seq? integer
---@field vocab? integer
---@field validation? number | Data   share of the samples to evaluate, or other samples
---@field seed? integer
---@field token_bytes? integer   token files only: 2 or 4
---@field separator? integer   documents only: the id that ends each document, where there is no .idx
---@field field? string   documents only: the key of the text in lines of JSON, "text"
---@field documents? boolean   file only: documents packed in rows, o.data.documents
---@field arrays? string[]       arrays only: the names to offer

---@class AttentionOptions
---@field heads integer
---@field kv_heads? integer
---@field head_dim? integer
---@field causal? boolean   true
---@field window? integer   keys that a position sees, its own among them; all when nil or 0
---@field bias? boolean | "qkv"
---@field documents? Value   i32 [batch, seq]: a position sees those of its own document; -1: padding
---@field positions? Value   i32 [batch, seq], with documents
---@field rope? number | table   theta, or the options of rope
---@field qk_norm? number   eps
---@field sinks? boolean    one more logit a head takes part in the softmax; only where fused
---@field fused? boolean    true; false: scores, mask, softmax and products as ops of their own
---@field score_dropout? number   of the softmax; only where not fused
---@field dropout? number
---@field places? Value   i32 [batch, seq]: masks of dropout belong to them
---@field std? number
---@field std_out? number

---@class MoeOptions
---@field experts integer
---@field top_k integer   experts of a token
---@field mlp integer     width of an expert
---@field capacity? number   1.25; slots of an expert, as a multiple of its even share; the smallest of "again", 1
---@field max_capacity? number   2; the largest capacity of "again"
---@field parts? integer     1; groups of tokens in a sequence
---@field overflow? "drop" | "again"         "drop"; "again": the step runs again with more slots
---@field drop? "position" | "weight"         "position"; choices without a slot: of later tokens, or of less weight
---@field dispatch? "slab" | "rows"           "slab"; "rows": a token is sent once to each block with any of its experts
---@field blocks? integer    number of equal blocks of experts, needed with "rows"; as many as ranks share experts
---@field scores? "softmax" | "sigmoid"       "softmax"
---@field first? "scores" | "top_k"           "scores"; scores are made before the choice, or of the chosen logits
---@field renormalise? boolean                false; a token's weights are divided by their sum
---@field scale? number                       1; multiplies the weights
---@field groups? integer                     1; groups of experts, of which top_groups can be chosen
---@field top_groups? integer                 groups
---@field router_bias? boolean                false; a param, added to the logits
---@field correction? Value   [experts]; added for the choice, not to the weights
---@field shared? integer     width of an expert for all tokens
---@field shared_gate? boolean   false; a sigmoid gate of that expert
---@field bias? boolean       of the experts
---@field limit? number       gpt-oss: clamps the operands of its gated unit
---@field balance? BalanceOptions
---@field std? number       1/sqrt(in); of the weights at the start
---@field std_out? number   std; of those of the down projections

---@class BalanceOptions
---@field loss? "none" | "sequence" | "groups" | "last_step"
---@field coefficient? number   0.01
---@field groups? integer       equal parts of the batch, for loss = "groups"
---@field z? number             0; factor of the z-loss
---@field rate? number          0; of the bias against the loads
---@field targets? Value        i32 [batch, seq]: tokens with a negative one do not count

---@class Route
---@field logits Value    f32 [..., experts]
---@field scores Value    f32 [..., experts]
---@field ids Value       i32 [..., top_k]
---@field weights Value   f32 [..., top_k]
---@field load Value      i32 [batch, experts], or [batch, parts, experts]: all choices, dropped ones included
---@field slots integer   of an expert in a group
---@field experts integer
---@field top_k integer
---@field tokens integer   of a sequence
---@field scored "softmax" | "sigmoid"
---@field balance_loss? Value   f32 []
---@field z_loss? Value         f32 []

---@class SGDOptions
---@field lr? Rate
---@field momentum? number
---@field nesterov? boolean
---@field decay? number
---@field clip? number | false
---@field groups? table[]   as of AdamWOptions
---@field name? string      as of AdamWOptions

---@class AdamWOptions
---@field lr? Rate
---@field beta1? number
---@field beta2? number
---@field eps? number
---@field decay? number
---@field clip? number | false
---@field groups? table[]   { match? | dim? | rank?, decay?, lr_scale? }
---@field name? string      before the names of its states, where another optimizer of the round has them, too

--- A symbolic array: what a trace records. Operators + - * / ^ and unary - take values and numbers, with broadcasting
--- from the right.
---@class Value
---@field shape integer[]
---@field dims string[]     logical name of each dim, "" when it has none
---@field dtype DType
---@field name string       "layers.0.attn.q.weight"; "%12 (gelu)" without a name
---@operator add(Number): Value
---@operator sub(Number): Value
---@operator mul(Number): Value
---@operator div(Number): Value
---@operator pow(Number): Value
---@operator unm: Value
local Value = {}

--- Size of a dim.
---@param dim Dim
---@return integer
function Value:dim(dim) end

--- Names the value, for messages and strategies.
---@param name string
---@return Value
function Value:named(name) end

--- Declares what a state of o.state is after the step; another call for the same state is an error. What is partial
--- over micro-batches or ranks is added up. Without effect in evaluation and sampling.
---@param value Value   of the state's type
function Value:next(value) end
--- The same elements with other dims: x:reshape { "batch", "seq", { "heads", 12 }, { "head_dim", 64 } }.
---@param dims NewDim[]
---@return Value
function Value:reshape(dims) end

--- In training, zeroes a share p of the elements and scales the rest by 1/(1-p). Otherwise returns x. With `places`,
--- i32 [batch, seq] of x [batch, seq, ...], a token's mask belongs to its place in the row, whatever the row's order.
---@param p number
---@param places? Value
---@return Value
function Value:dropout(p, places) end

--- Strategies: how the value is stored. x:store { dp = S "batch" }; optional = true: do nothing if that is impossible.
---@param marks table<string, Placement | boolean>
---@return Value
function Value:store(marks) end

--- Strategies: how ops read a value, such as a param. p:use { dp = R, keep = "fragment" }.
--- keep: how long a gathered copy is saved: the "step", or one phase of a stage ("fragment"). "part": as "fragment",
--- but ops read the value as it is stored, and gather it only where they would have to move another operand instead.
---@param marks table<string, Placement | string | boolean>
---@return Value
function Value:use(marks) end

--- The gradient of a param, summed over the batch.
---@return Value
function Value:grad() end

--- The values whose sum is the gradient of a param; marks apply to all of them.
---@return StateGroup
function Value:grad_terms() end

--- The optimizer's states of a param; marks apply to all of them.
---@return StateGroup
function Value:state() end

--- The first dim that n ranks can split, on top of the axes that split it already, from 1; nil if there is none.
---@param n integer
---@return integer?
function Value:first_dim_divisible_by(n) end
--- Strategies: the splits that store marks so far ask for, in order, with dims from 1. Decompositions: those of the
--- layout in which the op reads the value, or in which it was added. `gathered`: a use mark has the same axis.
---@return { axis: string, dim: integer, gathered: boolean }[]
function Value:splits() end
--- Strategies: the ops that read the value, in order.
---@return MarkedOp[]
function Value:readers() end
--- Whether forward ops read a copy of the param in lower precision.
---@return boolean
function Value:has_low_copy() end

-- ops: begin. scripts/cmake/meta.cpp writes what follows, from the definitions of the ops.
-- ops: end

--- The states of one param.
---@class StateGroup
local StateGroup = {}
---@param marks table<string, Placement | boolean>
---@return StateGroup
function StateGroup:store(marks) end
---@param marks table<string, Placement | boolean>
---@return StateGroup
function StateGroup:use(marks) end

---@class Placement

--- A data source: where the inputs of a program come from.
---@class Data
---@field signature Signature   of text and tokens: tokens and targets, i32 [batch, seq]
---@field placed Signature   also documents, positions and places, i32 [batch, seq], which a source may lack
---@field batch integer
---@field seq integer       any dim of its arrays, by name
---@field vocab integer
---@field path string

---@class ArraySpec
---@field dtype DType
---@field shape ({ [1]: string, [2]: integer } | integer)[]

---@alias Signature table<string, ArraySpec> | (ArraySpec | { name: string })[]

--- A batch that grows at the start of training: from `start` sequences a step in steps of `increment` to the full one,
--- each size for an equal share of the first `samples` sequences.
---@class BatchRamp
---@field start integer
---@field increment integer
---@field samples integer

---@class TrainWithOptions
---@field precision? "f32" | "bf16" | "f16"
---@field microbatches? integer
---@field loss_scale? boolean | LossScale
---@field ramp? BatchRamp

--- A traced program.
---@class Program
local Program = {}
--- Appends the backward pass and the optimizer's ops. Precision (train.precision), microbatches (train.microbatches)
--- and ramp (train.ramp_start, ramp_increment, ramp_samples) come from the configuration when they are not given. A
--- loss scale (by default with f16) keeps small gradients from vanishing; steps whose gradients overflow are skipped:
--- their line has "skipped" instead of a norm (null in metrics.jsonl), the scale and the number skipped so far.
---@param optimizer fun(update: Update)
---@param options? TrainWithOptions
---@return Program
function Program:train_with(optimizer, options) end
--- For example { o.strategy.context { axis = "cp", method = "gather" }, o.strategy.tensor { axis = "tp" },
--- o.strategy.data { axis = { "dp", "cp" }, zero = 1 } }: context first, then expert, data over all axes along which
--- params are equal. plugins/strategy/NAME has each strategy's options.
--- Applies strategies in order; earlier marks win. `forbid_implicit = true` refuses every gather that no strategy asked
--- for, `implicit_budget_mib = N` those that send more; `orrery check` lists them.
---@param strategies Strategy[]|{ forbid_implicit?: boolean, implicit_budget_mib?: number }
---@return Program
function Program:parallel(strategies) end
--- Maps params to tensors of published files, for checkpoint.load. Files may also have tensors that a pattern of
--- `ignore` matches (* is any letters), and `copies` of others, bit for bit. Params and states that a pattern of
--- `fresh` matches, such as "score.*" of a new head, keep their initial values where the files have no tensor of their
--- name; a line of the run names them. `published`: the architecture and config.json that `orrery export` writes with
--- them, and in `repeats` the copies that it writes, too.
---@param tensors TensorSource[]|WeightsBeside
---@return Program
function Program:weights(tensors) end
--- Adds a number to evaluations: `f` records a sum and its count over a batch, like the traced function, with the
--- model's params and without dropout. metrics.jsonl has their quotient, under the name, in addition to eval_loss.
---@param name string
---@param f fun(batch: Batch): Value, Value
---@return Program
function Program:metric(name, f) end
--- Adds a program over the same params and states, with its own update. It takes a batch if the function reads p:grad()
--- or update:count(); otherwise it runs after a step and belongs to it. o.state in the function is the state of that
--- name of any program of the round.
---@param name string
---@param f fun(update: Update)
---@return Program
function Program:also(name, f) end
--- The order in which the programs run: "step*50 outer", "A*300, then B", "(A B*2)*10 outer save". `step` is the
--- program of train_with; `save` and `evaluate` come last in their step. Without it: "step".
---@param text string
---@return Program
function Program:round(text) end
---@return Run
function Program:compile() end
--- The program as recorded so far.
---@return string
function Program:text() end

---@class WeightsBeside
---@field ignore? string[]
---@field fresh? string[]
---@field copies? table<string, string>
---@field published? table

---@class TensorSource
---@field param string
---@field tensor string      "experts.*.up.weight": a tensor for each index along the param's first dim, from 0
---@field from? string       the tensor that files to load have instead; without * it fills all indices
---@field transpose? boolean the tensor's last two dims are swapped in the param
---@field part? integer[]   { dim, index, count } of the stored tensor, from 1
---@field interleaved? boolean the parts alternate along dim: of each `count` elements the param has the index-th
---@field padded? integer[] { dim, count } of the stored tensor; the param is larger, with zeros

---@class Run
local Run = {}
--- Bytes moved, peak memory, flops.
---@return string
function Run:summary() end
--- Options default to [train] and [checkpoint]; --set of a key that the call gives is refused.
---@param data Data
---@param options? TrainOptions
function Run:train(data, options) end
--- Text drawn from the model. Options default to [sample].
---@param options? { prompt?: string, tokens?: integer, temperature?: number, top_k?: integer, seed?: integer }
---@return string
function Run:sample(options) end

--- Numbers of a dynamic loss scale, which multiplies the sum of losses.
---@class LossScale
---@field initial? number    1024
---@field growth? number     2: times this after `interval` finite steps in a row
---@field backoff? number    0.5: times this after a step that overflowed
---@field interval? integer  1000
---@field least? number      2^-14
---@field most? number       32768

--- A loss scale in an optimizer: states f32 [] and numbers.
---@class LossScaleState
---@field scale Value
---@field good Value    finite steps in a row
---@field steps Value   updates so far
---@field growth number
---@field backoff number
---@field interval number
---@field least number
---@field most number

--- The argument of an optimizer's function.
---@class Update
local Update = {}
--- for p in update:params(): iterates over the params that have a gradient.
---@return fun(): Value
function Update:params() end
--- The divisor of the sum of losses. With a value, f32 [], in program:also: sets it for gradients of update:gradient.
---@param value? Value
---@return Value
function Update:count(value) end
--- The sum of the losses of the batch, f32 [].
---@return Value
function Update:loss() end
--- In program:also: sets the value of p:grad() here, so that an optimizer can use another array as gradient.
--- Call update:count(value) as well.
---@param p Value
---@param value Value   f32 of the param's shape
function Update:gradient(p, value) end
--- The loss scale, when there is one. Must be called before p:grad() and update:set: from then on gradients include the
--- scale, and the function guards its updates itself.
---@return LossScaleState?
function Update:loss_scale() end
--- What the capacity of the step does not hold, f32 [], when the model declares it (o.overflow). Above 0, the step
--- must change nothing, as it runs again; a function that guards its updates itself reads it.
---@return Value?
function Update:overflow() end
--- The count of the batch, f32 [], in a step of islands (o.strategy.islands). Where it is 0, the step must change
--- nothing; a function that guards its updates itself reads it.
---@return Value?
function Update:island_count() end
--- A state of the param, f32 of its shape.
---@param p Value
---@param name string
---@param init? "zeros" | "ones"
---@param owner? table   of an optimizer: no other may own the state in another program of the round
---@return Value
function Update:state(p, name, init, owner) end
--- The states of o.state take their next values in steps in which `apply`, u8 [], is not 0. For a function that called
--- update:loss_scale, once; in others they change when all gradients are finite, the step does not overflow and its
--- island counts something.
---@param apply Value
function Update:states(apply) end
--- Assigns the value to the param or state at the end of the step, if all gradients are finite, the step does not
--- overflow its capacity, and its island counts something.
---@param target Value
---@param value Value
function Update:set(target, value) end
--- In a program that sees all islands: sets the state, and begins to send it while steps run.
---@param state Value
---@param value Value
function Update:send(state, value) end
--- In the program that waits for it: the sum over the islands of a state that another program has sent.
---@param state Value
---@return Value
function Update:arrived(state) end
--- In a program that sees all islands: what encoding left out of what they sent of the param, to be added to what they
--- send next; nil where o.strategy.islands has no feedback, and for vectors.
---@param p Value
---@return Value?
function Update:owed(p) end
--- Says that the sum over islands is of what they moved the param by (with update:owed), so that any codec may send it.
---@param p Value
---@param sum Value   f32 of the shape of p without the islands' dim
function Update:moved(p, sum) end
--- The host reads the value after each step.
---@param name string
---@param value Value
function Update:result(name, value) end

---@class Strategy

--- An op that a decomposition may replace.
---@class DecomposedOp: MarkedOp
---@field phase "forward" | "backward" | "update"
---@field attributes table   all that the op has, as a call of the op takes them; dims count from 1
---@field axis string        the axis of the decomposition, which splits at least one input
---@field size integer       ranks of the axis

--- Adds an op of the table and returns its outputs. Dims in `attributes` are names or count from 1. `made`: the
--- outputs of the decomposed op that this op makes, one for each of its own; nil: new values. It adds no collectives:
--- propagation inserts those that the layouts of the added ops need.
---@alias AddPart fun(kind: string, inputs: Value[], attributes?: table, made?: Value[]): Value ...

--- An op of the program that a strategy marks.
---@class MarkedOp
---@field kind string
---@field scope string
---@field origin string     script line that made the op
---@field forward? string   of a backward op: the kind of the forward op that it differentiates
---@field inputs Value[]
---@field outputs Value[]

--- The program that a strategy marks.
---@class AnnotatedProgram
local AnnotatedProgram = {}
---@return fun(): Value
function AnnotatedProgram:params() end
---@return fun(): Value
function AnnotatedProgram:inputs() end
---@param name string
---@return Value?
function AnnotatedProgram:find(name) end
--- The ops of the step, or those of one kind, in order.
---@param kind? string
---@return MarkedOp[]
function AnnotatedProgram:ops(kind) end
--- The scopes of forward ops, in order.
---@return string[]
function AnnotatedProgram:scopes() end
--- Assigns ops in the scope to this pipeline stage, from 0.
---@param scope string
---@param stage integer
function AnnotatedProgram:stage(scope, stage) end
--- Maps stages to the ranks of an axis. `schedule` is the name of a function (p, m, v) in the script's folder or in
--- orrery/schedules, `chunks` the number of stages per rank; 0 or absent: as many as the schedule needs, else 1.
---@param options { axis?: string, schedule?: string, chunks?: integer }
function AnnotatedProgram:pipeline(options) end
--- The forward pass as a row: the part before the layers, each layer, the part after them.
---@return { scope: string, flops: number }[]
function AnnotatedProgram:layers() end
--- Float results of forward ops.
---@return fun(): Value
function AnnotatedProgram:activations() end
--- Recomputes ops in the scope in the backward pass: all of them, or those of some kinds.
---@param scope string
---@param kinds? string[]
function AnnotatedProgram:recompute(scope, kinds) end
--- Notes what a strategy leaves unchanged, and why: `orrery check` lists it.
---@param value Value
---@param text string
function AnnotatedProgram:note(value, text) end
--- Splits the dim `batch` in n micro-batches that run one after the other.
---@param n integer
function AnnotatedProgram:microbatches(n) end
--- Joins collectives of the axis in messages of at most this size; 0: none are joined.
---@param axis string
---@param mib number
function AnnotatedProgram:bucket(axis, mib) end
--- Sends gradients over the axis in this type; each sum is converted back.
---@param axis string
---@param type "bf16"
function AnnotatedProgram:reduce(axis, type) end
--- Sends gradients over the axis as a codec encodes them: "none", "bf16", "f16", "f8e4m3", "f8e5m2", "int8", "int4",
--- "int2", "sign", "top_k/100", "top_k/64+int2", "powersgd/4", one of o.codec or of a plugin. `of`: params that ZeRO-3
--- gathers, or activations and their gradients: these refuse int2, sign, top_k and powersgd. With feedback, each member
--- adds what encoding has left out of a gradient to its next term.
---@param axis string
---@param name string
---@param options? { of?: "gradients"|"params"|"activations", feedback?: boolean }
function AnnotatedProgram:codec(axis, name, options) end
--- Gathers params with keep = "fragment" this many layers before the one that reads them, or as early as `mib` MiB of
--- gathered params allow; waits for reduce-scatters are delayed as much.
---@param axis string
---@param ahead integer|{ mib: number }
function AnnotatedProgram:prefetch(axis, ahead) end
--- Order in which the tokens of rows are read (inputs with a dim seq, split over the axis), so that ranks have equal
--- work in causal attention.
---@param axis string
---@param name "zigzag" | "balanced"
function AnnotatedProgram:order(axis, name) end

---@class Mesh
local Mesh = {}
--- Size of an axis, 1 when the mesh lacks it.
---@param axis string
---@return integer
function Mesh:size(axis) end
---@return integer
function Mesh:ranks() end
---@return string
function Mesh:text() end

---@class orrery
---@field config table      the resolved configuration, read-only
---@field nn orrery.nn
---@field optim orrery.optim
---@field lr orrery.lr
---@field data orrery.data
---@field published orrery.published
---@field op table<string, fun(x: Value, ...): Value, ...>            ops of C++ plugins by name: op/NAME
---@field strategy table<string, fun(options?: table): Strategy>    C++ plugins by name
---@field strategies table<string, fun(options?: table): Strategy>  those of orrery/strategies, in Lua
---@field methods table<string, fun(program: Program, options: table)>  orrery/methods: rounds of programs
---@field islands orrery.islands
local orrery = {}
--- Declares the script's options: { steps = 300, lr = { 1e-3, "help" } }; [script] and --set script.KEY=VALUE set them.
--- `one_of` lists the valid values of a text: { "heads", "help", one_of = { "heads", "gather" } }; others are refused.
--- `list_of` lists those of a text that is a list: { "ep", "help", list_of = { "dp", "ep" } } takes "dp,ep".
--- `orrery plan` searches those of the options `context` and `order`, except "auto".
---@param defaults table
---@return table
function orrery.options(defaults) end
--- Records the function once as a program. It returns the sum of losses and, when that is not 1, their count.
---@param name string
---@param signature Signature
---@param fn fun(batch: table<string, Value>): Value, Value?
---@return Program
function orrery.trace(name, signature, fn) end
---@param dtype DType
---@param shape ({ [1]: string, [2]: integer } | integer)[]
---@return ArraySpec
function orrery.array(dtype, shape) end
--- A trained array in the current scope. The same name returns the same param.
---@param spec ParamSpec
---@return Value
function orrery.param(spec) end
--- An array in the current scope that no optimizer owns, such as a bias or statistics of the last step. The value is
--- what the array was before the step; a train step must say what it is after it with state:next(value). A step that is
--- skipped changes neither params nor states. Checkpoints have states, verify compares them, evaluation and sampling
--- read them. A state is whole on every rank, also under ZeRO, unless a strategy marks it.
---@param spec { name: string, shape: ({ [1]: string, [2]: integer } | integer)[], initial?: number, dtype?: DType }
---@return Value
function orrery.state(spec) end
--- Calls the function; its ops and params are in the scope `name`.
---@param name string
---@param fn function
---@param ... any
---@return any ...
function orrery.scope(name, fn, ...) end
---@param number number
---@param dtype? DType
---@return Value
function orrery.constant(number, dtype) end
--- Each element's index along a dim (the first when left out), counted from 0: i32, or f32.
---@param spec { shape: ({ [1]: string, [2]: integer } | integer)[], dim?: Dim, dtype?: "i32" | "f32" }
---@return Value
function orrery.iota(spec) end
--- Random numbers, f32: uniform in [0, 1), or normal with deviation 1. They depend on the run's seed, the step, the
--- call and each element's index in the whole value: the same on every mesh, others in each step. With `places`, i32
--- [batch, seq] of a shape [batch, seq, ...], the index along seq is the place.
---@param spec { shape: ({ [1]: string, [2]: integer } | integer)[], kind?: "uniform" | "normal", places?: Value }
---@return Value
function orrery.random(spec) end
--- Replaces ops of a kind by others on meshes where the axis splits what they read, before the op's own decomposition.
--- Propagation calls `parts` for each op of that kind with an input split by the axis, in a program compiled later, the
--- same on every rank. It adds ops that make all outputs and returns true; or it adds none and returns false. The first
--- decomposition that returns true counts. A gradient is an op of its own, such as softmax_grad. For example, a softmax
--- over a split dim sends two numbers a row instead of the rows:
---
---     o.decompose { op = "softmax", axis = "tp", parts = function(op, add)
---       local x, rows = op.inputs[1], { dims = { #op.inputs[1].shape }, keep = true }
---       local e = add("exp", { add("sub", { x, add("max", { x }, rows) }) })
---       add("div", { e, add("sum", { e }, rows) }, nil, op.outputs)
---       return true
---     end }
---
--- `orrery verify` compares what the ops compute with the op on one rank; `orrery check` lists a decomposition that
--- replaces nothing. The function's text is among what ranks compare before they start.
---@param options { op: string, axis: string, parts: fun(op: DecomposedOp, add: AddPart): boolean? }
function orrery.decompose(options) end

--- Declares a codec that strategies then name, as in o.strategy.data { codec = "mine" }. `encode` gets x of shape
--- [.., n] and returns a list of codes of the same leading dims; `decode` gets codes and the shape, and returns f32 of
--- it. Both add ops by add, as decompositions do, and may change the last dim only. `bound`: the largest
--- ||x - decode(encode(x))|| / ||x||, which `orrery verify` checks. `block`: elements that have codes of their own;
--- shorter rows are sent unencoded. `activations`: whether it may stand for params and activations, too.
---@class CodecOptions
---@field name string
---@field encode fun(x: Value, add: AddPart): Value[]
---@field decode fun(codes: Value[], shape: integer[], add: AddPart): Value
---@field bound number
---@field block? integer
---@field activations? boolean
---@param options CodecOptions
function orrery.codec(options) end
--- Joins values along a dim that they have: as a:concat(b, c, { dim = }), for lists of any length. A call of
--- table.unpack before other arguments gives Lua one value only, so write o.concat(list, ...) for lists.
---@param list Value[]
---@param options { dim: Dim }
---@return Value
function orrery.concat(list, options) end
--- Joins values of one shape along a new dim, which has number `dim` in the result and perhaps a name.
---@param list Value[]
---@param options { dim: integer, name?: string }
---@return Value
function orrery.stack(list, options) end
--- The step, f32 [], from 1.
---@return Value
function orrery.step() end
--- False while evaluation and sampling programs are traced.
---@return boolean
function orrery.training() end
--- Declares capacities that the model can have, ascending, and returns the one of the program that is traced. A train
--- step is compiled for each before the run; evaluation and sampling have the largest. The trace of a train step must
--- also call o.overflow, or no step would move to a larger capacity. If calls have different lists, a step is compiled
--- for each capacity of any list, and a call returns the smallest one of its own list that is not below the step's, or
--- its last one.
---@param capacities number[]
---@return number
function orrery.capacity(capacities) end
--- Declares that a train step overflows if an element of `load` [..., n] (i32, f32) is above limit(capacity). Such a
--- step changes no param or state: all ranks run the same batch again with the next larger capacity. The next step
--- begins with the capacity that was large enough; after 50 steps that did not need it, the next smaller one is taken.
--- If the largest one overflows, the run fails and names scope, element and load. Only where o.training() is true.
---@param load Value
---@param limit fun(capacity: number): number   must not fall as the capacity grows
---@param capacities? number[]   the list that o.capacity was given; needed where the program has several
function orrery.overflow(load, limit, capacities) end
--- Declares a number in addition to the loss, in the function given to o.trace or one that it calls: metrics.jsonl has
--- sum / count in the line of each step, and as eval_NAME in that of each evaluation. Both are f32 scalars, added up
--- over micro-batches, ranks and batches as the loss and its count are. Without a count, `sum` is an f32 scalar or list
--- of the whole step, such as each layer's largest load: the line of a step has it, on the terminal its largest
--- element, and no evaluation has. Without effect in a function of program:metric.
---@param name string
---@param sum Value
---@param count? Value|number
function orrery.result(name, sum, count) end

---@class orrery.data
local data = {}
---@param options? DataOptions
---@return Data
function data.text(options) end
---@param options? DataOptions
---@return Data
function data.tokens(options) end
--- Arrays of a safetensors file, a .npy or a folder of .npy, by name; the first dim counts samples.
---@param options? DataOptions
---@return Data
function data.arrays(options) end
--- Documents packed in rows without padding: tokens, targets, positions (in the document), documents (number in the
--- row) and places (in the row), i32 [batch, seq]. model:loss(batch.tokens, batch.targets, batch) trains on them.
---@param options? DataOptions
---@return Data
function data.documents(options) end
--- Samples of several sources with equal arrays: { { source, weight }, ... }, whole ones in every 4,096.
---@param options DataOptions | { [1]: Data, [2]: number }[]
---@return Data
function data.mixture(options) end
--- The source `tokens` for a path that ends in .bin, else `text`; without a path the mixture of data.mix. With
--- documents = true the source `documents`, or the mixture of such.
---@param options? DataOptions
---@return Data
function data.file(options) end

---@class orrery.nn
local nn = {}
---@param name string
---@param fn function
---@param ... any
---@return any ...
function nn.scope(name, fn, ...) end
---@param spec ParamSpec
---@return Value
function nn.param(spec) end
---@param x Value
---@param name string
---@param to { [1]: string, [2]: integer }
---@param options? { bias?: boolean | Value, std?: number }
---@return Value
function nn.linear(x, name, to, options) end
---@param x Value
---@param name string
---@param eps? number
---@return Value
function nn.layernorm(x, name, eps) end
---@param x Value
---@param name string
---@param eps? number
---@return Value
function nn.rmsnorm(x, name, eps) end
---@param name string
---@param rows { [1]: string, [2]: integer }
---@param columns { [1]: string, [2]: integer }
---@param std? number
---@return Value
function nn.table(name, rows, columns, std) end
---@param tokens Value
---@param name string
---@param rows { [1]: string, [2]: integer }
---@param columns { [1]: string, [2]: integer }
---@param std? number
---@param words? integer   rows that have an id; all when nil
---@return Value
function nn.embedding(tokens, name, rows, columns, std, words) end
---@param rows { [1]: string, [2]: integer }
---@param words integer
---@return Value
function nn.words_only(rows, words) end

---@class HeadOptions
---@field bias? Value|false   [V]
---@field trans_b? boolean   the weight is [V, C]
---@field scope? string      scope of the op

--- The logits x w of a head: x [..., C], w [C, V] -> [..., V].
---@param x Value
---@param w Value
---@param options HeadOptions
---@return Value
function nn.logits(x, w, options) end
--- The cross entropy of a head's logits, as a sum and a count. `tile`: number of rows with logits in memory at once; 0:
--- all rows; false: all rows if they have at most 2^26 logits, otherwise tiles of at most 64 MiB of logits on a rank.
---@param x Value
---@param w Value
---@param targets Value
---@param tile integer|false
---@param options HeadOptions
---@return Value sum
---@return Value count
function nn.loss(x, w, targets, tile, options) end
---@param x Value
---@param p? number
---@param places? Value
---@return Value
function nn.dropout(x, p, places) end
--- As orrery.random, orrery.concat and orrery.stack.
---@param spec { shape: table, kind?: "uniform" | "normal", places?: Value }
---@return Value
function nn.random(spec) end
---@param list Value[]
---@param options { dim: Dim }
---@return Value
function nn.concat(list, options) end
---@param list Value[]
---@param options { dim: integer, name?: string }
---@return Value
function nn.stack(list, options) end
---@param x Value
---@param options AttentionOptions
---@return Value
function nn.attention(x, options) end
---@param x Value
---@param options { heads: integer, q_rank?: integer, kv_rank: integer, nope_dim: integer, rope_dim: integer,
---  v_dim: integer, rope: number|table, interleaved?: boolean, eps?: number, scale?: number, bias?: boolean,
---  documents?: Value, positions?: Value, std?: number, std_out?: number }
---@return Value
function nn.latent_attention(x, options) end
---@param x Value
---@param options { mlp: integer, dropout?: number, places?: Value, approx?: "tanh" | "erf", std?: number,
---  std_out?: number }
---@return Value
function nn.mlp(x, options) end
---@param x Value
---@param options { mlp: integer, std?: number, std_out?: number }
---@return Value
function nn.swiglu(x, options) end

---@param x Value
---@param options MoeOptions
---@return Value y
---@return Route route
function nn.moe(x, options) end
--- The sum of losses with those of the routes; reports the loads of their experts. Call it once.
---@param routes Route[]   in the order of layers
---@param loss Value
---@param count Value
---@return Value
function nn.balanced(routes, loss, count) end

---@class orrery.optim
local optim = {}
---@param options AdamWOptions
---@return fun(update: Update)
function optim.adamw(options) end
---@param options SGDOptions
---@return fun(update: Update)
function optim.sgd(options) end
--- The guard that applies to optimizers that do not call update:loss_scale() before p:grad() and update:set.
---@param update Update
---@return (fun(gradient: Value): Value)? unscaled
---@return (fun(new: Value, old: Value): Value)? take
function optim.guard(update) end

---@class orrery.islands
local islands = {}
--- Counts a step of an island: at the end of the step's update, after what reads gradients.
---@param update Update
---@param part? integer   of the params, with counts of its own (islands.send)
function islands.count(update, part) end
--- In a program without a batch: begins the next round's counts and returns the weighted mean, a function of an array.
---@param update Update
---@return fun(x: Value): Value
function islands.meet(update) end
--- For a program that sends a part of the params: send(state, x) begins to send x, weighted by what the island has
--- counted for the part since it was last sent.
---@param update Update
---@param part integer
---@return fun(state: Value, x: Value)
function islands.send(update, part) end
--- For the program that waits for the part: mean(state) is the weighted mean of what the islands have sent.
---@param update Update
---@param part integer
---@return fun(state: Value): Value
function islands.arrive(update, part) end
--- The next outer params: SGD with Nesterov momentum moves `outer`, a state of p, by `away`.
---@param update Update
---@param p Value
---@param outer Value
---@param away Value
---@param lr number
---@param momentum number
---@return Value
function islands.outer_step(update, p, outer, away, lr, momentum) end
--- By name of a param the number of its fragment: whole layers in their order, about equal in size.
---@param update Update
---@param count integer
---@return table<string, integer>
function islands.fragments(update, count) end

---@class orrery.lr
local lr = {}
---@param rate Rate
---@return fun(step: Value): Value
function lr.of(rate) end
---@param options { peak: number, warmup?: integer, floor?: number, steps?: integer }
---@return fun(step: Value): Value
function lr.cosine(options) end
---@param options { peak: number, warmup?: integer, floor?: number, steps?: integer }
---@return fun(step: Value): Value
function lr.linear(options) end
---@param options { peak: number, warmup?: integer }
---@return fun(step: Value): Value
function lr.constant(options) end

---@class Move   one chunk on its way from one rank to another

---@class orrery.collective
local collective = {}
--- Rank `to` gets the chunk as rank `from` has it. Ranks and chunks count from 0.
---@param chunk integer
---@param from integer
---@param to integer
---@return Move
function collective.copy(chunk, from, to) end
--- Adds the chunk of rank `from` to that of rank `to`.
---@param chunk integer
---@param from integer
---@param to integer
---@return Move
function collective.reduce(chunk, from, to) end

---@class orrery.published
local published = {}
--- Reads FOLDER/config.json. Throws, with file, key and value, for unsupported keys that change the mathematics.
---@param folder string
---@param options { seq: integer, unread?: string[] }
---@return { type: string, model: string, class: string, sizes: table, config: table }
function published.read(folder, options) end
--- The model that it describes. `more`: options of the model that no config has.
---@param folder string
---@param options { seq: integer, unread?: string[], more?: table, multiple?: integer }
---@return table model, table published
function published.model(folder, options) end

---@class orrery.strategy
---@field S fun(dim: Dim): Placement    split that dim
---@field R Placement                   a whole copy on every rank
---@field P Placement                   for results of ops: a partial sum on every rank
---@field plugins table<string, fun(options?: table): Strategy>
---@field twins table<string, fun(options?: table): Strategy>
local strategy = {}
--- Makes a strategy of a function that marks values. With defaults, other options are errors.
---@param name string
---@param defaults table
---@param fn fun(program: AnnotatedProgram, mesh: Mesh, options: table)
---@return fun(options?: table): Strategy
---@overload fun(name: string, fn: fun(program: AnnotatedProgram, mesh: Mesh, options: table)): function
function strategy.define(name, defaults, fn) end
--- The axes that an option names: "dp", or { "dp", "cp" }. An empty list and an axis named twice are errors.
---@param name string
---@param axis string|string[]
---@return string[]
function strategy.axes(name, axis) end
--- The number, from 1, of the dim with this name; nil without one, and for "".
---@param x Value
---@param name string
---@return integer?
function strategy.find_dim(x, name) end
--- Splits the dim `batch` of all inputs over the axis, as the strategy data does. It marks nothing when an earlier
--- strategy has split another dim of an input over the axis: each rank then has a part of the batch already.
---@param program AnnotatedProgram
---@param axis string
function strategy.split_batch(program, axis) end
