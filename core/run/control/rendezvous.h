#pragma once
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "orrery/rendezvous.h"
#include "run/control/job.h"

namespace orrery {

/// 32 random bytes in hex.
std::string make_secret();
/// 16 of them: what a process or a start of a job is called.
std::string make_nonce();

/// Where `job`'s service is, and whose; `home` is left to the caller.
ServeOptions options_of(const Job& job, int64_t per_host);
/// A service that explains waits with what ranks tell (standing.h), and may open as many files as its members take.
std::unique_ptr<RendezvousService> serve(RendezvousBackend& backend, ServeOptions options);
/// That of a job whose rank 0 serves it.
std::unique_ptr<RendezvousService> serve(RendezvousBackend& backend, const Job& job);
/// How `job`'s rank reaches its service; what else is to be agreed on is left to the caller.
JoinOptions place_of(const Job& job);

/// Why a process ends with an error of `fault`, as the value that the others are told. `site`: as Loss has it.
Loss loss_of(Fault fault, const Message& why, std::string_view site = "");
/// How `job`'s rank ends by `error`, as it tells its launcher: by its own, or by what it has `heard` of another.
Loss end_by(const Job& job, const std::exception& error, std::string_view site, const Loss& heard = {});

/// The store for ranks that are threads of one process: all share one object.
class LocalRendezvous : public Rendezvous {
public:
    LocalRendezvous();
    ~LocalRendezvous() override;
    void set(std::string_view key, std::string_view value) override;
    std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
    int64_t add(std::string_view key, int64_t amount) override;
    std::optional<std::string> look(std::string_view key, std::chrono::milliseconds timeout) override;
    void erase(std::string_view key) override;
    Message lost() const override;
    void fail(int64_t rank, const Message& why);

private:
    struct Store;
    std::unique_ptr<Store> store_;
};

}  // namespace orrery
