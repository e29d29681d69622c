//! Chat templates: a prompt or a refusal, in bounded time and memory.

use crate::{Target, accepted};
use llmrt_tokenizer::{ChatTemplate, Message, RenderOptions};

/// Chat templates.
pub const TARGET: Target = Target { name: "chat", check, seeds };

/// Compiles a template and renders it for no messages and for some.
pub fn check(data: &[u8]) {
    let source = String::from_utf8_lossy(data);
    let Some(template) = accepted(ChatTemplate::new(&source)) else { return };
    let options = RenderOptions {
        add_generation_prompt: true,
        bos: "<s>",
        eos: "</s>",
        now: Some("2026-02-28T23:59:59"),
        ..RenderOptions::default()
    };
    let messages =
        [("system", "Be brief."), ("user", "Hi <b> \"q\" é"), ("assistant", " Hello. "), ("user", "")];
    let messages = messages.map(|(role, content)| Message::new(role, content));
    accepted(template.render(&[], &options));
    accepted(template.render(&messages, &options));
}

fn seeds() -> Vec<Vec<u8>> {
    [
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m['content'] | trim + '<|im_end|>' + '\\n' }}\
         {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{% set system = messages[0]['content'] %}\
         {% set rest = messages[1:] %}{%- else -%}{% set rest = messages %}{%- endif -%}{% for m in rest %}\
         {% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}\
         {% endif %}[INST] {{ m['content'] }} [/INST]{{ eos_token }}{% endfor %}",
        "{% set ns = namespace(last='', n=0) %}{% for m in messages[::-1] %}{% set ns.n = ns.n + 1 %}\
         {% if not ns.last %}{% set ns.last = m.content.split(' ')[-1].strip('\\n') %}{% endif %}{% endfor %}\
         {{ ns.last ~ ns.n }}{{ strftime_now('%d %b %Y') }}{{ messages | tojson(indent=2, ensure_ascii=True) }}",
        "{% macro line(m, end='') %}{{ m.get('role', 'x') | upper }}: {{ m.content | default('-', true) }}{{ end }}\
         {% endmacro %}{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{% generation %}\
         {{ line(m, end='\\n') }}{% endgeneration %}{% endfor %}{% if tools is defined %}{{ tools | length }}{% endif %}",
        // What would fill the memory or the stack without limits.
        "{% set ns = namespace(x='ab', l=[1]) %}{% for i in range(9999) %}{% set ns.x = ns.x ~ ns.x + 'c' %}\
         {% set ns.l = [ns.l, ns.l[1:]] %}{% set ns.x %}{{ ns.x }}{{ ns.l }}{% endset %}{% endfor %}{{ ns }}",
        "{{ 'a' | indent(width=99999999, first=true) }}{{ [1] | batch(9999999, 0) }}{{ [1] | slice(9999999) | list }}\
         {{ '%9999999d|{:>9999999}' | format(1) }}{{ '-' * 9999999 }}{{ 1.5 | round(9999999) }}",
        "{% macro f(x, n=9) %}{{ f([x ~ x, (((n)))], n=n - 1) if n else x | join('-') }}{% endmacro %}{{ f('a') }}\
         {{ not not - - 1 + 1 }}{% if 0 %}{% elif 0 %}{% elif 1 %}{{ messages | map('upper') | join }}{% endif %}",
    ]
    .map(|s| s.as_bytes().to_vec())
    .into()
}
