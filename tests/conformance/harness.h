#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "orrery/p2p.h"
#include "orrery/registry.h"
#include "orrery/communicator.h"

/// Runs the same body on every member of a group, over any transport, as threads or as processes.
namespace orrery::conformance {

/// It makes an access ten times as slow and needs few of them; what processes share it does not see.
#ifdef __SANITIZE_THREAD__
constexpr bool thread_sanitizer = true;
#else
constexpr bool thread_sanitizer = false;
#endif

/// A transport, and what its ranks are.
struct Backend {
    std::string transport;
    bool processes = false;
    std::vector<std::pair<std::string, ConfigValue>> options;  ///< of [transport.NAME]
};
std::ostream& operator<<(std::ostream& out, const Backend& backend);
/// Every built transport in each way that it can run. One that serves GPUs alone runs with ranks as threads, one GPU
/// each, where there are four.
std::vector<Backend> backends();
/// "transport/nccl: why", for each built transport that backends() leaves out on this machine.
std::vector<std::string> skipped();
std::unique_ptr<Transport> load_transport(const Backend& backend);
TransportContract contract_of(const Backend& backend);
/// false: tensors are those of GPUs.
bool serves_host(const Backend& backend);
/// Transports that take collectives from messages, with this option set.
std::vector<Backend> with_option(const std::string& key, const ConfigValue& value);

/// Shared memory that vanishes with its users, or a device's pinned memory; cut from the front.
class TestArena {
public:
    explicit TestArena(int64_t bytes, std::unique_ptr<Device> device = nullptr);
    ~TestArena();
    TestArena(const TestArena&) = delete;
    Tensor tensor(DType dtype, int64_t count);
    /// Gives everything back; tensors made before are void.
    void clear() { used_ = 0; }
    Memory memory;

private:
    std::unique_ptr<Device> device_;
    int64_t used_ = 0;
    int fd_ = -1;
};

/// One rank inside a body. Neither expect nor note throws, so that all ranks stay in step.
struct Participant {
    int64_t rank = 0;
    int64_t size = 1;
    Rendezvous& rendezvous;
    Transport& transport;
    TestArena& arena;
    std::chrono::milliseconds timeout;
    std::vector<std::string> failures;
    std::vector<std::string> notes;

    /// A communicator over all ranks, or over `ranks`.
    std::unique_ptr<Communicator> make(const std::string& name = "all", std::vector<int64_t> ranks = {});
    void expect(bool ok, const std::string& text);
    void note(const std::string& text) { notes.push_back(text); }
};

/// A send and a receive side by side, as the contract wants them: in a group where sends are grouped. Waits for both.
void exchange(Communicator& c, bool grouped, const Tensor& out, int to, const Tensor& in, int from, int64_t tag);

/// A first message each way, where sends are grouped. Such a transport makes a connection with the first message over
/// it, for which both sides have to come; what the contract says of sends is said of all that follow.
void connect(Participant& m, Communicator& c, int peer);

/// Participant 1 stops here.
void stop(Participant& m);
/// What the others hold of it, from when it has stopped (10 s at most, or it throws). Killed however the test ends: it
/// would never end itself.
class Stopped {
public:
    explicit Stopped(Participant& m);
    ~Stopped();
    Stopped(const Stopped&) = delete;

private:
    const pid_t process_;
};

/// Expects a Fault::peer from the call that mentions all parts, within the limit.
void expect_fault(Participant& m, std::chrono::milliseconds limit, const std::vector<std::string>& parts,
                  const std::function<void()>& call);

struct Outcome {
    std::vector<std::string> failures;            ///< of all ranks, "rank 1: ..."
    std::vector<std::vector<std::string>> notes;  ///< by rank; a killed rank has none
};

/// An exception from the body is a failure. `timeout`: of the communicators that Participant::make makes.
Outcome run(const Backend& backend, int64_t ranks, const std::function<void(Participant&)>& body,
            std::chrono::milliseconds timeout = std::chrono::seconds(20));

/// Small whole numbers, exact in every dtype and every order of addition.
void store(const Tensor& tensor, int64_t i, double value);
double load(const Tensor& tensor, int64_t i);

}  // namespace orrery::conformance
