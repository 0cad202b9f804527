// Plain Gloo in two processes over the loopback interface: g++ -O2 peer_gloo.cpp -lgloo -lpthread && ./a.out all_reduce
// 1024 268435456 4 0 (iterations, 0 chooses by size). Prints "bytes us us" for each size; Gloo's own all_reduce, in
// place and not.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

void call(const std::shared_ptr<gloo::Context>& context, const std::string& name, float* in, float* out, size_t count,
          bool in_place) {
    if (name == "all_reduce") {
        gloo::AllreduceOptions options(context);
        if (!in_place) options.setInput(in, count);
        options.setOutput(out, count);
        options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
        gloo::allreduce(options);
    } else if (name == "all_gather") {
        gloo::AllgatherOptions options(context);
        const size_t block = count / static_cast<size_t>(context->size);
        if (!in_place) options.setInput(in, block);
        options.setOutput(out, count);
        gloo::allgather(options);
    } else if (name == "broadcast") {
        gloo::BroadcastOptions options(context);
        options.setOutput(out, count);
        options.setRoot(0);
        gloo::broadcast(options);
    }
}

double time_us(const std::shared_ptr<gloo::Context>& context, const std::string& name, float* in, float* out,
               long bytes, bool in_place, long iterations) {
    const long n = iterations > 0 ? iterations : std::clamp((1l << 28) / bytes, 10l, 2'000l);
    for (int i = 0; i < 5; ++i) call(context, name, in, out, static_cast<size_t>(bytes / 4), in_place);
    gloo::BarrierOptions barrier(context);
    gloo::barrier(barrier);
    const auto start = Clock::now();
    for (long i = 0; i < n; ++i) call(context, name, in, out, static_cast<size_t>(bytes / 4), in_place);
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / static_cast<double>(n);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 6) return 2;
    const std::string folder = "/tmp/orrery_peer_gloo_" + std::to_string(getpid());
    if (std::system(("mkdir -p " + folder).c_str()) != 0) return 1;
    const pid_t child = fork();
    const int rank = child == 0 ? 1 : 0;
    auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, 2);
    gloo::rendezvous::FileStore store(folder);
    context->connectFullMesh(store, device);
    const long first = std::atol(argv[2]), last = std::atol(argv[3]), factor = std::atol(argv[4]),
               iterations = std::atol(argv[5]);
    std::vector<float> in(static_cast<size_t>(last / 4), 1.f), out(in.size(), 0.f);
    for (long bytes = first; bytes <= last; bytes *= factor) {
        const double apart = time_us(context, argv[1], in.data(), out.data(), bytes, false, iterations);
        std::fill(out.begin(), out.end(), 0.f);
        const double in_place = time_us(context, argv[1], in.data(), out.data(), bytes, true, iterations);
        if (rank == 0) std::printf("%ld %.3f %.3f\n", bytes, apart, in_place);
    }
    if (rank == 1) return 0;
    waitpid(child, nullptr, 0);
    return std::system(("rm -r " + folder).c_str()) == 0 ? 0 : 1;
}
