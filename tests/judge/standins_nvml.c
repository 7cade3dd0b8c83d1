/* A stand-in for the driver's library: one GPU of 80 GB, an H100 by its name. */
#include <string.h>

struct memory { unsigned long long total, free, used; };

int nvmlInitWithFlags(unsigned flags) { (void)flags; return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int status) { (void)status; return "stand-in"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    static char handle[64];
    *device = handle;
    return index ? 2 : 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    (void)device;
    strncpy(name, "NVIDIA H100 80GB HBM3", length);
    return 0;
}
int nvmlDeviceGetUUID(void *device, char *name, unsigned length) {
    (void)device;
    strncpy(name, "GPU-5a4d1b00-0000-0000-0000-000000000000", length);
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *found) {
    (void)device;
    found->total = 85899345920ull;
    found->used = 1ull << 29;
    found->free = found->total - found->used;
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    (void)device;
    *major = 9;
    *minor = 0;
    return 0;
}
int nvmlSystemGetDriverVersion(char *version, unsigned length) { strncpy(version, "580.0", length); return 0; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 13000; return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return 0; }
