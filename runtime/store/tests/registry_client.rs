//! The client against a registry on this machine, which fails in every way that is planned for.

mod registry;

use llmrt_store::{
    Client, ClientOptions, CreateOptions, Error, Event, Modelfile, Name, Retry, Source, Store, Watch, media,
};
use registry::{Fault, Registry, digest};
use std::time::Duration;

/// A store, a registry with a model, and its name.
struct World {
    folder: tempfile::TempDir,
    store: Store,
    registry: Registry,
    name: String,
}

/// The weights of the model.
fn weights() -> Vec<u8> {
    let noise = (0..400_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8);
    b"GGUF".iter().copied().chain(noise).collect()
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let registry = Registry::start();
        let layers: [(&str, &[u8]); 2] = [(media::MODEL, &weights()), (media::SYSTEM, b"be brief")];
        let name = registry.put_model("me/tiny", "a", &layers);
        World { folder, store, registry, name }
    }

    fn client(&self) -> Client {
        let retry = Retry { n_tries: 3, first_wait: Duration::from_millis(1) };
        let hub = format!("http://{}", self.registry.host);
        let timeout = Duration::from_secs(5);
        Client::new(ClientOptions { insecure: true, hub, retry, timeout, ..ClientOptions::default() })
    }

    fn source(&self) -> Source {
        self.name.parse().unwrap()
    }

    fn pull_watched(
        &self,
        show: &mut dyn FnMut(&Event),
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        self.client().pull(&self.store, &self.source(), &mut Watch { show, is_cancelled })
    }

    fn pull(&self) -> Result<(), Error> {
        self.pull_watched(&mut |_| {}, &|| false)
    }

    /// The requests for the weights.
    fn requests(&self) -> Vec<String> {
        let lines = self.registry.requests(&digest(&weights()));
        lines
            .iter()
            .map(|line| line.replace(&digest(&weights()), "W").replace("/v2/me/tiny/blobs/", ""))
            .collect()
    }

    /// The model is whole, and nothing unfinished is left.
    fn check_whole(&self) {
        let model = self.store.model(&self.source().name).unwrap();
        assert_eq!(std::fs::read(&model.gguf).unwrap(), weights());
        assert_eq!(model.system.as_deref(), Some("be brief"));
        assert_eq!(self.partials(), [""; 0]);
    }

    /// The model is not there, nor are its weights under their name.
    fn check_absent(&self) {
        assert!(!self.store.has(&self.source().name));
        let weights: llmrt_store::Digest = digest(&weights()).parse().unwrap();
        assert!(!self.store.blob_path(&weights).exists());
    }

    fn partials(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.folder.path().join("blobs")).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".partial")).collect()
    }
}

/// A pull with these faults of the weights succeeds; returns the requests for the weights.
fn succeeds(faults: &[Fault]) -> Vec<String> {
    let world = World::new();
    faults.iter().for_each(|fault| world.registry.fail(&digest(&weights()), fault.clone()));
    world.pull().unwrap_or_else(|e| panic!("{faults:?}: {e}"));
    world.check_whole();
    world.requests()
}

/// A pull with these faults of the weights fails with this code, and leaves nothing under a final name.
fn fails(faults: &[Fault], code: &str, text: &str) {
    let world = World::new();
    faults.iter().for_each(|fault| world.registry.fail(&digest(&weights()), fault.clone()));
    let error = world.pull().unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    assert!(error.to_string().contains(text), "{error}");
    world.check_absent();
}

#[test]
fn a_model_is_pulled_once_and_then_there() {
    let world = World::new();
    world.pull().unwrap();
    world.check_whole();
    world.pull().unwrap();
    assert_eq!(world.requests(), ["GET W"], "what is there is not received again");
}

#[test]
fn a_broken_download_continues_where_it_ended() {
    assert_eq!(succeeds(&[Fault::DropAfter(100_000)]), ["GET W", "GET W bytes=100000-"]);
    let requests =
        succeeds(&[Fault::DropAfter(1), Fault::DropAfter(1), Fault::DropAfter(1), Fault::DropAfter(1)]);
    assert_eq!(requests.last().unwrap(), "GET W bytes=4-", "tries that bring something are not counted");
}

#[test]
fn a_busy_or_missing_server_is_tried_again_a_few_times() {
    assert_eq!(succeeds(&[Fault::Status(503), Fault::Status(429)]).len(), 3);
    fails(&[Fault::Status(500), Fault::Status(502), Fault::Status(503)], "status", "status 503: a reason");
    fails(&[Fault::DropAfter(0), Fault::DropAfter(0), Fault::DropAfter(0)], "network", "(3 tries)");
    fails(&[Fault::Status(404)], "status", "status 404");
    fails(&[Fault::Status(403)], "unauthorized", "status 403");
}

#[test]
fn a_server_without_ranges_sends_all_again() {
    let requests = succeeds(&[Fault::DropAfter(9), Fault::NoRange]);
    assert_eq!(requests, ["GET W", "GET W bytes=9-"]);
    let requests = succeeds(&[Fault::DropAfter(9), Fault::OtherRange]);
    assert_eq!(requests, ["GET W", "GET W bytes=9-", "GET W"]);
}

#[test]
fn wrong_bytes_never_get_the_blobs_name() {
    fails(&[Fault::WrongByte], "digest-mismatch", "expected sha256:");
    fails(&[Fault::Short], "wrong-length", "the manifest states 400004");
    let world = World::new();
    world.registry.fail(&digest(&weights()), Fault::WrongByte);
    world.pull().unwrap_err();
    assert_eq!(world.partials(), [""; 0], "nothing is continued that is wrong");
    world.pull().unwrap();
    world.check_whole();
}

#[test]
fn wrong_bytes_of_an_earlier_run_are_received_again() {
    let world = World::new();
    let blobs = world.folder.path().join("blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let partial = blobs.join(format!("{}.partial", digest(&weights()).replace(':', "-")));
    for earlier in [vec![0; 1000], vec![0; 400_004], vec![0; 500_000]] {
        std::fs::write(&partial, earlier).unwrap();
        world.pull().unwrap();
        world.check_whole();
        world.store.remove(&world.source().name).unwrap();
    }
}

#[test]
fn a_redirect_is_followed_with_the_range() {
    assert_eq!(succeeds(&[Fault::Redirect]).len(), 2);
    let world = World::new();
    world.registry.fail(&digest(&weights()), Fault::DropAfter(10));
    world.registry.fail(&digest(&weights()), Fault::Redirect);
    world.pull().unwrap();
    assert_eq!(world.requests().last().unwrap(), "GET /cdnW bytes=10-");
}

#[test]
fn a_registry_that_requires_a_token_gets_one() {
    let world = World::new();
    world.registry.require_token();
    world.pull().unwrap();
    world.check_whole();
    assert_eq!(world.registry.token_query(), "service=s&scope=a%2Cb");
    assert_eq!(world.registry.requests("/token").len(), 1, "it is kept for the blobs");
}

#[test]
fn a_model_that_the_registry_lacks_is_named() {
    let mut world = World::new();
    world.name = world.name.replace("tiny", "huge");
    let error = world.pull().unwrap_err();
    assert_eq!(error.to_string(), format!("{}/me/huge:a: {0} has no such model or tag", world.registry.host));
}

#[test]
fn an_answer_that_is_no_manifest_is_refused() {
    let world = World::new();
    for (answer, code) in [
        ("<html>", "bad-answer"),
        (r#"{"schemaVersion":1,"config":{},"layers":[]}"#, "bad-answer"),
        (
            r#"{"schemaVersion":2,"config":{"mediaType":"c","digest":"sha256:../../x","size":1},"layers":[]}"#,
            "bad-answer",
        ),
    ] {
        world.registry.put("/v2/me/tiny/manifests/a", answer.as_bytes());
        assert_eq!(world.pull().unwrap_err().code(), code, "{answer}");
    }
    world.registry.put_model("me/tiny", "a", &[("application/vnd.ollama.image.tensor", b"x")]);
    assert_eq!(world.pull().unwrap_err().code(), "unsupported");
}

#[test]
fn no_connection_is_an_error_at_once() {
    let mut world = World::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    world.name = format!("http://127.0.0.1:{port}/me/tiny");
    let error = world.pull().unwrap_err();
    assert_eq!(error.code(), "network");
    assert!(!error.to_string().contains("tries"), "{error}");
}

#[test]
fn a_cancelled_pull_keeps_what_it_has_received() {
    let world = World::new();
    world.registry.fail(&digest(&weights()), Fault::Slow(Duration::from_millis(2)));
    let n_received = std::cell::Cell::new(0);
    let mut show = |event: &Event| {
        if let Event::Transfer { done, .. } = event {
            n_received.set(*done);
        }
    };
    let error = world.pull_watched(&mut show, &|| n_received.get() > 0).unwrap_err();
    assert_eq!(error.code(), "cancelled");
    world.check_absent();
    world.pull().unwrap();
    world.check_whole();
    assert_eq!(world.requests()[1], format!("GET W bytes={}-", n_received.get()));
}

#[test]
fn two_that_pull_the_same_model_receive_it_once() {
    let world = World::new();
    world.registry.fail(&digest(&weights()), Fault::Slow(Duration::from_millis(5)));
    std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..4).map(|_| scope.spawn(|| world.pull())).collect();
        pulls.into_iter().for_each(|pull| pull.join().unwrap().unwrap());
    });
    world.check_whole();
    assert_eq!(world.requests(), ["GET W"]);
}

#[test]
fn a_model_that_replaces_another_takes_its_blobs_away() {
    let world = World::new();
    world.pull().unwrap();
    world.registry.put_model("me/tiny", "a", &[(media::MODEL, b"GGUF new")]);
    world.pull().unwrap();
    let blobs = std::fs::read_dir(world.folder.path().join("blobs")).unwrap().count();
    assert_eq!(blobs, 2, "weights and configuration");
}

#[test]
fn a_pushed_model_is_pulled_by_another_store() {
    let world = World::new();
    let gguf = world.folder.path().join("big.gguf");
    let big: Vec<u8> = weights().into_iter().cycle().take(9 << 20).collect();
    std::fs::write(&gguf, &big).unwrap();
    let source: Source = world.name.replace("tiny", "mine").parse().unwrap();
    let modelfile = Modelfile::parse("FROM big.gguf\nPARAMETER seed 7").unwrap();
    let options = CreateOptions { folder: world.folder.path().into(), link: true };
    world.store.create(&source.name, &modelfile, &options, &mut Watch::none()).unwrap();
    world.registry.require_token();
    world.registry.fail("uploads", Fault::Status(503));
    world.registry.fail("PATCH ", Fault::DropAfter(1000));
    world.client().push(&world.store, &source, &mut Watch::none()).unwrap();
    let n_sent = world.registry.requests("PATCH").len();
    assert!(n_sent >= 4, "{:?}", world.registry.requests("PATCH"));

    let folder = tempfile::tempdir().unwrap();
    let other = Store::at(folder.path());
    world.client().pull(&other, &source, &mut Watch::none()).unwrap();
    let model = other.model(&source.name).unwrap();
    assert_eq!(std::fs::read(model.gguf).unwrap(), big);
    assert_eq!(model.id, world.store.model(&source.name).unwrap().id);

    world.client().push(&world.store, &source, &mut Watch::none()).unwrap();
    assert_eq!(world.registry.requests("PATCH").len(), n_sent, "what is there is not sent again");
}

#[test]
fn a_broken_upload_continues_where_it_ended() {
    let world = World::new();
    world.pull().unwrap();
    let from: Name = world.source().name;
    let source: Source = world.name.replace("tiny", "copy").parse().unwrap();
    world.store.copy(&from, &source.name).unwrap();
    world.registry.fail("PATCH ", Fault::DropAfter(70_000));
    world.registry.fail("PATCH ", Fault::DropAfter(0));
    world.client().push(&world.store, &source, &mut Watch::none()).unwrap();
    let stored = world.registry.get(&format!("/v2/me/copy/blobs/{}", digest(&weights())));
    assert_eq!(stored.unwrap(), weights());
    let n_sent = |method: &str| world.registry.requests(method).len();
    assert_eq!((n_sent("PATCH"), n_sent("GET /v2/me/copy/blobs/uploads")), (5, 2), "2 broke, 3 blobs");
}

mod hub {
    use super::*;

    fn world(siblings: serde_json::Value) -> World {
        let mut world = World::new();
        let api = serde_json::json!({ "sha": "c0ffee", "siblings": siblings });
        world.registry.put("/api/models/user/repo", api.to_string().as_bytes());
        world.registry.put("/user/repo/resolve/c0ffee/dir/a-Q4_K_M.gguf", &weights());
        world.name = "hf.co/user/repo".into();
        world
    }

    fn file(world: &World) -> Vec<u8> {
        std::fs::read(world.store.model(&world.source().name).unwrap().gguf).unwrap()
    }

    #[test]
    fn a_file_with_a_digest_is_continued_and_verified() {
        let sha256 = digest(&weights()).replace("sha256:", "");
        let world = world(serde_json::json!([
            { "rfilename": "a-Q8_0.gguf", "lfs": { "sha256": "00", "size": 1 } },
            { "rfilename": "dir/a-Q4_K_M.gguf", "size": 400_004, "lfs": { "sha256": sha256, "size": 400_004 } },
        ]));
        world.registry.fail("/resolve/", Fault::Redirect);
        world.registry.fail("/cdn/", Fault::DropAfter(5000));
        world.pull().unwrap();
        assert_eq!(file(&world), weights());
        assert_eq!(
            world.registry.requests("/resolve/").last().unwrap().split(' ').next_back(),
            Some("bytes=5000-")
        );
        let model = world.store.model(&world.source().name).unwrap();
        assert_eq!(model.config["etag"], sha256);
        assert!(
            model.config["source"].as_str().unwrap().ends_with("/user/repo/resolve/c0ffee/dir/a-Q4_K_M.gguf")
        );
        assert_eq!(model.name.to_string(), "hf.co/user/repo:latest");
    }

    #[test]
    fn a_file_without_a_digest_is_continued_by_another_run() {
        let world = world(serde_json::json!([{ "rfilename": "dir/a-Q4_K_M.gguf" }]));
        world.registry.fail("/none/", Fault::Redirect);
        let n_received = std::cell::Cell::new(0);
        let mut show = |event: &Event| {
            if let Event::Transfer { done, .. } = event {
                n_received.set(*done);
            }
        };
        world.pull_watched(&mut show, &|| n_received.get() > 0).unwrap_err();
        assert!(world.partials()[0].starts_with("hub-"), "{:?}", world.partials());
        world.pull().unwrap();
        assert_eq!(file(&world), weights());
        let last = world.registry.requests("GET /user/repo").pop().unwrap();
        assert!(last.ends_with(&format!("bytes={}-", n_received.get())), "{last}");
    }

    #[test]
    fn a_repository_or_quantisation_that_is_not_there_is_named() {
        let mut world = world(serde_json::json!([{ "rfilename": "a-Q8_0.gguf" }]));
        world.name = "hf.co/user/repo:Q2_K".into();
        let text = "hf.co/user/repo:Q2_K: has no GGUF file of the type Q2_K: it has a-Q8_0.gguf";
        assert_eq!(world.pull().unwrap_err().to_string(), text);
        world.name = "hf.co/user/none".into();
        assert_eq!(world.pull().unwrap_err().code(), "not-in-registry");
    }
}
