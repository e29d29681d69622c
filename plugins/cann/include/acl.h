/* What llmrt uses of Ascend's runtime (libascendcl) and of its tensor objects (libnnopbase), declared in our own words
 * from published facts. Nothing is linked: every function is a pointer that is filled by name when the library is
 * opened, and a newer one may stay NULL. aclnn.h beside this file has the operators.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef LLMRT_CANN_ACL_H
#define LLMRT_CANN_ACL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Status of the runtime, and of the operators' two phases; 0 is success. */
typedef int32_t aclError;
typedef int32_t aclnnStatus;

typedef void *aclrtStream;
typedef void *aclrtEvent;
typedef void *aclrtContext;
typedef void *aclrtDrvMemHandle;
typedef void *aclmdlRI;

/* Numbers are int32_t throughout: a newer library may answer one that is not listed here. */
typedef int32_t aclDataType;
#define ACL_DT_UNDEFINED (-1)
#define ACL_FLOAT 0
#define ACL_FLOAT16 1
#define ACL_INT8 2
#define ACL_INT32 3
#define ACL_UINT8 4
#define ACL_INT16 6
#define ACL_UINT16 7
#define ACL_UINT32 8
#define ACL_INT64 9
#define ACL_UINT64 10
#define ACL_DOUBLE 11
#define ACL_BOOL 12
#define ACL_BF16 27
#define ACL_INT4 29

typedef int32_t aclFormat;
#define ACL_FORMAT_UNDEFINED (-1)
#define ACL_FORMAT_NCHW 0
#define ACL_FORMAT_ND 2
#define ACL_FORMAT_FRACTAL_NZ 29
#define ACL_FORMAT_NCL 47

typedef int32_t aclrtMemMallocPolicy;
#define ACL_MEM_MALLOC_HUGE_FIRST 0
#define ACL_MEM_MALLOC_HUGE_ONLY 1
#define ACL_MEM_MALLOC_NORMAL_ONLY 2

typedef int32_t aclrtMemcpyKind;
#define ACL_MEMCPY_HOST_TO_HOST 0
#define ACL_MEMCPY_HOST_TO_DEVICE 1
#define ACL_MEMCPY_DEVICE_TO_HOST 2
#define ACL_MEMCPY_DEVICE_TO_DEVICE 3
#define ACL_MEMCPY_DEFAULT 4

typedef int32_t aclrtMemAttr;
#define ACL_DDR_MEM 0
#define ACL_HBM_MEM 1
#define ACL_HBM_MEM_HUGE 4

/* Attributes of aclrtGetDeviceInfo. */
typedef int32_t aclrtDevAttr;
#define ACL_DEV_ATTR_AICORE_CORE_NUM 101
#define ACL_DEV_ATTR_VECTOR_CORE_NUM 201
#define ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE 301

/* Flags of events: for streams to wait on; with time stamps. */
#define ACL_EVENT_SYNC 1
#define ACL_EVENT_TIME_LINE 8
/* Note that an event and a stream answer "done" with different numbers. */
typedef int32_t aclrtEventRecordedStatus;
#define ACL_EVENT_RECORDED_STATUS_NOT_READY 0
#define ACL_EVENT_RECORDED_STATUS_COMPLETE 1
typedef int32_t aclrtStreamStatus;
#define ACL_STREAM_STATUS_COMPLETE 0
#define ACL_STREAM_STATUS_NOT_READY 1

/* Flags of streams. */
#define ACL_STREAM_FAST_LAUNCH 1
#define ACL_STREAM_FAST_SYNC 2

/* How far a capture reaches, and where it stands. */
typedef int32_t aclmdlRICaptureMode;
#define ACL_MODEL_RI_CAPTURE_MODE_GLOBAL 0
#define ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL 1
#define ACL_MODEL_RI_CAPTURE_MODE_RELAXED 2
typedef int32_t aclmdlRICaptureStatus;
#define ACL_MODEL_RI_CAPTURE_STATUS_NONE 0
#define ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE 1
#define ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED 2

/* Options of aclrtCtxSetSysParamOpt. */
typedef int32_t aclSysParamOpt;
#define ACL_OPT_DETERMINISTIC 0

/* Where memory is, for virtual memory. */
#define ACL_MEM_LOCATION_TYPE_HOST 0
#define ACL_MEM_LOCATION_TYPE_DEVICE 1
typedef struct aclrtMemLocation {
  uint32_t id;
  int32_t type;
} aclrtMemLocation;

typedef struct aclrtPhysicalMemProp {
  int32_t handleType;
  int32_t allocationType;
  aclrtMemAttr memAttr;
  aclrtMemLocation location;
  uint64_t reserve;
} aclrtPhysicalMemProp;

/* The kind of granularity to report. */
#define ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM 0
#define ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED 1

/* Status numbers that llmrt distinguishes. */
#define ACL_SUCCESS 0
#define ACL_ERROR_INVALID_PARAM 100000
#define ACL_ERROR_UNINITIALIZE 100001
#define ACL_ERROR_REPEAT_INITIALIZE 100002
#define ACL_ERROR_REPEAT_FINALIZE 100037
#define ACL_ERROR_STUB_LIBRARY 100039
#define ACL_ERROR_RT_PARAM_INVALID 107000
#define ACL_ERROR_RT_INVALID_DEVICEID 107001
#define ACL_ERROR_RT_CONTEXT_NULL 107002
#define ACL_ERROR_RT_STREAM_CONTEXT 107003
#define ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID 107006
#define ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL 107007
#define ACL_ERROR_RT_ADDR_UNALIGNED 107008
#define ACL_ERROR_RT_INVALID_HANDLE 107017
#define ACL_ERROR_RT_WAIT_TIMEOUT 107019
#define ACL_ERROR_RT_TASK_TIMEOUT 107020
#define ACL_ERROR_RT_STREAM_ABORT 107023
#define ACL_ERROR_RT_STREAM_UNJOINED 107025
#define ACL_ERROR_RT_STREAM_CAPTURED 107027
#define ACL_ERROR_RT_EVENT_CAPTURED 107028
#define ACL_ERROR_RT_STREAM_NOT_CAPTURED 107029
#define ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT 107030
#define ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT 107031
#define ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED 107036
#define ACL_ERROR_RT_MODEL_RUNNING 107037
#define ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD 107038
#define ACL_ERROR_RT_STREAM_CAPTURE_CONFLICT 107041
#define ACL_ERROR_BAD_ALLOC 200000
#define ACL_ERROR_RT_FEATURE_NOT_SUPPORT 207000
#define ACL_ERROR_RT_MEMORY_ALLOCATION 207001
#define ACL_ERROR_RT_MEMORY_FREE 207002
#define ACL_ERROR_RT_NO_DEVICE 207004
#define ACL_ERROR_RT_RESOURCE_ALLOC_FAIL 207005
#define ACL_ERROR_RT_NO_EVENT_RESOURCE 207007
#define ACL_ERROR_RT_NO_STREAM_RESOURCE 207008
#define ACL_ERROR_RT_DEVICE_OOM 207018
#define ACL_ERROR_RT_INTERNAL_ERROR 507000
#define ACL_ERROR_RT_LOST_HEARTBEAT 507010
#define ACL_ERROR_RT_AICORE_TIMEOUT 507014
#define ACL_ERROR_RT_AICORE_EXCEPTION 507015
#define ACL_ERROR_RT_VECTOR_CORE_TIMEOUT 507034
#define ACL_ERROR_RT_VECTOR_CORE_EXCEPTION 507035
#define ACL_ERROR_RT_STREAM_SYNC_TIMEOUT 507046
#define ACL_ERROR_RT_EVENT_SYNC_TIMEOUT 507047
#define ACL_ERROR_RT_DRV_INTERNAL_ERROR 507899
#define ACL_ERROR_RT_SOCKET_CLOSE 507901
#define ACL_ERROR_RT_CAPTURE_INVALIDATED 507903
#define ACLNN_ERR_PARAM_NULLPTR 161001
#define ACLNN_ERR_PARAM_INVALID 161002
#define ACLNN_ERR_RUNTIME_ERROR 361001
#define ACLNN_ERR_INNER 561000
#define ACLNN_ERR_INNER_INFERSHAPE_ERROR 561001
#define ACLNN_ERR_INNER_TILING_ERROR 561002
#define ACLNN_ERR_INNER_FIND_KERNEL_ERROR 561003
#define ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND 561107
#define ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND 561112

typedef struct aclrtUuid {
  char bytes[16];
} aclrtUuid;

/* libascendcl. */
typedef struct cann_acl {
  aclError (*aclInit)(const char *config);
  aclError (*aclFinalize)(void);
  const char *(*aclGetRecentErrMsg)(void);
  const char *(*aclrtGetSocName)(void);
  aclError (*aclrtGetVersion)(int32_t *major, int32_t *minor, int32_t *patch);

  aclError (*aclrtGetDeviceCount)(uint32_t *count);
  aclError (*aclrtSetDevice)(int32_t device);
  aclError (*aclrtResetDevice)(int32_t device);
  aclError (*aclrtGetDevice)(int32_t *device);
  aclError (*aclrtSynchronizeDevice)(void);
  aclError (*aclrtCreateContext)(aclrtContext *context, int32_t device);
  aclError (*aclrtDestroyContext)(aclrtContext context);
  aclError (*aclrtSetCurrentContext)(aclrtContext context);
  aclError (*aclrtGetCurrentContext)(aclrtContext *context);
  aclError (*aclrtGetMemInfo)(aclrtMemAttr attr, size_t *free, size_t *total);
  aclError (*aclrtDeviceCanAccessPeer)(int32_t *can, int32_t device, int32_t peer);
  aclError (*aclrtDeviceEnablePeerAccess)(int32_t peer, uint32_t flags);

  aclError (*aclrtMalloc)(void **ptr, size_t size, aclrtMemMallocPolicy policy);
  aclError (*aclrtFree)(void *ptr);
  aclError (*aclrtMallocHost)(void **ptr, size_t size);
  aclError (*aclrtFreeHost)(void *ptr);
  aclError (*aclrtMemset)(void *ptr, size_t max, int32_t value, size_t n);
  aclError (*aclrtMemsetAsync)(void *ptr, size_t max, int32_t value, size_t n, aclrtStream stream);
  aclError (*aclrtMemcpy)(void *dst, size_t max, const void *src, size_t n, aclrtMemcpyKind kind);
  aclError (*aclrtMemcpyAsync)(void *dst, size_t max, const void *src, size_t n, aclrtMemcpyKind kind, aclrtStream stream);
  aclError (*aclrtMemcpy2d)(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height, aclrtMemcpyKind kind);
  aclError (*aclrtMemcpy2dAsync)(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height, aclrtMemcpyKind kind, aclrtStream stream);

  aclError (*aclrtReserveMemAddress)(void **ptr, size_t size, size_t alignment, void *expected, uint64_t flags);
  aclError (*aclrtReleaseMemAddress)(void *ptr);
  aclError (*aclrtMallocPhysical)(aclrtDrvMemHandle *handle, size_t size, const aclrtPhysicalMemProp *prop, uint64_t flags);
  aclError (*aclrtFreePhysical)(aclrtDrvMemHandle handle);
  aclError (*aclrtMapMem)(void *ptr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags);
  aclError (*aclrtUnmapMem)(void *ptr);
  aclError (*aclrtMemGetAllocationGranularity)(aclrtPhysicalMemProp *prop, int32_t option, size_t *granularity);

  aclError (*aclrtCreateStream)(aclrtStream *stream);
  aclError (*aclrtCreateStreamWithConfig)(aclrtStream *stream, uint32_t priority, uint32_t flags);
  aclError (*aclrtDestroyStream)(aclrtStream stream);
  aclError (*aclrtSynchronizeStream)(aclrtStream stream);
  aclError (*aclrtSynchronizeStreamWithTimeout)(aclrtStream stream, int32_t ms);
  aclError (*aclrtStreamQuery)(aclrtStream stream, aclrtStreamStatus *status);
  aclError (*aclrtStreamWaitEvent)(aclrtStream stream, aclrtEvent event);

  aclError (*aclrtCreateEvent)(aclrtEvent *event);
  aclError (*aclrtCreateEventWithFlag)(aclrtEvent *event, uint32_t flags);
  aclError (*aclrtCreateEventExWithFlag)(aclrtEvent *event, uint32_t flags);
  aclError (*aclrtDestroyEvent)(aclrtEvent event);
  aclError (*aclrtRecordEvent)(aclrtEvent event, aclrtStream stream);
  aclError (*aclrtResetEvent)(aclrtEvent event, aclrtStream stream);
  aclError (*aclrtQueryEventStatus)(aclrtEvent event, aclrtEventRecordedStatus *status);
  aclError (*aclrtSynchronizeEvent)(aclrtEvent event);
  aclError (*aclrtSynchronizeEventWithTimeout)(aclrtEvent event, int32_t ms);
  aclError (*aclrtEventElapsedTime)(float *ms, aclrtEvent start, aclrtEvent end);

  aclError (*aclmdlRICaptureBegin)(aclrtStream stream, aclmdlRICaptureMode mode);
  aclError (*aclmdlRICaptureEnd)(aclrtStream stream, aclmdlRI *graph);
  aclError (*aclmdlRICaptureGetInfo)(aclrtStream stream, aclmdlRICaptureStatus *status, aclmdlRI *graph);
  aclError (*aclmdlRIExecuteAsync)(aclmdlRI graph, aclrtStream stream);
  aclError (*aclmdlRIDestroy)(aclmdlRI graph);

  /* Newer: may be NULL. */
  aclError (*aclrtGetDeviceInfo)(uint32_t device, aclrtDevAttr attr, int64_t *value);
  aclError (*aclrtDeviceGetUuid)(int32_t device, aclrtUuid *uuid);
  aclError (*aclrtCtxSetSysParamOpt)(aclSysParamOpt option, int64_t value);
  aclError (*aclsysGetVersionStr)(char *package, char *version);
  aclError (*aclrtStreamAbort)(aclrtStream stream);
} cann_acl;

typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclTensorList aclTensorList;
typedef struct aclOpExecutor aclOpExecutor;

/* libnnopbase. Strides and offsets count elements; outer dims come first. */
typedef struct cann_object {
  aclTensor *(*aclCreateTensor)(const int64_t *view_dims, uint64_t n_view_dims, aclDataType type, const int64_t *strides, int64_t offset, aclFormat format, const int64_t *storage_dims, uint64_t n_storage_dims, void *address);
  aclnnStatus (*aclDestroyTensor)(const aclTensor *tensor);
  aclScalar *(*aclCreateScalar)(void *value, aclDataType type);
  aclnnStatus (*aclDestroyScalar)(const aclScalar *scalar);
  aclIntArray *(*aclCreateIntArray)(const int64_t *values, uint64_t n);
  aclnnStatus (*aclDestroyIntArray)(const aclIntArray *array);
  /* Destroying a list destroys its tensors. */
  aclTensorList *(*aclCreateTensorList)(const aclTensor *const *tensors, uint64_t n);
  aclnnStatus (*aclDestroyTensorList)(const aclTensorList *list);
  aclnnStatus (*aclSetAclOpExecutorRepeatable)(aclOpExecutor *executor);
  aclnnStatus (*aclDestroyAclOpExecutor)(aclOpExecutor *executor);
  aclnnStatus (*aclSetTensorAddr)(aclOpExecutor *executor, size_t index, aclTensor *tensor, void *address);
} cann_object;

#endif
