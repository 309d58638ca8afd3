//! What templates say, and what they may not.

mod hostile;

use serde_json::{Value, json};

use super::{Fault, RenderError, Template};

/// Renders with a stack as small as a worker's, so that nothing here nests too deep for it.
fn render(source: &str, values: Value) -> Result<String, String> {
    let source = source.to_owned();
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let run = move || match Template::parse(&source) {
        Err(fault) => Err(format!("parse {fault}")),
        Ok(template) => template
            .render(values.as_object().unwrap())
            .map_err(|error| match error {
                RenderError::Missing(names, _) => format!("missing {}", names.join(",")),
                RenderError::TooMuch(_) => "too much".to_owned(),
                RenderError::Unfit(fault) => format!("unfit {fault}"),
            }),
    };
    thread.spawn(run).unwrap().join().unwrap()
}

fn says(source: &str, values: Value) -> String {
    render(source, values).unwrap_or_else(|e| panic!("{source}: {e}"))
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn templates_say_what_minijinja_says() {
    let mut wrong = Vec::new();
    for (source, values, said) in [
        ("Hi {{ name }}!", json!({"name": "Ada"}), "Hi Ada!"),
        ("{{ a ~ ' ' ~ b }}", json!({"a": 1, "b": true}), "1 True"),
        ("{{ a + b }}", json!({"a": "x", "b": "y"}), "xy"),
        ("{{ 2 + 3 * 4 ** 2 // 5 - 1 % 2 }}", json!({}), "10"),
        (
            "{{ 3 * 1.5 }} {{ '=' * 3 }} {{ 2 * 'ab' }}",
            json!({}),
            "4.5 === abab",
        ),
        (
            "{% for x in xs %}{{ loop.index }}:{{ x }}{% if not loop.last %}, {% endif %}{% else %}none{% endfor %}",
            json!({"xs": ["a", "b"]}),
            "1:a, 2:b",
        ),
        (
            "{% for x in [] %}{% else %}none{% endfor %}",
            json!({}),
            "none",
        ),
        (
            "{% for k, v in m|items %}{{ k }}={{ v }};{% endfor %}",
            json!({"m": {"a": 1, "b": 2}}),
            "a=1;b=2;",
        ),
        (
            "{% for k, v in m|dictsort(by='value', reverse=true) %}{{ k }}{% endfor %}",
            json!({"m": {"a": 1, "b": 2}}),
            "ba",
        ),
        (
            "{% for x in xs if x > 1 %}{{ x }}{% endfor %}",
            json!({"xs": [1, 2, 3]}),
            "23",
        ),
        ("{{ 'yes' if a else 'no' }}", json!({"a": false}), "no"),
        (
            "{% if a %}A{% elif b %}B{% else %}C{% endif %}",
            json!({"a": 0, "b": 1}),
            "B",
        ),
        (
            "{% set x = a|upper %}{{ x }}{% set x = x ~ x %}{{ x }}",
            json!({"a": "q"}),
            "QQQ",
        ),
        (
            "{% set t %}<{{ a }}>{% endset %}{{ t }}{{ t|length }}",
            json!({"a": "q"}),
            "<q>3",
        ),
        (
            "{% filter upper %}a{{ a }}{% endfilter %}",
            json!({"a": "q"}),
            "AQ",
        ),
        (
            "{% with x = 1, y = 2 %}{{ x + y }}{% endwith %}",
            json!({}),
            "3",
        ),
        ("{{ tone|default('calm') }}", json!({}), "calm"),
        ("{{ u.x|d('calm') }}", json!({"u": {}}), "calm"),
        ("{{ xs|first|default('calm') }}", json!({"xs": []}), "calm"),
        (
            "{% if tone is defined %}{{ tone }}{% else %}-{% endif %}",
            json!({}),
            "-",
        ),
        (
            "{{ xs|join(', ') }} {{ xs|length }} {{ xs|last }} {{ xs|sort(reverse=true)|join }}",
            json!({"xs": [1, 3, 2]}),
            "1, 3, 2 3 2 321",
        ),
        (
            "{{ xs }} {{ m }}",
            json!({"xs": ["a", 1], "m": {"k": null}}),
            "['a', 1] {'k': None}",
        ),
        (
            "{{ s[1:3] }} {{ xs[0] }} {{ xs[-1] }} {{ xs[1:] }} {{ m['k'] }}",
            json!({"s": "hello", "xs": [1, 2], "m": {"k": 5}}),
            "el 1 2 [2] 5",
        ),
        ("{{ 'a\nb'|indent(2) }}", json!({}), "a\n  b"),
        (
            "{{ 'a-b'|replace('-', '+') }} {{ ' x '|trim }} {{ 'xax'|trim('x') }} {{ 'a,b'|split(',')|join('/') }}",
            json!({}),
            "a+b x a a/b",
        ),
        (
            "{{ m|tojson }}",
            json!({"m": {"k": ["é\"", null, 1.5]}}),
            "{\"k\":[\"é\\\"\",null,1.5]}",
        ),
        (
            "{% for i in range(3) %}{{ i }}{% endfor %} {{ range(5, 0, -2)|join }} {{ range(1, 3)|list }}",
            json!({}),
            "012 531 [1, 2]",
        ),
        (
            "{{ 'b' in 'abc' }} {{ 2 not in xs }} {{ 1 < 2 <= 2 }}",
            json!({"xs": [1]}),
            "True True True",
        ),
        (
            "{{ n|int + 1 }} {{ '1.5'|float }} {{ 2.7|round }} {{ -3|abs }}",
            json!({"n": "41"}),
            "42 1.5 3.0 3",
        ),
        (
            "{# a comment #}{% raw %}{{ raw }}{% endraw %}",
            json!({}),
            "{{ raw }}",
        ),
        ("{%- if true -%}  x  {%- endif -%}  ", json!({}), "x"),
        ("{{ '<b>' }}", json!({}), "<b>"),
        ("{{ {'a': [1, (2, 3)]}['a'][1][0] }}", json!({}), "2"),
        ("", json!({}), ""),
    ] {
        let found = render(source, values);
        if found.as_deref() != Ok(said) {
            wrong.push(format!("{source}: {found:?}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn variables_are_what_is_read_and_not_set() {
    for (source, all, required) in [
        ("{{ b }}{{ a }}{{ b }}{{ prompt }}", "a b", "a b"),
        (
            "{% for x in xs %}{{ x }}{{ loop.index }}{{ y }}{% endfor %}{{ x }}",
            "x xs y",
            "x xs y",
        ),
        ("{% set x = z %}{{ x }}{{ range(3) }}", "z", "z"),
        (
            "{{ u.name.first }}{{ m['k'][i] }}{{ s[a:b] }}",
            "a b i m s u",
            "a b i m s u",
        ),
        (
            "{{ a|default('x') }}{% if b is defined %}{{ b }}{% endif %}{{ c }}",
            "a b c",
            "c",
        ),
        (
            "{% if f %}{% set t = 1 %}{% else %}{% set t = 2 %}{% endif %}{{ t }}",
            "f",
            "f",
        ),
        ("{% if f %}{% set t = 1 %}{% endif %}{{ t }}", "f t", "f t"),
        ("{% with a = b %}{{ a }}{% endwith %}{{ a }}", "a b", "a b"),
        ("{% set x = x %}{{ x }}", "x", "x"),
        (
            "{{ a if b else c }}{{ d and e or not f }}{{ g ~ h }}{{ [i, {j: k}] }}",
            "a b c d e f g h i j k",
            "a b c d e f g h i j k",
        ),
        (
            "{{ a|join(b) }}{{ c is divisibleby(d) }}{{ e < f < g }}{{ -h }}",
            "a b c d e f g h",
            "a b c d e f g h",
        ),
        (
            "{% filter replace('x', y) %}{{ z }}{% endfilter %}",
            "y z",
            "y z",
        ),
        ("no variables", "", ""),
    ] {
        let template = Template::parse(source).unwrap();
        let names = |found: Vec<&str>| found.join(" ");
        assert_eq!(names(template.variables().collect()), all, "{source}");
        assert_eq!(names(template.required().collect()), required, "{source}");
        assert_eq!(template.uses_prompt(), source.contains("prompt"));
    }
}

#[test]
fn a_mistake_is_named_with_its_line() {
    for (source, line, words) in [
        ("a\n{{ b", 2, ""),
        ("{{ }}", 1, ""),
        ("{% if a %}\n\nx", 1, ""),
        ("\n{% endif %}", 2, ""),
        ("{% nothing %}", 1, "unknown statement"),
        ("\n\n{{ a|frobnicate }}", 3, "frobnicate is not a filter"),
        ("{{ a|__keep }}", 1, "__keep is not a filter"),
        ("{{ a is frobnicated }}", 1, "frobnicated is not a test"),
    ] {
        let Err(Fault {
            line: found,
            message,
        }) = Template::parse(source).map(|_| ())
        else {
            panic!("{source} passes");
        };
        assert_eq!(found, Some(line), "{source}: {message}");
        assert!(message.contains(words), "{source}: {message}");
    }
}

#[test]
fn what_could_load_call_or_escape_is_refused() {
    for source in [
        "{% include 'x' %}",
        "{% extends 'x' %}",
        "{% import 'x' as x %}",
        "{% from 'x' import y %}",
        "{% block a %}{% endblock %}",
        "{% macro m() %}{% endmacro %}",
        "{% call m() %}{% endcall %}",
        "{% autoescape true %}{% endautoescape %}",
        "{% do x() %}",
        "{{ debug() }}",
        "{{ namespace() }}",
        "{{ dict() }}",
        "{{ x() }}",
        "{{ x.y() }}",
        "{{ loop.cycle(1) }}",
        "{{ ''.join([]) }}",
        "{{ range(*x) }}",
        "{% for x in y recursive %}{{ loop(x) }}{% endfor %}",
        "{% for x in y %}{{ loop(x) }}{% endfor %}",
        "{{ self.x() }}",
        "{{ super() }}",
        "{{ x|map('upper') }}",
        "{{ x|select }}",
        "{{ x|groupby('a') }}",
        "{{ x|format }}",
        "{{ x|pprint }}",
        "{{ x|safe }}",
        "{{ x|escape }}",
        "{{ x|attr('y') }}",
        "{{ x|batch(3) }}",
        "{{ x[::-1] }}",
        "{{ x[::2] }}",
        "{% set x.y = 1 %}",
        "{{ x is filter }}",
        "{{ x is sameas(y) }}",
        "{{ x|sum }}",
        "{% set range = 1 %}{{ range(3) }}",
        "{{ (range)(3)(4) }}",
    ] {
        assert!(Template::parse(source).is_err(), "{source} passes");
    }
}

#[test]
fn undefined_is_strict_everywhere() {
    for source in [
        "{{ x }}",
        "{{ x.y }}",
        "{{ u.name }}",
        "{{ u.name.first }}",
        "{{ u['a'] }}",
        "{% if x %}{% endif %}",
        "{% for a in x %}{% endfor %}",
        "{{ x ~ 'a' }}",
        "{{ x + 1 }}",
        "{{ x * 2 }}",
        "{{ x == 1 }}",
        "{{ 1 in x }}",
        "{{ x|upper }}",
        "{{ x|join }}",
        "{{ [x]|join }}",
        "{{ x|tojson }}",
        "{{ not x }}",
        "{{ x[0:1] }}",
        "{{ 'a' if x }}",
        "{{ u.name|length }}",
        "{{ u.name|int }}",
        "{{ u.name|trim }}",
        "{{ u.name|list }}",
    ] {
        let found = render(source, json!({"u": {}}));
        assert!(
            found.as_ref().is_err_and(|e| e.starts_with("missing")),
            "{source}: {found:?}"
        );
    }
    let template = Template::parse("{{ a }}\n{{ user.name }}").unwrap();
    let values = json!({"a": 1, "user": {}});
    let error = template.render(values.as_object().unwrap()).unwrap_err();
    assert!(
        matches!(&error, RenderError::Missing(names, fault) if names == &["user"] && fault.line == Some(2)),
        "{error:?}"
    );
}
