// All that calls libtorch from C++, compiled as one file: most of the compiler's time goes into libtorch's headers, which are read once then.

#include "fused/fused.cpp"
#include "gpu_memory.cpp"
#include "linear_kernels.cpp"
#include "packed.cpp"
#include "quantised/quantised.cpp"
#include "workers.cpp"
