// The table of this folder's kernels, built by g++ for blocks of fibers.
#include "kernels/cuda/emulated/table.h"

#include "kernels/cuda/attention.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/loss.h"
#include "kernels/cuda/moves.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/random.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/tokens.h"
#include "kernels/cuda/update.h"

namespace orrery::kernels::emulated {

const Kernels& table() {
    static const Kernels kernels = [] {
        Kernels k{};
        add_elementwise(k);
        add_moves(k);
        add_random(k);
        add_product(k);
        add_reduce(k);
        add_norm(k);
        add_loss(k);
        add_tokens(k);
        add_attention(k);
        add_update(k);
        return k;
    }();
    return kernels;
}

}  // namespace orrery::kernels::emulated
