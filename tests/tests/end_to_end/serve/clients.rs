//! `llmrt ps` and `llmrt stop` against a running server, and without one.

use super::client::Server;
use llmrt_tests::build::{fail, llmrt, succeed};
use serde_json::Value;
use std::net::TcpListener;
use std::process::Command;

fn text(command: &mut Command) -> String {
    String::from_utf8(succeed(command).stdout).expect("UTF-8")
}

/// `llmrt` with these words and this server.
fn client(server: &Server, line: &str) -> Command {
    let mut command = llmrt(line.split(' '));
    command.env("LLMRT_HOST", server.address());
    command
}

fn load(server: &Server, keep_alive: &str) {
    let answer =
        server.post("/api/generate", &format!(r#"{{"model": "stories", "keep_alive": {keep_alive}}}"#));
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[test]
fn a_loaded_model_is_listed_stopped_and_loaded_again() {
    let server = Server::start(&[]);
    load(&server, "-1");
    let listed = text(&mut client(&server, "ps"));
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>().join(" "),
        "NAME ID SIZE PROCESSOR CONTEXT UNTIL"
    );
    let cells: Vec<&str> = lines[1].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!((cells[0], cells[3], cells[5]), ("stories:latest", "cpu", "forever"), "{listed}");
    assert_eq!((cells[1].len(), lines.len()), (12, 2), "{listed}");

    // The flag goes before the variable.
    let mut ps = llmrt(["ps", "--json", "--server", &format!("http://{}", server.address())]);
    let models: Value = serde_json::from_str(&text(ps.env("LLMRT_HOST", "127.0.0.1:1"))).expect("JSON");
    assert_eq!(models[0]["name"], "stories:latest");

    succeed(&mut client(&server, "stop stories:latest"));
    assert_eq!(text(&mut client(&server, "ps")).lines().count(), 1);
    load(&server, "630");
    assert!(text(&mut client(&server, "ps")).contains("10 minutes from now"));
    let unknown = fail(&mut client(&server, "stop absent"), 1);
    assert!(unknown.contains("absent"), "{unknown}");
}

#[test]
fn a_model_that_was_stopped_stays_when_a_request_loads_it_again() {
    let server = Server::start(&[]);
    succeed(&mut client(&server, "stop stories"));
    let answer = server.post("/v1/completions", r#"{"prompt": "Once", "max_tokens": 1}"#);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(text(&mut client(&server, "ps")).contains("forever"));
}

#[test]
fn the_key_is_sent_and_a_wrong_one_is_refused_with_the_remedy() {
    let server = Server::start(&["--api-key", "secret"]);
    succeed(client(&server, "ps").env("LLMRT_API_KEY", "secret"));
    let stderr = fail(client(&server, "ps").env("LLMRT_API_KEY", "guess"), 1);
    assert!(
        stderr.contains("set LLMRT_API_KEY to the server's key") && !stderr.contains("guess"),
        "{stderr}"
    );
}

#[test]
fn without_a_server_the_error_has_a_remedy() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").port();
    for line in ["ps", "stop stories"] {
        let stderr = fail(llmrt(line.split(' ')).env("LLMRT_HOST", format!("127.0.0.1:{port}")), 1);
        assert!(stderr.contains("no server answers") && stderr.contains("`llmrt serve`"), "{stderr}");
    }
    let stderr = fail(&mut llmrt(["ps", "--server", "ftp://x"]), 2);
    assert!(stderr.contains("`ftp` is no scheme"), "{stderr}");
}
