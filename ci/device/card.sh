#!/usr/bin/env bash
# Checks and measures the cuda plugin on a machine with an NVIDIA card, which needs no network.
#
#   ci/device/card.sh pack DIR [LLAMA_CPP]   here: builds what is carried into DIR, and packs llama.cpp's sources
#   DIR/card.sh run [STEP…]                  there: perf conform equal sanitize bench, or only these, and one report
#
# It ends within $LIMIT seconds (600): a step that does not fit is cut off or left out, and the report names it. The report is
# report.md in $OUT, else DIR/out, beside the logs. Environment: LIMIT, LEAST (seconds that a step is worth beginning for), LIKE,
# LAYERS, TYPES (models that are made there; empty: none), FILES (more models), ARCH (90: the peer's chip), CASES, PAIRS, QUICK (of
# the bench), PERF_OPS, LEVELS, PART (of conform), TOKENS (of texts), LLMRT_CUDA_LIB_DIR (the simulated driver).
set -uo pipefail

pack() {
    local dir=$1 sources=${2:-} root
    root=$(cd "$(dirname "$0")/../.." && pwd)
    mkdir -p "$dir" && dir=$(cd "$dir" && pwd) && cd "$root" || return
    cargo ci cuda-kernels && cargo build --release --locked -p llmrt-cli -p llmrt-cuda -p llmrt-ci || return
    local built=${CARGO_TARGET_DIR:-target}/release
    cp "$built/llmrt" "$built/llmrt-ci" "$built/libllmrt_cuda.so" cli/assets/stories.gguf plugins/cuda/kernels/cost.txt \
        "$0" "$dir" || return
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
step_peer() {
    [ -f llama.cpp.tar.xz ] && command -v nvcc cmake >/dev/null && [ ! -x peer/bin/llama-bench ] || return 0
    mkdir -p llama.cpp && tar -C llama.cpp -xJf llama.cpp.tar.xz
    printf 'add_subdirectory(%s)\n' batched-bench llama-bench >llama.cpp/tools/CMakeLists.txt
    cmake -S llama.cpp -B peer -DCMAKE_BUILD_TYPE=Release -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON -DGGML_CUDA=ON \
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

# Speed of single ops, before anything else is measured: what the card is for, and little of the time.
step_perf() {
    ./llmrt conform ./libllmrt_cuda.so --level L6 --perf ${PERF_OPS:+--ops "$PERF_OPS"} \
        --json "$OUT/perf.json" --markdown "$OUT/perf.md" >"$OUT/perf.log" 2>&1
    report perf "exit $?: $(tail -1 "$OUT/perf.log")"
}

step_conform() {
    ./llmrt conform ./libllmrt_cuda.so ${LEVELS:+--level $LEVELS} ${PART:+--part $PART} \
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

# Seconds that a step may take, of those that are left: each leaves the others some.
share() {
    case $1 in
    perf) echo $(($2 / 4)) ;;
    conform) echo $(($2 * 2 / 5)) ;;
    equal) echo $(($2 / 3)) ;;
    sanitize) echo $(($2 / 3)) ;;
    *) echo "$2" ;;
    esac
}

left() { echo $((${LIMIT:-600} - SECONDS - 5)); }

# A step in a process group of its own, which ends with its time.
bounded() {
    local seconds
    seconds=$(share "$1" "$(left)")
    if [ "$seconds" -lt "${LEAST:-10}" ]; then
        report "$1" "LEFT OUT: $(left) s of ${LIMIT:-600} are left"
        return
    fi
    timeout -k 5 "$seconds" bash "./$(basename "$0")" step "$1"
    [ $? -lt 124 ] || report "$1" "CUT OFF after $seconds s: what it had not reported is missing"
}

# What the model of cost predicts (cost.txt) beside what L6 of conform measured, for this card or the nearest by name.
predicted() {
    python3 - "$1" <<'PY'
import json, os, re, sys
out, name = os.environ["OUT"], sys.argv[1]
card = next((c for c in ("H100", "A100", "4090") if c in name), None)
rows, section, case = {}, None, None
for line in open("cost.txt"):
    if found := re.match(r"(\w+) \(sm_", line):
        section = found[1]
    elif section == card and line.count("|") == 2 and not line.startswith("case"):
        case, words = line[:24].strip() or case, line.split("|")[2].split()
        share, time = (words[0], words[2]) if words[0].endswith("%") else ("", words[1])
        rows[case] = (share, rows.get(case, ("", 0.0))[1] + float(time))
try:
    measured = json.load(open(f"{out}/perf.json"))["perf"]
except (OSError, KeyError, ValueError):
    measured = []
if not card or not measured:
    print("Nothing to compare: " + ("no measurements." if card else "cost.txt has no card like this."))
    sys.exit()
print(f"{card}: predicted without gaps between launches and without the time that x takes to become 8 bits.\n")
print("| case | predicted us | measured us | share predicted |\n|---|--:|--:|--:|")
for row in measured:
    product = re.match(r"(\w+) \[(\d+), (\d+)\] × (\d+)", row["case"])
    depth = re.match(r"F16 cache, (\d+) tokens deep, 1 new", row["case"])
    key = None
    if row["op"] == "mul_mat" and product:
        key = f"{product[1]}:{product[3]}x{product[2]}:{product[4]}"
    elif row["op"] == "attention" and depth:
        key = f"attention:{depth[1]}:1"
    if key in rows:
        print(f"| {key} | {rows[key][1]:.1f} | {row['best_us']:.1f} | {rows[key][0]} |")
PY
}

# One page with everything; logs of steps that failed to their last lines.
write_report() {
    local file
    echo "# llmrt on a card: $1"
    printf '\n%s s of %s.\n\n## Steps\n\n```text\n' "$SECONDS" "${LIMIT:-600}"
    cat "$OUT/table.txt"
    printf '```\n\n## Predicted and measured\n\n'
    predicted "$1" 2>&1
    for file in perf.md conform.md; do
        [ ! -f "$OUT/$file" ] || { printf '\n'; sed 's/^#/##/' "$OUT/$file"; }
    done
    for file in "$OUT"/*.log; do
        [ -s "$file" ] || continue
        printf '\n## %s\n\n```text\n' "$(basename "$file")"
        tail -15 "$file" | cut -c1-400
        printf '```\n'
    done
    [ ! -f "$OUT/bench.json" ] || { printf '\n## bench.json\n\n```json\n'; head -c 100000 "$OUT/bench.json"; printf '\n```\n'; }
}

run() {
    SECONDS=0
    cd "$(dirname "$0")" && export OUT=${OUT:-$PWD/out} && mkdir -p "$OUT" && : >"$OUT/table.txt" || exit
    rm -f "$OUT"/*.json "$OUT"/*.md "$OUT"/*.log
    chmod +x llmrt llmrt-ci 2>/dev/null
    local card peer
    card=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo 'no nvidia-smi')
    # A third of the time is for the bench, which needs the peer.
    timeout -k 5 $((${LIMIT:-600} * 2 / 3)) bash "./$(basename "$0")" step peer >"$OUT/peer.log" 2>&1 &
    peer=$!
    report card "$card"
    report date "$(date -u +%F), $(./llmrt --version)"
    [ $# -gt 0 ] || set -- perf conform equal sanitize bench
    for step in "$@"; do
        # The bench has the card, and the processor, to itself.
        [ "$step" != bench ] || wait "$peer" || report peer "not built: see peer.log"
        bounded "$step"
    done
    kill "$peer" 2>/dev/null
    wait
    write_report "$card" >"$OUT/report.md"
    echo; echo "== table"; cat "$OUT/table.txt"; echo "report: $OUT/report.md"
}

case ${1:-} in
pack | run) "$@" ;;
step) "step_$2" ;;
predicted) predicted "$2" ;;
*) sed -n '2,12s/^# \?//p' "$0" && exit 2 ;;
esac
