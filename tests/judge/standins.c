/* Stand-ins for the CUDA libraries: every call answers success, memory is malloc, kernels do nothing.
 *
 * With them the CUDA provider of an ONNX Runtime release loads on a machine without a GPU and partitions
 * graphs as it would on one. A test instrument: it computes nothing and times nothing.
 * `tests/judge/standins.py` adds a `return 0` function for every further symbol that the provider asks for.
 */
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

static const size_t MEMORY = (size_t)80 << 30;
static char handle[4096]; /* what opaque handles point to */

/* How often this library handed work to the device: kernels, products; not copies and fills. */
int standin_launches;
int standin_count(void) { return standin_launches; }
#define LAUNCHES(name) int name(void) { standin_launches++; return 0; }
LAUNCHES(cudaLaunchKernel)
LAUNCHES(__cudaLaunchKernel)
LAUNCHES(cudaLaunchKernelExC)
LAUNCHES(cudaLaunchCooperativeKernel)

int cudaGetDeviceCount(int *count) { *count = 1; return 0; }
int cudaGetDevice(int *device) { *device = 0; return 0; }
int cudaRuntimeGetVersion(int *version) { *version = RUNTIME_VERSION; return 0; }
int cudaDriverGetVersion(int *version) { *version = RUNTIME_VERSION; return 0; }
int cudaGetDeviceProperties(struct device_properties *p, int device) {
    (void)device;
    memset(p, 0, sizeof *p);
    strcpy(p->name, "stand-in");
    p->total_memory = MEMORY;
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
int cudaMemGetInfo(size_t *available, size_t *total) { *available = *total = MEMORY; return 0; }

int cudaMalloc(void **pointer, size_t size) { *pointer = malloc(size ? size : 1); return *pointer ? 0 : 2; }
int cudaMallocHost(void **pointer, size_t size) { return cudaMalloc(pointer, size); }
int cudaHostAlloc(void **pointer, size_t size, unsigned flags) { (void)flags; return cudaMalloc(pointer, size); }
int cudaMallocFromPoolAsync(void **pointer, size_t size) { return cudaMalloc(pointer, size); }
int cudaFree(void *pointer) { free(pointer); return 0; }
int cudaFreeHost(void *pointer) { free(pointer); return 0; }
int cudaFreeAsync(void *pointer) { free(pointer); return 0; }
int cudaMemcpy(void *to, const void *from, size_t size) { memmove(to, from, size); return 0; }
int cudaMemcpyAsync(void *to, const void *from, size_t size) { memmove(to, from, size); return 0; }
int cudaMemset(void *to, int value, size_t size) { memset(to, value, size); return 0; }
int cudaMemsetAsync(void *to, int value, size_t size) { memset(to, value, size); return 0; }

#define MAKES_A_HANDLE(name) int name(void **made) { *made = handle; return 0; }
MAKES_A_HANDLE(cudaStreamCreate)
MAKES_A_HANDLE(cudaStreamCreateWithFlags)
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
int cudaStreamEndCapture(void *stream, void **graph) { (void)stream; *graph = handle; return 0; }
int cudaEventElapsedTime(float *milliseconds) { *milliseconds = 0; return 0; }
int cudaFuncGetAttributes(void *attributes) { memset(attributes, 0, 64); return 0; }
int cudaMemPoolGetAttribute(void *pool, int attribute, size_t *value) {
    (void)pool; (void)attribute; *value = 0; return 0;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks) { *blocks = 1; return 0; }
int cublasGetMathMode(void *cublas, int *mode) { (void)cublas; *mode = 0; return 0; }
void **__cudaRegisterFatBinary(void *binary) { (void)binary; return (void **)handle; }
const char *cudaGetErrorName(int error) { (void)error; return "stand-in"; }
const char *cudaGetErrorString(int error) { (void)error; return "stand-in"; }
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
