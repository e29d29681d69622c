//! What classifiers make of texts: the scores that llama.cpp gave, with the same bits in company and alone.

use llmrt_abi::DType;
use llmrt_engine::{DeviceRunner, EngineEvent, EngineOptions, Pooling, Request};
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::{Host, HostOptions};
use llmrt_models::StepOutput;
use llmrt_tests::fixtures::tokens;
use llmrt_tests::models::text::with_scores;
use llmrt_tests::steps::Core;
use llmrt_tests::{f32s, nmse};
use std::path::Path;

#[test]
fn scores_are_the_stored_ones() {
    assert!(with_scores().len() >= 5);
    for (model, stored) in with_scores() {
        let stored = f32s(&std::fs::read(stored).unwrap());
        let found = scores(&mut core(model, StepOutput::Scores), Pooling::Rank, &[text()]);
        let error = nmse(&found[0], &stored);
        println!("{:<24} NMSE {error:.1e}", model.file_stem().unwrap().to_string_lossy());
        assert!(error <= limit(model), "{}: {:?}, not {stored:?}", model.display(), found[0]);
    }
}

/// llama.cpp takes GELU from a table in F16, and a score is one small number.
fn limit(model: &Path) -> f64 {
    let name = model.file_name().unwrap().to_string_lossy();
    if name.contains("bert") { 1e-5 } else { 1e-12 }
}

#[test]
fn a_text_has_in_company_the_scores_that_it_has_alone() {
    let lengths = [17, 23, 40, 1, 48];
    let texts: Vec<_> = lengths.iter().map(|&n| text()[..n].to_vec()).collect();
    for (model, _) in with_scores() {
        let core = || core(model, StepOutput::Scores);
        let together = scores(&mut core(), Pooling::Rank, &texts);
        for (text, found) in texts.iter().zip(together) {
            let alone = &scores(&mut core(), Pooling::Rank, std::slice::from_ref(text))[0];
            assert_eq!(alone, &found, "{}: {} tokens", model.display(), text.len());
        }
    }
}

/// The caches of a classifier are no part of steps that compute no scores.
#[test]
fn models_that_rank_give_vectors_too() {
    for (model, _) in with_scores() {
        let mut core = core(model, StepOutput::Embeddings);
        let [vector] = &scores(&mut core, Pooling::Mean, &[text()])[..] else { panic!("one text") };
        assert_eq!(vector.len(), 64, "{}", model.display());
    }
}

/// What is computed of each text.
fn scores(core: &mut Core, pooling: Pooling, texts: &[Vec<u32>]) -> Vec<Vec<f32>> {
    let add = |text: &Vec<u32>| core.add(Request::embed(text.clone(), pooling, false)).unwrap();
    let ids: Vec<_> = texts.iter().map(add).collect();
    let mut scores = vec![Vec::new(); ids.len()];
    while !core.is_idle() {
        for event in core.step().unwrap() {
            match event {
                EngineEvent::Finished(output) => {
                    let at = ids.iter().position(|id| *id == output.request).unwrap();
                    scores[at] = output.embeddings.concat();
                }
                EngineEvent::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
    }
    scores
}

fn text() -> Vec<u32> {
    let text = std::fs::read_to_string(tokens()).unwrap();
    text.split_whitespace().map(|token| token.parse().unwrap()).collect()
}

fn core(model: &Path, output: StepOutput) -> Core {
    let host = Host::new(HostOptions::default());
    host.register_builtin(llmrt_cpu::query).unwrap();
    let files = ModelFiles::open(model, &OpenOptions::default()).unwrap();
    let options = EngineOptions {
        n_ctx: 64,
        n_batch: 64,
        max_seqs: 3,
        k_type: DType::F32,
        v_type: DType::F32,
        output: Some(output),
        ..EngineOptions::default()
    };
    let device = host.device("cpu").unwrap();
    let runner = DeviceRunner::new(&host, vec![device], files, LoadOptions::default(), options).unwrap();
    runner.into_core(None).unwrap()
}
