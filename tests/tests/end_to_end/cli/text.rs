//! `tokenize` and `detokenize`.

use super::{checkpoint, json, stdout, text};
use llmrt_tests::build::{fail, llmrt, succeed};
use std::io::Write;
use std::process::Stdio;

#[test]
fn text_becomes_ids_and_the_ids_the_text_again() {
    for written in ["Once upon a time.", " two  spaces ", "línea\n你好 🙂", ""] {
        let ids = stdout(["tokenize", "--ids", "-p", written]);
        assert_eq!(ids.lines().count(), 1, "one line: {ids:?}");
        let ids: Vec<_> = ids.split_whitespace().collect();
        assert_eq!(stdout([&["detokenize"][..], &ids].concat()), written);
    }
}

#[test]
fn the_ways_of_printing_agree() {
    let ids = stdout(["tokenize", "--ids", "-p", "Once upon"]);
    let ids: Vec<u64> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
    let rows = json(&mut llmrt(["tokenize", "--json", "-p", "Once upon"]));
    let from_json: Vec<_> = rows.as_array().unwrap().iter().map(|row| row["id"].as_u64().unwrap()).collect();
    assert_eq!(from_json, ids);
    let table = stdout(["tokenize", "-p", "Once upon"]);
    let from_table: Vec<u64> =
        table.lines().map(|l| l.split_whitespace().next().unwrap().parse().unwrap()).collect();
    assert_eq!(from_table, ids);
    assert_eq!(rows[0]["piece"], "<s>");
}

#[test]
fn start_and_special_tokens_can_be_left_out() {
    let ids = |flags: &[&str]| stdout([&["tokenize", "--ids", "-p", "</s>a"][..], flags].concat());
    let plain = ids(&[]);
    assert!(plain.starts_with("1 2 "), "{plain}");
    assert_eq!(format!("1 {}", ids(&["--no-bos"])), plain);
    assert!(!ids(&["--no-parse-special"]).starts_with("1 2 "));
}

#[test]
fn a_message_to_the_embedded_model_is_rendered_with_the_template_of_its_chat() {
    let message = stdout(["tokenize", "--ids", "--chat", "-p", "a fox"]);
    let opening = stdout(["tokenize", "--ids", "-p", "Once upon a time, there was a fox named"]);
    assert_eq!(message, opening);
}

#[test]
fn a_message_is_rendered_with_a_chat_template_as_run_does() {
    let shown = |flags: &[&str]| {
        let ids = stdout([&["tokenize", "--ids", "-p", "a </s> fox"][..], flags].concat());
        let ids: Vec<_> = ids.split_whitespace().collect();
        stdout([&["detokenize", "--special"][..], &ids].concat())
    };
    // A vocabulary of this kind writes a space before what follows a control token.
    let zephyr = "<s> <|user|>\na </s> fox</s> \n<|assistant|>\n";
    assert_eq!(shown(&["--chat-template", "zephyr"]), zephyr);
    assert_eq!(
        shown(&["--chat-template", "zephyr", "--chat", "--system", "Be brief."]),
        "<s> <|system|>\nBe brief.</s> \n<|user|>\na </s> fox</s> \n<|assistant|>\n"
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("chat.jinja");
    std::fs::write(&file, "{{ messages[0].role }}: {{ messages[0].content }}!").unwrap();
    assert_eq!(shown(&["--chat-template-file", file.to_str().unwrap()]), "<s> user: a </s> fox!");

    // The content of a message is text: `</s>` in it is no control token, other than the template's own.
    let ids = stdout(["tokenize", "--ids", "-p", "</s>", "--chat-template", "zephyr"]);
    assert_eq!(ids.split_whitespace().filter(|id| *id == "2").count(), 1, "{ids}");
    let run = ["run", "-p", "</s>", "--chat-template", "zephyr", "-n", "1", "--json"];
    assert_eq!(json(&mut llmrt(run))["n_prompt"], ids.split_whitespace().count());

    // The model as a file, which has no template, and not as the embedded model, which has that of its chat.
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/assets/stories.gguf");
    for flags in [&["--chat"][..], &["--system", "x"]] {
        let stderr = fail(llmrt(["tokenize", "-m", file, "-p", "x"]).args(flags), 2);
        assert!(stderr.contains("no chat template: give one with --chat-template"), "{stderr}");
    }
    fail(&mut llmrt(["tokenize", "-p", "x", "--chat", "--no-bos"]), 2);
}

#[test]
fn files_and_stdin_are_taken_to_the_last_byte() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("text");
    std::fs::write(&file, "a line\n").unwrap();
    let by_flag = stdout(["tokenize", "--ids", "-p", "a line\n"]);
    assert_eq!(stdout(["tokenize", "--ids", "-f", file.to_str().unwrap()]), by_flag);
    assert_eq!(stdout(["tokenize", "--ids", "a line\n"]), by_flag);
    for flags in [&[][..], &["-f", "-"]] {
        let mut command = llmrt(["tokenize", "--ids"]);
        let mut piped = command.args(flags).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        piped.stdin.take().unwrap().write_all(b"a line\n").unwrap();
        assert_eq!(text(&piped.wait_with_output().unwrap().stdout), by_flag);
    }
}

#[test]
fn special_tokens_show_with_the_flag() {
    assert_eq!(stdout(["detokenize", "1"]), "");
    assert_eq!(stdout(["detokenize", "--special", "1"]), "<s>");
}

#[test]
fn a_checkpoint_brings_its_own_vocabulary() {
    let (_dir, model) = checkpoint();
    let model = model.to_str().unwrap();
    assert_eq!(stdout(["tokenize", "--ids", "-m", model, "-p", "the"]), "1 285 288\n");
    assert_eq!(stdout(["detokenize", "-m", model, "1", "285", "288"]), "the");
    let written = "caf\u{e9} \u{4f60}\u{597d}";
    let ids = stdout(["tokenize", "--ids", "-m", model, written]);
    let ids: Vec<_> = ids.split_whitespace().collect();
    assert_eq!(stdout([&["detokenize", "-m", model][..], &ids].concat()), written);
}

#[test]
fn ids_that_make_no_sense_are_named() {
    assert!(fail(&mut llmrt(["detokenize", "5", "1000000"]), 2).contains("entry 1 is token 1000000"));
    assert!(fail(&mut llmrt(["detokenize", "five"]), 2).contains("entry 0 is `five`"));
}

#[test]
fn a_model_may_stand_before_the_text() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/assets/stories.gguf");
    let expected = stdout(["tokenize", "--ids", "Once upon"]);
    for words in [&[model, "Once upon"][..], &[model, "-p", "Once upon"], &["-m", model, "Once upon"]] {
        assert_eq!(stdout(["tokenize", "--ids"].iter().chain(words)), expected, "{words:?}");
    }
    let named = succeed(&mut llmrt(["tokenize", "--ids", model]));
    assert!(text(&named.stderr).contains("the text is the name of a file"), "a single word is the text");
    for words in [&["-m", model, "a", "b"][..], &["-m", model, "a", "-p", "b"], &["a", "b", "-p", "c"]] {
        fail(llmrt(["tokenize"]).args(words), 2);
    }
}
