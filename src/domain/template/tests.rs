//! Rendering and refusals of templates.

mod hostile;

use serde_json::{Value, json};

use super::{RenderError, Template, TemplateError};

/// Renders with a stack as small as a worker's, so that too deep a nesting would overflow it.
fn render(source: &str, values: Value) -> Result<String, String> {
    let source = source.to_owned();
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let run = move || match Template::parse(&source) {
        Err(error) => Err(format!("syntax {error}")),
        Ok(template) => template
            .render(values.as_object().unwrap())
            .map_err(|error| match error {
                RenderError::Missing(names, _) => format!("missing {}", names.join(",")),
                RenderError::TooLarge(error) => format!("too large {error}"),
                RenderError::Invalid(error) => format!("invalid {error}"),
            }),
    };
    thread.spawn(run).unwrap().join().unwrap()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn templates_render_what_minijinja_renders() {
    let mut wrong = Vec::new();
    for (source, values, rendered) in [
        ("Hi {{ name }}!", json!({"name": "Ada"}), "Hi Ada!"),
        (
            "{% for x in xs %}{{ loop.index }}:{{ x }}{% if not loop.last %}, {% endif %}{% else %}none{% endfor %}",
            json!({"xs": ["a", "b"]}),
            "1:a, 2:b",
        ),
        (
            "{% for x in xs %}{% else %}none{% endfor %}{{ loop|default('-') }}",
            json!({"xs": []}),
            "none-",
        ),
        (
            "{% for k in m %}{{ k }}={{ m[k] }};{% endfor %}{{ loop|default('') }}",
            json!({"m": {"b": 2, "a": 1}}),
            "a=1;b=2;",
        ),
        (
            "{% for k, v in pairs %}{{ k }}{{ v }}{% endfor %}",
            json!({"pairs": [["a", 1], ["b", 2]]}),
            "a1b2",
        ),
        (
            "{% for x in xs if x > 1 %}{{ x }}{% endfor %}",
            json!({"xs": [1, 2, 3]}),
            "23",
        ),
        (
            "{% for x in xs|sort(reverse=true) %}{{ x }}/{{ loop.length }} {% endfor %}",
            json!({"xs": [1, 3, 2]}),
            "3/3 2/3 1/3 ",
        ),
        ("{{ 'yes' if a else 'no' }}", json!({"a": false}), "no"),
        (
            "{% if a %}A{% elif b %}B{% else %}C{% endif %}",
            json!({"a": 0, "b": 1}),
            "B",
        ),
        (
            "{% if (a and not b) or c == 'x' %}A{% endif %}",
            json!({"a": 1, "b": [], "c": "y"}),
            "A",
        ),
        ("{{ tone|default('calm') }}", json!({}), "calm"),
        (
            "{{ tone|default('calm', true) }}",
            json!({"tone": ""}),
            "calm",
        ),
        ("{{ u.x|default('calm') }}", json!({"u": {}}), "calm"),
        ("{{ xs|first|default('calm') }}", json!({"xs": []}), "calm"),
        (
            "{% if tone is defined %}{{ tone }}{% else %}-{% endif %}",
            json!({}),
            "-",
        ),
        (
            "{{ xs|join(', ') }} {{ xs|length }} {{ xs|first }} {{ xs|last }} {{ xs|sort|join }} {{ xs|reverse|join }}",
            json!({"xs": [1, 3, 2]}),
            "1, 3, 2 3 1 2 123 231",
        ),
        (
            "{{ xs|sort(attribute='n')|last }} {{ xs|unique(attribute='k')|length }}",
            json!({"xs": [{"n": 2, "k": 1}, {"n": 1, "k": 1}]}),
            "{'k': 1, 'n': 2} 1",
        ),
        (
            "{{ xs }} {{ m }}",
            json!({"xs": ["a", 1, true], "m": {"k": null}}),
            "['a', 1, True] {'k': None}",
        ),
        (
            "{{ s[1] }} {{ xs[0] }} {{ xs[-1] }} {{ xs.1 }} {{ m['k'] }} {{ m[s].x }}",
            json!({"s": "hello", "xs": [1, 2], "m": {"k": 5, "hello": {"x": 6}}}),
            "e 1 2 2 5 6",
        ),
        (
            "{{ 'a-b'|replace('-', '+') }} {{ ' x '|trim }} {{ 'xax'|trim('x') }} {{ 'a b'|title }} {{ 'éA'|capitalize }} {{ 'É'|lower }} {{ 'é'|upper }} {{ 'ab'|reverse }}",
            json!({}),
            "a+b x a A B Éa é É ba",
        ),
        (
            "{{ m|tojson }}",
            json!({"m": {"k": ["é\"", null, 1.5]}}),
            "{\"k\":[\"é\\\"\",null,1.5]}",
        ),
        (
            "{{ 'b' in 'abc' }} {{ 2 not in xs }} {{ 1 < 2 <= 2 }} {{ 'k' in m }} {{ xs == ys }} {{ m == xs }} {{ xs < ys }}",
            json!({"xs": [1], "ys": [1], "m": {"k": 1}}),
            "True True True True True False False",
        ),
        (
            "{{ n|int }} {{ '1.5'|float }} {{ 2.75|round(1) }} {{ 2.7|round(method='floor') }} {{ -1 }} {{ n != -41 }}",
            json!({"n": "41"}),
            "41 1.5 2.8 2.0 -1 True",
        ),
        (
            "{{ 3 is odd }} {{ 'ab' is startingwith 'a' }} {{ s is not string }} {{ m is mapping }} {{ none is none }}",
            json!({"s": "", "m": {}}),
            "True True False True True",
        ),
        (
            "{# a comment {{ x }} #}{% raw %}{{ raw }}{% set %}{% endraw %}{#-#}{%- raw -%} {{ {%- endraw +%} ",
            json!({}),
            "{{ raw }}{% set %}{{ ",
        ),
        ("{%- if true -%}  x  {%- endif -%}  ", json!({}), "x"),
        (
            "{{ '<b>' }}{{ '}}{%' }}{{ \"\\\"'\" }}{ { %}",
            json!({}),
            "<b>}}{%\"'{ { %}",
        ),
        ("{{'a'}}\n\n{{-1}}{{+1}}\n", json!({}), "a11"),
        ("", json!({}), ""),
    ] {
        let found = render(source, values);
        if found.as_deref() != Ok(rendered) {
            wrong.push(format!("{source}: {found:?}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn variables_are_what_is_read_and_not_bound() {
    for (source, all, required) in [
        ("{{ b }}{{ a }}{{ b }}{{ prompt }}", "a b", "a b"),
        (
            "{% for x in xs %}{{ x }}{{ loop.index }}{{ y }}{% endfor %}{{ x }}",
            "x xs y",
            "x xs y",
        ),
        ("{{ u.name.first }}{{ m['k'][i] }}", "i m u", "i m u"),
        (
            "{{ a|default('x') }}{% if b is defined %}{{ b }}{% endif %}{{ c }}{{ d is not undefined }}",
            "a b c d",
            "c",
        ),
        (
            "{{ a.x|default('x') }}{{ b|upper|default(c) }}{{ d is even }}",
            "a b c d",
            "a b c d",
        ),
        (
            "{{ a if b else c }}{{ d and e or not f }}",
            "a b c d e f",
            "a b c d e f",
        ),
        (
            "{{ a|join(b) }}{{ c is startingwith(d) }}{{ e < f < g }}{{ h|sort(reverse=i) }}",
            "a b c d e f g h i",
            "a b c d e f g h i",
        ),
        ("no variables {# a #}{% raw %}{{ b }}{% endraw %}", "", ""),
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
        ("a\n{{ b", 2, "a tag is not closed"),
        ("\n{# b", 2, "a comment is not closed"),
        ("\n{% raw %}", 2, "a raw block is not closed"),
        ("\n{{ 'b }}", 2, "a string is not closed"),
        ("{{ }}", 1, ""),
        ("{{ a b }}", 1, ""),
        ("{{ a) }}", 1, "unexpected `)`"),
        ("{{ a! }}", 1, "unexpected character `!`"),
        ("{% if a %}\n\nx", 1, ""),
        ("\n{% endif %}", 2, ""),
        ("{% nothing %}", 1, "`nothing` is not a statement"),
        ("\n\n{{ a|frobnicate }}", 3, "`frobnicate` is not a filter"),
        ("{{ a is frobnicated }}", 1, "`frobnicated` is not a test"),
    ] {
        let Err(TemplateError {
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
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_binds_builds_calls_or_loads_is_refused_by_name() {
    for (source, name) in [
        ("{% set x = 1 %}", "`set`"),
        ("{% set x %}{% endset %}", "`set`"),
        ("{%- set x = 1 %}", "`set`"),
        ("{%+set x = 1 %}", "`set`"),
        ("{% with a = 1 %}{% endwith %}", "`with`"),
        ("{% filter upper %}{% endfilter %}", "`filter`"),
        ("{% include 'x' %}", "`include`"),
        ("{% extends 'x' %}", "`extends`"),
        ("{% import 'x' as x %}", "`import`"),
        ("{% from 'x' import y %}", "`from`"),
        ("{% block a %}{% endblock %}", "`block`"),
        ("{% macro m() %}{% endmacro %}", "`macro`"),
        ("{% call m() %}{% endcall %}", "`call`"),
        ("{% autoescape true %}{% endautoescape %}", "`autoescape`"),
        ("{% do x() %}", "`do`"),
        ("{% for x in y %}{% break %}{% endfor %}", "`break`"),
        ("{{ a ~ b }}", "`~`"),
        ("{{ a + b }}", "`+`"),
        ("{{ a - b }}", "`-`"),
        ("{{ a -1 }}", "`-`"),
        ("{{ -a }}", "`-`"),
        ("{{ a * 2 }}", "`*`"),
        ("{{ 2 ** 2 }}", "`**`"),
        ("{{ a / 2 }}", "`/`"),
        ("{{ a // 2 }}", "`//`"),
        ("{{ a % 2 }}", "`%`"),
        ("{{ x[1:2] }}", "`:`"),
        ("{{ x[::-1] }}", "`:`"),
        ("{{ [a, b] }}", "`[]`"),
        ("{% for x in [1, 2] %}{% endfor %}", "`[]`"),
        ("{{ x in [1] }}", "`[]`"),
        ("{{ x|default([x]) }}", "`[]`"),
        ("{{ {'a': 1} }}", "`{}`"),
        ("{{ {} }}", "`{}`"),
        ("{{ (a, b) }}", "`,`"),
        ("{{ () }}", "`)`"),
        ("{% for x in () %}{% endfor %}", "`)`"),
        ("{{ a, b }}", "`,`"),
        ("{{ a = 1 }}", "`=`"),
        ("{{ range(3) }}", "`range()`"),
        ("{% for x in range(3) %}{% endfor %}", "`range()`"),
        ("{{ debug() }}", "`debug()`"),
        ("{{ x.y() }}", "`y()`"),
        ("{{ x['y']() }}", "`]()`"),
        ("{{ (x)(1) }}", "`)()`"),
        (
            "{% for x in y %}{{ loop.cycle() }}{% endfor %}",
            "`cycle()`",
        ),
        ("{% for x in y %}{{ loop(x) }}{% endfor %}", "`loop()`"),
        ("{{ 'a'.join(x) }}", "`join()`"),
        ("{{ x|join(*y) }}", "`*`"),
        ("{{ x|join(**y) }}", "`**`"),
        ("{% for x in y recursive %}{% endfor %}", "`recursive`"),
        ("{{ self.x }}", "`self`"),
        ("{{ x|upper.y }}", "`.`"),
        ("{{ x|map('upper') }}", "`map`"),
        ("{{ x|select }}", "`select`"),
        ("{{ x|groupby('a') }}", "`groupby`"),
        ("{{ x|format }}", "`format`"),
        ("{{ x|indent(9) }}", "`indent`"),
        ("{{ x|safe }}", "`safe`"),
        ("{{ x|escape }}", "`escape`"),
        ("{{ x|attr('y') }}", "`attr`"),
        ("{{ x|batch(3) }}", "`batch`"),
        ("{{ x|list }}", "`list`"),
        ("{{ x|sum }}", "`sum`"),
        ("{{ x|items }}", "`items`"),
        ("{{ x is filter }}", "`filter`"),
        ("{{ x is sameas(y) }}", "`sameas`"),
        ("{{ x is divisibleby 0 }}", "`divisibleby`"),
        // MiniJinja parses these names and numbers differently from how they look.
        ("{{ and(a) }}", "`and`"),
        ("{{ is(a) }}", "`is`"),
        ("{{ elif(a) }}", "`elif`"),
        ("{% for x in if -1 %}{% endfor %}", "`if`"),
        ("{{ a in not -1 }}", "`not`"),
        ("{{ a is not not }}", "`not`"),
        ("{{ a is startingwith b }}", "`b`"),
        ("{{ a is defined if (b) }}", "`if`"),
        ("{{ a is defined in (b) }}", "`in`"),
        ("{{ 1.(a) }}", "`.()`"),
        ("{{ 1.-1 }}", "`-`"),
        ("{{ 1.e5is not in a }}", "`e5is`"),
        ("{{ 1e5is not in a }}", "`1e5is`"),
        // These only look like a string, a comment or a raw block.
        ("{{ 'a\\'' }}{{ b ~ 'c' }}", "`~`"),
        ("{{ \"a\\\\\" ~ \"b\" }}", "`~`"),
        ("{# #}{{ a ~ b }}{# #}", "`~`"),
        ("{#}#}{{ a ~ b }}", "`~`"),
        (
            "{% raw %}{% endraw %}{{ a ~ b }}{% raw %}{% endraw %}",
            "`~`",
        ),
        ("{% raw %}{%-  endraw\t-%}{{ a ~ b }}", "`~`"),
        ("{ {{ a ~ b }}", "`~`"),
        ("{{{ a ~ b }}", "`{}`"),
        ("{{ '}}' ~ '{{' }}", "`~`"),
        ("{{ a }}~{{ b\n~ c }}", "`~`"),
    ] {
        let error = Template::parse(source).map(|_| ()).expect_err(source);
        assert!(error.message.contains(name), "{source}: {error}");
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
        "{{ x == 1 }}",
        "{{ 1 in x }}",
        "{{ x in 'a' }}",
        "{{ x|upper }}",
        "{{ x|join }}",
        "{{ 'a'|replace('a', x) }}",
        "{{ x|tojson }}",
        "{{ not x }}",
        "{{ 'a' if x }}",
        "{{ x|default(y) }}",
        "{{ u.name|length }}",
        "{{ u.name|int }}",
        "{{ u.name|first }}",
        "{{ u.name|reverse }}",
        "{{ u.name|sort }}",
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
        matches!(&error, RenderError::Missing(names, error) if names == &["user"] && error.line == Some(2)),
        "{error:?}"
    );
}
