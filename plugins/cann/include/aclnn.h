/* The operators llmrt uses, by the library that has them since the umbrella was split. Each is two functions: the first
 * checks, plans and returns the size of its workspace; the second launches the plan on a stream, once. In the library
 * they are called `<name>GetWorkspaceSize` and `<name>`.
 * `T` is a tensor, `IA` an array of int64_t on the host, `TL` a list of tensors; `_opt` may be NULL.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef LLMRT_CANN_ACLNN_H
#define LLMRT_CANN_ACLNN_H

#include "acl.h"
#include "hccl.h"

/* clang-format off */
#define T const aclTensor *
#define OUT aclTensor *
#define S const aclScalar *
#define IA const aclIntArray *
#define TL const aclTensorList *
#define OP(name, ...) \
  struct { \
    aclnnStatus (*plan)(__VA_ARGS__, uint64_t *workspace_size, aclOpExecutor **executor); \
    aclnnStatus (*launch)(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream); \
  } name;

/* libopapi_math */
typedef struct cann_math {
  OP(aclnnAdd, T self, T other, S alpha, OUT out)
  OP(aclnnInplaceAdd, OUT self, T other, S alpha)
  OP(aclnnAdds, T self, S other, S alpha, OUT out)
  OP(aclnnSub, T self, T other, S alpha, OUT out)
  OP(aclnnMul, T self, T other, OUT out)
  OP(aclnnInplaceMul, OUT self, T other)
  OP(aclnnMuls, T self, S other, OUT out)
  OP(aclnnInplaceMuls, OUT self, S other)
  OP(aclnnDiv, T self, T other, OUT out)
  OP(aclnnInplaceDiv, OUT self, T other)
  OP(aclnnArange, S start, S end, S step, OUT out)
  OP(aclnnClamp, T self, S min_opt, S max_opt, OUT out)
  OP(aclnnClampMin, T self, S min, OUT out)
  OP(aclnnArgsort, T self, int64_t dim, bool descending, OUT out)
  OP(aclnnTopk, T self, int64_t k, int64_t dim, bool largest, bool sorted, OUT values, OUT indices)
  OP(aclnnArgMax, T self, int64_t dim, bool keep_dim, OUT out)
  OP(aclnnNorm, T self, S p, IA dims, bool keep_dim, OUT out)
  OP(aclnnReduceSum, T self, IA dims, bool keep_dim, aclDataType type, OUT out)
  OP(aclnnMean, T self, IA dims, bool keep_dim, aclDataType type, OUT out)
  OP(aclnnCumsum, T self, int64_t dim, aclDataType type, OUT out)
  OP(aclnnConstantPadNd, T self, IA pads, S value, OUT out)
  OP(aclnnReflectionPad1d, T self, IA pads, OUT out)
  OP(aclnnTriu, T self, int64_t diagonal, OUT out)
  OP(aclnnInplaceTriu, OUT self, int64_t diagonal)
  OP(aclnnTril, T self, int64_t diagonal, OUT out)
  OP(aclnnIm2col, T self, IA kernel, IA dilation, IA padding, IA stride, OUT out)
  OP(aclnnPowScalarTensor, S self, T exponent, OUT out)
  OP(aclnnPowTensorTensor, T self, T exponent, OUT out)
  OP(aclnnPowTensorScalar, T self, S exponent, OUT out)
  OP(aclnnRepeat, T self, IA repeats, OUT out)
  OP(aclnnCat, TL tensors, int64_t dim, OUT out)
  OP(aclnnCast, T self, aclDataType type, OUT out)
  OP(aclnnInplaceCopy, OUT self, T source)
  OP(aclnnPermute, T self, IA dims, OUT out)
  OP(aclnnExp, T self, OUT out)
  OP(aclnnExpm1, T self, OUT out)
  OP(aclnnCos, T self, OUT out)
  OP(aclnnSin, T self, OUT out)
  OP(aclnnSqrt, T self, OUT out)
  OP(aclnnLog, T self, OUT out)
  OP(aclnnNeg, T self, OUT out)
  OP(aclnnAbs, T self, OUT out)
  OP(aclnnSign, T self, OUT out)
  OP(aclnnTanh, T self, OUT out)
  OP(aclnnFloor, T self, OUT out)
  OP(aclnnCeil, T self, OUT out)
  OP(aclnnTrunc, T self, OUT out)
  OP(aclnnRsqrt, T self, OUT out)
  OP(aclnnInplaceFillScalar, OUT self, S value)
  OP(aclnnInplaceZero, OUT self)
  OP(aclnnInplaceOne, OUT self)
  OP(aclnnRoll, T x, IA shifts, IA dims, OUT out)
  OP(aclnnSWhere, T condition, T self, T other, OUT out)
  OP(aclnnGtScalar, T self, S other, OUT out)
  OP(aclnnEqTensor, T self, T other, OUT out)
  OP(aclnnInplaceMaskedFillScalar, OUT self, T mask, S value)
} cann_math;

/* libopapi_nn */
typedef struct cann_nn {
  OP(aclnnLeakyRelu, T self, S slope, OUT out)
  OP(aclnnLayerNorm, T input, IA normalised_shape, T weight_opt, T bias_opt, double eps, OUT out, OUT mean_opt, OUT rstd_opt)
  OP(aclnnGroupNorm, T self, T gamma_opt, T beta_opt, int64_t n, int64_t c, int64_t hxw, int64_t groups, double eps, OUT out, OUT mean, OUT rstd)
  OP(aclnnRmsNorm, T x, T gamma, double eps, OUT y, OUT rstd)
  OP(aclnnAvgPool2d, T self, IA kernel, IA stride, IA padding, bool ceil_mode, bool count_padding, int64_t divisor, int8_t cube_math, OUT out)
  OP(aclnnMaxPool, T self, IA kernel, IA stride, int64_t auto_pad, IA padding, IA dilation, int64_t ceil_mode, OUT out)
  OP(aclnnSoftmax, T self, int64_t dim, OUT out)
  OP(aclnnMatmul, T self, T mat2, OUT out, int8_t cube_math)
  OP(aclnnMm, T self, T mat2, OUT out, int8_t cube_math)
  OP(aclnnBatchMatMul, T self, T mat2, OUT out, int8_t cube_math)
  OP(aclnnWeightQuantBatchMatmulV2, T x, T weight, T scale, T offset_opt, T quant_scale_opt, T quant_offset_opt, T bias_opt, int group_size, OUT y)
  OP(aclnnWeightQuantBatchMatmulV3, T x, T weight, T scale, T offset_opt, T quant_scale_opt, T quant_offset_opt, T bias_opt, int group_size, int inner_precise, OUT y)
  OP(aclnnTransMatmulWeight, OUT weight)
  OP(aclnnRepeatInterleaveIntWithDim, T self, int64_t n, int64_t dim, int64_t out_size, OUT out)
  OP(aclnnInplaceIndexFillTensor, OUT self, int64_t dim, IA index, S value)
  OP(aclnnGatherV2, T self, int64_t dim, T index, OUT out)
  OP(aclnnIndexSelect, T self, int64_t dim, T index, OUT out)
  OP(aclnnInplaceIndexCopy, OUT self, int64_t dim, T index, T source)
  OP(aclnnInplaceScatterUpdate, OUT data, T indices, T updates, int64_t axis)
  OP(aclnnSilu, T self, OUT out)
  OP(aclnnRelu, T self, OUT out)
  OP(aclnnSigmoid, T self, OUT out)
  OP(aclnnHardsigmoid, T self, OUT out)
  OP(aclnnHardswish, T self, OUT out)
  OP(aclnnGeluV2, T x, int64_t approximate, OUT y)
  OP(aclnnFastGelu, T self, OUT out)
  OP(aclnnElu, T self, S alpha, S scale, S input_scale, OUT out)
  OP(aclnnSoftplus, T self, S beta, S threshold, OUT out)
  OP(aclnnSwiGlu, T x, int64_t dim, OUT out)
  OP(aclnnGeGluV3, T self, int64_t dim, int64_t approximate, bool activate_left, OUT out, OUT out_gelu)
  OP(aclnnConvolution, T input, T weight, T bias_opt, IA stride, IA padding, IA dilation, bool transposed, IA output_padding, int64_t groups, OUT out, int8_t cube_math)
  /* Bytes of a weight in the layout FRACTAL_NZ, in elements; one phase. */
  aclnnStatus (*aclnnCalculateMatmulWeightSizeV2)(IA shape, aclDataType type, uint64_t *n_elements);
} cann_nn;

/* libopapi_cv */
typedef struct cann_cv {
  OP(aclnnUpsampleNearest2d, T self, IA size, OUT out)
} cann_cv;

/* libopapi_transformer */
typedef struct cann_transformer {
  OP(aclnnFusedInferAttentionScoreV2, T query, TL key, TL value, T pse_shift_opt, T mask_opt, IA seq_lens_opt, IA seq_lens_kv_opt, T dequant_scale1_opt, T quant_scale1_opt, T dequant_scale2_opt, T quant_scale2_opt, T quant_offset2_opt, T antiquant_scale_opt, T antiquant_offset_opt, T block_table_opt, T query_padding_opt, T kv_padding_opt, T key_antiquant_scale_opt, T key_antiquant_offset_opt, T value_antiquant_scale_opt, T value_antiquant_offset_opt, T key_prefix_opt, T value_prefix_opt, IA prefix_len_opt, int64_t n_heads, double scale, int64_t pre_tokens, int64_t next_tokens, char *layout, int64_t n_kv_heads, int64_t sparse_mode, int64_t inner_precise, int64_t block_size, int64_t antiquant_mode, bool lse_flag, int64_t key_antiquant_mode, int64_t value_antiquant_mode, OUT out, OUT lse)
  OP(aclnnIncreFlashAttentionV4, T query, TL key, TL value, T pse_shift_opt, T mask_opt, IA seq_lens_opt, T dequant_scale1_opt, T quant_scale1_opt, T dequant_scale2_opt, T quant_scale2_opt, T quant_offset2_opt, T antiquant_scale_opt, T antiquant_offset_opt, T block_table_opt, T kv_padding_opt, int64_t n_heads, double scale, char *layout, int64_t n_kv_heads, int64_t block_size, int64_t inner_precise, OUT out)
  OP(aclnnRotaryPositionEmbedding, T x, T cos, T sin, int64_t mode, OUT out)
  OP(aclnnMoeGatingTopKSoftmax, T x, T finished_opt, int64_t k, OUT y, OUT expert, OUT row)
  OP(aclnnGroupedMatmulV4, TL x, TL weight, TL bias_opt, TL scale_opt, TL offset_opt, TL antiquant_scale_opt, TL antiquant_offset_opt, TL per_token_scale_opt, T group_list_opt, TL act_in_opt, TL act_quant_scale_opt, TL act_quant_offset_opt, int64_t split_item, int64_t group_type, int64_t group_list_type, int64_t act_type, TL out, TL act_feature_out_opt, TL dyn_quant_scale_out_opt)
} cann_transformer;

#undef OP
#undef TL
#undef IA
#undef S
#undef OUT
#undef T
/* clang-format on */

#endif
