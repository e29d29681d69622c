//! A step ends soon after its token is set, inside an op too and on every simulated device; the next step goes on, and
//! its logits equal those of a core that was never cancelled, bit for bit.

use llmrt_abi::{DType, Op};
use llmrt_engine::{EngineOptions, Error};
use llmrt_graph::Graph;
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::sched::executor::{Executor, Program};
use llmrt_host::{CancelToken, Device, Host, HostOptions};
use llmrt_tests::build::{llmrt, plugin, succeed};
use llmrt_tests::models::TinyLlama;
use llmrt_tests::steps::{self, Core};
use std::collections::{BTreeMap, HashMap};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A plugin is initialised once at a time in a process, and reads its options then.
static TURN: Mutex<()> = Mutex::new(());

/// Two chips that share every layer, so that a step is many splits.
const TWO: &str = "[products]\np2p = yes\nops = mul_mat add\n[rest]\np2p = yes\nops = * -mul_mat -add";

/// Every way a queue may run.
const QUEUES: [&str; 4] =
    ["queue=now", "queue=delay:400", "queue=sync", "queue=now latency=50 bandwidth=200000000"];

struct Lab {
    host: Arc<Host>,
    _turn: MutexGuard<'static, ()>,
}

/// A host with the CPU and the two chips, which have these options.
fn lab(options: &str) -> Lab {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), TWO).unwrap();
    let words = options.split_whitespace().map(|word| word.split_once('=').unwrap());
    let mut options: BTreeMap<String, String> =
        words.map(|(key, value)| (format!("sim.{key}"), value.to_string())).collect();
    options.insert("sim.profiles".into(), file.path().display().to_string());
    let host = Host::new(HostOptions { options, n_threads: Some(3), ..HostOptions::default() });
    host.register_builtin(llmrt_cpu::query).unwrap();
    host.register_builtin(llmrt_sim::query).unwrap();
    Lab { host, _turn: turn }
}

impl Lab {
    fn devices(&self, names: &[&str]) -> Vec<Arc<Device>> {
        names.iter().chain(&["cpu"]).map(|name| self.host.device(name).unwrap()).collect()
    }

    fn files(&self) -> ModelFiles {
        let dir = tempfile::tempdir().unwrap();
        ModelFiles::open(&TinyLlama::default().write(dir.path()), &OpenOptions::default()).unwrap()
    }

    fn core(&self, names: &[&str]) -> Core {
        let options = EngineOptions { n_ctx: 64, n_batch: 32, max_seqs: 2, ..EngineOptions::default() };
        steps::core(&self.host, self.devices(names), self.files(), options).unwrap()
    }

    /// Runs products of floats, 1024 × 2048 · 2048 × `n`, on the first device that is named.
    fn product(&self, names: &[&str], n: u64) -> (Executor, Program, Vec<(llmrt_graph::Tensor, Vec<u8>)>) {
        let mut g = Graph::new();
        let w = g.input("w", DType::F32, &[2048, 1024]);
        let x = g.input("x", DType::F32, &[2048, n]);
        let y = g.mul_mat(w, x);
        g.output(y, "y");
        let program = Program::new(g.finish().unwrap());
        let files = self.files();
        let weights = llmrt_host::load::load(&files, &[], LoadOptions::default()).unwrap();
        let devices = self.devices(names);
        let executor =
            Executor::new(devices, Arc::new(files), weights, HashMap::new(), 0, Default::default()).unwrap();
        let bytes = |n: u64| 0.5f32.to_ne_bytes().repeat(n as usize);
        (executor, program, vec![(w, bytes(2048 * 1024)), (x, bytes(2048 * n))])
    }
}

fn prompt() -> Vec<u32> {
    steps::usual().0
}

/// Repeats a step until it is not cancelled. `delay` is when the token is set, as long as there is one.
fn step(core: &mut Core, delays: &mut Vec<Duration>) -> Vec<f32> {
    let token = CancelToken::new();
    core.runner_mut().set_cancel_token(token.clone());
    loop {
        let Some(delay) = delays.pop() else { return steps::logits(core.step().unwrap()) };
        let setter = token.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(delay);
            setter.cancel();
        });
        let outcome = core.step();
        thread.join().unwrap();
        token.reset();
        match outcome {
            Ok(events) => return steps::logits(events),
            Err(e) => assert!(matches!(e, Error::Cancelled), "{e}"),
        }
    }
}

/// Bits of the logits of a prompt in chunks, then of single tokens, each step cancelled after all of these delays.
fn run(core: &mut Core, micros: &[u64]) -> Vec<u32> {
    let delays = || micros.iter().map(|&n| Duration::from_micros(n)).collect::<Vec<_>>();
    core.add(steps::all_logits(&prompt())).unwrap();
    let mut bits = Vec::new();
    let sizes = steps::usual().1.into_iter().chain([1; 2]);
    for size in sizes {
        core.set_max_num_batched_tokens(size).unwrap();
        bits.extend(step(core, &mut delays()).into_iter().map(f32::to_bits));
    }
    assert!(core.is_idle() && bits.len() == prompt().len() * 300);
    bits
}

/// Delays from before the step to its end.
const MICROS: [u64; 8] = [0, 20, 60, 200, 600, 1500, 4000, 9000];

#[test]
fn cancelled_steps_on_the_cpu_change_no_later_logits() {
    let lab = lab("");
    let expected = run(&mut lab.core(&[]), &[]);
    assert!(run(&mut lab.core(&[]), &MICROS) == expected);
}

#[test]
fn cancelled_steps_change_no_later_logits_in_any_queue_mode() {
    let expected = run(&mut lab("").core(&[]), &[]);
    for queue in QUEUES {
        let lab = lab(queue);
        let mut core = lab.core(&["sim:products", "sim:rest"]);
        assert!(run(&mut core, &MICROS) == expected, "{queue}");
        assert!(core.runner().warnings().is_empty(), "{:?}", core.runner().warnings());
    }
}

#[test]
fn a_cancelled_step_keeps_every_token_and_counts_none_as_computed() {
    let lab = lab("");
    let mut core = lab.core(&["sim:products", "sim:rest"]);
    let id = core.add(steps::all_logits(&prompt())).unwrap();
    core.set_max_num_batched_tokens(7).unwrap();
    core.step().unwrap();
    let token = CancelToken::new();
    core.runner_mut().set_cancel_token(token.clone());
    token.cancel();
    for _ in 0..2 {
        assert!(matches!(core.step(), Err(Error::Cancelled)));
        assert_eq!(core.progress(id), Some((prompt().len(), 7)));
    }
    token.reset();
    core.step().unwrap();
    assert_eq!(core.progress(id), Some((prompt().len(), 14)));
}

/// Sets a token after 300 ms of a step and returns how long the step goes on then.
fn time_to_end(core: &mut Core) -> Duration {
    let token = CancelToken::new();
    core.runner_mut().set_cancel_token(token.clone());
    core.add(steps::all_logits(&prompt())).unwrap();
    let setter = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        token.cancel();
        Instant::now()
    });
    assert!(matches!(core.step(), Err(Error::Cancelled)));
    let end = Instant::now();
    end.saturating_duration_since(setter.join().unwrap())
}

#[test]
fn a_step_ends_long_before_the_delays_of_its_queues() {
    // Some 60 commands, each after 2 s on average.
    let lab = lab("queue=delay:4000000");
    let time = time_to_end(&mut lab.core(&["sim:products", "sim:rest"]));
    assert!(time < Duration::from_secs(15), "{time:?}");
}

#[test]
fn a_step_ends_long_before_the_simulated_latencies_of_its_commands() {
    // 300 ms each: 15 products with an operand to bring over are at least 30 commands, 9 s.
    for queue in ["queue=now latency=300000", "queue=sync latency=300000"] {
        let lab = lab(queue);
        let time = time_to_end(&mut lab.core(&["sim:products"]));
        assert!(time < Duration::from_secs(4), "{queue}: {time:?}");
    }
}

/// How long a product that takes `whole` goes on after it was cancelled at a quarter of that.
fn time_to_end_of_product(lab: &Lab, names: &[&str], n: u64) -> (Duration, Duration) {
    let (mut executor, program, inputs) = lab.product(names, n);
    let inputs: Vec<_> = inputs.iter().map(|(t, bytes)| (*t, bytes.as_slice())).collect();
    let started = Instant::now();
    executor.run(&program, &inputs).unwrap();
    let whole = started.elapsed();
    let token = CancelToken::new();
    executor.set_cancel_token(token.clone());
    let setter = std::thread::spawn(move || {
        std::thread::sleep(whole / 4);
        token.cancel();
        Instant::now()
    });
    let outcome = executor.run(&program, &inputs);
    let end = Instant::now();
    let time = end.saturating_duration_since(setter.join().unwrap());
    assert_eq!(outcome, Err(llmrt_host::Error::Cancelled), "of {whole:?} {time:?} were left");
    executor.set_cancel_token(CancelToken::new());
    executor.run(&program, &inputs).unwrap();
    let y = executor.output(&program, program.graph().nodes[0].dst).unwrap();
    assert_eq!(program.graph().nodes[0].op, Op::MulMat);
    assert!(y.as_chunks::<4>().0.iter().all(|&y| f32::from_ne_bytes(y) == 512.0));
    (time, whole)
}

#[test]
fn an_op_ends_in_the_middle() {
    for names in [&[][..], &["sim:products"]] {
        let lab = lab("");
        // A machine that does something else for a while may delay one of them.
        let times: Vec<_> = (0..4).map(|_| time_to_end_of_product(&lab, names, 8192)).collect();
        assert!(times.iter().any(|(time, whole)| *time < *whole / 4), "{names:?}: {times:?}");
    }
}

/// Interrupts a command after a second; how long it takes to end, with exit code 130.
fn interrupted(command: &mut Command) -> Duration {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let started = Instant::now();
    succeed(Command::new("kill").args(["-INT", &child.id().to_string()]));
    let code = child.wait().unwrap().code();
    let time = started.elapsed();
    let mut stderr = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut stderr).unwrap();
    assert_eq!(code, Some(130), "{command:?}: {stderr}");
    time
}

#[test]
fn ctrl_c_ends_commands_inside_a_step_on_a_slow_device_and_through_a_wrapper() {
    let dir = tempfile::tempdir().unwrap();
    let model = TinyLlama::default().write(dir.path());
    let slow = ["--plugin-option", "sim.queue=delay:4000000"];
    let commands: [&[&str]; 3] = [
        &["eval", "--tokens", "3 10 17 24", "--chunks", "1", "-m"],
        &["bench", "-p", "16", "-n", "4", "-m"],
        &["bench", "-p", "0", "-m"],
    ];
    for words in commands {
        let mut plain = llmrt(["--plugin"]);
        plain.arg(plugin("sim")).args(["--backend", "sim:sim"]).args(slow);
        let mut wrapped = llmrt(["--plugin"]);
        wrapped
            .arg(plugin("fault"))
            .args(["--backend", "fault:sim", "--plugin-option", "fault.wrap=sim"])
            .args(slow);
        for command in [&mut plain, &mut wrapped] {
            let time = interrupted(command.args(words).arg(&model));
            assert!(time < Duration::from_secs(15), "{command:?}: {time:?}");
        }
    }
}
