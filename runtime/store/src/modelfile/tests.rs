use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> Vec<Instruction> {
    Modelfile::parse(text).unwrap_or_else(|e| panic!("{e}")).instructions
}

fn message(role: &str, content: &str) -> Instruction {
    Instruction::Message(ChatMessage { role: role.into(), content: content.into() })
}

#[test]
fn instructions_are_read_in_any_case_between_comments() {
    let text = "# a comment\r\n\nfrom ./a b.gguf\r\n  Parameter TEMPERATURE 0.5\nREQUIRES 0.6.0\n# the end";
    let expected = [
        Instruction::From("./a b.gguf".into()),
        Instruction::Parameter("temperature".into(), "0.5".into()),
        Instruction::Requires("0.6.0".into()),
    ];
    assert_eq!(parse(text), expected);
}

#[test]
fn quotes_keep_white_space_and_three_of_them_keep_lines() {
    let text = "FROM a\nSYSTEM \"  two  \"\nTEMPLATE \"\"\"{{ x }}\n# no comment\n\"\"\"\nLICENSE \"\"\"one line\"\"\"\n\
                MESSAGE user \"\"\"a \"b\"\"\"\"\nPARAMETER stop \"<|end|>\"\nSYSTEM \"\"";
    let expected = [
        Instruction::From("a".into()),
        Instruction::System("  two  ".into()),
        Instruction::Template("{{ x }}\n# no comment\n".into()),
        Instruction::License("one line".into()),
        message("user", "a \"b\""),
        Instruction::Parameter("stop".into(), "<|end|>".into()),
        Instruction::System("".into()),
    ];
    assert_eq!(parse(text), expected);
    assert_eq!(
        parse("FROM a\nSYSTEM use \"\"\"x\"\"\" so")[1],
        Instruction::System("use \"\"\"x\"\"\" so".into())
    );
}

#[test]
fn parameters_are_typed_and_stops_add_up() {
    let text = "FROM a\nPARAMETER num_ctx 4096\nPARAMETER stop a\nPARAMETER stop b\nPARAMETER top_p 1\n\
                PARAMETER use_mmap true\nPARAMETER top_p 0.9";
    let params = Modelfile::parse(text).unwrap().params();
    let expected = serde_json::json!({ "num_ctx": 4096, "stop": ["a", "b"], "top_p": 0.9, "use_mmap": true });
    assert_eq!(serde_json::Value::Object(params), expected);
}

#[test]
fn an_error_has_the_lines_number_and_what_was_expected() {
    for (text, expected) in [
        ("", "line 1: the file has 0 FROM"),
        ("FROM a\nFROM b", "line 2: the file has 2 FROM"),
        ("FROM", "line 1: FROM has no text"),
        ("FROM a\n\nADAPTER x", "line 3: ADAPTER is not supported: merge"),
        ("FROM a\nSYSTEM \"\"\"x\ny\"\"\"\nFRMO b", "line 4: `FRMO` is no instruction: expected FROM"),
        ("FROM a\nPARAMETER temp 1", "line 2: PARAMETER temp: expected one of temperature"),
        ("FROM a\nPARAMETER top_k many", "line 2: PARAMETER top_k many: expected a whole number"),
        ("FROM a\nPARAMETER top_p nan", "expected a number"),
        ("FROM a\nPARAMETER use_mmap 1", "expected true or false"),
        ("FROM a\nPARAMETER stop", "PARAMETER needs a name and a text"),
        ("FROM a\nMESSAGE robot hi", "MESSAGE robot: expected system, user, assistant"),
        ("FROM a\nSYSTEM \"\"\"x\n", "line 2: the text after \"\"\" has no \"\"\" at its end"),
        ("FROM a\nSYSTEM \"\"\"x\"\"\" y", "line 2: expected the line's end after the closing"),
        ("FROM a\nSYSTEM \"x", "has no `\"` at its end"),
    ] {
        let error = Modelfile::parse(text).unwrap_err();
        assert!(error.to_string().contains(expected), "{text:?}: {error}");
        assert_eq!(error.code(), "bad-modelfile");
    }
}

#[test]
fn a_text_with_three_quotes_has_no_spelling() {
    let file = Modelfile { instructions: vec![Instruction::System("a\n\"\"\"".into())] };
    assert_eq!(file.to_text().unwrap_err().code(), "unprintable");
}

fn text() -> impl Strategy<Value = String> {
    "[a-z\" #\\n\\t{}é]{0,20}".prop_filter("has no spelling", |text: &String| !text.contains("\"\"\""))
}

fn any_instruction() -> impl Strategy<Value = Instruction> {
    let some = || text().prop_filter("an empty text", |text: &String| !text.is_empty());
    let role = prop::sample::select(ROLES.to_vec());
    prop_oneof![
        text().prop_map(Instruction::Template),
        text().prop_map(Instruction::System),
        some().prop_map(Instruction::License),
        some().prop_map(Instruction::Requires),
        text().prop_map(|text| Instruction::Parameter("stop".into(), text)),
        any::<i64>().prop_map(|n| Instruction::Parameter("seed".into(), n.to_string())),
        (role, text()).prop_map(|(role, text)| message(role, &text)),
    ]
}

proptest! {
    #[test]
    fn a_printed_modelfile_is_read_back(
        from in "[a-z/.]{1,9}",
        mut instructions in prop::collection::vec(any_instruction(), 0..6),
    ) {
        instructions.insert(0, Instruction::From(from));
        let file = Modelfile { instructions };
        let text = file.to_text().unwrap();
        prop_assert_eq!(Modelfile::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}")), file);
    }

    #[test]
    fn no_text_panics(text in "(FROM|SYSTEM|PARAMETER|[\" \\n#a\u{feff}é])*") {
        let _ = Modelfile::parse(&text);
    }
}
