//! `llmrt --backend cann` on simulated Ascend cards: the same greedy text as the CPU's, nothing falling back on a 910B, and
//! the runtime called no more often than a token needs. Nothing here shows what a real card does.

use llmrt_abi::DType;
use llmrt_tests::ascend;
use llmrt_tests::build::{fail, llmrt, succeed};
use llmrt_tests::fixtures::{self, fixtures, root};
use llmrt_tests::models::{TinyLlama, with_vocabulary};
use std::path::{Path, PathBuf};
use std::process::Command;

const CARDS: [&str; 4] = [
    "soc=Ascend910B3",
    "soc=Ascend910B3,devices=2,queue=sync",
    "soc=Ascend310P3",
    "soc=Ascend310P3,devices=2,queue=sync",
];

/// The CPU rounds what it multiplies with 4 and 8-bit weights to 8 bits, the cards do not. With these prompts the best
/// tokens lead by more than that: in the embedded model, and in files with random weights, where they rarely do.
const STORY: &str = "one day";
const RANDOM: &str = "ten little mice";

/// Six greedy tokens of a model, and stderr of the run.
fn greedy(model: &Path, prompt: &str, backend: &str, simulated: &str, flags: &[&str]) -> (String, String) {
    let out = succeed(
        on_cards(simulated)
            .args(["--backend", backend, "-v"])
            .args(["run", "--raw", "--temp", "0", "-n", "6", "-p", prompt, "-m"])
            .arg(model)
            .args(flags),
    );
    (String::from_utf8_lossy(&out.stdout).into_owned(), String::from_utf8_lossy(&out.stderr).into_owned())
}

/// `llmrt` with the plugin and these simulated cards.
fn on_cards(simulated: &str) -> Command {
    let (plugin, libraries) = ascend::built();
    let mut command = llmrt([] as [&str; 0]);
    command.arg("--plugin").arg(plugin).env("LLMRT_CANN_LIB_DIR", libraries);
    command.env("LLMRT_CANN_SIM", simulated);
    command
}

/// The model in these types, in a folder.
fn in_types(model: &Path, dir: &Path) -> Vec<PathBuf> {
    let stem = model.file_stem().unwrap().to_string_lossy();
    let quantised = ["f16", "q8_0", "q4_0"].map(|dtype| {
        let file = dir.join(format!("{stem}-{dtype}.gguf"));
        succeed(llmrt(["quantize", "--pure"]).arg(model).arg(&file).arg(dtype));
        file
    });
    [model.to_path_buf()].into_iter().chain(quantised).collect()
}

/// The number before `word` in a line.
fn number_before(text: &str, word: &str) -> usize {
    let words: Vec<_> = text.split_whitespace().collect();
    let at = words.iter().position(|w| w.starts_with(word)).unwrap_or_else(|| panic!("no {word} in {text}"));
    words[at - 1].parse().unwrap_or_else(|_| panic!("no number before {word} in {text}"))
}

/// The CPU's text on all kinds of cards; on a 910B nothing falls back if `strict`.
fn check(model: &Path, prompt: &str, strict: bool) {
    let (expected, _) = greedy(model, prompt, "cpu", "", &[]);
    for cards in CARDS {
        let flags: &[&str] = if strict && cards.contains("910B") { &["--strict-device"] } else { &[] };
        let (found, stderr) = greedy(model, prompt, "cann", cards, flags);
        assert_eq!(found, expected, "{} on {cards}:\n{stderr}", model.display());
        let splits = number_before(&stderr, "split");
        // The cards have no scan and no ragged convolution, of which a layer of Mamba 2 has one each.
        let max_splits = if model.to_string_lossy().contains("mamba2") { 9 } else { 3 };
        assert!(splits <= max_splits, "{} on {cards}: {splits} splits\n{stderr}", model.display());
    }
}

#[test]
fn the_embedded_model_generates_the_text_of_the_cpu_in_every_type() {
    let dir = tempfile::tempdir().unwrap();
    for model in in_types(&root().join("cli/assets/stories.gguf"), dir.path()) {
        check(&model, STORY, true);
    }
}

/// Architectures whose text is compared, in every type on every card: all of them would take hours.
const COMPARED: [&str; 10] =
    ["deepseek2", "falcon", "gemma2", "gemma3", "gpt2", "llama", "mamba2", "phi3", "qwen2", "qwen3"];

/// The files of a few layers that stand for architectures, with a vocabulary so that they have text.
fn architectures(dir: &Path) -> Vec<PathBuf> {
    let Some(from) = fixtures("archs") else { return Vec::new() };
    let file = |model: PathBuf| {
        let to = dir.join(model.file_name().unwrap());
        std::fs::write(&to, with_vocabulary(&std::fs::read(model).unwrap())).unwrap();
        to
    };
    let is_compared = |model: &PathBuf| {
        let stem = model.file_stem().unwrap().to_string_lossy();
        COMPARED.contains(&stem.trim_end_matches("-dense").trim_end_matches("-moe"))
    };
    let [known, _] = fixtures::architectures(&from);
    known.into_iter().filter(is_compared).map(file).collect()
}

#[test]
fn every_architecture_gives_the_cpus_text_in_every_type() {
    let dir = tempfile::tempdir().unwrap();
    for model in architectures(dir.path()) {
        let name = model.file_name().unwrap().to_string_lossy().into_owned();
        let strict = name.starts_with("llama-dense") || name.starts_with("qwen2");
        // Rounding to 8 bits moves these logits by an NMSE of 6e-3, in Q8_0 and in Q4_0: more than the best tokens lead.
        let n_types = if name.starts_with("deepseek2") { 2 } else { usize::MAX };
        for typed in in_types(&model, dir.path()).iter().take(n_types) {
            check(typed, RANDOM, strict);
        }
    }
}

/// Releases and chips; every release on every chip is a pair.
const RELEASES: [&str; 5] = ["8.0", "8.1", "8.5", "9.0", "9.1"];
const CHIPS: [&str; 5] = ["Ascend910A", "Ascend910B3", "Ascend910_9391", "Ascend310P3", "Ascend310B1"];
const TYPES: [&str; 5] = ["f16", "bf16", "q8_0", "q4_0", "q4_k_m"];

/// Where the CPU's rounding to 8 bits decides a token: an architecture and types. The cards' text is then that of the same
/// numbers in F32, which the CPU does not round.
const ROUNDED: [(&str, &[&str]); 2] = [("deepseek2", &["q8_0", "q4_0", "q4_k_m"]), ("mamba2", &["q4_0"])];

/// A pair runs every architecture, in one type each; with TESTS_ALL_PAIRS=1 in all types, with I/N in part I of N of these.
#[test]
fn every_pair_of_release_and_chip_gives_the_cpus_text() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wrong, mut n) = (Vec::new(), 0);
    let part = std::env::var("TESTS_ALL_PAIRS").ok();
    let part = part.map(|part| match part.split_once('/') {
        Some((i, of)) => (i.parse::<usize>().unwrap() - 1, of.parse::<usize>().unwrap()),
        None => (0, 1),
    });
    for (place, model) in architectures(dir.path()).iter().enumerate() {
        let name = model.file_name().unwrap().to_string_lossy().into_owned();
        for (t, dtype) in TYPES.iter().enumerate() {
            let typed = dir.path().join(format!("{place}-{dtype}.gguf"));
            succeed(llmrt(["quantize"]).arg(model).arg(&typed).arg(dtype));
            let rounds = ROUNDED.iter().any(|(arch, types)| name.starts_with(arch) && types.contains(dtype));
            let (expected, _) = match rounds {
                false => greedy(&typed, RANDOM, "cpu", "", &[]),
                true => {
                    let same = dir.path().join(format!("{place}-{dtype}-f32.gguf"));
                    let flags = ["quantize", "--pure", "--allow-requantize"];
                    succeed(llmrt(flags).arg(&typed).arg(&same).arg("f32"));
                    greedy(&same, RANDOM, "cpu", "", &[])
                }
            };
            let pairs = RELEASES.iter().enumerate().flat_map(|(r, release)| {
                CHIPS.iter().enumerate().map(move |(c, soc)| (r + c, *release, *soc))
            });
            let is_in = |(pair, ..): &(usize, &str, &str)| match part {
                None => (pair + place) % TYPES.len() == t,
                Some((i, of)) => (pair + place + t) % of == i,
            };
            for (_, release, soc) in pairs.filter(is_in) {
                let cards = format!("release={release},soc={soc},queue=now");
                let out = succeed(
                    on_cards(&cards)
                        .env("LLMRT_CANN_LIB_DIR", ascend::libraries(release))
                        .args(["--backend", "cann", "-v", "run", "--raw", "--temp", "0", "-n", "6"])
                        .args(["-p", RANDOM, "-m"])
                        .arg(&typed),
                );
                n += 1;
                if out.stdout != expected.as_bytes() {
                    let found = String::from_utf8_lossy(&out.stdout).into_owned();
                    wrong.push(format!("{name} in {dtype} on {cards}: {found:?}, expected {expected:?}"));
                }
                let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
                let row = stderr.lines().find(|line| line.trim_start().starts_with("cann "));
                let n_nodes = row.map_or(0, |row| number_before(row, "nodes"));
                assert!(n_nodes > 10, "{name} in {dtype} on {cards}: {n_nodes} nodes on the card\n{stderr}");
            }
        }
    }
    println!("{n} texts");
    assert!(wrong.is_empty(), "{} of {n}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Neither card has room for the whole model; nothing goes to the CPU.
#[test]
fn a_model_too_large_for_one_card_is_split_by_layers_over_two() {
    let dir = tempfile::tempdir().unwrap();
    let model = TinyLlama { n_layer: 8, n_embd: 512, n_vocab: 300, dtype: DType::F32 }.write(dir.path());
    let (expected, _) = greedy(&model, RANDOM, "cpu", "", &[]);
    for cards in ["devices=2,memory=64m", "devices=2,memory=64m,queue=sync,peers=0"] {
        let (found, stderr) = greedy(&model, RANDOM, "cann", cards, &["--strict-device", "-c", "64"]);
        assert_eq!(found, expected, "{stderr}");
        assert_eq!(number_before(&stderr, "split"), 2, "{stderr}");
        for card in ["cann:0", "cann:1"] {
            let row =
                stderr.lines().find(|line| line.trim_start().starts_with(card) && line.contains("nodes in"));
            assert!(row.is_some_and(|row| number_before(row, "nodes") > 30), "{stderr}");
        }
    }
}

/// Every large matrix is on all cards, a part on each, and HCCL puts the parts' results together: no copy from card to card,
/// and none through the host but a token's own inputs and its logits. The text is the CPU's.
#[test]
fn a_model_is_split_by_rows_and_its_parts_are_put_together_by_collectives() {
    let dir = tempfile::tempdir().unwrap();
    for dtype in [DType::F16, DType::Q8_0] {
        let model = TinyLlama { n_layer: 2, n_embd: 256, n_vocab: 384, dtype }.write(dir.path());
        let (expected, _) = greedy(&model, RANDOM, "cpu", "", &[]);
        let flags = ["--strict-device", "-c", "64", "--split", "row"];
        for cards in ["devices=2,memory=1g", "devices=4,memory=1g,queue=sync,peers=0"] {
            let (found, stderr) = greedy(&model, RANDOM, "cann", cards, &flags);
            assert_eq!(found, expected, "{dtype} on {cards}: {stderr}");
            assert!(stderr.contains("copied per step: 0 bytes in 0 copies"), "{dtype} on {cards}: {stderr}");
            let line = stderr.lines().find(|line| line.contains("put together by the devices"));
            let line = line.unwrap_or_else(|| panic!("{stderr}"));
            let n_of = ["all-reduce", "all-gather", "broadcast"].map(|word| number_before(line, word));
            // Of a layer: the FFN's sum; Q, K, V and the output's rows; what these, and the FFN, read. And the head.
            assert_eq!(n_of, [2, 2 * 4 + 1, 2 * 3 + 1], "{dtype} on {cards}: {line}");
        }
        // As without the library: copies, which are the CPU's text, too.
        let without = [&flags[..], &["--plugin-option", "cann.hccl=0"]].concat();
        let (found, stderr) = greedy(&model, RANDOM, "cann", "devices=2,memory=1g,peers=0", &without);
        assert_eq!(found, expected, "{dtype} by copies: {stderr}");
        assert!(stderr.contains("put together by copies: ") && stderr.contains("cann.hccl=0"), "{stderr}");
        assert!(!stderr.contains("in 0 copies"), "{stderr}");
    }
}

/// Biases, fused matrices, experts, scans: what is in no pair, or in unequal parts, is put together in another way.
#[test]
fn every_architecture_gives_the_cpus_text_in_a_split_by_rows() {
    let dir = tempfile::tempdir().unwrap();
    for model in architectures(dir.path()) {
        let typed = dir.path().join("f16.gguf");
        succeed(llmrt(["quantize", "--pure", "--force"]).arg(&model).arg(&typed).arg("f16"));
        let (expected, _) = greedy(&typed, RANDOM, "cpu", "", &[]);
        for cards in ["devices=2,memory=1g,queue=now", "soc=Ascend310P3,devices=2,memory=1g,queue=now"] {
            let (found, stderr) = greedy(&typed, RANDOM, "cann", cards, &["--split", "row"]);
            assert_eq!(found, expected, "{} on {cards}:\n{stderr}", model.display());
        }
    }
}

/// Copies between host and cards of a decoded token: the same few on two cards with collectives as on one.
#[test]
fn collectives_copy_nothing_through_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let model = TinyLlama { n_layer: 2, n_embd: 256, n_vocab: 384, dtype: DType::F16 }.write(dir.path());
    let count = |n_tokens: &str, options: &[&str]| {
        let trace = dir.path().join(format!("trace-{n_tokens}-{}", options.len()));
        let cards = format!("devices=2,memory=1g,peers=0,trace={}", trace.display());
        let mut command = on_cards(&cards);
        command.args(["--backend", "cann", "run", "--raw", "--temp", "0", "--split", "row", "-c", "64"]);
        succeed(command.args(options).args(["-n", n_tokens, "-p", RANDOM, "-m"]).arg(&model));
        let text = std::fs::read_to_string(&trace).unwrap();
        let n = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
        [n("h2d "), n("d2h "), n("d2d ")]
    };
    let per_token = |options: &[&str]| {
        let (few, many) = (count("4", options), count("8", options));
        [0, 1, 2].map(|i| (many[i] - few[i]) / 4)
    };
    let [h2d, d2h, d2d] = per_token(&[]);
    assert!(
        h2d <= 4 && d2h == 1 && d2d == 0,
        "two copies of inputs to each card, the logits: {h2d} {d2h} {d2d}"
    );
    let [h2d, d2h, _] = per_token(&["--plugin-option", "cann.hccl=0"]);
    assert!(h2d > 14 && d2h > 14, "without them each part goes through the host: {h2d} {d2h}");
}

/// The greedy text of a model with a card whose call fails: an error that names the card and the remedy, and soon.
#[test]
fn a_failing_card_ends_a_split_by_rows_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let model = TinyLlama { n_layer: 2, n_embd: 256, n_vocab: 384, dtype: DType::F16 }.write(dir.path());
    for cards in ["devices=2,memory=1g,hccl=fail@1:30", "devices=2,memory=1g,queue=now,hccl=fail@0:1"] {
        let mut command = on_cards(cards);
        command.args([
            "--backend",
            "cann",
            "run",
            "--raw",
            "--temp",
            "0",
            "-n",
            "6",
            "-p",
            RANDOM,
            "--split",
            "row",
        ]);
        let stderr = fail(command.args(["-c", "64", "-m"]).arg(&model), 4);
        assert!(stderr.contains("cann.hccl=0"), "{cards}: {stderr}");
    }
}

/// The runtime's own variable chooses the cards, and the first bad number ends the list.
#[test]
fn visible_devices_are_honoured() {
    for (visible, n) in [("0", 1), ("1,3", 2), ("0,2,1", 2), ("0,1,2,3", 4), ("7", 0)] {
        let mut command = on_cards("devices=4,memory=1g");
        let out = succeed(command.args(["devices", "--json"]).env("ASCEND_RT_VISIBLE_DEVICES", visible));
        let devices: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        let cards = devices.as_array().unwrap().iter().filter(|d| d["plugin"] == "cann").count();
        assert_eq!(cards, n, "{visible}: {devices}");
    }
}

#[test]
fn without_the_libraries_there_are_no_cards_and_the_log_has_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let out = succeed(on_cards("").arg("devices").env("LLMRT_CANN_LIB_DIR", dir.path()));
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(stderr.contains("no devices: ") && stderr.contains("set_env.sh"), "{stderr}");
    assert!(!String::from_utf8_lossy(&out.stdout).contains("cann"));
}

#[test]
fn doctor_tries_what_the_simulator_assumes_of_a_card() {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("report.json");
    let doctor = |simulated: &str| {
        let mut command = on_cards(simulated);
        command.args(["--backend", "cann", "doctor", "--json", "--report"]).arg(&file);
        let out = command.output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        let written: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(written, report, "the file to send back has the same");
        let of_cards = |line: &&serde_json::Value| {
            line["part"] == "probe" || line["text"].as_str().unwrap().contains("cann.")
        };
        let all = report["lines"].as_array().unwrap().iter().filter(of_cards);
        let all: Vec<String> = all
            .map(|line| format!("{}: {}", line["level"].as_str().unwrap(), line["text"].as_str().unwrap()))
            .collect();
        // Each was on stderr when it was found.
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        let texts = all.iter().filter_map(|line| Some(line.split_once(": ")?.1));
        let mut probes = texts.filter(|text| text.starts_with("cann: card "));
        assert!(probes.all(|text| stderr.contains(text)), "{stderr}\n{all:#?}");
        all
    };
    let good = doctor("");
    let n_probes = good.iter().filter(|line| line.contains(": as simulated (")).count();
    assert!(n_probes > 20, "{good:#?}");
    // Neither of a probe nor of the option that the command sets.
    assert!(!good.iter().any(|line| line.starts_with("warning")), "{good:#?}");
    assert!(good.contains(&"ok: cann: card 0: chip Ascend910B3".to_string()), "{good:#?}");
    let differs = doctor("vmm=no-flags");
    assert_eq!(
        differs.iter().filter(|line| line.starts_with("warning: cann: card 0: huge pages")).count(),
        2
    );
}

/// Variables of the plugin's options are read before a card is opened.
#[test]
fn no_variable_of_the_plugin_is_taken_for_a_mistake() {
    let mut command = on_cards("");
    command.args(["--backend", "cann", "devices"]);
    for name in ["HCCL", "PROBE", "GRAPHS", "NZ", "COLUMNS", "TUNE"] {
        command.env(format!("LLMRT_CANN_{name}"), "0");
    }
    let out = succeed(&mut command);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(!stderr.contains("nothing reads"), "{stderr}");
}

/// What an operator refuses runs on the CPU, and the log has the vendor's reason, once per op.
#[test]
fn a_refusal_is_logged_with_operator_and_code() {
    let mut command = on_cards("refuse=aclnnMul:561002");
    command
        .args(["-vv", "--backend", "cann", "run"])
        .arg(root().join("cli/assets/stories.gguf"))
        .args(["Once", "-n", "4"]);
    let stderr = String::from_utf8_lossy(&succeed(&mut command).stderr).into_owned();
    let of_glu: Vec<_> = stderr.lines().filter(|line| line.contains("glu runs elsewhere")).collect();
    assert_eq!(of_glu.len(), 1, "{stderr}");
    assert!(of_glu[0].contains("aclnnMul: 561002"), "{stderr}");
    assert!(stderr.contains("glu on cpu instead of cann: op") && !stderr.contains("layout of its weights"));
}

#[test]
fn scratch_memory_is_managed_as_the_variable_of_the_plugin_sets() {
    for (value, flags, expected) in
        [("", &[][..], "vmm, "), ("legacy", &[], "legacy, "), ("legacy", &["--pool", "vmm"], "vmm, ")]
    {
        let out = succeed(on_cards("").args(["devices", "-v"]).args(flags).env("LLMRT_CANN_POOL", value));
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let row = text.lines().find(|line| line.starts_with("cann")).unwrap_or_else(|| panic!("{text}"));
        assert!(row.contains(expected) && row.contains("0 B mapped"), "{row}");
    }
    // A driver without virtual memory.
    let out = succeed(on_cards("vmm=0").args(["devices", "-v"]));
    assert!(String::from_utf8_lossy(&out.stdout).contains("legacy, "));
}

/// Operators that a run launches, the bytes of their tensors, and how many of them gather rows; without captures, where every
/// launch is a line.
fn operators(run: &[&str], flags: &[&str]) -> (usize, usize, usize) {
    let trace = trace(run, &["--plugin-option", "cann.graphs=0"], flags);
    let bytes = |line: &str| {
        let line = line.strip_suffix(" bytes").filter(|line| line.starts_with("aclnn"))?;
        line.rsplit(' ').next()?.parse::<usize>().ok()
    };
    let all: Vec<usize> = trace.lines().filter_map(bytes).collect();
    let gathers = trace.lines().filter(|line| line.starts_with("aclnnGatherV2 ") && bytes(line).is_some());
    (all.len(), all.iter().sum(), gathers.count())
}

/// Block tables are as wide as the longest sequence requires, whatever the context may hold: in a prompt of about 100 tokens,
/// and in the decodes up to 100.
#[test]
fn a_text_of_100_tokens_costs_the_same_at_any_context_size() {
    let prompt = STORY.repeat(40);
    for run in [["-n", "1", "-p", &prompt], ["-n", "100", "-p", STORY]] {
        let (short, long) = (operators(&run, &["-c", "2048"]), operators(&run, &["-c", "32768"]));
        assert!(short.0 > 100, "{short:?}");
        println!("{}: {} operators, {} bytes", run[1], short.0, short.1);
        assert_eq!(short, long, "{run:?}");
    }
}

#[test]
fn plan_and_run_have_the_same_blocks_and_the_plan_counts_pinned_memory() {
    let flags = ["-c", "300"];
    let out = succeed(on_cards("").args(["--backend", "cann", "plan", "--json"]).args(flags));
    let plan: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let [size, n] = ["kv_block_size", "kv_blocks"].map(|key| plan[key].as_u64().unwrap());
    assert_eq!((size, n), (128, 3));
    let of = |key: &str| plan["devices"][0][key].as_u64().unwrap();
    assert!(of("pinned") > 0 && of("staging") >= of("pinned"), "{plan}");
    assert_eq!(plan["devices"][1]["pinned"], 0, "{plan}");
    let (_, stderr) = greedy(&root().join("cli/assets/stories.gguf"), STORY, "cann", "", &flags);
    assert!(stderr.contains("KV cache of 3 blocks, 384 tokens"), "{stderr}");
}

/// Of a prompt over blocks of 128 slots the keys are read where they are; smaller blocks are gathered beside each other, twice in
/// each layer.
#[test]
fn a_prompt_gathers_no_keys_where_blocks_have_128_slots() {
    let prompt = STORY.repeat(40);
    let of = |flags: &[&str]| operators(&["-n", "1", "-p", &prompt], flags);
    let (paged, same, gathered) = (of(&[]), of(&["--block-size", "128"]), of(&["--block-size", "16"]));
    assert_eq!(paged, same, "128 is what the card prefers");
    let n_layers = 4;
    assert_eq!((gathered.0 - paged.0, gathered.2 - paged.2), (2 * n_layers, 2 * n_layers));
    assert!(gathered.1 > paged.1, "{gathered:?} {paged:?}");
}

/// What a run did, a line per call: the function's name, or a copy's direction, comes first.
fn trace(run: &[&str], options: &[&str], flags: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace");
    let simulated = format!("trace={}", file.display());
    let mut command = on_cards(&simulated);
    command.args(options).args(["--backend", "cann", "run", "--raw", "--temp", "0"]);
    succeed(command.args(run).args(flags));
    let trace = std::fs::read_to_string(file).unwrap();
    assert!(!trace.contains("FAULT") && !trace.contains("REPORT"), "the simulator found something doubtful");
    trace
}

/// What 40 tokens cost over what 20 do, per token.
#[track_caller]
fn check_cost_of_a_token(options: &[&str], graphs_per_token: std::ops::RangeInclusive<f64>) {
    let traces = ["20", "40"].map(|n| trace(&["-n", n, "-p", STORY], options, &[]));
    let lines_per_token = |is_it: &dyn Fn(&str) -> bool| {
        let [short, long] =
            traces.each_ref().map(|text| text.lines().filter(|line| is_it(line)).count() as f64);
        (long - short) / 20.0
    };
    let per_token = |is_it: &dyn Fn(&str) -> bool| {
        lines_per_token(&|line| is_it(line.split(' ').next().unwrap_or_default()))
    };
    let pageable = lines_per_token(&|line| line.ends_with(" pageable"));
    let waits = per_token(&|name| name.starts_with("aclrtSynchronize"));
    let [up, down, across] = ["h2d", "d2h", "d2d"].map(|direction| per_token(&|name| name == direction));
    let memory = per_token(&|name| name.starts_with("aclrtMalloc") || name == "aclrtMapMem");
    let graphs = per_token(&|name| name == "aclmdlRIExecuteAsync");
    let found = format!(
        "per token: {waits} waits, {up} copies to the card, {down} from it, {across} on it, {memory} allocations, \
         {graphs} graphs, {pageable} copies with pageable memory"
    );
    println!("{found}");
    assert!(waits <= 1.0 && up <= 1.0 && down <= 1.0 && across == 0.0 && memory == 0.0, "{found}");
    assert!(up == 1.0 && pageable == 0.0, "{found}");
    assert!(graphs_per_token.contains(&graphs), "{found}");
}

/// The first runs of a plan are not of its graph.
#[test]
fn a_token_costs_one_graph_one_wait_one_upload_one_download_and_no_memory() {
    check_cost_of_a_token(&[], 0.9..=1.0);
}

#[test]
fn without_captures_a_token_costs_no_more_waits_copies_or_memory() {
    check_cost_of_a_token(&["--plugin-option", "cann.graphs=0"], 0.0..=0.0);
}
