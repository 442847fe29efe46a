// For LD_PRELOAD: whoever loads libtorch_cuda.so gets the libsimulated_gpu.so beside this library.

#include <dlfcn.h>

#include <string>

extern "C" void* dlopen(const char* name, int flags) {
    static const auto next = reinterpret_cast<void* (*)(const char*, int)>(dlsym(RTLD_NEXT, "dlopen"));
    std::string wanted = name ? name : "", simulated;
    wanted = wanted.substr(wanted.rfind('/') + 1);
    Dl_info self;
    if (wanted == "libtorch_cuda.so" && dladdr(reinterpret_cast<void*>(&dlopen), &self)) {
        simulated = self.dli_fname;
        simulated = simulated.substr(0, simulated.rfind('/') + 1) + "libsimulated_gpu.so";
        name = simulated.c_str();
    }
    return next(name, flags);
}
