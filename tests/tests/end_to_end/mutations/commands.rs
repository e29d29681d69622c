//! Mutated files through every command that reads files, in 2 GB of address space and 10 s each: no signal, no hang, no
//! panic, and no control character on stdout or stderr.
//!
//! `cargo test` takes a sample of 15 s. `LLMRT_MUTATIONS=10000` sets the number of mutated files, each given to every
//! command that reads its kind.

use llmrt_gguf::mutate::mutate;
use llmrt_gguf::writer::{Tables, to_vec};
use llmrt_gguf::{Gguf, Metadata, TensorShape, is_terminal_control};
use llmrt_tests::build::{bin_dir, plugin};
use llmrt_tests::fixtures::{fixtures, root};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The name of the mutated file in the commands.
const FILE: &str = "@";

/// A file that is mutated, and the commands that read it.
struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    /// Of the bytes these are mutated; all that follows is kept.
    n_mutated: usize,
    commands: &'static [&'static str],
}

const MODEL: &[&str] = &[
    "run @ -p a<|im_end|>b -n 2 --temp 0 -c 64",
    "run @ --raw -p Once -n 2 --temp 0 -c 64",
    "inspect @ --tensors",
    "inspect @ --json",
    "inspect @ --placement",
    "plan @ -c 64",
    "tokenize -m @ Once-upon",
    "bench -m @ -p 2 -n 1 -r 1 --no-warmup",
    "eval -m @ --tokens 1,2,3 -c 16",
    "perplexity @ -f text.txt --chunks 1 -c 8",
    "quantize @ out.gguf q4_0 --force",
    "diff @ --b cpu --tokens 1",
];
const SPLIT: &[&str] = &["inspect @ --tensors", "plan @ -c 64", "eval -m @ --tokens 1,2,3 -c 16"];
const CHECKPOINT: &[&str] = &[
    "run @ --tokenizer tokenizer.bin --sampler llama2c -p Once -n 4",
    "run @ --tokenizer tokenizer.bin --raw -p Once -n 2 -c 64",
    "convert @ out.gguf --tokenizer tokenizer.bin --force",
    "inspect @ --tensors",
    "plan @ -c 64",
];
const TOKENIZER: &[&str] = &[
    "run model.bin --tokenizer @ --sampler llama2c -p Once -n 4",
    "tokenize --tokenizer @ -m model.bin Once-upon",
    "convert model.bin out.gguf --tokenizer @ --force",
];
const PROMPT: &[&str] = &["run -f @ -n 1 -c 64", "tokenize -f @", "perplexity -f @ --chunks 1 -c 8"];
const PLUGIN: &[&str] = &["--plugin @ plugins", "--plugin @ devices"];

/// The mutated files, and what the commands need beside them in `dir`.
fn cases(dir: &Path) -> Vec<Case> {
    let read = |path: &Path| std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let write =
        |name: &str, bytes: &[u8]| std::fs::write(dir.join(name), bytes).expect("a folder of our own");
    let stories = read(&root().join("cli/assets/stories.gguf"));
    let tables = Gguf::parse(&stories, stories.len() as u64).expect("the embedded model is good");
    let n_tables = tables.data_offset as usize;
    let text = "Once upon a time there was a fox. It ran <|im_end|> and\n\tran to the sea, \u{1F98A} and back again.\n";
    write("text.txt", text.as_bytes());

    let template =
        "{% for m in messages %}{{ '<|im_start|>' + m.role + m['content']|trim ~ '<|im_end|>' }}{% endfor %}";
    let with_template =
        |template: &str| rewritten(&tables, &stories, |m| m.set("tokenizer.chat_template", template));
    let mut cases = vec![
        Case { name: "model.gguf", n_mutated: n_tables, bytes: stories.clone(), commands: MODEL },
        Case { name: "template.gguf", n_mutated: 0, bytes: with_template(template), commands: &MODEL[..2] },
        Case { name: "prompt.txt", n_mutated: text.len(), bytes: text.as_bytes().to_vec(), commands: PROMPT },
        // Past its header a plugin is code, which runs whatever the host checks: the header and the length are mutated.
        Case { name: "libllmrt_mutated.so", n_mutated: 64, bytes: read(&plugin("null")), commands: PLUGIN },
    ];
    let [first, second] = halves(&tables, &stories);
    write("part-00002-of-00002.gguf", &second);
    cases.push(Case { name: "part-00001-of-00002.gguf", n_mutated: n_tables, bytes: first, commands: SPLIT });
    if let Some(fixtures) = fixtures("llama2c") {
        let (model, tokenizer) =
            (read(&fixtures.join("gqa-shared-v2.bin")), read(&fixtures.join("tokenizer.bin")));
        write("model.bin", &model);
        write("tokenizer.bin", &tokenizer);
        cases.push(Case { name: "mutated.bin", n_mutated: 256, bytes: model, commands: CHECKPOINT });
        let n_mutated = tokenizer.len();
        cases.push(Case { name: "mutated-tokenizer.bin", n_mutated, bytes: tokenizer, commands: TOKENIZER });
    }
    cases
}

/// The file with other metadata.
fn rewritten(file: &Gguf, bytes: &[u8], change: impl FnOnce(&mut Metadata)) -> Vec<u8> {
    part(file, bytes, 0..file.tensors.len(), change)
}

/// The tensors `range` of a file, and its metadata changed.
fn part(
    file: &Gguf,
    bytes: &[u8],
    range: std::ops::Range<usize>,
    change: impl FnOnce(&mut Metadata),
) -> Vec<u8> {
    let mut metadata = file.metadata.clone();
    change(&mut metadata);
    let tensors = &file.tensors[range];
    let shapes = tensors.iter().map(|t| TensorShape {
        name: t.name.clone(),
        dtype: t.dtype,
        ne: t.ne,
        n_dims: t.n_dims,
    });
    let tables = Tables { metadata, tensors: shapes.collect(), ..Tables::default() };
    let data: Vec<&[u8]> = tensors.iter().map(|t| &bytes[t.offset as usize..][..t.nbytes as usize]).collect();
    to_vec(&tables, &data).expect("the tables of a good file")
}

/// A split model of two files.
fn halves(file: &Gguf, bytes: &[u8]) -> [Vec<u8>; 2] {
    let n = file.tensors.len();
    let split = |no: u16, range| {
        part(file, bytes, range, |m| {
            m.set("split.no", llmrt_gguf::Value::U16(no));
            m.set("split.count", llmrt_gguf::Value::U16(2));
            m.set("split.tensors.count", n as i32);
        })
    };
    [split(0, 0..n / 2), split(1, n / 2..n)]
}

#[test]
fn mutated_files_end_every_command_in_order() {
    let requested =
        std::env::var("LLMRT_MUTATIONS").ok().map(|n| n.parse::<u64>().expect("a number of files"));
    // Plugins load only from folders that no other user can write: not from the folder for temporary files.
    let dir = tempfile::tempdir_in(bin_dir()).expect("a folder for the files");
    let cases = cases(dir.path());
    let llmrt = bin_dir().join("llmrt");
    for case in &cases {
        std::fs::write(dir.path().join(case.name), &case.bytes).expect("a folder of our own");
        for command in case.commands {
            let status = run(&llmrt, dir.path(), &command.replace(FILE, case.name));
            assert_eq!(status, Ok(0), "`{command}` of {} as it is", case.name);
        }
    }
    let started = Instant::now();
    let (mut n_files, mut n_runs, mut failures) = (0, 0, Vec::new());
    let more = |n: u64| requested.map_or(started.elapsed() < Duration::from_secs(15), |most| n < most);
    for (seed, case) in (1..).flat_map(|seed| cases.iter().map(move |case| (seed, case))) {
        if !more(n_files) {
            break;
        }
        std::fs::write(dir.path().join(case.name), mutated(case, seed)).expect("a folder of our own");
        n_files += 1;
        let all = case.commands.len() as u64;
        let sample = requested.map_or(seed % all..seed % all + 1, |_| 0..all); // of a sample each file gets one
        for command in &case.commands[sample.start as usize..sample.end as usize] {
            n_runs += 1;
            if let Err(why) = run(&llmrt, dir.path(), &command.replace(FILE, case.name)) {
                failures.push(format!("{} of seed {seed}: `{command}`: {why}", case.name));
            }
        }
    }
    eprintln!("{n_files} mutated files, {n_runs} runs, {:.0} s", started.elapsed().as_secs_f64());
    assert!(failures.is_empty(), "{} of {n_runs}:\n{}", failures.len(), failures.join("\n"));
    assert!(n_runs >= cases.len());
}

fn mutated(case: &Case, seed: u64) -> Vec<u8> {
    if case.name == "template.gguf" {
        let file = Gguf::parse(&case.bytes, case.bytes.len() as u64).expect("made above");
        let mut template =
            file.metadata.require_str("tokenizer.chat_template").expect("set above").as_bytes().to_vec();
        mutate(&mut template, seed);
        let template = String::from_utf8_lossy(&template).into_owned();
        return rewritten(&file, &case.bytes, |m| m.set("tokenizer.chat_template", template.as_str()));
    }
    if seed.is_multiple_of(8) {
        let keep = case.bytes.len() as u64 * (seed / 8 % 16) / 16;
        return case.bytes[..keep as usize].to_vec();
    }
    let (head, tail) = case.bytes.split_at(case.n_mutated.min(case.bytes.len()));
    let mut head = head.to_vec();
    mutate(&mut head, seed);
    [&head, tail].concat()
}

/// Runs one command: its exit code, or what it does that no command may do.
fn run(llmrt: &Path, dir: &Path, command: &str) -> Result<i32, String> {
    let file = |name: &str| File::create(dir.join(name)).expect("a folder of our own");
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -v 2097152; ulimit -c 0; exec \"$0\" \"$@\""])
        .arg(llmrt)
        .args(command.split(' '))
        .args(["-t", "1"])
        .current_dir(dir)
        .env("LLMRT_PLUGIN_PATH", "")
        .stdin(Stdio::null())
        .stdout(file("stdout"))
        .stderr(file("stderr"))
        .spawn()
        .expect("the program starts");
    let deadline = Instant::now() + Duration::from_secs(10);
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill().and_then(|()| child.wait());
            return Err("still running after 10 s".into());
        }
        std::thread::sleep(Duration::from_millis(3));
    };
    let read =
        |name| String::from_utf8_lossy(&std::fs::read(dir.join(name)).expect("made above")).into_owned();
    let (stdout, stderr) = (read("stdout"), read("stderr"));
    let Some(code) = status.code().filter(|&code| code < 128) else {
        return Err(format!("{status}: {stderr}"));
    };
    if stderr.contains("panicked at") {
        return Err(format!("a panic: {stderr}"));
    }
    // `run` writes the model's text to a pipe as it is, byte for byte.
    let shown = if command.starts_with("run") { stderr } else { stdout + &stderr };
    match shown.find(|c| is_terminal_control(c) && !matches!(c, '\n' | '\t' | '\r')) {
        Some(at) => {
            Err(format!("a control character: {:?}", shown[at..].chars().take(40).collect::<String>()))
        }
        None => Ok(code),
    }
}
