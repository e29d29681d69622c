use super::*;
use crate::create::CreateOptions;
use crate::modelfile::Modelfile;
use crate::watch::Watch;

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.gguf"), b"GGUF and weights").unwrap();
    std::fs::write(folder.path().join("b.gguf"), b"GGUF and others").unwrap();
    let store = Store::at(folder.path().join("models"));
    (folder, store)
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn create(folder: &tempfile::TempDir, store: &Store, to: &str, modelfile: &str) -> Result<()> {
    let options = CreateOptions { folder: folder.path().into(), link: false };
    store.create(&name(to), &Modelfile::parse(modelfile)?, &options, &mut Watch::none())
}

/// The files of a folder and below it, by path.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path.display().to_string()),
        }
    }
    found.sort();
    found
}

#[test]
fn a_model_has_the_layout_of_manifests_and_blobs() {
    let (folder, store) = store();
    create(&folder, &store, "me/tiny:v1", "FROM a.gguf\nSYSTEM be brief\nPARAMETER seed 7").unwrap();
    let manifest = store.folder().join("manifests/registry.ollama.ai/me/tiny/v1");
    let (parsed, bytes) = store.manifest(&name("me/tiny:v1")).unwrap();
    assert_eq!(std::fs::read(manifest).unwrap(), bytes);
    let types: Vec<_> =
        parsed.layers.iter().map(|layer| layer.media_type.rsplit('.').next().unwrap()).collect();
    assert_eq!(types, ["model", "system", "params"]);
    for layer in parsed.blobs() {
        let blob = std::fs::read(store.blob_path(&layer.digest)).unwrap();
        assert_eq!((Digest::of(&blob), blob.len() as u64), (layer.digest, layer.size));
    }
    assert!(
        files(store.folder()).iter().all(|file| !file.contains("partial")),
        "{:?}",
        files(store.folder())
    );
}

#[test]
fn a_model_made_of_another_shares_its_weights_and_replaces_its_texts() {
    let (folder, store) = store();
    let base = "FROM a.gguf\nSYSTEM one\nPARAMETER seed 7\nPARAMETER top_k 5\nLICENSE x\nMESSAGE user hi";
    create(&folder, &store, "base", base).unwrap();
    create(&folder, &store, "child", "FROM base\nSYSTEM two\nPARAMETER seed 8\nLICENSE y\nREQUIRES 1")
        .unwrap();
    let (base, child) = (store.model(&name("base")).unwrap(), store.model(&name("child")).unwrap());
    assert_eq!(base.gguf, child.gguf);
    assert_eq!((child.system.as_deref(), &child.messages), (Some("two"), &base.messages));
    assert_eq!(serde_json::json!(child.params), serde_json::json!({ "seed": 8, "top_k": 5 }));
    assert_eq!(child.licenses, ["x", "y"]);
    assert_eq!(child.config["requires"], "1");

    let text = child.modelfile().to_text().unwrap();
    create(&folder, &store, "again", &text).unwrap();
    let again = store.model(&name("again")).unwrap();
    assert_eq!((again.gguf, again.params, again.licenses), (child.gguf, child.params, child.licenses));
}

#[test]
fn blobs_go_with_the_last_name() {
    let (folder, store) = store();
    create(&folder, &store, "one", "FROM a.gguf\nSYSTEM one").unwrap();
    store.copy(&name("one"), &name("two")).unwrap();
    create(&folder, &store, "three", "FROM b.gguf").unwrap();
    let listed = |store: &Store| {
        let mut names: Vec<_> = store.list().unwrap().0.iter().map(|entry| entry.name.to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(listed(&store), ["one:latest", "three:latest", "two:latest"]);
    assert_eq!(store.entry(&name("one")).unwrap().id, store.entry(&name("two")).unwrap().id);

    assert_eq!(store.remove(&name("one")).unwrap(), Removed::default());
    assert!(store.model(&name("two")).is_ok());
    let removed = store.remove(&name("two")).unwrap();
    assert_eq!((removed.n_blobs, removed.is_deferred), (3, false));
    assert_eq!(listed(&store), ["three:latest"]);
    store.remove(&name("three")).unwrap();
    let left: Vec<_> = files(store.folder()).into_iter().filter(|file| !file.ends_with(".lock")).collect();
    assert_eq!(left, [""; 0]);
    assert_eq!(store.remove(&name("three")).unwrap_err().code(), "not-found");
}

#[test]
fn no_blob_is_removed_while_another_process_adds_a_model_or_a_manifest_is_unreadable() {
    let (folder, store) = store();
    create(&folder, &store, "one", "FROM a.gguf").unwrap();
    let adding = store.begin_adding().unwrap();
    assert!(store.remove(&name("one")).unwrap().is_deferred);
    drop(adding);
    let broken = store.manifests().join("h.example/n/m/t");
    std::fs::create_dir_all(broken.parent().unwrap()).unwrap();
    std::fs::write(&broken, "{").unwrap();
    assert_eq!(store.sweep().unwrap_err().code(), "bad-manifest");
    let (entries, errors) = store.list().unwrap();
    assert_eq!((entries.len(), errors.len()), (0, 1));
    assert_eq!(store.remove(&name("h.example/n/m:t")).unwrap().n_blobs, 2);
}

#[test]
fn a_missing_or_truncated_blob_is_an_error_with_its_digest() {
    let (folder, store) = store();
    create(&folder, &store, "one", "FROM a.gguf").unwrap();
    let gguf = store.model(&name("one")).unwrap().gguf;
    std::fs::write(&gguf, b"GGUF").unwrap();
    let error = store.model(&name("one")).unwrap_err();
    assert!(error.to_string().contains("has 4 bytes, the manifest states 16"), "{error}");
    std::fs::remove_file(&gguf).unwrap();
    assert!(store.model(&name("one")).unwrap_err().to_string().ends_with("is missing"));
}

#[test]
fn what_from_cannot_use_is_refused() {
    let (folder, store) = store();
    std::fs::write(folder.path().join("a.txt"), "text").unwrap();
    std::fs::write(folder.path().join("a-00001-of-00002.gguf"), "GGUF").unwrap();
    for (from, code) in [
        ("nothing", "no-base"),
        ("../../nothing", "no-base"),
        (".", "not-gguf"),
        ("a.txt", "not-gguf"),
        ("a-00001-of-00002.gguf", "not-gguf"),
    ] {
        let error = create(&folder, &store, "x", &format!("FROM {from}")).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
    }
    assert!(store.list().unwrap().0.is_empty());
}

#[test]
fn a_linked_file_is_the_blob_and_a_copied_one_is_not() {
    let (folder, store) = store();
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    for (link, file) in [(true, "a.gguf"), (false, "b.gguf")] {
        let options = CreateOptions { folder: folder.path().into(), link };
        let modelfile = Modelfile::parse(&format!("FROM {file}")).unwrap();
        store.create(&name("x"), &modelfile, &options, &mut Watch::none()).unwrap();
        let blob = store.model(&name("x")).unwrap().gguf;
        assert_eq!(inode(&blob) == inode(&folder.path().join(file)), link);
        assert_eq!(std::fs::read(&blob).unwrap(), std::fs::read(folder.path().join(file)).unwrap());
    }
}

#[test]
fn go_templates_are_distinguished_from_jinja() {
    let (folder, store) = store();
    for (template, is_go) in [
        ("{{ .System }} {{ .Prompt }}", true),
        ("{{- if .System }}x{{ end }}", true),
        ("{{ $x }}", true),
        ("{{- range $i, $_ := .Messages }}{{- end }}", true),
        ("{% if x %}{{ x }}{% endif %}", false),
        ("{{ messages[0].content }}{{ ending }}", false),
        ("plain", false),
    ] {
        create(&folder, &store, "x", &format!("FROM a.gguf\nTEMPLATE {template}")).unwrap();
        assert_eq!(store.model(&name("x")).unwrap().has_go_template(), is_go, "{template}");
    }
}

#[test]
fn abandoned_imports_are_swept_and_recent_downloads_stay() {
    let (folder, store) = store();
    create(&folder, &store, "one", "FROM a.gguf").unwrap();
    let blobs = store.folder().join("blobs");
    for file in ["import-0.partial", "sha256-0.partial", "notes.txt"] {
        std::fs::write(blobs.join(file), "x").unwrap();
    }
    let old = SystemTime::now() - std::time::Duration::from_secs(8 * 24 * 3600);
    let file = File::create(blobs.join("sha256-1.partial")).unwrap();
    file.set_modified(old).unwrap();
    drop(file);
    store.sweep().unwrap();
    let left: Vec<_> =
        files(&blobs).iter().map(|file| file.rsplit('/').next().unwrap().to_string()).collect();
    assert!(left.contains(&"sha256-0.partial".into()) && left.contains(&"notes.txt".into()), "{left:?}");
    assert_eq!(left.len(), 4, "{left:?}");
}
