// NCCL_* variables, as users set them and as the transport leaves them.
#include "environment.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <string>

using namespace orrery;
using namespace orrery::nccl_transport;
using Catch::Matchers::Contains;

namespace {

/// What the transport leaves of what a user has set.
std::map<std::string, std::string> left_of(const std::map<std::string, std::string>& set, bool deterministic = true) {
    const auto names = {"NCCL_LAUNCH_ORDER_IMPLICIT", "NCCL_GRAPH_MIXING_SUPPORT", "NCCL_NVLS_ENABLE",
                        "NCCL_COLLNET_ENABLE", "NCCL_COMM_BLOCKING"};
    for (const char* name : names) ::unsetenv(name);
    for (const auto& [name, value] : set) ::setenv(name.c_str(), value.c_str(), 1);
    prepare_environment(deterministic, Origin{"", "a.toml", 3, 0});
    refuse_blocking();
    std::map<std::string, std::string> left;
    for (const char* name : names)
        if (const char* const value = std::getenv(name)) left[name] = value;
    return left;
}

}  // namespace

TEST_CASE("nccl: what a user sets stays, what is not set or empty is the transport's") {
    const std::map<std::string, std::string> own{
        {"NCCL_LAUNCH_ORDER_IMPLICIT", "1"}, {"NCCL_GRAPH_MIXING_SUPPORT", "0"}, {"NCCL_NVLS_ENABLE", "0"}};
    CHECK(left_of({}) == own);
    CHECK(left_of({{"NCCL_LAUNCH_ORDER_IMPLICIT", ""}, {"NCCL_GRAPH_MIXING_SUPPORT", ""}, {"NCCL_NVLS_ENABLE", ""}}) ==
          own);
    CHECK(left_of({{"NCCL_GRAPH_MIXING_SUPPORT", "00"}}).at("NCCL_GRAPH_MIXING_SUPPORT") == "00");
    CHECK(left_of({{"NCCL_LAUNCH_ORDER_IMPLICIT", "0"}, {"NCCL_GRAPH_MIXING_SUPPORT", "1"}}).size() == 3);
    CHECK(left_of({{"NCCL_NVLS_ENABLE", "1"}}, false).at("NCCL_NVLS_ENABLE") == "1");
    CHECK(left_of({{"NCCL_COLLNET_ENABLE", ""}, {"NCCL_COMM_BLOCKING", "0"}}).size() == 5);
}

TEST_CASE("nccl: variables that the transport cannot do with are refused by name") {
    CHECK_THROWS_WITH(left_of({{"NCCL_GRAPH_MIXING_SUPPORT", "1"}}),
                      Contains("a.toml:3") && Contains("NCCL_GRAPH_MIXING_SUPPORT is on") && Contains("unset it"));
    CHECK_THROWS_WITH(left_of({{"NCCL_NVLS_ENABLE", "2"}}), Contains("NCCL_NVLS_ENABLE=2"));
    CHECK_THROWS_WITH(left_of({{"NCCL_COLLNET_ENABLE", "0x1"}}), Contains("NCCL_COLLNET_ENABLE=0x1"));
    CHECK_THROWS_WITH(left_of({{"NCCL_COMM_BLOCKING", "1"}}), Contains("NCCL_COMM_BLOCKING=1"));
}
