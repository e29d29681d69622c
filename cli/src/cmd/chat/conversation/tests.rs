//! Turns of a chat with the embedded model, which here ends every answer at once: its end token is made certain.

use super::*;
use crate::args::{Global, ModelArgs, flags};
use crate::cmd::run::Run;
use crate::model::{self, OpenModel};
use crate::session::Session;
use crate::setup::Setup;
use llmrt_abi::DType;
use llmrt_engine::{EngineOptions, TokenId};

const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% if m.role == 'assistant' %}</s>{% endif %}\
    {{ '\\n' }}{% endfor %}assistant:";

/// A chat with a context of `n_ctx` tokens, and what to check it with.
fn chat(n_ctx: usize, template: &str, check: impl FnOnce(&mut Engine, &Tokenizer, &mut Conversation<'_>)) {
    let args: Run = flags("llmrt run --temp 0 --logit-bias 2+1000");
    let setup = Setup::new(&Global::default()).expect("there is a CPU");
    let model = OpenModel::open(None, &model::open_options(&args.loading)).expect("the embedded model opens");
    let tokenizer = model.tokenizer().expect("it has a vocabulary");
    let template = ChatTemplate::new(template).expect("a good template");
    let (k_type, v_type) = (DType::F16, DType::F16);
    let options = EngineOptions {
        n_ctx,
        n_batch: n_ctx,
        max_seqs: 1,
        k_type,
        v_type,
        n_threads: 1,
        strict: false,
        split: Default::default(),
        keep_logits_from: u64::MAX,
    };
    let mut session = Session::load(&setup, model, &ModelArgs::default(), options).expect("it loads");
    let mut talk = Conversation::new(&tokenizer, &template, None, args.sampling);
    talk.reseed(&session.engine).expect("good flags");
    check(&mut session.engine, &tokenizer, &mut talk);
}

fn say(engine: &mut Engine, talk: &mut Conversation<'_>, text: &str) -> Result<Outcome> {
    talk.turn(engine, text.into(), None, &mut |_| Ok(()))
}

/// All tokens that the model has of the conversation.
fn tokens(engine: &Engine, talk: &Conversation<'_>) -> Vec<TokenId> {
    let id = talk.known.as_ref().expect("something was said").id;
    engine.sequence(id).expect("it is kept").tokens().to_vec()
}

#[test]
fn a_turn_computes_only_what_is_new() {
    chat(256, TEMPLATE, |engine, tokenizer, talk| {
        let first = say(engine, talk, "Once upon a time").unwrap();
        assert_eq!((first.finish, first.text.as_str()), (Finish::Eos, ""));
        let second = say(engine, talk, "there was a fox").unwrap();
        assert!(second.n_prompt < tokens(engine, talk).len() / 2 + 4, "{}", second.n_prompt);

        let whole = "user:Once upon a time\nassistant:</s>\nuser:there was a fox\nassistant:";
        let mut expected = tokenizer.encode_prompt(&whole.into(), Limits::NONE).unwrap();
        expected.push(2); // what the model answered
        assert_eq!(tokens(engine, talk), expected);
    });
}

#[test]
fn a_template_that_rewrites_the_past_has_it_all_computed_again() {
    let last_only = "{{ messages[-1].content }} assistant:";
    chat(256, last_only, |engine, tokenizer, talk| {
        say(engine, talk, "Once upon a time").unwrap();
        let second = say(engine, talk, "there was a fox").unwrap();
        let expected = tokenizer.encode_prompt(&"there was a fox assistant:".into(), Limits::NONE).unwrap();
        assert_eq!(second.n_prompt, expected.len());
    });
}

#[test]
fn a_turn_that_does_not_fit_leaves_the_chat_as_it_was() {
    chat(48, TEMPLATE, |engine, _, talk| {
        say(engine, talk, "Once").unwrap();
        let before = tokens(engine, talk);
        let error = say(engine, talk, &"fox ".repeat(60)).err().expect("60 foxes do not fit");
        assert!(error.message.contains("/clear begins anew"), "{}", error.message);
        assert_eq!((tokens(engine, talk), talk.messages.len()), (before, 2));
        say(engine, talk, "upon").unwrap();
    });
}

#[test]
fn a_turn_that_fails_while_it_is_answered_leaves_the_chat_as_it_was() {
    chat(256, TEMPLATE, |engine, tokenizer, talk| {
        say(engine, talk, "Once upon a time").unwrap();
        let before = tokens(engine, talk);
        talk.flags.stop = vec![String::new()]; // found out after the prompt was appended
        say(engine, talk, "lost words").err().expect("an empty stop text is refused");
        assert_eq!((tokens(engine, talk), talk.messages.len()), (before, 2));

        talk.flags.stop.clear();
        let next = say(engine, talk, "there was a fox").unwrap();
        let whole = "user:Once upon a time\nassistant:</s>\nuser:there was a fox\nassistant:";
        let mut expected = tokenizer.encode_prompt(&whole.into(), Limits::NONE).unwrap();
        assert!(next.n_prompt < expected.len(), "what was known is not computed again");
        expected.push(2); // what the model answered
        assert_eq!(tokens(engine, talk), expected);
    });
}

#[test]
fn a_sequence_that_the_engine_has_ended_is_told_anew() {
    chat(256, TEMPLATE, |engine, _, talk| {
        say(engine, talk, "Once").unwrap();
        engine.remove(talk.known.as_ref().expect("something was said").id).unwrap();
        say(engine, talk, "upon").err().expect("there is no sequence");
        assert_eq!(talk.messages.len(), 2);
        say(engine, talk, "upon").unwrap();
        assert_eq!(talk.messages.len(), 4);
    });
}

#[test]
fn clear_keeps_the_system_message_only() {
    chat(128, TEMPLATE, |engine, _, talk| {
        talk.set_system("be brief".into(), engine).unwrap();
        say(engine, talk, "Once").unwrap();
        talk.clear(engine).unwrap();
        assert_eq!(talk.messages, [Message::new("system", "be brief")]);
        assert!(talk.known.is_none());
    });
}

#[test]
fn settings_change_only_to_values_that_make_sense() {
    chat(32, TEMPLATE, |engine, _, talk| {
        talk.set("top-k", "5", engine).unwrap();
        for (name, value, expected) in [
            ("top-p", "3", "--top-p 3"),
            ("temp", "hot", "/set temp hot: expected a number"),
            ("colour", "1", "/set colour: expected temp"),
        ] {
            let message = talk.set(name, value, engine).unwrap_err().message;
            assert!(message.contains(expected), "{message}");
        }
        assert!(talk.settings().starts_with("temp 0, top-k 5, top-p 0.95"), "{}", talk.settings());
    });
}
