/* What llmrt uses of Ascend's collectives (libhccl, and libhcomm since communicators are there), declared in our own words
 * from published facts. Filled by name like acl.h's functions; without the library there are none.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef LLMRT_CANN_HCCL_H
#define LLMRT_CANN_HCCL_H

#include "acl.h"

/* A card's end of a communicator. */
typedef void *HcclComm;

typedef int32_t HcclResult;
#define HCCL_SUCCESS 0
#define HCCL_E_PARA 1
#define HCCL_E_PTR 2
#define HCCL_E_MEMORY 3
#define HCCL_E_INTERNAL 4
#define HCCL_E_NOT_SUPPORT 5
#define HCCL_E_TIMEOUT 9
#define HCCL_E_RUNTIME 15
#define HCCL_E_AGAIN 20

typedef int32_t HcclDataType;
#define HCCL_DATA_TYPE_INT8 0
#define HCCL_DATA_TYPE_FP16 3
#define HCCL_DATA_TYPE_FP32 4
#define HCCL_DATA_TYPE_BFP16 11

typedef int32_t HcclReduceOp;
#define HCCL_REDUCE_SUM 0

/* Options of HcclSetConfig; the library declares the value as a union of one int32_t, which is passed as that. */
typedef int32_t HcclConfig;
#define HCCL_DETERMINISTIC 0

typedef struct cann_hccl {
  HcclResult (*HcclCommInitAll)(uint32_t n, int32_t *devices, HcclComm *comms);
  HcclResult (*HcclCommDestroy)(HcclComm comm);
  HcclResult (*HcclAllReduce)(void *send, void *recv, uint64_t count, HcclDataType type, HcclReduceOp op, HcclComm comm, aclrtStream stream);
  HcclResult (*HcclAllGather)(void *send, void *recv, uint64_t send_count, HcclDataType type, HcclComm comm, aclrtStream stream);
  HcclResult (*HcclBroadcast)(void *buf, uint64_t count, HcclDataType type, uint32_t root, HcclComm comm, aclrtStream stream);

  /* Newer: may be NULL. */
  HcclResult (*HcclSetConfig)(HcclConfig config, int32_t value);
} cann_hccl;

#endif
