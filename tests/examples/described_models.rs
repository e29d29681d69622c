//! Writes the models of `tests/fixtures/models` as GGUF files: `cargo run -p llmrt-tests --example described_models -- DIR`.

use llmrt_tests::fixtures::files;
use llmrt_tests::models::text;

fn main() {
    let dir = std::env::args().nth(1).expect("usage: described_models DIR");
    for description in files(&text::descriptions(), ".txt") {
        text::write(&description, dir.as_ref());
    }
}
