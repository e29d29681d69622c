//! `--seal-cache` and `llmrt cache`: the same text from weights that an earlier run stored.

use std::path::Path;

use llmrt_tests::build::{fail, llmrt, succeed};
use llmrt_tests::fixtures::root;

fn text(model: &Path, cache: &Path) -> String {
    let mut command = llmrt(["run", "-n", "24", "--temp", "0", "-p", "Once", "-m"]);
    let out = succeed(command.arg(model).arg("--seal-cache").arg(cache));
    String::from_utf8(out.stdout).unwrap()
}

fn files(cache: &Path) -> Vec<serde_json::Value> {
    let out = succeed(llmrt(["cache", "ls", "--json", "--seal-cache"]).arg(cache));
    serde_json::from_slice::<Vec<serde_json::Value>>(&out.stdout).unwrap()
}

#[test]
fn a_second_run_takes_the_weights_that_the_first_stored() {
    let folder = tempfile::tempdir().unwrap();
    let (model, cache) = (folder.path().join("m.gguf"), folder.path().join("cache"));
    std::fs::copy(root().join("cli/assets/stories.gguf"), &model).unwrap();
    let first = text(&model, &cache);
    let [file] = &files(&cache)[..] else { panic!("{:?}", files(&cache)) };
    let name = file["file"].as_str().unwrap();
    assert!(name.starts_with("m-") && file["size"].as_u64() > Some(100_000), "{file}");
    assert_eq!(text(&model, &cache), first);

    // What is in the file is what runs: without one of its bytes there is a warning, and the file is written again.
    let path = cache.join(name);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert_eq!(text(&model, &cache), first);
    assert!(std::fs::read(&path).unwrap() == whole);
    // Weights of zeros give another text: they come from the file.
    let start = whole.len() / 2;
    std::fs::write(&path, [&whole[..start], &vec![0; whole.len() - start][..]].concat()).unwrap();
    assert_ne!(text(&model, &cache), first);

    succeed(llmrt(["cache", "rm", name, "--seal-cache"]).arg(&cache));
    assert!(files(&cache).is_empty());
}

#[test]
fn a_folder_that_is_not_there_yet_has_no_files() {
    assert!(files(&tempfile::tempdir().unwrap().path().join("none")).is_empty());
}

#[test]
fn mistakes_name_what_to_give() {
    let folder = tempfile::tempdir().unwrap();
    for (args, remedy) in [
        (&["cache", "ls"][..], "LLMRT_SEAL_CACHE"),
        (&["cache", "rm", "--seal-cache", "DIR"], "--all"),
        (&["cache", "rm", "x", "--seal-cache", "DIR"], "llmrt cache ls"),
        (&["cache", "ls", "x", "--seal-cache", "DIR"], "takes no FILE"),
    ] {
        let dir = folder.path().to_str().unwrap();
        let args = args.iter().map(|arg| arg.replace("DIR", dir));
        let stderr = fail(&mut llmrt(args), 2);
        assert!(stderr.contains(remedy), "{stderr}");
    }
}
