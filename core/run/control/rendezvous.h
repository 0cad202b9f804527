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
/// 16 random bytes in hex, the id of a process or of a start of a job.
std::string make_nonce();

/// Address and identity of `job`'s service; the caller sets `home`.
ServeOptions options_of(const Job& job, int64_t per_host);
/// Starts a service that explains waits from ranks' positions (standing.h), and raises the limit of open files to fit
/// its members.
std::unique_ptr<RendezvousService> serve(RendezvousBackend& backend, ServeOptions options);
/// Starts the service of a job that rank 0 serves.
std::unique_ptr<RendezvousService> serve(RendezvousBackend& backend, const Job& job);
/// How `job`'s rank reaches its service. The caller fills in what the ranks must agree on.
JoinOptions place_of(const Job& job);

/// Why a process ends with an error of `fault`, as it is sent to the other ranks. `site`: see Loss.
Loss loss_of(Fault fault, const Message& why, std::string_view site = "");
/// The loss that `job`'s rank reports to its launcher for `error`: its own, or the loss of another rank that it has
/// `heard` of.
Loss end_by(const Job& job, const std::exception& error, std::string_view site, const Loss& heard = {});

/// The store for ranks that are threads of one process; they share one object.
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
