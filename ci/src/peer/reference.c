// Computes the logits, or the embeddings of each token, of a model with llama.cpp's library: one sequence in one batch, one
// thread, F32 cache, no flash attention but for `flash`, which are logits. Of a model with an encoder and a decoder both take the tokens.
// `scores` are what the model's classifier makes of the text.
//
// reference MODEL TOKENS OUT logits|flash|embeddings|scores

#include "llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 4096 };

static int fail(const char *what, const char *file) {
    fprintf(stderr, "reference: %s: %s\n", file, what);
    return 1;
}

static void quiet(enum ggml_log_level level, const char *text, void *data) {
    (void)data;
    if (level >= GGML_LOG_LEVEL_WARN && level != GGML_LOG_LEVEL_CONT) fputs(text, stderr);
}

int main(int argc, char **argv) {
    if (argc != 5) return fail("expected MODEL TOKENS OUT logits|flash|embeddings|scores", "arguments");
    const bool scores = !strcmp(argv[4], "scores");
    const bool embeddings = scores || !strcmp(argv[4], "embeddings");
    llama_log_set(quiet, NULL);

    struct llama_model_params mp = llama_model_default_params();
    mp.use_extra_bufts = false;
    struct llama_model *model = llama_model_load_from_file(argv[1], mp);
    if (!model) return fail("not loaded", argv[1]);

    FILE *in = fopen(argv[2], "r");
    if (!in) return fail("not opened", argv[2]);
    struct llama_batch batch = llama_batch_init(MAX_TOKENS, 0, 1);
    int n = 0;
    for (; n < MAX_TOKENS && fscanf(in, "%d", &batch.token[n]) == 1; n++) {
        batch.pos[n] = n;
        batch.n_seq_id[n] = 1;
        batch.seq_id[n][0] = 0;
        batch.logits[n] = 1;
    }
    fclose(in);
    batch.n_tokens = n;

    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = cp.n_batch = cp.n_ubatch = n;
    cp.n_threads = cp.n_threads_batch = 1;
    cp.type_k = cp.type_v = GGML_TYPE_F32;
    cp.flash_attn_type = strcmp(argv[4], "flash") ? LLAMA_FLASH_ATTN_TYPE_DISABLED : LLAMA_FLASH_ATTN_TYPE_ENABLED;
    cp.embeddings = embeddings;
    cp.pooling_type = scores ? LLAMA_POOLING_TYPE_RANK : LLAMA_POOLING_TYPE_NONE;
    struct llama_context *context = llama_init_from_model(model, cp);
    if (!context) return fail("no context", argv[1]);

    const bool decodes = llama_model_has_decoder(model);
    if (llama_model_has_encoder(model) && llama_encode(context, batch)) return fail("encoding failed", argv[1]);
    if ((decodes || !llama_model_has_encoder(model)) && llama_decode(context, batch)) {
        return fail("decoding failed", argv[1]);
    }
    const size_t n_columns = scores       ? (size_t)llama_model_n_cls_out(model)
                             : embeddings ? (size_t)llama_model_n_embd_out(model)
                                          : (size_t)llama_vocab_n_tokens(llama_model_get_vocab(model));
    const int n_rows = scores ? 1 : n;
    FILE *out = fopen(argv[3], "wb");
    if (!out) return fail("not created", argv[3]);
    for (int i = 0; i < n_rows; i++) {
        const float *row = scores       ? llama_get_embeddings_seq(context, 0)
                           : embeddings ? llama_get_embeddings_ith(context, i)
                                        : llama_get_logits_ith(context, i);
        if (!row || fwrite(row, sizeof *row, n_columns, out) != n_columns) return fail("no row", argv[3]);
    }
    if (fclose(out)) return fail("not written", argv[3]);
    llama_batch_free(batch);
    llama_free(context);
    llama_model_free(model);
    return 0;
}
