// The same loop over MPI, for comparison: mpicxx -O2 peer_mpi.cpp && mpirun -n 2 ./a.out all_reduce 1024 268435456 4 0
// The last: iterations, 0 chooses by size. Prints "bytes out_of_place_us in_place_us" for each size, means over the
// ranks.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

void call(const std::string& name, float* in, float* out, int count, int ranks, bool in_place) {
    void* const from = in_place ? MPI_IN_PLACE : in;
    if (name == "all_reduce") MPI_Allreduce(from, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (name == "all_gather")
        MPI_Allgather(from, count / ranks, MPI_FLOAT, out, count / ranks, MPI_FLOAT, MPI_COMM_WORLD);
    if (name == "reduce_scatter")
        MPI_Reduce_scatter_block(from, out, count / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (name == "all_to_all")
        MPI_Alltoall(from, count / ranks, MPI_FLOAT, out, count / ranks, MPI_FLOAT, MPI_COMM_WORLD);
    if (name == "broadcast") MPI_Bcast(out, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

double time_us(const std::string& name, float* in, float* out, long bytes, int ranks, bool in_place, long iterations) {
    const int count = static_cast<int>(bytes / 4);
    const long n = iterations > 0 ? iterations : std::clamp((1l << 30) / bytes, 20l, 10'000l);
    for (int i = 0; i < 5; ++i) call(name, in, out, count, ranks, in_place);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (long i = 0; i < n; ++i) call(name, in, out, count, ranks, in_place);
    double mine = (MPI_Wtime() - start) / static_cast<double>(n) * 1e6, sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum / ranks;
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    if (argc != 6) return 2;
    int rank = 0, ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const long first = std::atol(argv[2]), last = std::atol(argv[3]), factor = std::atol(argv[4]),
               iterations = std::atol(argv[5]);
    std::vector<float> in(static_cast<size_t>(last / 4), 1.f), out(in.size(), 0.f);
    for (long bytes = first; bytes <= last; bytes *= factor) {
        const double apart = time_us(argv[1], in.data(), out.data(), bytes, ranks, false, iterations);
        // Sums in place would grow without end.
        std::fill(out.begin(), out.end(), 0.f);
        const double in_place = time_us(argv[1], in.data(), out.data(), bytes, ranks, true, iterations);
        if (rank == 0) std::printf("%ld %.3f %.3f\n", bytes, apart, in_place);
    }
    MPI_Finalize();
}
