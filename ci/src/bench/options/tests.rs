//! Flags and what they select.

use super::*;

#[test]
fn flags_select_what_is_measured() {
    let words = "--types Q4_0,f16 --threads 1,4 --cases decode,memory --pairs 7 --quick --floor";
    let o = Options::parse(&words.split(' ').collect::<Vec<_>>()).unwrap();
    assert_eq!((o.types, o.threads, o.pairs), (list("q4_0,f16"), vec![1, 4], 7));
    assert_eq!((o.quick, o.floor), (true, true));
    assert_eq!(o.cases, [Case::Decode, Case::Memory]);
}

#[test]
fn the_set_of_the_engine_brings_its_file_and_threads() {
    let parsed = |words: &str| Options::parse(&words.split(' ').collect::<Vec<_>>()).unwrap();
    let o = parsed("--cases engine");
    assert_eq!((o.types, o.threads), (list("q4_0"), vec![2]));
    assert_eq!(o.cases.iter().map(|case| case.sequences()).collect::<Vec<_>>(), [1, 4, 8, 16, 32]);
    let o = parsed("--threads 1 --types q8_0 --cases engine");
    assert_eq!((o.types, o.threads), (list("q8_0"), vec![1]));
    let o = parsed("--cases decode,engine");
    assert_eq!((o.types, o.threads, o.cases.len()), (list(TYPES), vec![2, 1], 6));
}

#[test]
fn a_card_is_named_by_its_plugin() {
    let words = "--card-gb-s 2900 --plugin a/libllmrt_cuda.so --cases together-32,together";
    let o = Options::parse(&words.split(' ').collect::<Vec<_>>()).unwrap();
    let plugin = PathBuf::from("a/libllmrt_cuda.so");
    assert_eq!(o.card, Some(Card { plugin, name: "cuda".into(), read_gb_s: 2900.0 }));
    assert_eq!(o.cases, [Case::together(32), Case::together(8)]);
    assert!(Options::parse(&["--plugin", "cuda.so"]).is_err());
}

#[test]
fn k_types_are_measured_in_a_model_that_has_rows_for_them() {
    assert_eq!(["q4_0", "q8_0", "mxfp4", "f16"].map(like), ["qwen2.5-0.5b"; 4]);
    assert_eq!(["q4_k_m", "q6_k", "q2_k", "iq4_xs"].map(like), ["llama-3.2-1b"; 4]);
}

#[test]
fn wrong_flags_are_errors_with_what_is_expected() {
    for (words, problem) in [
        ("--pears 1", "expected --peer"),
        ("--pairs 0", "above 0"),
        ("--cases dance", "expected one of prompt, decode"),
        ("--peer", "expected a value"),
    ] {
        let message = Options::parse(&words.split(' ').collect::<Vec<_>>()).err().unwrap();
        assert!(message.contains(problem), "{message}");
    }
}
