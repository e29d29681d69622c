//! Chat templates that would overflow the stack or fill the memory: each is refused in words, whatever a file holds.

use llmrt_tokenizer::{ChatTemplate, Message, RenderOptions};

fn render(source: &str) -> Result<String, String> {
    let messages = [Message::new("user", "Hi there"), Message::new("assistant", "Hello")];
    let rendered = ChatTemplate::new(source).and_then(|t| t.render(&messages, &RenderOptions::default()));
    rendered.map_err(|e| e.to_string())
}

/// Runs on a stack of 2 MiB, as a thread has.
fn check(source: &str, expected: Result<&str, &str>) {
    let found = std::thread::scope(|s| {
        let small = std::thread::Builder::new().stack_size(2 << 20);
        small.spawn_scoped(s, || render(source)).expect("a thread").join().expect("no panic")
    });
    let start: String = source.chars().take(80).collect();
    match (found, expected) {
        (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{start}"),
        (Err(found), Err(expected)) => assert!(found.contains(expected), "{start}: {found}"),
        (found, _) => panic!("{start}: {:?}", found.map(|text| text.len())),
    }
}

const WORDS: &str = "a tag has more than 800 words and signs";
const BYTES: &str = "makes more than 268435456 bytes";

#[test]
fn a_source_that_would_overflow_the_stack_is_refused() {
    let often = |text: &str, n: usize| text.repeat(n);
    check(&format!("{{{{ {}1 }}}}", often("not ", 30_000)), Err(WORDS));
    check(&format!("{{{{ {}1 }}}}", often("-", 100_000)), Err(WORDS));
    check(&format!("{{{{ 1{} }}}}", often("+1", 10_000)), Err(WORDS));
    check(&format!("{{{{ x{} }}}}", often("|e", 10_000)), Err(WORDS));
    check(&format!("{{{{ x{} }}}}", often(".a", 10_000)), Err(WORDS));
    check(&format!("{{{{ {}1 }}}}", often("[", 5_000)), Err(WORDS));
    check(&format!("{{{{ {}1 }}}}", often("[", 50)), Err("more than 24 brackets"));
    check(&often("{% if x %}", 3_000), Err("more than 64 statements"));
    check(
        &format!("{{% if x %}}{}{{% endif %}}", often("{% elif x %}", 3_000)),
        Err("more than 64 statements"),
    );
    check(&often("{% set x %}", 3_000), Err("more than 64 statements"));
    check(&often("x", 600_000), Err("the template is 600000 bytes long, at most 524288"));
    check("{% include 'chat' %}", Err("include: a chat template stands alone"));
    check("{% block a %}{{ self.a() }}{% endblock %}", Err("block: a chat template stands alone"));
}

#[test]
fn what_is_just_within_the_limits_leaves_the_stack_whole() {
    let often = |text: &str, n: usize| text.repeat(n);
    check(&format!("{{{{ {}x }}}}", often("not ", 799)), Ok("True"));
    check(&format!("{{{{ {}1 }}}}", often("-", 798)), Ok("1"));
    check(&format!("{{{{ 1{} }}}}", often("+1", 399)), Ok("400"));
    check(&format!("{{{{ x{} }}}}", often("|e", 399)), Ok(""));
    check(&format!("{{{{ (1{}) }}}}", often(" if 1 else 1", 199)), Ok("1"));
    let deep = format!("{}{}1{}{}", often("{% if 1 %}", 64), "{{ ", " }}", often("{% endif %}", 64));
    check(&deep, Ok("1"));
    let brackets = format!("{}1{}", often("[", 24), often("]", 24));
    check(&format!("{{{{ {brackets} }}}}"), Ok(&brackets));
    let elifs = often("{% elif 0 %}", 63);
    check(&format!("{{% if 0 %}}{elifs}{{% else %}}1{{% endif %}}"), Ok("1"));
    let inside = format!(
        "{}{{{{ {}1{} }}}}{}",
        often("{% if 1 %}", 60),
        often("(", 24),
        often(")", 24),
        often("{% endif %}", 60)
    );
    check(&inside, Ok("1"));
}

#[test]
fn values_that_hold_each_other_too_deeply_are_refused() {
    check(
        "{% set ns = namespace(x=1) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}",
        Err("more than 160 deep"),
    );
    check("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", Err("cannot hold a namespace"));
    check("{% set ns = namespace() %}{% set ns.x = [{'a': ns}] %}{{ ns }}", Err("cannot hold a namespace"));
    check(
        "{% set a = namespace() %}{% set b = namespace(x=a) %}{% set a.y = b %}",
        Err("cannot hold a namespace"),
    );
    let wrap = format!("{}x{}", "[".repeat(20), "]".repeat(20));
    check(
        &format!(
            "{{% macro f(x, n) %}}{{% if n %}}{{{{ f({wrap}, n - 1) }}}}{{% endif %}}{{% endmacro %}}{{{{ f(1, 40) }}}}."
        ),
        Ok("."),
    );
    check("{% macro f(x) %}{{ f([x]) }}{% endmacro %}{{ f(1) }}", Err("recursion limit"));
    check("{% for a in [[1]] recursive %}{{ loop([a]) }}{% endfor %}", Err("recursion limit"));
}

#[test]
fn an_argument_that_would_fill_the_memory_is_refused() {
    for source in [
        "{{ 'a'|indent(99999999999, true) }}",
        "{{ 'a'|indent(width=99999999999) }}",
        "{{ [1]|batch(99999999999, 0) }}",
        "{{ [1]|batch(count=99999999999, fill_with=0) }}",
        "{{ [1]|slice(99999999999) }}",
        "{{ ['a']|map('indent', 99999999999)|list }}",
        "{{ '%999999999999d'|format(1) }}",
        "{{ '%.9999999999f'|format(1) }}",
        "{{ '{:>9999999999}'.format(1) }}",
        "{{ 'a' * 1000000000 }}",
        "{{ [0] * 100000000 }}",
    ] {
        assert!(render(source).is_err(), "{source}");
    }
    check("{{ 'a' * 10**9 }}", Err("a tag with `*` cannot have another"));
    check("{{ '%*d'|format(999999999, 1) }}", Err("a width must be a number"));
    check("{{ '{:{w}}'.format(1, w=999999999) }}", Err("a width must be a number"));
    check("{{ 1.5|round(2147483647) }}", Err("more than 400"));
    check("{{ range(100001) }}", Err("too many elements"));
    check(
        "{{ 'aaa'|indent(3, true) }}|{{ [1, 2, 3]|batch(2, 0) }}|{{ 1.25|round(1) }}",
        Ok("   aaa|[[1, 2], [3, 0]]|1.2"),
    );
}

#[test]
fn a_text_that_doubles_is_stopped() {
    let step = |before: &str, step: &str| format!("{before}{{% for i in range(9999) %}}{step}{{% endfor %}}");
    let ns = "{% set ns = namespace(x='abcdefgh', l=[1]) %}";
    for doubled in [
        "{% set ns.x = ns.x ~ ns.x %}",
        "{% set ns.x = ns.x + ns.x %}",
        "{% set ns.x = [ns.x, ns.x]|join %}",
        "{% set ns.x = ns.x|replace('a', ns.x) %}",
        "{% set ns.x = ns.x.replace('a', ns.x) %}",
        "{% set ns.x = '%s%s'|format(ns.x, ns.x) %}",
        "{% set ns.x = '{}{}'.format(ns.x, ns.x) %}",
        "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}",
        "{% set ns.x = (ns.x, ns.x)|string %}",
        "{% set ns.x = [ns.x, ns.x]|tojson(indent=2) %}",
        "{% set ns.x = ns.x.join([ns.x, ns.x]) %}",
        "{% set ns.l = ns.l + ns.l %}",
        "{% set ns.l = [ns.l, ns.l] %}",
        "{% set ns.x, ns.l = ns.x ~ ns.x, 1 %}",
        "{% set ns.x = ns.x ~ ns.x if i else ns.x %}",
    ] {
        let found = render(&step(ns, doubled)).expect_err(doubled);
        assert!(found.contains(BYTES) || found.contains("160 deep"), "{doubled}: {found}");
    }
    let unrolled = format!("{{% set x = 'abcdefgh' %}}{}", "{% set x = x ~ x %}".repeat(99));
    check(&unrolled, Err(BYTES));
    check("{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('abcdefgh') }}", Err("bytes"));
    let text = "text ".repeat(50_000);
    check(&step("", &format!("{{% set x %}}{}{{% endset %}}", step("", &text))), Err("steps"));
}

#[test]
fn charges_change_no_meaning() {
    check("{{ 1 + 2 * 3 }} {{ 'a' ~ -1 ~ 2.5 ~ none }} {{ 'ab' 'cd' ~ 'e' }}", Ok("7 a-12.5None abcde"));
    check("{{ messages[0].content|upper ~ messages[-1]['role']|title + '!' }}", Ok("HI THEREAssistant!"));
    check("{{ 'x' ~ messages[0].content.split(' ')[-1].upper() ~ 'y' }}", Ok("xTHEREy"));
    check("{{ 'a' + 'b' if 1 else 'c' + 'd' }} {{ ('a' ~ 'b') * 2 }} {{ '=' * 3 }}", Ok("ab abab ==="));
    check(
        "{% set a, b = 1, 2 %}{{ a + b }} {% set c = 'x' if a else 'y' %}{{ c }}{% set d = 1, %}{{ d }}",
        Ok("3 x(1,)"),
    );
    check("{% set a = b is defined ~ 'x' %}{{ a }} {{ 'x' ~ y|default('z') }}", Ok("Falsex xz"));
    check(
        "{{ messages[1:][0].role }} {{ messages[0].content[:2] ~ 'abc'[::-1] }} {{ [1, 2, 3][1:] }}",
        Ok("assistant Hicba [2, 3]"),
    );
    check("{% macro f(a, b=1 + 1) %}{{ a + b }}{% endmacro %}{{ f(*[1]) }}{{ f(1, b=2 + 3) }}", Ok("36"));
    check(
        "{% set x | replace('a', '=') %}a{% endset %}{{ x }}{% raw %}{{ a ~ b }}{% endraw %}",
        Ok("={{ a ~ b }}"),
    );
    check("{{- '}}' ~ '{%' -}} x {#- {{ a ~ #} {{ {'a': {'b': 1 + 1}}.a.b }}", Ok("}}{%x 2"));
}
