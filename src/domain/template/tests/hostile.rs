//! Hostile templates.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::render;

/// Each of these would take gigabytes or minutes.
#[test]
fn bombs_are_refused() {
    let in_loops = |inside: &str| {
        format!("{{% for i in xs %}}{{% for j in xs %}}{inside}{{% endfor %}}{{% endfor %}}")
    };
    let tower = |filter: &str| format!("{{{{ s{} }}}}", filter.repeat(50));
    let quotes = "\\\"x".repeat(40_000);
    let zeros = vec![0; 20_000];
    let numbered = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>();
    let values = json!({"s": quotes, "t": format!("{quotes}x"), "xs": zeros, "ys": vec![1; 20_000],
        "zs": vec![0; 20_000], "few": numbered(2_000), "m": {"a": vec![json!([[[]]]); 5_000]},
        "n": {"a": vec![json!([[[]]]); 5_000]}, "f": vec![1e300; 5_000], "x": 1e300,
        "rows": vec![json!({"k": "K"}); 2_000], "keys": "k,".repeat(5_000)});
    for (source, reason) in [
        (in_loops(""), "too many steps"),
        (in_loops("{% for k in xs %}{% endfor %}"), "too many steps"),
        (in_loops("{% if t in s %}{% endif %}"), "too many steps"),
        (in_loops("{% if s == t %}{% endif %}"), "too many steps"),
        (in_loops("{% if 1 in xs %}{% endif %}"), "too many steps"),
        (in_loops("{% if xs == zs %}{% endif %}"), "too many steps"),
        (in_loops("{% if m == n %}{% endif %}"), "too many steps"),
        (in_loops("{% if f in 'a' %}{% endif %}"), "too many steps"),
        (in_loops("{% if few|sort %}{% endif %}"), "too many steps"),
        (in_loops("{% if few|unique %}{% endif %}"), "too many steps"),
        (
            in_loops("{% if few|join(s) %}{% endif %}"),
            "too many steps",
        ),
        (in_loops("{% if s|title %}{% endif %}"), "too many steps"),
        (in_loops("{% if s|trim(t) %}{% endif %}"), "too many steps"),
        (
            in_loops("{% if x|round(1000) %}{% endif %}"),
            "too many steps",
        ),
        (in_loops("{% if few|tojson %}{% endif %}"), "too many steps"),
        (
            in_loops("{% if few|reverse|last %}{% endif %}"),
            "too many steps",
        ),
        (
            "{{ rows|sort(attribute=keys) }}".to_owned(),
            "too many steps",
        ),
        ("{% for c in s %}{% endfor %}".repeat(10), "too many steps"),
        // An aborted comparison decides nothing.
        ("{% if xs == zs %}{% endif %}".repeat(200), "too many steps"),
        ("{{ s|replace('\"', s) }}".to_owned(), "too "),
        ("{{ 'x'|replace('', s)|replace('', s) }}".to_owned(), "too "),
        ("{{ few|join(few|join) }}".to_owned(), "too "),
        (tower("|tojson"), "too large"),
        (
            format!("{{{{ s{} }}}}", "|replace('x', 'xxxx')".repeat(20)),
            "too ",
        ),
        ("{{ s }}".repeat(50), "too large"),
        ("{{ f|join }}".repeat(5), "too "),
        (
            format!("{{% for x in few %}}{}{{% endfor %}}", "y".repeat(9_000)),
            "too large",
        ),
    ] {
        let error = render(&source, values.clone())
            .map(|text| text.len())
            .expect_err(&source);
        assert!(error.starts_with("too large "), "{source:.80}: {error}");
        assert!(error.contains(reason), "{source:.80}: {error}");
    }
}

/// The limits do not affect legitimate templates with many values.
#[test]
fn many_values_are_no_bomb() {
    let products = (0..2_000).map(|i| {
        json!({"name": format!("product {i}"), "price": 1.5, "kind": if i % 50 == 0 { "a" } else { "b" }})
    });
    let values = json!({"kind": "a", "products": products.collect::<Vec<_>>(), "text": "word ".repeat(2_000)});
    let source = "{% for p in products if p.kind == kind %}{{ p.name|title }}: {{ p.price|round(2) }}
{% endfor %}{{ products|length }} {{ products|sort(attribute='name')|first }} {{ 'word' in text }} {{ text|trim|length }}";
    let text = render(source, values).unwrap();
    assert!(text.ends_with("True 9999"), "{text}");
    assert_eq!(text.lines().count(), 41);
}

#[test]
fn deep_templates_do_not_exhaust_the_stack() {
    let times = |text: &str| text.repeat(10_000 / text.len());
    for source in [
        format!("{{{{ {}1 }}}}", "(".repeat(4_000)),
        format!("{{{{ {}1{} }}}}", "(".repeat(90), ")".repeat(90)),
        format!("{{{{ a{}0{} }}}}", "[a".repeat(60), "]".repeat(60)),
        format!("{{{{ a{}1{} }}}}", "|default(a".repeat(45), ")".repeat(45)),
        format!("{{{{ {}1 }}}}", "not ".repeat(2_000)),
        format!("{{{{ a{} }}}}", "|upper".repeat(1_000)),
        format!("{{{{ a{} }}}}", ".a".repeat(4_000)),
        format!("{{{{ 1{} }}}}", " if 1 else 1".repeat(800)),
        format!("{{{{ 1{} }}}}", " == 1".repeat(800)),
        format!("{{{{ 1{} }}}}", " or 1".repeat(800)),
        format!("{{% if a %}}{}{{% endif %}}", times("{%elif a%}")),
        times("{%if a%}"),
        times("{%for a in a%}"),
        times("{%if a%}{%else%}"),
        times("{{'{{"),
        times("{% raw %}"),
        times("{#"),
    ] {
        // Some have the maximum depth and fail for another reason.
        let error = render(&source, json!({"a": 1}));
        assert!(
            error.as_ref().is_ok_and(|text| text == "1")
                || error
                    .as_ref()
                    .is_err_and(|e| e.starts_with("syntax") || e.starts_with("missing")),
            "{source:.80}: {error:?}"
        );
    }
    // At the maximum depth.
    for (source, rendered) in [
        (format!("{{{{ {}1 }}}}", "not ".repeat(198)), "True"),
        (format!("{{{{ a{} }}}}", "|upper".repeat(99)), "1"),
        (format!("{{{{ 1{} }}}}", " or 1".repeat(99)), "1"),
        (format!("{{{{ 1{} }}}}", " if 1 else 1".repeat(49)), "1"),
        (
            format!(
                "{{% if 0 %}}{}{{% else %}}x{{% endif %}}",
                "{% elif 0 %}".repeat(50)
            ),
            "x",
        ),
        (
            format!("{}x{}", "{% if 1 %}".repeat(100), "{% endif %}".repeat(100)),
            "x",
        ),
        (
            format!(
                "{}x{}",
                "{% for i in a %}".repeat(100),
                "{% endfor %}".repeat(100)
            ),
            "x",
        ),
    ] {
        assert_eq!(render(&source, json!({"a": "1"})).as_deref(), Ok(rendered));
    }
    // A request nests at most 64 levels.
    let nested = |bottom: Value| (0..64).fold(bottom, |inner, _| json!([inner]));
    let values = json!({"a": nested(json!(1)), "b": nested(json!(2))});
    let source = "{{ a == b }}{{ a < b }}{{ a|tojson|length }}{{ a|sort|length }}{{ a }}";
    assert!(
        render(source, values)
            .unwrap()
            .starts_with("FalseTrue1291[[[")
    );
}

#[test]
fn odd_numbers_are_no_panic() {
    for source in [
        "{{ 1.5|round(-400) }}",
        "{{ 1.5|round(2147483647) }}",
        "{{ 15|round(-2147483647) }}",
        "{{ 15|round(-2147483648) }}",
        "{{ '1'|int(1, 99) }}",
        "{{ '1'|int(base=0) }}",
        "{{ '-170141183460469231731687303715884105728'|int }}",
        "{{ 'nan'|float|int }}{{ 'inf'|float|round }}{{ 'nan'|float == 'nan'|float }}",
        "{{ -9223372036854775808 }}",
        "{{ -170141183460469231731687303715884105728 }}",
        "{{ -340282366920938463463374607431768211455 }}",
        "{{ x[9223372036854775807] }}",
        "{{ x[-9223372036854775807] }}",
        "{{ x[-170141183460469231731687303715884105727] }}",
        "{{ 'abc'[-9223372036854775807] }}",
        "{{ 1e400 }}",
        "{{ 0x1F }}",
        "{{ 99999999999999999999999999999999999999999999 }}",
        "{{ x|sort }}{{ x|unique }}{{ x|sort(reverse=x) }}",
        "{{ '\\u0000' }}",
        "{{ '\\ud800' }}",
        "{{ loop }}",
        "{% for i in x %}{{ loop }}{{ loop == loop }}{{ loop|tojson }}{% endfor %}",
        "{% for i in x %}{{ loop.cycle }}{{ loop.x }}{% endfor %}",
        "{% for a, b in x %}{% endfor %}",
        "{% for (a, (b, c)) in x %}{% endfor %}",
        "{% for loop in x %}{% endfor %}",
        "{{ x|join(x)|int(x) }}",
        "{{ |upper }}{{ x| }}{{ is defined }}",
        "{{ x|upper() }}{{ x|upper(1) }}{{ x|default(1, 2, 3) }}{{ x|sort(a=1) }}",
    ] {
        let values =
            json!({"x": [1, "a", null, 1.5, [], {"k": 1}, true, u64::MAX, i64::MIN, 1e300]});
        let panicked = std::panic::catch_unwind(|| render(source, values)).is_err();
        assert!(!panicked, "{source}");
    }
}

proptest! {
    /// Any input is parsed or refused, and then rendered or refused.
    #[test]
    fn nothing_panics(parts in prop::collection::vec(prop::sample::select(vec![
        "{{ ", " }}", "{% ", " %}", "{%- ", "-}}", "if ", "else ", "elif ", "endif ", "for ", "in ", "endfor ", "set ", "a", "b", "c",
        ".", "[", "]", "(", ")", "{", "}", ":", ",", "|", "~", "+", "-", "*", "%", "=", "==", "<", "1", "0", "1.5", "'x'", "\"é\"", "\\",
        "join", "sort", "replace", "default(", "round(", "int", "unique", "first", "tojson", "9223372036854775807", "''", "none ", "true ",
        "is ", "defined", "not ", "and ", "loop", "\n", "text ", "{#", "#}", "raw ", "endraw ", "{{ a }}", "{% for b in a %}", "{% endfor %}",
        "{% if a %}", "{% endif %}", "|upper", "|last", " in a", " == b", "reverse", "attribute=",
    ]), 0..40)) {
        let source = parts.concat();
        _ = render(&source, json!({"a": [1, "x", {"b": null}, [2.5]], "b": "é", "c": {"x": "y"}}));
    }
}
