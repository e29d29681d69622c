//! The model store: made from the embedded model's file, run by name, pulled from a registry that the test starts.

#[path = "../../../../runtime/store/tests/registry/mod.rs"]
mod registry;

use super::{json, text};
use llmrt_tests::build::{bin_dir, fail, llmrt, succeed};
use llmrt_tests::fixtures::root;
use registry::{Fault, Registry, digest};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MODEL: &str = "application/vnd.ollama.image.model";
const PARAMS: &str = "application/vnd.ollama.image.params";

/// A store in a folder of its own.
struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        World { folder: tempfile::tempdir().unwrap() }
    }

    fn models(&self) -> PathBuf {
        self.folder.path().join("models")
    }

    fn llmrt(&self, line: &str) -> Command {
        let mut command = llmrt(line.split(' '));
        command.env("LLMRT_MODELS", self.models()).current_dir(self.folder.path());
        command
    }

    fn stdout(&self, line: &str) -> String {
        text(&succeed(&mut self.llmrt(line)).stdout)
    }

    fn create(&self, name: &str, rest: &str) {
        let from = format!("FROM {}\n{rest}", stories().display());
        std::fs::write(self.folder.path().join("Modelfile"), from).unwrap();
        succeed(&mut self.llmrt(&format!("create {name}")));
    }

    fn names(&self) -> Vec<String> {
        let mut listed = json(&mut self.llmrt("list --json"));
        let entries = listed.as_array_mut().unwrap().iter();
        let mut names: Vec<_> = entries.map(|entry| entry["name"].as_str().unwrap().to_string()).collect();
        names.sort();
        names
    }

    fn blobs(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.models().join("blobs")).into_iter().flatten();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn stories() -> PathBuf {
    root().join("cli/assets/stories.gguf")
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

#[test]
fn a_model_is_created_listed_run_copied_and_removed() {
    let world = World::new();
    assert_eq!(world.stdout("list"), "NAME  ID  SIZE  MODIFIED\n");
    assert!(!world.models().exists(), "nothing is made before something is stored");
    world.create("me/tiny:a", "PARAMETER temperature 0\nPARAMETER num_predict 6\nPARAMETER stop zzz\n");
    let listed = world.stdout("ls me/");
    assert!(listed.contains("me/tiny:a  ") && listed.contains("3.2 MiB"), "{listed}");

    let by_flags = world.stdout("run --temp 0 -n 6 -p Once");
    assert_eq!(world.stdout("run me/tiny:a -p Once"), by_flags);
    assert_eq!(world.stdout("run -m me/tiny:a Once"), by_flags);
    assert_eq!(world.stdout("run me/tiny:a -n 9 -p Once"), world.stdout("run --temp 0 -n 9 -p Once"));
    assert!(world.stdout("inspect me/tiny:a").starts_with("me/tiny:a: GGUF\n"));

    succeed(&mut world.llmrt("cp me/tiny:a b"));
    succeed(&mut world.llmrt("rm me/tiny:a"));
    assert_eq!(world.names(), ["b:latest"]);
    assert_eq!(world.stdout("run b -p Once"), by_flags);
    let removed = succeed(&mut world.llmrt("rm b"));
    assert_eq!(text(&removed.stderr), "b:latest: removed, 3.2 MiB freed\n");
    assert_eq!(world.blobs(), [""; 0]);
}

#[test]
fn a_stored_template_and_system_message_are_those_of_the_flags() {
    let world = World::new();
    let template = "{{ messages[0].content }} {{ messages[-1].content }}";
    world.create("t", &format!("TEMPLATE {template}\nSYSTEM Once\n"));
    let run = |flags: &[&str]| text(&succeed(world.llmrt("run --temp 0 -n 8").args(flags)).stdout);
    let by_flags = run(&["-p", "upon", "--system", "Once", "--chat-template", template]);
    assert_eq!(run(&["-m", "t", "-p", "upon"]), by_flags);
    let other = run(&["-p", "upon", "--system", "The", "--chat-template", template]);
    assert_eq!(run(&["-m", "t", "-p", "upon", "--system", "The"]), other);
    assert_eq!(run(&["-m", "t", "--raw", "-p", "Once upon"]), run(&["--raw", "-p", "Once upon"]));

    world.create("go", "TEMPLATE {{ .Prompt }}\nSYSTEM x\nMESSAGE user hi\n");
    let out = succeed(world.llmrt("run go --temp 0 -n 8 -p").arg("Once upon"));
    assert_eq!(text(&out.stdout), run(&["-p", "Once upon"]));
    for expected in ["its template is in Go's language", "example messages are not used", "no chat template"]
    {
        assert!(text(&out.stderr).contains(expected), "{}", text(&out.stderr));
    }
}

#[test]
fn show_prints_parts_that_make_the_model_again() {
    let world = World::new();
    world.create("a", "PARAMETER seed 7\nSYSTEM \"\"\"two\nlines\"\"\"\nLICENSE free\nREQUIRES 1\n");
    assert_eq!(world.stdout("show a --system"), "two\nlines\n");
    assert_eq!(world.stdout("show a --parameters"), "seed                 7\n");
    let summary = world.stdout("show a");
    for expected in ["a:latest\n  id ", "3.2 MiB model", "requires   1", "\nsystem\n  two\n  lines\n"] {
        assert!(summary.contains(expected), "{summary}");
    }
    std::fs::write(world.folder.path().join("again"), world.stdout("show a --modelfile")).unwrap();
    succeed(&mut world.llmrt("create b -f again --quiet"));
    let [mut a, mut b] = ["a", "b"].map(|name| json(&mut world.llmrt(&format!("show {name} --json"))));
    for key in ["name", "id", "layers", "config"] {
        a[key].take();
        b[key].take();
    }
    assert_eq!(a, b);
}

#[test]
fn a_killed_pull_is_continued_and_the_file_never_exists_in_part() {
    let (world, registry) = (World::new(), Registry::start());
    let gguf = std::fs::read(stories()).unwrap();
    let params = br#"{"temperature":0,"num_predict":6}"#;
    let name = registry.put_model("me/tiny", "a", &[(MODEL, &gguf), (PARAMS, params)]);
    let pull = format!("pull {name} --insecure");
    let blob = world.models().join("blobs").join(digest(&gguf).replace(':', "-"));
    let partial = blob.with_extension("partial");

    registry.fail(&digest(&gguf), Fault::Slow(Duration::from_millis(10)));
    let mut child = world.llmrt(&pull).stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    while size(&partial) < 500_000 {
        assert!(started.elapsed() < Duration::from_secs(60) && !blob.exists());
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let n_received = size(&partial);
    assert!((500_000..gguf.len() as u64).contains(&n_received), "{n_received}");
    assert!(!blob.exists() && world.names().is_empty());

    registry.fail(&digest(&gguf), Fault::DropAfter(700_000));
    let out = succeed(&mut world.llmrt(&pull));
    let stderr = text(&out.stderr);
    assert!(
        stderr.contains("the next try is in 0.5 s") && stderr.contains(": pulled, 3.2 MiB\n"),
        "{stderr}"
    );
    let requests = registry.requests(&digest(&gguf));
    let range = |n: u64| format!(" bytes={n}-");
    assert!(requests[1].ends_with(&range(n_received)), "{requests:?}");
    assert!(requests[2].ends_with(&range(n_received + 700_000)), "{requests:?}");
    assert_eq!(requests.len(), 3);
    assert_eq!(std::fs::read(&blob).unwrap(), gguf);
    assert!(world.blobs().iter().all(|file| !file.ends_with("partial")));
    let run = format!("run {} -p Once", name.replace("http://", ""));
    assert_eq!(world.stdout(&run), world.stdout("run --temp 0 -n 6 -p Once"));
}

#[test]
fn run_pulls_where_it_is_permitted() {
    let (world, registry) = (World::new(), Registry::start());
    let gguf = std::fs::read(stories()).unwrap();
    let name = registry.put_model("library/tiny", "latest", &[(MODEL, &gguf)]);
    let run = format!("run {name} --temp 0 -n 6 -p Once");
    fail(&mut world.llmrt(&run), 3);
    let out = world.stdout(&format!("{run} --pull --insecure"));
    assert_eq!(out, world.stdout("run --temp 0 -n 6 -p Once"));
    assert_eq!(world.stdout(&run), out, "a second run needs no registry");
}

#[test]
fn a_pushed_model_is_pulled_by_another_store_and_a_hub_is_found_by_its_variable() {
    let (world, other, registry) = (World::new(), World::new(), Registry::start());
    world.create("tiny", "PARAMETER seed 7\n");
    let name = format!("{}/me/tiny:a", registry.host);
    succeed(&mut world.llmrt(&format!("cp tiny {name}")));
    let push = succeed(&mut world.llmrt(&format!("push http://{name} --insecure")));
    assert_eq!(text(&push.stderr), format!("{name}: pushed\n"));
    let pull = succeed(&mut other.llmrt(&format!("pull http://{name} --insecure -q")));
    assert_eq!(text(&pull.stderr), "");
    assert_eq!(other.names(), std::slice::from_ref(&name));
    assert_eq!(other.stdout(&format!("show {name} --parameters")), "seed                 7\n");

    let gguf = std::fs::read(stories()).unwrap();
    let api = r#"{"sha":"main","siblings":[{"rfilename":"x.gguf"},{"rfilename":"a-Q4_K_M.gguf"}]}"#;
    registry.put("/api/models/u/r", api.as_bytes());
    registry.put("/u/r/resolve/main/a-Q4_K_M.gguf", &gguf);
    let mut pull = other.llmrt("pull hf.co/u/r --insecure");
    succeed(pull.env("HF_ENDPOINT", format!("http://{}", registry.host)));
    assert!(other.stdout("list hf.co/").contains("hf.co/u/r:latest  "));
    let n_weights = other.blobs().iter().filter(|blob| **blob == digest(&gguf).replace(':', "-")).count();
    assert_eq!(n_weights, 1, "two names share one file");
}

#[test]
fn errors_of_the_store_have_codes_causes_and_remedies() {
    let (world, registry) = (World::new(), Registry::start());
    world.create("a", "");
    std::fs::write(world.folder.path().join("bad"), "FROM a\nADAPTER x\n").unwrap();
    std::fs::write(world.folder.path().join("text.gguf"), "FROM").unwrap();
    std::fs::write(world.folder.path().join("of-text"), "FROM text.gguf\n").unwrap();
    let host = &registry.host;
    let lacks = format!("http://{host}/me/x:latest --insecure");
    for (line, exit, expected) in [
        ("pull ../x", 2, "../x: has the host `..`: expected a letter, a digit or `_` first"),
        ("show a/../b", 2, "give [HOST/][NAMESPACE/]NAME[:TAG]"),
        ("show b", 3, "b:latest: is not in the store; `llmrt list` shows what is there"),
        ("rm b", 3, "b:latest: is not in the store"),
        ("cp b c", 3, "b:latest: is not in the store"),
        ("create x -f bad", 3, "bad: line 2: ADAPTER is not supported: merge the adapter"),
        ("create x -f none", 3, "none: cannot open"),
        ("create x -f of-text", 3, "text.gguf: "),
        ("show bad", 2, "`llmrt inspect bad` shows what a file holds"),
        ("show a --system", 1, "a:latest: has no system message of its own"),
        ("run b --insecure", 2, "--pull"),
        ("pull http://127.0.0.1:1/x", 2, "use https, or permit it with --insecure"),
        ("pull http://127.0.0.1:1/x --insecure", 1, "Connection refused"),
        (&format!("pull {lacks}"), 1, "has no such model or tag; check the name and the tag"),
        ("push hf.co/u/r", 3, "is not in the store"),
    ] {
        let stderr = fail(&mut world.llmrt(line), exit);
        assert!(stderr.contains(expected), "{line}: {stderr}");
    }
    assert_eq!(world.names(), ["a:latest"]);
    assert!(bin_dir().join("llmrt").exists() && !bin_dir().join("no-models").exists());
}
