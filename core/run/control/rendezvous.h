#pragma once
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "orrery/rendezvous.h"
#include "run/control/job.h"

namespace orrery {

/// Returns a secret: 32 random bytes in hex.
std::string make_secret();
/// Returns the id of a process or of a start of a job: 16 random bytes in hex.
std::string make_nonce();

/// Returns the options of a rendezvous service for `job`: address, timeouts and identity. The caller sets `home`.
ServeOptions options_of(const Job& job, int64_t per_host);
/// Starts a rendezvous service that explains hangs by ranks' positions (standing.h). Raises the limit of open files.
std::unique_ptr<RendezvousService> serve(RendezvousBackend& backend, ServeOptions options);
/// Starts the rendezvous service of a job in this process, rank 0.
std::unique_ptr<RendezvousService> serve(RendezvousBackend& backend, const Job& job);
/// Returns how the rank of `job` reaches the rendezvous service. The caller adds what ranks must agree on.
JoinOptions place_of(const Job& job);

/// Describes the failure of a process by an error of kind `fault`, as sent to other ranks. `site`: phase of the run.
Loss loss_of(Fault fault, const Message& why, std::string_view site = "");
/// The failure that the rank of `job` reports to its launcher for `error`: its own, or `heard`, that of another rank
/// that caused it.
Loss end_by(const Job& job, const std::exception& error, std::string_view site, const Loss& heard = {});

/// The rendezvous store of ranks that are threads of one process; all ranks share one object.
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
