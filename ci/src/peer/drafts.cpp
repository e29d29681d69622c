// Computes with llama.cpp's library what layers that predict ahead (`gemma4-assistant`) make of a model's caches and hidden states:
// the model takes all tokens but the last; then the layers take the last one, and after it the first ones, each at the last one's
// position and with the hidden state that came before. One thread, F32 caches, no flash attention.
//
// drafts MODEL LAYERS TOKENS OUT: N_DRAFTS times logits and the hidden state after them

#include "llama-ext.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

static const int N_DRAFTS = 4;

static void fail(const char *what, const char *file) {
    fprintf(stderr, "drafts: %s: %s\n", file, what);
    exit(1);
}

static void quiet(enum ggml_log_level level, const char *text, void *) {
    if (level >= GGML_LOG_LEVEL_WARN && level != GGML_LOG_LEVEL_CONT) fputs(text, stderr);
}

static llama_model *load(const char *file) {
    llama_model_params params = llama_model_default_params();
    params.use_extra_bufts = false;
    llama_model *model = llama_model_load_from_file(file, params);
    if (!model) fail("not loaded", file);
    return model;
}

int main(int argc, char **argv) {
    if (argc != 5) fail("expected MODEL LAYERS TOKENS OUT", "arguments");
    llama_log_set(quiet, nullptr);
    llama_model *model = load(argv[1]), *layers = load(argv[2]);

    std::vector<llama_token> tokens;
    std::ifstream in(argv[3]);
    for (llama_token token; in >> token;) tokens.push_back(token);
    const int n = (int)tokens.size() - 1;
    if (n < N_DRAFTS) fail("too few tokens", argv[3]);

    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = n + 1;
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context *context = llama_init_from_model(model, params);
    if (!context) fail("no context", argv[1]);
    params.ctx_other = context;
    params.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
    llama_context *ahead = llama_init_from_model(layers, params);
    if (!ahead) fail("no context", argv[2]);
    llama_set_embeddings_nextn(context, true, false);
    llama_set_embeddings_nextn(ahead, true, true);

    llama_batch batch = llama_batch_init(n, 0, 1);
    batch.n_tokens = n;
    for (int i = 0; i < n; i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    if (llama_decode(context, batch)) fail("decoding failed", argv[1]);
    const size_t n_embd = llama_model_n_embd_out(layers);
    const float *row = llama_get_embeddings_nextn_ith(context, n - 1);
    if (!row) fail("no hidden state", argv[1]);
    std::vector<float> hidden(row, row + n_embd);

    const size_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    FILE *out = fopen(argv[4], "wb");
    if (!out) fail("not created", argv[4]);
    llama_batch_ext *step = llama_batch_ext_init(ahead);
    const llama_pos position = n;
    for (int i = 0; i < N_DRAFTS; i++) {
        llama_batch_ext_clear(step);
        const int32_t at = llama_batch_ext_add_token(step, 0, i ? tokens[i - 1] : tokens[n]);
        llama_batch_ext_set_pos(step, at, &position);
        llama_batch_ext_set_embd_token(step, at, {hidden.data(), 1, n_embd});
        llama_batch_ext_set_output_logits(step, at, true);
        if (llama_process(ahead, LLAMA_PROCESS_TYPE_DECODE, step)) fail("decoding failed", argv[2]);
        const float *logits = llama_get_logits_ith(ahead, 0);
        const float *next = llama_get_embeddings_nextn_ith(ahead, 0);
        if (!logits || !next) fail("no row", argv[2]);
        if (fwrite(logits, sizeof *logits, n_vocab, out) != n_vocab) fail("not written", argv[4]);
        hidden.assign(next, next + n_embd);
        if (fwrite(next, sizeof *next, n_embd, out) != n_embd) fail("not written", argv[4]);
    }
    if (fclose(out)) fail("not written", argv[4]);
    llama_batch_ext_free(step);
    llama_batch_free(batch);
    llama_free(ahead);
    llama_free(context);
    llama_model_free(layers);
    llama_model_free(model);
}
