//! Turns of a chat with the embedded model, which here ends every answer at once: its end token is made certain.

use super::*;
use crate::args::{Global, ModelArgs, flags};
use crate::cmd::run::Run;
use crate::model::{self, OpenModel};
use crate::session::Session;
use crate::setup::Setup;
use crate::values::Seed;
use llmrt_engine::options::BLOCK_SIZE;
use llmrt_engine::{EngineOptions, Finish};
use llmrt_tokenizer::Limits;
use std::sync::Arc;

const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% if m.role == 'assistant' %}</s>{% endif %}\
    {{ '\\n' }}{% endfor %}assistant:";

/// A chat with a context of `n_ctx` tokens, and what to check it with.
fn chat(n_ctx: usize, template: &str, check: impl FnOnce(&mut Core, &Tokenizer, &mut Conversation<'_>)) {
    let args: Run = flags("llmrt run --temp 0 --logit-bias 2+1000");
    let setup = Setup::new(&Global::default()).expect("there is a CPU");
    let model = OpenModel::open(None, &model::open_options(&args.loading)).expect("the embedded model opens");
    let tokenizer = Arc::new(model.tokenizer().expect("it has a vocabulary"));
    let template = Template::of_session(template, "the test").expect("a good template");
    let options = EngineOptions { n_ctx, n_batch: n_ctx, n_threads: 1, ..EngineOptions::default() };
    let loaded = Session::load(&setup, model, &ModelArgs::default(), options, Some(tokenizer.clone()));
    let mut session = loaded.expect("it loads");
    let mut talk = Conversation::new(&tokenizer, template, None, args.sampling, true).expect("good flags");
    check(&mut session.core, &tokenizer, &mut talk);
}

fn send(core: &mut Core, talk: &mut Conversation<'_>, text: &str) -> Result<Outcome> {
    talk.turn(core, text.into(), None, &mut |_| Ok(()))
}

/// What [`TEMPLATE`] makes of messages.
fn rendered(messages: &[Message]) -> String {
    let end = |m: &Message| if m.role == "assistant" { "</s>" } else { "" };
    let lines = messages.iter().map(|m| format!("{}:{}{}\n", m.role, m.content, end(m)));
    lines.collect::<String>() + "assistant:"
}

/// A prompt's tokens.
fn encoded(tokenizer: &Tokenizer, prompt: &str) -> Vec<TokenId> {
    tokenizer.encode_prompt(&prompt.into(), Limits::NONE).unwrap()
}

#[test]
fn a_turn_computes_only_what_is_new() {
    chat(256, TEMPLATE, |core, tokenizer, talk| {
        let first = send(core, talk, "Once upon a time").unwrap();
        assert_eq!((first.finish, first.text.as_str()), (Finish::Eos, ""));
        let second = send(core, talk, "there was a fox").unwrap();
        let whole = "user:Once upon a time\nassistant:</s>\nuser:there was a fox\nassistant:";
        assert_eq!(talk.tokens, encoded(tokenizer, whole));
        // Whole blocks of what was computed before are used again.
        let n_new = talk.tokens.len() - first.n_prompt;
        assert!(second.n_prompt < n_new + BLOCK_SIZE && first.n_prompt > BLOCK_SIZE, "{}", second.n_prompt);
    });
}

#[test]
fn a_template_that_rewrites_the_past_has_it_all_computed_again() {
    let last_only = "{{ messages[-1].content }} assistant:";
    chat(256, last_only, |core, tokenizer, talk| {
        send(core, talk, "Once upon a time").unwrap();
        let second = send(core, talk, "there was a fox").unwrap();
        let expected = encoded(tokenizer, "there was a fox assistant:");
        assert_eq!(second.n_prompt, expected.len());
        assert_eq!(talk.tokens, expected);
    });
}

#[test]
fn a_turn_that_does_not_fit_leaves_the_chat_as_it_was() {
    chat(48, TEMPLATE, |core, _, talk| {
        send(core, talk, "Once").unwrap();
        let before = talk.tokens.clone();
        let error = send(core, talk, &"fox ".repeat(60)).err().expect("60 foxes do not fit");
        assert!(error.message.contains("/clear starts over"), "{}", error.message);
        assert_eq!((&talk.tokens, talk.turns.all().count()), (&before, 2));
        send(core, talk, "upon").unwrap();
    });
}

#[test]
fn a_turn_that_fails_while_it_is_answered_leaves_the_chat_as_it_was() {
    chat(256, TEMPLATE, |core, tokenizer, talk| {
        send(core, talk, "Once upon a time").unwrap();
        let before = talk.tokens.clone();
        talk.flags.stop = vec![String::new()]; // found out after the prompt was appended
        send(core, talk, "lost words").err().expect("an empty stop text is refused");
        assert_eq!((&talk.tokens, talk.turns.all().count()), (&before, 2));

        talk.flags.stop.clear();
        let next = send(core, talk, "there was a fox").unwrap();
        let whole = "user:Once upon a time\nassistant:</s>\nuser:there was a fox\nassistant:";
        let expected = encoded(tokenizer, whole);
        assert!(next.n_prompt < expected.len(), "what was known is not computed again");
        assert_eq!(talk.tokens, expected);
    });
}

#[test]
fn the_oldest_turns_are_dropped_when_the_context_is_too_small() {
    chat(64, TEMPLATE, |core, tokenizer, talk| {
        talk.set_system("be brief".into());
        let messages = ["one fox", "two foxes", "three foxes", "four foxes", "five foxes", "six foxes"];
        for message in messages {
            send(core, talk, message).unwrap_or_else(|e| panic!("{message}: {}", e.message));
        }
        let kept = talk.turns.kept();
        assert_eq!(talk.turns.all().count(), 1 + 2 * messages.len(), "the file of /save has them all");
        assert_eq!(kept.len() + talk.turns.n_dropped(), 1 + 2 * messages.len());
        assert!(talk.turns.n_dropped() >= 2 && kept[0] == Message::new("system", "be brief"), "{kept:?}");
        assert_eq!((kept[1].role.as_str(), kept[kept.len() - 2].content.as_str()), ("user", "six foxes"));
        let prompt = rendered(&kept[..kept.len() - 1]);
        assert_eq!(talk.tokens, encoded(tokenizer, &prompt));
    });
}

#[test]
fn without_context_shift_a_conversation_that_is_too_long_is_refused() {
    chat(64, TEMPLATE, |core, _, talk| {
        talk.shifts = false;
        let refused = (0..20).find_map(|_| send(core, talk, "a fox and a bear").err());
        let message = refused.expect("the context is full some time").message;
        assert!(message.contains("the context holds 64"), "{message}");
        assert_eq!(talk.turns.n_dropped(), 0);
    });
}

#[test]
fn an_answer_that_fills_the_context_continues_without_the_oldest_turn() {
    chat(64, TEMPLATE, |core, _, talk| {
        send(core, talk, "one fox and two bears").unwrap();
        talk.flags.logit_bias = vec!["2-inf".into()]; // the answer never ends by itself
        talk.reseed().unwrap();
        let outcome = talk.turn(core, "a bear".into(), Some(40), &mut |_| Ok(())).unwrap();
        assert_eq!((outcome.tokens.len(), outcome.is_context_full), (40, false));
        assert_eq!(talk.turns.n_dropped(), 2);

        let outcome = talk.turn(core, "a dog".into(), None, &mut |_| Ok(())).unwrap();
        assert!(outcome.is_context_full, "the last turn alone does not fit");
        assert_eq!((outcome.finish, talk.turns.n_dropped()), (Finish::Length, 4));
    });
}

#[test]
fn what_continues_a_long_story_gets_its_last_sentences() {
    let stories = include_str!("../../../../assets/stories.jinja");
    chat(128, stories, |core, tokenizer, talk| {
        let sentences: Vec<_> = (0..30).map(|i| format!("The fox met bear number {i}.")).collect();
        talk.turns.push(Message::new("user", "a fox"));
        talk.turns.push(Message::new("assistant", sentences.join(" ")));
        send(core, talk, "more").unwrap();
        let prompt = tokenizer.decode(&talk.tokens, false).unwrap();
        assert!(prompt.trim_start().starts_with("The fox met bear number "), "{prompt}");
        assert!(
            prompt.contains("bear number 29.\n\nThe next day,") && !prompt.contains("number 3."),
            "{prompt}"
        );
        assert_eq!(talk.turns.all().nth(1).map(|m| m.content.as_str()), Some(sentences.join(" ").as_str()));

        // Another story needs nothing of the one before.
        send(core, talk, "a brave dragon").unwrap();
        let prompt = tokenizer.decode(&talk.tokens, false).unwrap();
        assert!(prompt.trim_start().starts_with("Once upon a time, there was a brave dragon"), "{prompt}");
    });
}

#[test]
fn regenerate_replaces_the_last_answer() {
    chat(128, TEMPLATE, |core, _, talk| {
        assert!(talk.regenerate(core, None, &mut |_| Ok(())).is_err(), "there is no answer");
        talk.flags.logit_bias.clear();
        (talk.flags.temp, talk.flags.seed) = (Some(1.5), Some(Seed(Some(7))));
        talk.reseed().unwrap();
        let first = talk.turn(core, "a bear".into(), Some(20), &mut |_| Ok(())).unwrap();
        let second = talk.regenerate(core, Some(20), &mut |_| Ok(())).unwrap();
        assert_ne!(first.text, second.text);
        assert!(second.n_prompt <= BLOCK_SIZE, "whole blocks of the prompt are in the cache");
        let all: Vec<_> = talk.turns.all().map(|m| m.content.as_str()).collect();
        assert_eq!(all, ["a bear", second.text.as_str()]);
        let third = talk.turn(core, "a dog".into(), Some(20), &mut |_| Ok(())).unwrap();
        let fourth = talk.regenerate(core, Some(20), &mut |_| Ok(())).unwrap();
        assert_ne!(third.text, fourth.text, "a later turn, too");
    });
}

#[test]
fn clear_keeps_the_system_message_only() {
    chat(128, TEMPLATE, |core, _, talk| {
        talk.set_system("be brief".into());
        send(core, talk, "Once").unwrap();
        talk.clear();
        assert_eq!(talk.turns.kept(), [Message::new("system", "be brief")]);
        assert!(talk.tokens.is_empty());
    });
}

#[test]
fn settings_change_only_to_values_that_make_sense() {
    chat(32, TEMPLATE, |_, _, talk| {
        talk.set("top-k", "5").unwrap();
        for (name, value, expected) in [
            ("top-p", "3", "--top-p 3"),
            ("temp", "hot", "/set temp hot: expected a number"),
            ("colour", "1", "/set colour: expected temp"),
        ] {
            let message = talk.set(name, value).unwrap_err().message;
            assert!(message.contains(expected), "{message}");
        }
        assert!(talk.settings().starts_with("temp 0, top-k 5, top-p 0.95"), "{}", talk.settings());
    });
}
