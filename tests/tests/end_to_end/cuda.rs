//! `llmrt --backend cuda` on simulated cards: the same greedy text as the CPU's, with nothing falling back. Kernels run as
//! plain C++. Nothing here shows what a real card does.

use llmrt_abi::DType;
use llmrt_tests::build::{llmrt, succeed};
use llmrt_tests::fixtures::root;
use llmrt_tests::models::TinyLlama;
use llmrt_tests::nvidia;
use std::path::Path;
use std::process::Command;

/// With this prompt the best tokens lead by more than 8-bit rounding changes.
const STORY: &str = "one day";

/// `llmrt` with the plugin and these simulated cards.
fn on_cards(simulated: &str) -> Command {
    let (plugin, libraries) = nvidia::built();
    let mut command = llmrt([] as [&str; 0]);
    command.arg("--plugin").arg(plugin).env("LLMRT_CUDA_LIB_DIR", libraries);
    command.env("LLMRT_CUDA_SIM", simulated);
    command
}

/// Six greedy tokens of a model, and stderr of the run.
fn greedy(model: &Path, backend: &str, simulated: &str, flags: &[&str]) -> (String, String) {
    let out = succeed(
        on_cards(simulated)
            .args(["--backend", backend, "-v"])
            .args(["run", "--raw", "--temp", "0", "-n", "6", "-p", STORY, "-m"])
            .arg(model)
            .args(flags),
    );
    (String::from_utf8_lossy(&out.stdout).into_owned(), String::from_utf8_lossy(&out.stderr).into_owned())
}

/// The number before `word` in a line.
fn number_before(text: &str, word: &str) -> usize {
    let words: Vec<_> = text.split_whitespace().collect();
    let at = words.iter().position(|w| w.starts_with(word)).unwrap_or_else(|| panic!("no {word} in {text}"));
    words[at - 1].parse().unwrap_or_else(|_| panic!("no number before {word} in {text}"))
}

#[test]
fn the_embedded_model_generates_the_text_of_the_cpu_in_every_type() {
    let dir = tempfile::tempdir().unwrap();
    let model = root().join("cli/assets/stories.gguf");
    let mut models = vec![model.clone()];
    for dtype in ["f16", "q8_0", "q4_0"] {
        let file = dir.path().join(format!("{dtype}.gguf"));
        succeed(llmrt(["quantize", "--pure"]).arg(&model).arg(&file).arg(dtype));
        models.push(file);
    }
    for model in models {
        let (expected, _) = greedy(&model, "cpu", "", &[]);
        for cards in ["queue=late", "sm=75,queue=now,vmm=0"] {
            let (found, stderr) = greedy(&model, "cuda", cards, &["--strict-device"]);
            assert_eq!(found, expected, "{} on {cards}:\n{stderr}", model.display());
            assert_eq!(number_before(&stderr, "split"), 1, "{stderr}");
        }
    }
}

/// A prompt of more tokens than the kernels for few columns take.
#[test]
fn a_prompt_multiplied_by_cublaslt_goes_on_as_on_the_cpu() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("f16.gguf");
    succeed(llmrt(["quantize", "--pure"]).arg(root().join("cli/assets/stories.gguf")).arg(&model).arg("f16"));
    let words = "Once upon a time there was a little girl named Lily and one day she went to the park with her mom and";
    let run = |command: &mut Command, backend: &str| {
        let flags = ["--backend", backend, "run", "--raw", "--temp", "0", "-n", "6", "-p", words, "-m"];
        succeed(command.args(flags).arg(&model)).stdout
    };
    let cublas = nvidia::built().1.join("cublas");
    let found = run(on_cards("queue=late").env("LLMRT_CUDA_CUBLAS_DIR", cublas), "cuda");
    assert_eq!(found, run(&mut on_cards("queue=late"), "cpu"));
}

/// Neither card has room for the whole model; nothing goes to the CPU.
#[test]
fn a_model_too_large_for_one_card_is_split_by_layers_over_two() {
    let dir = tempfile::tempdir().unwrap();
    let model = TinyLlama { n_layer: 8, n_embd: 512, n_vocab: 300, dtype: DType::F32 }.write(dir.path());
    let (expected, _) = greedy(&model, "cpu", "", &[]);
    let (found, stderr) = greedy(&model, "cuda", "devices=2,memory=64m", &["--strict-device", "-c", "64"]);
    assert_eq!(found, expected, "{stderr}");
    assert_eq!(number_before(&stderr, "split"), 2, "{stderr}");
}

/// Every large matrix is on both cards, a part of its rows on each; the text is the same, and nothing goes to the CPU.
#[test]
fn a_model_is_split_by_rows_over_two_cards() {
    let dir = tempfile::tempdir().unwrap();
    for dtype in [DType::F32, DType::Q8_0] {
        let model = TinyLlama { n_layer: 2, n_embd: 128, n_vocab: 300, dtype }.write(dir.path());
        let (expected, _) = greedy(&model, "cpu", "", &[]);
        for cards in ["devices=2,memory=64m,queue=late", "devices=2,memory=64m,vmm=0,peers=0,queue=now"] {
            let (found, stderr) =
                greedy(&model, "cuda", cards, &["--strict-device", "-c", "64", "--split", "row"]);
            assert_eq!(found, expected, "{dtype} on {cards}: {stderr}");
            assert!(number_before(&stderr, "split") > 7 * 2, "each of 7 products of each layer: {stderr}");
        }
        let (alone, _) =
            greedy(&model, "cuda", "devices=1", &["--strict-device", "-c", "64", "--split", "row"]);
        assert_eq!(alone, expected, "{dtype}: with one card there is nothing to split");
    }
}

#[test]
fn visible_devices_are_honoured() {
    for (visible, n) in [("0", 1), ("1,3", 2), ("2,1,0", 3), ("0,9,1", 1), ("", 0)] {
        let out = succeed(
            on_cards("devices=4,memory=1g").args(["devices", "--json"]).env("CUDA_VISIBLE_DEVICES", visible),
        );
        let devices: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        let text = devices.to_string();
        assert_eq!(text.matches("Simulated GPU").count(), n, "{visible}: {text}");
    }
}

#[test]
fn cards_older_than_the_kernels_are_left_out_and_reported() {
    for (chip, n) in [(70, 0), (75, 1)] {
        let out = succeed(on_cards(&format!("memory=1g,sm={chip}")).args(["-v", "devices", "--json"]));
        let (devices, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert_eq!(devices.matches("Simulated GPU").count(), n, "sm_{chip}: {devices}");
        assert_eq!(stderr.contains("compute capability 7.0 is below 7.5"), n == 0, "sm_{chip}: {stderr}");
    }
}

#[test]
fn without_a_driver_there_are_no_devices_and_the_reason_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let out = succeed(on_cards("").arg("-v").arg("devices").env("LLMRT_CUDA_LIB_DIR", dir.path()));
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(stderr.contains("no devices") && stderr.contains("libcuda.so.1"), "{stderr}");
}
