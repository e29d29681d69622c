//! Many clients at once: they hang up, exceed the queue, need more KV cache than there is, or are there when the server ends.

use super::client::Server;
use serde_json::json;
use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

/// Runs `work(i)` for each client on a thread of its own.
fn together<T: Send>(n: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..n).map(|i| scope.spawn(move || work(i))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client ends")).collect()
    })
}

/// A request of one text of `n` tokens, whose prompt no other client has.
fn body(i: usize, n: usize, stream: bool) -> String {
    json!({ "prompt": format!("{i} Once"), "max_tokens": n, "ignore_eos": true, "stream": stream })
        .to_string()
}

#[test]
fn clients_that_hang_up_leave_no_request_and_no_block() {
    let server = Server::start(&["-c", "4096"]);
    for _ in 0..4 {
        together(50, |i| {
            let mut stream = server.open("POST", "/v1/completions", "", &body(i, 3900, i % 3 != 0));
            if i % 2 == 0 {
                // Some before the head of the answer, some in their stream.
                stream.set_read_timeout(Some(Duration::from_millis(i as u64 * 4 + 1))).expect("a timeout");
                let _ = stream.read(&mut [0; 64]);
            }
            if i % 5 == 0 {
                let _ = stream.write_all(b"and more");
            }
        });
    }
    server.wait_until_idle();
    assert_eq!(server.post("/v1/completions", &body(0, 3, false)).status, 200);
}

#[test]
fn above_the_queue_all_are_refused_and_below_it_all_are_answered() {
    let server = Server::start(&["-c", "4096", "--parallel", "2", "--max-queue", "3"]);
    let answers = together(24, |i| server.post("/v1/completions", &body(i, 300, false)));
    let n_answered = answers.iter().filter(|answer| answer.status == 200).count();
    assert!((5..24).contains(&n_answered), "{n_answered} of 24 were answered, and 5 have room at a time");
    for answer in answers {
        match answer.status {
            200 => assert_eq!(answer.json()["usage"]["completion_tokens"], 300, "{}", answer.body),
            503 => {
                assert!(answer.headers.contains("retry-after: 1"), "{}", answer.headers);
                let message = answer.json()["error"]["message"].to_string();
                assert!(message.contains("try again later"), "{message}");
            }
            other => panic!("{other}: {}", answer.body),
        }
    }
    server.wait_until_idle();
}

#[test]
fn requests_that_exceed_the_kv_cache_together_are_all_answered() {
    let server = Server::start(&["-c", "384", "--kv-memory", "640KiB"]);
    let answers = together(16, |i| server.post("/v1/completions", &body(i, 300, i % 2 == 0)));
    for (i, answer) in answers.iter().enumerate() {
        assert_eq!(answer.status, 200, "{}", answer.body);
        match i % 2 {
            0 => {
                assert_eq!(answer.events().last().expect("an event")["choices"][0]["finish_reason"], "length")
            }
            _ => assert_eq!(answer.json()["usage"]["completion_tokens"], 300, "{}", answer.body),
        }
    }
    assert!(server.metric("vllm:num_preemptions_total") > 0.0, "the cache is too large for this test");
    server.wait_until_idle();
}

#[test]
fn at_sigterm_requests_that_run_and_wait_are_answered() {
    let mut server = Server::start(&["-c", "512", "--parallel", "2", "--grace", "120"]);
    let mut clients: Vec<_> =
        (0..8).map(|i| server.open("POST", "/v1/completions", "", &body(i, 400, false))).collect();
    // Two run and six wait: all were accepted.
    server.wait_for("vllm:num_requests_waiting", 6.0);
    server.terminate();
    for client in &mut clients {
        let mut text = String::new();
        client.read_to_string(&mut text).expect("an answer");
        assert!(text.contains("\"completion_tokens\":400"), "{text}");
    }
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_large_text_takes_a_bounded_multiple_of_its_bytes() {
    let server = Server::start(&["-c", "256"]);
    let body = json!({ "content": "q ".repeat(1 << 20), "with_pieces": true }).to_string();
    let before = server.peak_memory();
    let answer = server.post("/tokenize", &body);
    assert_eq!(answer.status, 200);
    assert!(
        answer.body.ends_with(r#"{"id":950,"piece":" "}]}"#),
        "{}",
        &answer.body[answer.body.len() - 99..]
    );
    // The answer has 23 bytes per byte of the text, the ids 4; buffers are up to twice as large as what they hold.
    let multiple = (server.peak_memory() - before) / body.len() as u64;
    assert!(multiple < 150, "{multiple} times the bytes of the request");
}
