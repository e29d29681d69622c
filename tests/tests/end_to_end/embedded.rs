//! The embedded model continues its golden prompts as another implementation did, in numpy from the file alone.

use llmrt_tests::build::{llmrt, succeed};
use llmrt_tests::fixtures::root;

#[test]
fn greedy_text_of_the_embedded_model_is_the_golden_text() {
    let golden = std::fs::read_to_string(root().join("cli/assets/stories.golden.txt")).unwrap();
    let mut n = 0;
    for line in golden.lines() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        let (prompt, text) = (case["prompt"].as_str().unwrap(), case["text"].as_str().unwrap());
        // An F32 cache: the best token leads by no more than a rounding of F16 at some steps.
        let out = succeed(&mut llmrt([
            "run",
            "--raw",
            "--temp",
            "0",
            "--kv-type",
            "f32",
            "-n",
            "64",
            "-p",
            prompt,
        ]));
        assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), text.trim(), "{prompt:?}");
        n += 1;
    }
    assert_eq!(n, 3);
}
