//! Chat templates in the style of real families, and what goes wrong in templates.

use llmrt_tokenizer::{ChatTemplate, Error, Message, RenderOptions};
use serde_json::{Map, Value, json};

fn render(source: &str, chat: &[(&str, &str)], options: &RenderOptions) -> Result<String, Error> {
    let messages: Vec<Message> = chat.iter().map(|(role, content)| Message::new(*role, *content)).collect();
    ChatTemplate::new(source)?.render(&messages, options)
}

/// For templates that do not look at it.
const ANY_CHAT: [(&str, &str); 1] = [("user", "x")];

fn check(source: &str, chat: &[(&str, &str)], options: &RenderOptions, expected: &str) {
    assert_eq!(render(source, chat, options), Ok(expected.to_string()));
}

/// Renders `source` with the variable `x` and no messages.
fn check_value(source: &str, x: Value, expected: &str) {
    let options = RenderOptions { extra: Map::from_iter([("x".to_string(), x)]), ..answering() };
    check(source, &ANY_CHAT, &options, expected);
}

fn check_fails(source: &str, expected: &str) {
    let error = render(source, &[("user", "secret words")], &answering()).expect_err(expected).to_string();
    assert!(error.contains(expected), "{error}");
    assert!(!error.contains("secret"), "an error shows a prompt: {error}");
}

fn answering() -> RenderOptions<'static> {
    RenderOptions { add_generation_prompt: true, bos: "<s>", eos: "</s>", ..RenderOptions::default() }
}

#[test]
fn what_is_not_defined_has_no_length() {
    check("{{ tools|length }}{{ messages|count }}", &ANY_CHAT, &answering(), "01");
}

const LLAMA3: &str = r#"{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\nToday: " + date_string + "\n\n" + system + "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content']|trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"#;

#[test]
fn a_llama3_template_writes_the_date_and_the_roles() {
    let options = RenderOptions { now: Some("2026-02-28T10:00:00"), ..answering() };
    let chat = [("system", " Be brief. "), ("user", "Hi")];
    let expected = "<s><|start_header_id|>system<|end_header_id|>\n\nToday: 28 Feb 2026\n\nBe brief.<|eot_id|>\
        <|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n";
    check(LLAMA3, &chat, &options, expected);
}

#[test]
fn without_a_clock_a_template_takes_its_own_date() {
    let text = render(LLAMA3, &[("user", "Hi")], &answering()).expect("a good template");
    assert!(text.contains("Today: 26 Jul 2024"), "{text}");
}

const QWEN: &str = r#"{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "<|im_end|>\n" }}
{%- endif %}
{%- set ns = namespace(last=-1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.last < 0 and message.role == "user" and not message.content.startswith('<tool>') %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- if loop.index0 == ns.last %}
        {{- '#' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}"#;

#[test]
fn a_qwen_template_finds_the_last_question_and_cuts_thoughts() {
    let chat = [("user", "a"), ("assistant", "<think>b</think>\n\nc"), ("user", "d")];
    let expected = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nc<|im_end|>\n\
        <|im_start|>user\nd<|im_end|>\n#<|im_start|>assistant\n";
    check(QWEN, &chat, &answering(), expected);
}

#[test]
fn a_qwen_template_takes_tools_and_flags_as_extra_variables() {
    let tool = json!({ "type": "function", "function": { "name": "f", "description": "a < b & 'c'" } });
    let extra = Map::from_iter([("tools".into(), json!([tool])), ("enable_thinking".into(), json!(false))]);
    let chat = [("user", "a")];
    let expected = "<|im_start|>system\n\n{\"type\": \"function\", \"function\": {\"name\": \"f\", \
        \"description\": \"a < b & 'c'\"}}<|im_end|>\n<|im_start|>user\na<|im_end|>\n#\
        <|im_start|>assistant\n<think>\n\n</think>\n\n";
    check(QWEN, &chat, &RenderOptions { extra, ..answering() }, expected);
}

const GEMMA: &str = r#"{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '
' + message['content'] | trim + '<end_of_turn>
' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model
'}}{% endif %}"#;

#[test]
fn a_gemma_template_calls_the_assistant_model() {
    let chat = [("user", "a"), ("assistant", "b"), ("user", "c")];
    let expected = "<s><start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\nb<end_of_turn>\n\
        <start_of_turn>user\nc<end_of_turn>\n<start_of_turn>model\n";
    check(GEMMA, &chat, &answering(), expected);
}

#[test]
fn what_a_template_refuses_is_an_error_in_its_words() {
    let refused = |chat: &[(&str, &str)], expected: &str| {
        let found = render(GEMMA, chat, &answering());
        assert_eq!(found, Err(Error::Refused { reason: expected.to_string() }));
    };
    refused(&[("system", "x")], "System role not supported");
    refused(&[("user", "x"), ("user", "y")], "Roles must alternate");
}

#[test]
fn blocks_on_lines_of_their_own_leave_no_lines() {
    check("a\n  {% if true %}\nb\n  {% endif %}\nc\n", &ANY_CHAT, &answering(), "a\nb\nc");
}

#[test]
fn generation_tags_write_nothing() {
    check("a{%- generation -%} b {%- endgeneration %}\nc", &ANY_CHAT, &answering(), "abc");
    check("{% generation %}{{ eos_token }}{% endgeneration %}", &ANY_CHAT, &answering(), "</s>");
}

#[test]
fn python_spellings_work() {
    check_value(
        "{{ x.items()|list|length }} {{ x.get('b', 'none') }} {{ x.keys()|join(',') }}",
        json!({"z": 1, "a": 2}),
        "2 none z,a",
    );
    check_value("{{ x.strip().upper() }}{{ x.rstrip() }}|", json!(" a "), "A a|");
    check_value(
        "{% for i in x %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
        json!([1, 2, 3]),
        "13",
    );
    check_value("{{ x }} {{ x is none }} {{ true }}", json!(null), "None True True");
}

#[test]
fn lists_change_as_in_python() {
    let check = |source: &str, expected: &str| check_value(source, json!([1, 2]), expected);
    check(
        "{% set l = [] %}{% for i in x %}{% set _ = l.append(i * 2) %}{% endfor %}{{ l }} {{ l|length }}",
        "[2, 4] 2",
    );
    check(
        "{% set ns = namespace(ids=[]) %}{% for i in x %}{% set _ = ns.ids.append(i) %}{% endfor %}\
         {{ ns.ids.pop(0) }}{{ ns.ids.pop() }}{% if not ns.ids %} empty{% endif %}",
        "12 empty",
    );
    check(
        "{% set l = ['b'] %}{% set m = l %}{% set _ = l.insert(0, 'a') %}{% set _ = l.extend(x) %}{{ m|join }}{{ m[-1] }}",
        "ab122",
    );
    check(
        "{% set ns = namespace() %}{% set ns.l = [] %}{% set _ = ns.l.append(x) %}{{ ns.l|tojson }} {{ x in ns.l }}",
        "[[1, 2]] True",
    );
    check(
        "{% set l = [] %}{% set _ = l.append(l) %}{% set _ = l.append(3) %}{{ l }}{{ [0] + l }}",
        "[[], 3][0, [], 3]",
    );
    check("{% set l = [] %}{% set d = {'l': l} %}{% set _ = l.append(1) %}{{ d.l }}", "[1]");
}

#[test]
fn what_a_list_cannot_do_is_an_error() {
    check_fails("{% set l = [] %}{{ l.pop() }}", "no such place in a list of 0");
    check_fails("{% set l = [1] %}{{ l.pop(-2) }}", "no such place");
    check_fails("{% set l = [] %}{{ l.insert('a', 1) }}", "whole number");
    check_fails("{% set l = [] %}{% set _ = l.append([[l]]) %}", "cannot take");
    check_fails("{% set ns = namespace(l=[]) %}{% set _ = ns.l.append(ns) %}", "cannot take");
    check_fails(
        "{% set l = [] %}{% for i in range(100000) %}{% set _ = l.append(messages) %}{% set m = l + l %}{% endfor %}",
        "than",
    );
}

#[test]
fn functions_are_the_tools_as_text() {
    let extra = Map::from_iter([("tools".to_string(), json!([{ "name": "f" }]))]);
    let options = RenderOptions { extra, ..answering() };
    check("{{ functions }}", &ANY_CHAT, &options, "[\n  {\n    \"name\": \"f\"\n  }\n]");
    check("{{ functions is defined }}", &ANY_CHAT, &answering(), "False");
}

#[test]
fn tojson_writes_what_python_writes() {
    check_value(
        "{{ x|tojson }}",
        json!({"b": [1, 2.5, true, null], "a": "<é\"\n"}),
        r#"{"b": [1, 2.5, true, null], "a": "<é\"\n"}"#,
    );
    check_value(
        "{{ x|tojson(indent=2) }}",
        json!({"a": [1, {}], "b": []}),
        "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}",
    );
    check_value(
        "{{ x|tojson(separators=(',', ':'), sort_keys=true) }}",
        json!({"b": 1, "a": 2}),
        r#"{"a":2,"b":1}"#,
    );
    check_value("{{ x|tojson(ensure_ascii=true) }}", json!("é🦙"), r#""\u00e9\ud83e\udd99""#);
    check_value("{{ x|tojson(ensure_ascii=false) }}", json!("\u{1}/"), r#""\u0001/""#);
}

#[test]
fn an_error_names_the_line_of_the_template() {
    check_fails("a\nb\n{% if %}", "line 3: syntax error");
    check_fails("a\n{{ messages[0].no.thing }}", "line 2: undefined value");
    check_fails("{{ 'x'|nofilter }}", "line 1: unknown filter");
    check_fails("\n\n{{ 1 | tojson(foo=1) }}", "line 3");
    check_fails("{{ messages|tojson(indent=1000) }}", "at most 64 spaces");
}

#[test]
fn a_template_that_does_not_end_is_stopped() {
    check_fails("{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}", "steps");
    check_fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "line 1");
    check_fails(&"(".repeat(100_000).replace('(', "{{ ("), "line 1");
}

#[test]
fn a_template_that_writes_without_end_is_stopped() {
    let piece = "{% set piece = 'x' * 900000 %}";
    check_fails(
        &format!("{piece}{{% for i in range(100) %}}{{{{ piece }}}}{{% endfor %}}"),
        "a prompt of more than 16777216 bytes",
    );
}

#[test]
fn a_failure_inside_the_engine_is_an_error() {
    let found = render("{% for m in messages[1:][::-1] %}x{% endfor %}", &ANY_CHAT, &answering());
    assert!(matches!(found, Ok(ref text) if text.is_empty()) || found == Err(Error::TemplateEngine));
}

#[test]
fn a_time_of_another_shape_is_refused() {
    let found = render("x", &ANY_CHAT, &RenderOptions { now: Some("yesterday"), ..answering() });
    assert_eq!(found, Err(Error::BadTime { found: "yesterday".into() }));
}

#[test]
fn a_chat_without_messages_is_refused() {
    assert_eq!(render("x", &[], &answering()), Err(Error::NoMessages));
}

fn check_messages(source: &str, messages: Value, expected: &str) {
    let messages = messages.as_array().expect("a list").clone();
    let found = ChatTemplate::new(source).expect("a template").render_json(messages, &answering());
    assert_eq!(found, Ok(expected.to_string()));
}

#[test]
fn a_system_message_without_a_role_goes_in_front_of_the_first_message() {
    let source = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}\
                  [{{ m.content }}]{% endfor %}";
    let chat = json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Hi" }]);
    check_messages(source, chat, "[Be brief.\nHi]");
    assert!(!ChatTemplate::new(source).expect("a template").has_system_role());
    assert!(ChatTemplate::new(LLAMA3).expect("a template").has_system_role());
}

#[test]
fn contents_are_parts_and_arguments_texts_where_a_template_takes_no_others() {
    let source =
        "{% for m in messages %}{% for part in m.content %}[{{ part.text }}]{% endfor %}{% endfor %}";
    check_messages(source, json!([{ "role": "user", "content": "Hi" }]), "[Hi]");
    let source = "{% for m in messages %}{{ m.content }}{% for call in m.tool_calls %}\
                  {{ call.function.arguments + '.' }}{% endfor %}{% endfor %}";
    let call = json!({ "type": "function", "function": { "name": "f", "arguments": { "a": 1 } } });
    let chat = json!([
        { "role": "user", "content": "Hi" }, { "role": "assistant", "content": "", "tool_calls": [call] }
    ]);
    check_messages(source, chat, "Hi{\"a\":1}.");
}

/// As gpt-oss's template does.
#[test]
fn reasoning_gets_the_name_that_a_template_reads() {
    let source = "{% for m in messages %}{% if 'thinking' in m %}({{ m.thinking }}){% endif %}{{ m.content }}\
                  {% endfor %}";
    let chat = |content: &str| {
        let call = json!({ "type": "function", "function": { "name": "f", "arguments": {} } });
        json!([
            { "role": "assistant", "content": content, "reasoning_content": "hm", "tool_calls": [call] }
        ])
    };
    check_messages(source, chat(""), "(hm)");
    check_messages(source, chat("yes"), "yes");
    check_messages("{{ messages[0].reasoning_content }}", chat(""), "hm");
}

#[test]
fn dates_are_defined_as_llama_cpp_defines_them() {
    let options = RenderOptions { now: Some("2026-02-08T10:00:00"), ..answering() };
    check("{{ date_string }}, {{ datetime }}", &ANY_CHAT, &options, "08 Feb 2026, Feb 08 2026");
    let given = Map::from_iter([("date_string".to_string(), json!("yesterday"))]);
    check("{{ date_string }}", &ANY_CHAT, &RenderOptions { extra: given, ..options }, "yesterday");
}
