//! The facade on the embedded model.

use llmrt::{EngineEvent, Error, Kind, Llm, LoadProgress, Message, Options, Params, Request};
use std::path::Path;
use std::sync::mpsc::channel;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../cli/assets/stories.gguf");

fn params() -> Params {
    Params { max_tokens: Some(12), ..Params::greedy() }
}

#[test]
fn a_text_is_that_of_its_tokens_beside_any_others() {
    let llm = Llm::open(MODEL).unwrap();
    let text = llm.generate("Once upon a time", &params()).unwrap();
    let request = Request { max_tokens: Some(12), ..llm.request("Once upon a time").unwrap() };
    let streamed: String = llm
        .submit(request)
        .unwrap()
        .filter_map(|event| match event {
            EngineEvent::Token { token, .. } => Some(token.text),
            EngineEvent::TextEnded { text, .. } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(streamed, text);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..6).map(|_| scope.spawn(|| llm.generate("Once upon a time", &params()).unwrap())).collect();
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), text));
    });
    assert!(llm.warnings().is_empty() && llm.n_ctx() > 100);
}

#[test]
fn a_conversation_is_rendered_by_a_template() {
    let chat_template = Some("{{ messages[0].content }}, there was".to_string());
    let llm = Llm::open_with(MODEL, Options { chat_template, ..Options::default() }).unwrap();
    let answer = llm.chat(&[Message::new("user", "Once upon a time")], &params()).unwrap();
    let expected = llm.generate("Once upon a time, there was", &params()).unwrap();
    assert_eq!(answer.trim_start(), expected.trim_start());
    let stop = Params { stop: vec!["girl".into(), "boy".into()], ..params() };
    assert!(!llm.generate("Once upon a time, there was a little", &stop).unwrap().contains("girl"));
}

#[test]
fn what_is_wrong_is_named() {
    let missing = Llm::open(Path::new("no-such-model.gguf")).err().unwrap();
    assert_eq!(missing.describe().code, "model_file");
    assert!(missing.to_string().contains("no-such-model.gguf"), "{missing}");
    let options = Options { devices: vec!["npu7".into()], ..Options::default() };
    let error = Llm::open_with(MODEL, options).err().unwrap();
    assert!(matches!(&error, Error::NoDevice { name, .. } if name == "npu7"), "{error}");
    let llm = Llm::open(MODEL).unwrap();
    let long = llm.generate(&"word ".repeat(5000), &params()).unwrap_err();
    assert_eq!((long.describe().kind, long.describe().code), (Kind::Request, "prompt_too_long"));
    assert!(long.to_string().contains("the context holds"), "{long}");
}

#[test]
fn a_text_has_a_vector_and_its_tokens_have_logits() {
    let bytes = std::fs::read(MODEL).unwrap();
    let llm = Llm::from_bytes("stories", &bytes, Options::default()).unwrap();
    let vector = llm.embed("Once upon a time").unwrap();
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    assert!((length - 1.0).abs() < 1e-3, "{length}");
    let tokens = llm.request("Once upon a time").unwrap().prompt;
    let n = tokens.len();
    let rows = llm.logits(tokens, 1).unwrap();
    assert_eq!(rows.len(), n - 1);
    assert!(rows.iter().all(|row| row.len() == llm.tokenizer().n_tokens()));
}

#[test]
fn loading_reports_its_progress_and_can_be_cancelled() {
    let (sender, parts) = channel();
    let progress: LoadProgress = Box::new(move |part| sender.send(part).is_ok());
    Llm::open_with(MODEL, Options { progress: Some(progress), ..Options::default() }).unwrap();
    assert_eq!(parts.iter().last(), Some(1.0));
    let options = Options { progress: Some(Box::new(|_| false)), ..Options::default() };
    let error = Llm::open_with(MODEL, options).err().unwrap();
    assert_eq!(error.describe().code, "cancelled", "{error}");
}
