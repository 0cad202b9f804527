#pragma once
#include <string>
#include <vector>

#include "compile/compile.h"
#include "published/rows.h"
#include "published/words.h"

namespace orrery::published {

/// A row as settings of this project: the configuration of model.lua, and what a plan does not say.
struct Job {
    Row row;
    Words words;
    int64_t micro_batch = 1, micros = 1, chunks = 1;
    int64_t vocab = 0, heads = 0, kv_heads = 0;
    std::string recompute = "none";
    bool guessed = false;  ///< the row left micro_batch, vp or recompute open
    double batches = 1;    ///< sequences of the row over those of the plan, where these do not divide
    std::string toml;
};

/// One job, or what a row that leaves something open may be, the likeliest fastest first. Throws Error where no mesh
/// of this project is like the row's; never empty.
std::vector<Job> jobs_of(const Row& row);

/// The plan of one train step under the contract of NCCL, with nothing allocated and no device asked.
Plan plan_of(const Job& job, const std::string& script);

/// What of the words the plan depends on that the row's software would have made (with_software).
std::string text_of_profile(const Job& job);

/// Max over ranks of the bytes of tensors that the row's software holds at once (held_bytes).
int64_t peak_bytes(const Plan& plan, const Job& job);
/// What the ranks of the stage with the largest peak hold then: a line for each kind of value.
std::string text_of_memory(const Plan& plan, const Job& job);

Mesh mesh_of(const Job& job);
/// The contract that plans of accelerators are made for.
Network contracts_of(const Mesh& mesh);

}  // namespace orrery::published
