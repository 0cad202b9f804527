#include "kernels/cuda/loss.h"
#include "kernels/cuda/merge.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/reduce.h"
