//! Which chat template a command renders: one that a flag names, the model's own, or the embedded model's.

use crate::args::TemplateArgs;
use crate::error::{Error, Exit, Result};
use crate::model::OpenModel;
use crate::text;
use llmrt_tokenizer::ChatTemplate;

/// A chat template and how to speak of it.
pub struct Template {
    /// The compiled template.
    pub jinja: ChatTemplate,
    /// Where it is from, for messages.
    pub name: String,
    /// Whether what `add_generation_prompt` adds is text of the answer and shown with it.
    pub shows_opening: bool,
}

/// The chat of the embedded model: a message becomes the opening of a story.
const STORIES: &str = include_str!("../assets/stories.jinja");

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        /// Templates by name, in the order that messages list them.
        const BUILT_IN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../assets/templates/", $name, ".jinja")))),*];
    };
}

built_in![
    "chatml",
    "command-r",
    "deepseek3",
    "gemma",
    "granite",
    "llama2",
    "llama3",
    "llama4",
    "mistral",
    "mistral-v1",
    "mistral-v7",
    "phi3",
    "phi4",
    "vicuna",
    "zephyr",
];

/// Names of llama.cpp for templates of another name here.
const ALIASES: &[(&str, &str)] = &[("mistral-v3", "mistral"), ("deepseek-v3", "deepseek3")];

impl Template {
    /// The template of the flags, else that of the model; `None` where neither has one.
    pub fn choose(args: &TemplateArgs, model: &OpenModel) -> Result<Option<Template>> {
        if let Some(path) = &args.chat_template_file {
            let name = path.display().to_string();
            return Template::compile(&text::of_file(path)?, name, Exit::File).map(Some);
        }
        if let Some(given) = &args.chat_template {
            return Template::named(given).map(Some);
        }
        let own = |jinja| Template { jinja, name: "of the model file".into(), shows_opening: false };
        Ok(model.chat_template()?.map(own))
    }

    /// The same, or that of a chat with the embedded model.
    pub fn of_chat(args: &TemplateArgs, model: &OpenModel) -> Result<Option<Template>> {
        match Template::choose(args, model)? {
            None if model.is_embedded() => Template::stories().map(Some),
            template => Ok(template),
        }
    }

    /// The chat of the embedded model.
    pub fn stories() -> Result<Template> {
        let template = Template::compile(STORIES, "(embedded)".into(), Exit::Failure)?;
        Ok(Template { shows_opening: true, ..template })
    }

    /// A template whose text a session file holds.
    pub fn of_session(source: &str, file: &str) -> Result<Template> {
        match source == STORIES {
            true => Template::stories(),
            false => Template::compile(source, format!("of {file}"), Exit::File),
        }
    }

    /// `--chat-template`: the name of a built-in template, or a template's text.
    fn named(given: &str) -> Result<Template> {
        let name = ALIASES.iter().find(|(alias, _)| *alias == given).map_or(given, |(_, name)| name);
        if let Some((name, source)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Template::compile(source, format!("built-in {name}"), Exit::Failure);
        }
        if given.contains('{') {
            return Template::compile(given, "--chat-template".into(), Exit::Usage);
        }
        let names: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        let given: String = given.chars().take(40).collect();
        Err(Error::usage(format!(
            "--chat-template {given}: expected a Jinja template, or one of {}; a file goes to --chat-template-file",
            names.join(", ")
        )))
    }

    fn compile(source: &str, name: String, exit: Exit) -> Result<Template> {
        let jinja = ChatTemplate::new(source).map_err(|e| Error::new(exit, format!("{name}: {e}")))?;
        Ok(Template { jinja, name, shows_opening: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmrt_tokenizer::{Message, RenderOptions};

    fn render(template: &Template, messages: &[(&str, &str)], add_generation_prompt: bool) -> String {
        let messages: Vec<_> = messages.iter().map(|(role, text)| Message::new(*role, *text)).collect();
        let options = RenderOptions { add_generation_prompt, bos: "<s>", eos: "</s>", ..Default::default() };
        template.jinja.render(&messages, &options).unwrap_or_else(|e| panic!("{}: {e}", template.name))
    }

    #[test]
    fn every_built_in_template_writes_the_prompt_its_models_were_trained_on() {
        let chat = [("system", "S"), ("user", "A"), ("assistant", "B"), ("user", "C")];
        let prompts = [
            (
                "chatml",
                "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\nB<|im_end|>\n<|im_start|>user\nC<|im_end|>\n<|im_start|>assistant\n",
            ),
            (
                "command-r",
                "<s><|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>A<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>B<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>C<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
            ),
            ("deepseek3", "<s>S<｜User｜>A<｜Assistant｜>B<｜end▁of▁sentence｜><｜User｜>C<｜Assistant｜>"),
            (
                "gemma",
                "<s><start_of_turn>user\nS\n\nA<end_of_turn>\n<start_of_turn>model\nB<end_of_turn>\n<start_of_turn>user\nC<end_of_turn>\n<start_of_turn>model\n",
            ),
            (
                "granite",
                "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>A<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>B<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>C<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
            ),
            ("llama2", "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nA [/INST] B </s><s>[INST] C [/INST]"),
            (
                "llama3",
                "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nB<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nC<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
            ),
            (
                "llama4",
                "<s><|header_start|>system<|header_end|>\n\nS<|eot|><|header_start|>user<|header_end|>\n\nA<|eot|><|header_start|>assistant<|header_end|>\n\nB<|eot|><|header_start|>user<|header_end|>\n\nC<|eot|><|header_start|>assistant<|header_end|>\n\n",
            ),
            ("mistral", "<s>[INST] S\n\nA[/INST] B</s>[INST] C[/INST]"),
            ("mistral-v1", "<s> [INST] S\n\nA [/INST] B</s> [INST] C [/INST]"),
            ("mistral-v7", "<s>[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST] A[/INST] B</s>[INST] C[/INST]"),
            (
                "phi3",
                "<|system|>\nS<|end|>\n<|user|>\nA<|end|>\n<|assistant|>\nB<|end|>\n<|user|>\nC<|end|>\n<|assistant|>\n",
            ),
            (
                "phi4",
                "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|>A<|im_end|><|im_start|>assistant<|im_sep|>B<|im_end|><|im_start|>user<|im_sep|>C<|im_end|><|im_start|>assistant<|im_sep|>",
            ),
            ("vicuna", "S\n\nUSER: A\nASSISTANT: B</s>\nUSER: C\nASSISTANT:"),
            (
                "zephyr",
                "<|system|>\nS</s>\n<|user|>\nA</s>\n<|assistant|>\nB</s>\n<|user|>\nC</s>\n<|assistant|>\n",
            ),
        ];
        assert_eq!(
            prompts.map(|(name, _)| name)[..],
            BUILT_IN.iter().map(|(name, _)| *name).collect::<Vec<_>>()
        );
        for (name, expected) in prompts {
            let template = Template::named(name).unwrap();
            assert_eq!(render(&template, &chat, true), expected, "{name}");
            // What is there without the answer's opening is how the next turn begins.
            assert!(expected.starts_with(&render(&template, &chat, false)), "{name}");
        }
    }

    #[test]
    fn names_of_llama_cpp_are_accepted() {
        assert_eq!(Template::named("mistral-v3").unwrap().name, "built-in mistral");
    }

    #[test]
    fn a_template_may_be_given_as_text_and_errors_name_the_line() {
        let template = Template::named("{{ messages[0].content }}!").unwrap();
        assert_eq!(render(&template, &[("user", "hi")], true), "hi!");
        for (given, expected) in [
            ("{% if %}", "--chat-template: chat template, line 1: "),
            ("a\n{{ x", "--chat-template: chat template, line 2: "),
            ("chatmll", "--chat-template chatmll: expected a Jinja template, or one of chatml, "),
        ] {
            let error = Template::named(given).err().unwrap_or_else(|| panic!("{given} was accepted"));
            assert!(error.message.starts_with(expected), "{}", error.message);
            assert_eq!(error.exit, Exit::Usage);
        }
    }

    #[test]
    fn a_message_to_the_embedded_model_becomes_the_opening_of_a_story() {
        let template = Template::stories().unwrap();
        for (message, opening) in [
            ("a dragon", "Once upon a time, there was a dragon named"),
            ("Dragon!", "Once upon a time, there was a dragon named"),
            ("an old owl", "Once upon a time, there was an old owl named"),
            ("owl", "Once upon a time, there was an owl named"),
            ("the brave mouse", "Once upon a time, there was a brave mouse named"),
            ("Tell me a story about a shy bear.", "Once upon a time, there was a shy bear named"),
            ("about dragons", "Once upon a time, there were dragons"),
            ("a dragon named Spark", "Once upon a time, there was a dragon named Spark"),
            ("Once upon a time", "Once upon a time"),
            ("Lily was a curious fox.", "Lily was a curious fox."),
            ("hello", "\"Hello, world!\" said"),
            ("Why is the sky blue?", "\"Why is the sky blue?\" asked"),
            ("more", "Once upon a time, there was a more named"),
            ("...", "\"Hello, world!\" said"),
        ] {
            assert_eq!(render(&template, &[("user", message)], true), opening, "{message}");
        }
    }

    #[test]
    fn a_message_may_continue_the_story_before_it() {
        let template = Template::stories().unwrap();
        let prompt = |message: &str, opening| {
            render(&template, &[("user", "a fox"), ("assistant", "A fox ran."), ("user", message)], opening)
        };
        assert_eq!(prompt("Then a bear came.", true), "A fox ran. Then a bear came.");
        assert_eq!(prompt("more", true), "A fox ran.\n\nThe next day,");
        assert_eq!(prompt("more", false), "A fox ran.");
        assert_eq!(prompt("a bear", true), "Once upon a time, there was a bear named");
        assert_eq!(prompt("a bear", false), "");
    }
}
