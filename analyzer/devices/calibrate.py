"""This machine's measured ceilings: what they are called, whose they are, where they are kept.

``runtime.ceilings`` measures them; here they get a fingerprint and a home. A calibration is a mapping of keys to
floats in SI base units. ``{T}`` is a number of intra-op threads: every key exists for 1 thread and for the default
number (``threads``), large GEMMs also for the powers of two between. Everything is ONNX Runtime's own CPU kernels
on float32 unless the key says otherwise, called alone, the cost of the call taken off.

=====================================================  ================================================================
``threads``, ``cores``                                 default intra-op threads; logical processors available
``dispatch.t{T}``                                      s: a node that does nothing, inside a graph
``call.t{T}``                                          s: one call of a session, before its first node
``gemm.{dtype}.t{T}.m{M}.n{N}.k{K}``                   FLOP/s (2MNK): MatMul with constant (packed) weights K x N; dtype
                                                       ``float32``, ``float64``, ``int8`` (MatMulInteger, u8 x s8)
``gemm_dynamic.float32.t{T}.m{M}.n{N}.k{K}``           FLOP/s: both operands computed at run time
``bmm.float32.t{T}.b{B}.m{M}.n{N}.k{K}``               FLOP/s: batched, both operands computed at run time
``gemm_trans.float32.t{T}.m{M}.n{N}.k{K}``             FLOP/s: Gemm with bias and transB=1, constant weights
``conv.float32.t{T}.{class}``                          FLOP/s (2 per multiply-accumulate) by class, see ``CONV_CLASSES``:
                                                       ``stem7x7s2``, ``stem3x3s2``, ``3x3``, ``3x3small``, ``3x3s2``,
                                                       ``1x1``, ``1x1small``, ``5x5``, ``group32``, ``depthwise3x3``,
                                                       ``depthwise3x3s2``, ``depthwise5x5``, ``conv1d``, ``conv3d``,
                                                       ``transpose2x2s2``; as executed, that is in ONNX Runtime's
                                                       blocked layout (NCHWc) where it has one
``copy.t{T}.{bytes}``                                  B/s, read and written counted, by bytes of both together: a
                                                       streaming elementwise kernel (``Neg``)
``elementwise.{Op}.t{T}``                              s per output element, in cache: arithmetic, activations,
                                                       comparisons, casts, quantization, norms, softmax. Variants:
                                                       ``AddBias`` (a row is broadcast), ``AddScalar``, ``MulScalar``,
                                                       ``Pow`` (exponent 2), ``PowTensor`` (elementwise exponent),
                                                       ``GeluTanh``, ``CastHalf`` (float32 to float16), ``CastFloat``
                                                       (float16 to float32), ``CastInt`` (float32 to int64),
                                                       ``AddInt64``, ``MulInt64``, ``EqualInt64``
``reduce.{Op}.t{T}.{axis}``                            s per *input* element; axis ``inner`` (last) or ``outer`` (first):
                                                       ``ReduceSum``, ``ReduceMean``, ``ReduceMax``, ``ReduceL2``,
                                                       ``ArgMax``, ``CumSum``, ``TopK``, ``GlobalAveragePool``
``pool.{Op}.t{T}``                                     s per window element (output elements times window):
                                                       ``MaxPool``, ``AveragePool``, both 3x3 stride 2
``move.{Op}.t{T}``                                     s per output element: ``Concat``, ``Split``, ``Slice``, ``Gather``
                                                       (rows), ``GatherElements``, ``GatherND``, ``ScatterElements``,
                                                       ``ScatterND``, ``Expand``, ``Tile``, ``Pad``, ``Identity``, ``Where``,
                                                       ``TransposeMatrix``, ``TransposeHeads`` (0213), ``TransposeNHWC``,
                                                       ``ResizeNearest``, ``ResizeLinear``, ``DepthToSpace``, ``OneHot``,
                                                       ``Trilu``, ``Range``
``rnn.{Op}.t{T}.h{H}.b{B}``                            s per time step; ``LSTM``, ``GRU``, ``RNN``, one direction, input size H
``attention.float32.t{T}.b{B}.h{heads}.s{S}.d{D}``     FLOP/s (4 B heads S S D): com.microsoft MultiHeadAttention
``cuda.launch``, ``cuda.node``                         s: one empty kernel in a row of them; host time of one ORT node
``cuda.gemm.{dtype}.m{M}.n{N}.k{K}``                   FLOP/s: ``float32`` (TF32 off), ``tf32``, ``float16``, ``bfloat16``
``cuda.copy.{bytes}``                                  B/s, read and written counted: inside the GPU's memory
``cuda.{h2d,d2h}.{pinned,pageable}.{bytes}``           B/s: between host and GPU
``cuda.h2d.latency``, ``cuda.d2h.latency``             s: a copy of 4 bytes
=====================================================  ================================================================

A kernel that this build of ONNX Runtime lacks has no key. The spread of a key is not kept: it is the lower
quartile of its runs, the machine undisturbed.
"""
