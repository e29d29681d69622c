//! Devices that fail under a server: at their n-th allocation, in the middle of streams, once and for ever. The server lives,
//! requests are answered or have an error with its cause and remedy, and no block of the KV cache stays in use.

use super::client::{Answer, Server};
use llmrt_tests::build::plugin;
use std::thread;

/// A server on a simulated device that goes wrong by these rules; an error if it does not start.
fn faulty(rules: &str) -> Result<Server, String> {
    let (fault, rules) = (plugin("fault"), format!("fault.rule={rules}"));
    let fault = fault.to_str().expect("a path in UTF-8");
    let device = ["--plugin", fault, "--backend", "fault:sim", "--plugin-option", "fault.wrap=sim"];
    Server::try_start(&[&device[..], &["-c", "256", "--plugin-option", &rules]].concat(), &[])
}

const WHOLE: &str = r#"{"prompt": "Once upon a time", "max_tokens": 40, "ignore_eos": true}"#;
const STREAM: &str = r#"{"prompt": "A dog", "max_tokens": 40, "ignore_eos": true, "stream": true}"#;

/// The message of an error; none if the request was answered in full.
fn failure(answer: &Answer) -> Option<String> {
    let is_stream = answer.headers.contains("text/event-stream");
    let last = if is_stream { answer.events().pop().expect("an event") } else { answer.json() };
    if last["error"].is_object() {
        assert_eq!(answer.status, if is_stream { 200 } else { 500 }, "{}", answer.body);
        return Some(last["error"]["message"].as_str().expect("a message").to_string());
    }
    assert_eq!(
        (answer.status, &last["choices"][0]["finish_reason"]),
        (200, &"length".into()),
        "{}",
        answer.body
    );
    None
}

/// Four requests at once; the messages of those that failed.
fn load(server: &Server) -> Vec<String> {
    thread::scope(|scope| {
        let post = |body| scope.spawn(move || failure(&server.post("/v1/completions", body)));
        let threads = [WHOLE, STREAM, WHOLE, STREAM].map(post);
        threads.into_iter().filter_map(|thread| thread.join().expect("a client ends")).collect()
    })
}

/// The server is alive, and nothing is left of its requests.
fn check_idle(server: &Server) {
    assert_eq!(server.get("/health").status, 200);
    server.wait_until_idle();
}

/// A fault that does not last: whatever the first requests get, those after them are answered.
fn recovers(rules: &str, words: &str) {
    let server = faulty(rules).unwrap_or_else(|e| panic!("{rules}: {e}"));
    for message in load(&server) {
        assert!(message.contains(words), "{rules}: {message}");
    }
    check_idle(&server);
    assert_eq!(load(&server), [""; 0], "{rules}");
    check_idle(&server);
}

/// Without room the device is left out, with a warning: the CPU answers.
#[test]
fn an_allocation_that_fails_costs_no_request_whichever_it_is() {
    // A rule that ends the process shows whether there is an n-th allocation, at the start or with requests.
    let is_there = |n: usize| match faulty(&format!("buffer_alloc@{n}:abort")) {
        Ok(server) => server.try_post("/v1/completions", WHOLE).is_err(),
        Err(_) => true,
    };
    let n_allocations = (1..200).take_while(|n| is_there(*n)).count();
    assert!((3..199).contains(&n_allocations), "{n_allocations}");
    for n in 1..=n_allocations {
        for rule in [format!("buffer_alloc@{n}:oom"), format!("buffer_alloc@{n}+:oom")] {
            let server = faulty(&rule).unwrap_or_else(|e| panic!("{rule}: {e}"));
            assert_eq!(load(&server), [""; 0], "{rule}");
            check_idle(&server);
        }
    }
}

#[test]
fn a_device_that_fails_in_a_stream_fails_its_requests_at_most() {
    for scope in ["call", "stream", "device", "plugin"] {
        for call in ["compute@20", "get@20", "set@60", "synchronize@20"] {
            recovers(&format!("{call}:error:{scope}"), "--backend");
        }
    }
    recovers("compute@20:oom", "--backend");
    recovers("compute@20:panic", "--backend");
    recovers("compute@20:nan", "on another device");
}

#[test]
fn a_device_that_fails_for_ever_fails_requests_and_not_the_server() {
    let server = faulty("compute@20+:error:call").unwrap_or_else(|e| panic!("{e}"));
    for _ in 0..3 {
        let failed = load(&server);
        assert_eq!(failed.len(), 4, "{failed:?}");
        for message in failed {
            let has = message.contains("injected into compute") && message.contains("--backend");
            assert!(has, "cause and remedy: {message}");
        }
        check_idle(&server);
    }
    // One that is lost is left out.
    let server = faulty("compute@20+:error:device").unwrap_or_else(|e| panic!("{e}"));
    load(&server);
    assert_eq!(load(&server), [""; 0]);
    check_idle(&server);
}
