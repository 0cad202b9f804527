// GPUs of any hosts, by NCCL: over NVLink, PCIe and any network that NCCL finds.
#include <unistd.h>

#include "communicator.h"
#include "environment.h"
#include "orrery/p2p.h"
#include "orrery/plugin.h"

namespace orrery::nccl_transport {
namespace {

using Milliseconds = std::chrono::milliseconds;

/// The GPU that has these arenas.
int device_of(std::span<const Memory> arenas, const Group& group) {
    for (const Memory& arena : arenas) {
        cudaPointerAttributes about{};
        const cudaError_t status = cudaPointerGetAttributes(&about, arena.data);
        if (status == cudaSuccess && about.type != cudaMemoryTypeUnregistered) return about.device;
        cudaGetLastError();
    }
    throw Error("transport nccl: axis " + group.axis +
                " has its tensors in host memory, but NCCL needs GPU memory\n  set run.device = \"cuda\", or another "
                "transport for this axis");
}

/// "host/0000:17:00.0": a text that identifies the GPU.
std::string name_of_gpu(int device) {
    char host[256] = "", bus[64] = "";
    ::gethostname(host, sizeof host - 1);
    require(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "reading the GPU's PCI address");
    return std::string(host) + "/" + bus;
}

class NcclTransport : public Transport {
public:
    explicit NcclTransport(Config& config)
        : timeout_s_(config.integer("timeout_s", 0)),
          deterministic_(config.flag("deterministic", true)),
          ports_(config.text("ports", "")) {
        if (timeout_s_ < 0)
            throw Error(config.where("timeout_s"), "transport.nccl.timeout_s is below 0, expected 0 or more");
        prepare_environment(deterministic_, config.where("deterministic"));
    }

    TransportContract contract() const override {
        TransportContract c = accelerator_contract();
        c.deterministic = deterministic_;
        return c;
    }

    std::unique_ptr<Communicator> make(const Group& group, Rendezvous& rendezvous, std::span<const Memory> arenas,
                                       Milliseconds timeout) override {
        if (const std::string why = cannot_run(); !why.empty())
            throw Error("transport nccl cannot run here: " + why, Fault::failed);
        refuse_blocking();
        if (timeout_s_ > 0) timeout = std::chrono::seconds(timeout_s_);
        const int device = device_of(arenas, group);
        require(cudaSetDevice(device), "choosing the GPU");
        const std::string name = fresh_name(group, rendezvous);
        const auto gpus = exchange(group, rendezvous, name + "/gpu", name_of_gpu(device), timeout);
        for (size_t i = 0; i < gpus.size(); ++i)
            for (size_t j = 0; j < i; ++j)
                if (gpus[i] == gpus[j])
                    throw Error("transport nccl: ranks " + std::to_string(group.ranks[j]) + " and " +
                                std::to_string(group.ranks[i]) + " of axis " + group.axis + " share GPU " + gpus[i] +
                                "; NCCL needs a GPU for each rank\n  start as many ranks on a host as it has GPUs");
        refuse_ports(group, gpus);
        ncclUniqueId id{};
        if (group.me == 0) require(ncclGetUniqueId(&id), "creating an NCCL id");
        const auto ids = exchange(group, rendezvous, name + "/id", to_hex(&id, sizeof id), timeout);
        from_hex(ids[0], &id, sizeof id);
        return std::make_unique<NcclCommunicator>(group, device, id, rendezvous, name + "/aborts", timeout);
    }

private:
    /// NCCL listens at ports of the system's choice, and has no setting for a range.
    void refuse_ports(const Group& group, const std::vector<std::string>& gpus) const {
        const auto host = [](const std::string& gpu) { return gpu.substr(0, gpu.find('/')); };
        for (size_t i = 1; i < gpus.size(); ++i)
            if (!ports_.empty() && host(gpus[i]) != host(gpus[0]))
                throw Error(
                    "transport nccl: run.ports = \"" + ports_ + "\" cannot be honoured: NCCL has no range of ports, " +
                    "and axis " + group.axis + " has members on " + host(gpus[0]) + " and " + host(gpus[i]) +
                    "\n  open all ports between the hosts and remove run.ports, or use gloo or ucx for this axis");
    }

    const int64_t timeout_s_;
    const bool deterministic_;
    const std::string ports_;
};

void add(Registry& registry) {
    registry.add_transport("nccl", [](Config& config) { return std::make_unique<NcclTransport>(config); });
}

}  // namespace
}  // namespace orrery::nccl_transport

ORRERY_FACTS("devices=cuda");
ORRERY_PLUGIN_IF("transport.nccl", "0.1", orrery::nccl_transport::add, orrery::nccl_transport::cannot_run);
