#!/usr/bin/env bash
# Checks and measures the cuda plugin on a machine with an NVIDIA card, which needs no network.
#
#   ci/device/card.sh pack DIR [LLAMA_CPP]   here: builds what is carried into DIR, and packs llama.cpp's sources
#   DIR/card.sh run [STEP…]                  there: conform equal sanitize bench, or only these, then a table
#
# Logs are in $OUT, else DIR/out. Environment: LIKE, LAYERS, TYPES (models that are made there; empty: none), FILES (more
# models), ARCH (90: the peer's chip), CASES, PAIRS, QUICK (of the bench), LEVELS, PART (of conform), TOKENS (of texts),
# LLMRT_CUDA_LIB_DIR (the simulated driver).
set -uo pipefail

pack() {
    local dir=$1 sources=${2:-} root
    root=$(cd "$(dirname "$0")/../.." && pwd)
    mkdir -p "$dir" && dir=$(cd "$dir" && pwd) && cd "$root" || return
    cargo ci cuda-kernels && cargo build --release --locked -p llmrt-cli -p llmrt-cuda -p llmrt-ci || return
    local built=${CARGO_TARGET_DIR:-target}/release
    cp "$built/llmrt" "$built/llmrt-ci" "$built/libllmrt_cuda.so" cli/assets/stories.gguf "$0" "$dir" || return
    strip "$dir/llmrt" "$dir/llmrt-ci"
    [ -z "$sources" ] || pack_peer "$dir" "$sources"
    du -sh "$dir"
}

# The folders that llama-bench and llama-batched-bench need, of ggml's devices only the CPU and CUDA.
pack_peer() {
    local others=() folder
    for folder in "$2"/ggml/src/ggml-*/; do
        folder=$(basename "$folder")
        [[ $folder = ggml-cpu || $folder = ggml-cuda ]] || others+=("--exclude=ggml/src/$folder")
    done
    tar -C "$2" -cJf "$1/llama.cpp.tar.xz" "${others[@]}" CMakeLists.txt LICENSE licenses cmake common ggml include src \
        vendor tools/llama-bench tools/batched-bench
}

# Built while the card is checked; the list of tools is cut down to the two.
build_peer() {
    [ -f llama.cpp.tar.xz ] && command -v nvcc cmake >/dev/null && [ ! -x peer/bin/llama-bench ] || return 0
    mkdir -p llama.cpp && tar -C llama.cpp -xJf llama.cpp.tar.xz
    printf 'add_subdirectory(%s)\n' batched-bench llama-bench >llama.cpp/tools/CMakeLists.txt
    cmake -S llama.cpp -B peer -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_CUDA=ON \
        -DCMAKE_CUDA_ARCHITECTURES="${ARCH:-90}" -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF \
        -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF &&
        nice cmake --build peer -j "$(nproc)" -t llama-bench llama-batched-bench
}

# One line of the table.
report() { printf '%-12s %s\n' "$1" "$2" | tee -a "$OUT/table.txt"; }

# GB/s that a copy of 1 GiB on the card reads and writes, by the driver alone; the simulated one copies less.
copy_rate() {
    python3 - <<'PY'
import ctypes, os, time
folder = os.environ.get("LLMRT_CUDA_LIB_DIR")
cuda = ctypes.CDLL(os.path.join(folder, "libcuda.so.1") if folder else "libcuda.so.1")
u64, n, times = ctypes.c_uint64, 16 << 20 if folder else 1 << 30, 2 if folder else 20
def do(name, *args):
    code = getattr(cuda, name)(*args)
    assert code == 0, f"{name}: {code}"
context, stream, a, b = u64(), u64(), u64(), u64()
do("cuInit", 0)
do("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
do("cuCtxSetCurrent", context)
do("cuStreamCreateWithPriority", ctypes.byref(stream), 1, 0)
for at in a, b: do("cuMemAlloc_v2", ctypes.byref(at), u64(n))
best = 1e9
for _ in range(5):
    start = time.perf_counter()
    for _ in range(times): do("cuMemcpyDtoDAsync_v2", b, a, u64(n), stream)
    do("cuStreamSynchronize", stream)
    best = min(best, time.perf_counter() - start)
print(round(2 * n * times / best / 1e9, 1))
PY
}

# Models of random numbers in a known shape, made once, and those that are named.
models() {
    local type file
    for type in ${TYPES-q4_0 q4_k_m q8_0 f16}; do
        file="${LIKE:-llama-3.2-1b}-$type.gguf"
        [ -f "$file" ] || ./llmrt synth --like "${LIKE:-llama-3.2-1b}" --type "$type" ${LAYERS:+--layers $LAYERS} "$file" >&2
        echo "$file"
    done
    [ -z "${FILES:-}" ] || printf '%s\n' $FILES
}

step_conform() {
    local levels=--perf # L0 to L6
    [ -z "${LEVELS:-}" ] || levels="--level $LEVELS"
    ./llmrt conform ./libllmrt_cuda.so $levels ${PART:+--part $PART} \
        --json "$OUT/conform.json" --markdown "$OUT/conform.md" >"$OUT/conform.log" 2>&1
    local code=$?
    report conform "exit $code: $(tail -1 "$OUT/conform.log")"
}

# The CPU's text from the embedded model in four types, and every op of a model beside the CPU's.
step_equal() {
    local type file a b
    for type in f32 f16 q8_0 q4_0; do
        file=stories-$type.gguf
        [ -f "$file" ] || ./llmrt quantize --force --pure stories.gguf "$file" "$type" >&2 2>/dev/null
        if a=$(story cpu "$file") && b=$(story cuda "$file") && [ "$a" = "$b" ]; then
            report "text $type" "as the CPU's"
        else
            report "text $type" "DIFFERS: see equal.log"
        fi
    done 2>>"$OUT/equal.log"
    for file in $(models); do
        if ./llmrt diff --b cuda "$file" >"$OUT/diff-$file.log" 2>&1; then
            report diff "$file: every op within its limit"
        else
            report diff "$file: FAILS: $(tail -1 "$OUT/diff-$file.log")"
        fi
    done
}

story() {
    local strict=$([ "$1" = cpu ] || echo --strict-device)
    ./llmrt --backend "$1" $strict run --raw --temp 0 -n "${TOKENS:-64}" -p "one day" -m "$2"
}

step_sanitize() {
    command -v compute-sanitizer >/dev/null || { report sanitize "no compute-sanitizer here"; return; }
    local tool code
    for tool in memcheck racecheck synccheck initcheck; do
        compute-sanitizer --tool "$tool" --target-processes all --error-exitcode 9 ./llmrt --backend cuda --strict-device \
            run --raw --temp 0 -n 4 -p "one day" -m stories-q4_0.gguf >"$OUT/$tool.log" 2>&1
        code=$?
        report "$tool" "exit $code: $(grep -h 'SUMMARY' "$OUT/$tool.log" | tail -1)"
    done
}

step_bench() {
    local rate args=() file
    rate=$(copy_rate) && report copy "$rate GB/s read and written" || rate=0
    for file in $(models); do args+=(-m "$file"); done
    [ ${#args[@]} -gt 0 ] || { report bench "no models"; return; }
    [ ! -x peer/bin/llama-bench ] || args+=(--peer peer/bin/llama-bench)
    ./llmrt-ci bench --llmrt ./llmrt --plugin ./libllmrt_cuda.so --card-gb-s "$rate" --threads "$(nproc)" \
        --cases "${CASES:-decode,prompt,long-prompt,together-32,together-128}" --pairs "${PAIRS:-3}" ${QUICK:+--quick} \
        --json "$OUT/bench.json" "${args[@]}" 2>"$OUT/bench.log" | tee -a "$OUT/table.txt"
    [ "${PIPESTATUS[0]}" = 0 ] || report bench "FAILS: $(tail -1 "$OUT/bench.log")"
}

run() {
    cd "$(dirname "$0")" && export OUT=${OUT:-$PWD/out} && mkdir -p "$OUT" && : >"$OUT/table.txt" || exit
    chmod +x llmrt llmrt-ci 2>/dev/null
    build_peer >"$OUT/peer.log" 2>&1 &
    report card "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo 'no nvidia-smi')"
    report date "$(date -u +%F), $(./llmrt --version)"
    [ $# -gt 0 ] || set -- conform equal sanitize bench
    for step in "$@"; do
        # The bench has the card, and the processor, to itself.
        [ "$step" != bench ] || wait
        "step_$step"
    done
    wait
    echo; echo "== table"; cat "$OUT/table.txt"
}

case ${1:-} in
pack | run) "$@" ;;
*) sed -n '2,10s/^# \?//p' "$0" && exit 2 ;;
esac
