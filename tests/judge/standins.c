/* Stand-ins for the CUDA libraries: every call answers success, memory is malloc, kernels do nothing.
 *
 * With them the CUDA provider of an ONNX Runtime release loads on a machine without a GPU and partitions
 * graphs as it would on one. A test instrument: it computes nothing and times nothing.
 * `tests/judge/standins.py` adds a `return 0` function for every further symbol that the provider asks for.
 */
#include <malloc.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The head of cudaDeviceProp as CUDA 13 lays it out; what follows stays 0. */
struct device_properties {
    char name[256];
    char uuid[16];
    char luid[8];
    unsigned int luid_mask;
    size_t total_memory, shared_per_block;
    int registers_per_block, warp_size;
    size_t pitch;
    int threads_per_block, thread_dimensions[3], grid_dimensions[3];
    size_t constant_memory;
    int major, minor;
    size_t texture_alignment, texture_pitch_alignment;
    int multiprocessors;
};

static char handle[4096]; /* what opaque handles point to */

/* How often this library handed work to the device: kernels, products; not copies and fills. */
int standin_launches;
int standin_count(void) { return standin_launches; }
#define LAUNCHES(name) int name(void) { standin_launches++; note('L'); return 0; }

/* What was asked of this library, a letter a call: L launch, M copy, S wait for a stream, D for the device,
 * B and E begin and end of a capture, G launch of a graph, A and F memory taken and given back. */
static char calls[1 << 20];
static size_t called;
static void note(char call) {
    if (called + 1 < sizeof calls) calls[called++] = call;
}
const char *standin_calls(void) { calls[called] = 0; return calls; }
void standin_forget(void) { called = 0; }

/* STANDIN_FAILS="cudaSetDevice=35" makes a call fail with that error; STANDIN_MEMORY is the GPU's memory. */
static int failing(const char *name) {
    const char *asked = getenv("STANDIN_FAILS");
    size_t length = strlen(name);
    return asked && !strncmp(asked, name, length) && asked[length] == '=' ? atoi(asked + length + 1) : 0;
}
static size_t memory(void) {
    const char *asked = getenv("STANDIN_MEMORY");
    return asked ? strtoull(asked, NULL, 10) : (size_t)80 << 30;
}
static size_t taken;
LAUNCHES(cudaLaunchKernel)
LAUNCHES(__cudaLaunchKernel)
LAUNCHES(cudaLaunchKernelExC)
LAUNCHES(cudaLaunchCooperativeKernel)

int cudaGetDeviceCount(int *count) { *count = 1; return failing("cudaGetDeviceCount"); }
int cudaSetDevice(int device) { (void)device; return failing("cudaSetDevice"); }
int cudaStreamCreateWithFlags(void **stream) { *stream = handle; return failing("cudaStreamCreateWithFlags"); }
int cudaGetDevice(int *device) { *device = 0; return 0; }
int cudaRuntimeGetVersion(int *version) { *version = RUNTIME_VERSION; return 0; }
int cudaDriverGetVersion(int *version) { *version = RUNTIME_VERSION; return 0; }
int cudaGetDeviceProperties(struct device_properties *p, int device) {
    (void)device;
    memset(p, 0, sizeof *p);
    strcpy(p->name, "stand-in");
    p->total_memory = memory();
    p->shared_per_block = 49152;
    p->registers_per_block = 65536;
    p->warp_size = 32;
    p->pitch = 2147483647;
    p->threads_per_block = 1024;
    p->thread_dimensions[0] = p->thread_dimensions[1] = 1024;
    p->thread_dimensions[2] = 64;
    p->grid_dimensions[0] = 2147483647;
    p->grid_dimensions[1] = p->grid_dimensions[2] = 65535;
    p->constant_memory = 65536;
    p->major = COMPUTE_MAJOR;
    p->minor = COMPUTE_MINOR;
    p->texture_alignment = 512;
    p->multiprocessors = 132;
    return 0;
}
int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) { /* numbers of enum cudaDeviceAttr */
    case 1: *value = 1024; break;           /* threads per block */
    case 8: *value = 49152; break;          /* shared memory per block */
    case 10: *value = 32; break;            /* warp size */
    case 16: *value = 132; break;           /* multiprocessors */
    case 39: *value = 2048; break;          /* threads per multiprocessor */
    case 75: *value = COMPUTE_MAJOR; break;
    case 76: *value = COMPUTE_MINOR; break;
    case 81: *value = 233472; break;        /* shared memory per multiprocessor */
    case 97: *value = 232448; break;        /* shared memory per block, opt-in */
    default: *value = 0;
    }
    return 0;
}
int cudaMemGetInfo(size_t *available, size_t *total) {
    *total = memory();
    *available = *total - taken;
    return 0;
}

int cudaMallocHost(void **pointer, size_t size) { *pointer = malloc(size ? size : 1); return *pointer ? 0 : 2; }
int cudaHostAlloc(void **pointer, size_t size, unsigned flags) { (void)flags; return cudaMallocHost(pointer, size); }
int cudaMalloc(void **pointer, size_t size) {
    note('A');
    if (failing("cudaMalloc")) return failing("cudaMalloc");
    if (taken + size > memory() || cudaMallocHost(pointer, size)) return 2;
    taken += malloc_usable_size(*pointer);
    return 0;
}
int cudaMallocFromPoolAsync(void **pointer, size_t size) { return cudaMalloc(pointer, size); }
int cudaFreeHost(void *pointer) { free(pointer); return 0; }
int cudaFree(void *pointer) {
    note('F');
    if (pointer) taken -= malloc_usable_size(pointer);
    return cudaFreeHost(pointer);
}
int cudaFreeAsync(void *pointer) { return cudaFree(pointer); }
int cudaMemcpy(void *to, const void *from, size_t size) { note('M'); memmove(to, from, size); return 0; }
int cudaMemcpyAsync(void *to, const void *from, size_t size) { return cudaMemcpy(to, from, size); }
int cudaStreamSynchronize(void *stream) { (void)stream; note('S'); return failing("cudaStreamSynchronize"); }
int cudaDeviceSynchronize(void) { note('D'); return failing("cudaDeviceSynchronize"); }
int cudaStreamBeginCapture(void *stream) { (void)stream; note('B'); return 0; }
int cudaGraphLaunch(void *graph) { (void)graph; note('G'); return failing("cudaGraphLaunch"); }
int cudaMemset(void *to, int value, size_t size) { memset(to, value, size); return 0; }
int cudaMemsetAsync(void *to, int value, size_t size) { memset(to, value, size); return 0; }

#define MAKES_A_HANDLE(name) int name(void **made) { *made = handle; return 0; }
MAKES_A_HANDLE(cudaStreamCreate)
MAKES_A_HANDLE(cudaEventCreate)
MAKES_A_HANDLE(cudaEventCreateWithFlags)
MAKES_A_HANDLE(cudaMemPoolCreate)
MAKES_A_HANDLE(cudaLibraryLoadData)
MAKES_A_HANDLE(cudaLibraryGetKernel)
MAKES_A_HANDLE(__cudaGetKernel)
MAKES_A_HANDLE(cudaGraphInstantiate)
MAKES_A_HANDLE(cublasCreate_v2)
MAKES_A_HANDLE(cublasLtCreate)
MAKES_A_HANDLE(cublasLtMatmulDescCreate)
MAKES_A_HANDLE(cublasLtMatmulPreferenceCreate)
MAKES_A_HANDLE(cublasLtMatrixLayoutCreate)
MAKES_A_HANDLE(cublasLtMatrixTransformDescCreate)

int cudaStreamIsCapturing(void *stream, int *status) { (void)stream; *status = 0; return 0; }
int cudaStreamEndCapture(void *stream, void **graph) { (void)stream; note('E'); *graph = handle; return 0; }
int cudaEventElapsedTime(float *milliseconds) { *milliseconds = 0; return 0; }
int cudaFuncGetAttributes(void *attributes) { memset(attributes, 0, 64); return 0; }
int cudaMemPoolGetAttribute(void *pool, int attribute, size_t *value) {
    (void)pool; (void)attribute; *value = 0; return 0;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks) { *blocks = 1; return 0; }
int cublasGetMathMode(void *cublas, int *mode) { (void)cublas; *mode = 0; return 0; }
void **__cudaRegisterFatBinary(void *binary) { (void)binary; return (void **)handle; }
const char *cudaGetErrorName(int error) { (void)error; return "stand-in"; }
/* The words of NVIDIA's runtime. */
const char *cudaGetErrorString(int error) {
    switch (error) {
    case 2: return "out of memory";
    case 35: return "CUDA driver version is insufficient for CUDA runtime version";
    case 100: return "no CUDA-capable device is detected";
    case 209: return "no kernel image is available for execution on the device";
    case 700: return "an illegal memory access was encountered";
    case 719: return "unspecified launch failure";
    case 999: return "unknown error";
    default: return "stand-in";
    }
}
const char *cublasGetStatusName(int status) { (void)status; return "stand-in"; }
const char *cublasGetStatusString(int status) { (void)status; return "stand-in"; }

/* cuDNN is opened at run time; enough of it for kernels to be constructed. */
size_t cudnnGetVersion(void) { return 91000; }
const char *cudnnGetErrorString(int status) { (void)status; return "stand-in"; }
MAKES_A_HANDLE(cudnnCreate)
MAKES_A_HANDLE(cudnnCreateActivationDescriptor)
MAKES_A_HANDLE(cudnnCreateConvolutionDescriptor)
MAKES_A_HANDLE(cudnnCreateDropoutDescriptor)
MAKES_A_HANDLE(cudnnCreateFilterDescriptor)
MAKES_A_HANDLE(cudnnCreateLRNDescriptor)
MAKES_A_HANDLE(cudnnCreatePoolingDescriptor)
MAKES_A_HANDLE(cudnnCreateRNNDataDescriptor)
MAKES_A_HANDLE(cudnnCreateRNNDescriptor)
MAKES_A_HANDLE(cudnnCreateReduceTensorDescriptor)
MAKES_A_HANDLE(cudnnCreateTensorDescriptor)
int cudnnGetStream(void *cudnn, void **stream) { (void)cudnn; *stream = handle; return 0; }
int cudnnDropoutGetStatesSize(void *cudnn, size_t *size) { (void)cudnn; *size = 1; return 0; }
/* Every weight of a recurrent layer lies at the start of the buffer; its shape is 1 x 1 x 1. */
int cudnnGetRNNWeightParams(void *cudnn, void *rnn, int layer, size_t size, const void *weights, int gate,
                            void *matrix_shape, void **matrix, void *bias_shape, void **bias) {
    (void)cudnn; (void)rnn; (void)layer; (void)size; (void)gate; (void)matrix_shape; (void)bias_shape;
    *matrix = *bias = (void *)weights;
    return 0;
}
int cudnnGetTensorNdDescriptor(void *tensor, int wanted, int *type, int *rank, int *sizes, int *strides) {
    (void)tensor;
    *type = 0;
    *rank = wanted;
    for (int i = 0; i < wanted; i++) sizes[i] = strides[i] = 1;
    return 0;
}
