// The bodies of this folder, built by g++ for blocks of fibers.
#include "kernels/cuda/emulated/emulated.h"

#include "kernels/cuda/attention.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/index.h"
#include "kernels/cuda/loss.h"
#include "kernels/cuda/moves.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/random.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/tokens.h"
#include "kernels/cuda/update.h"
