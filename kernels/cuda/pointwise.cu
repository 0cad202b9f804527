#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/random.h"
