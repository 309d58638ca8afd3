//! What hostile templates cannot do.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;

use super::{render, says};

/// Each of these would make gigabytes, or run for minutes.
#[test]
fn bombs_are_refused_fast() {
    let doubling = |one: &str| format!("{{% set a = 'x' %}}{}{{{{ a }}}}", one.repeat(200));
    let lists = |end: &str| {
        let one = "{% set a = [a, a] %}{% set b = [b, b] %}";
        format!("{{% set a = 1 %}}{{% set b = 1 %}}{}{end}", one.repeat(60))
    };
    let nested = "{% for a in range(5000) %}{% for b in range(5000) %}{% for c in range(5000) %}x{% endfor %}{% endfor %}{% endfor %}";
    let values = json!({"s": "x".repeat(200_000), "t": "x".repeat(200_000), "xs": vec![0; 7_000],
        "ys": vec!["a,b"; 6_000], "z": format!("{}y", "x".repeat(100_000))});
    for source in [
        "{{ 'x' * 10**9 }}".to_owned(),
        "{{ 'x' * 1000000000 }}".to_owned(),
        "{% set a = 'x' * 100000000 %}".to_owned(),
        "{{ 100000000 * 'x' }}".to_owned(),
        "{{ 10 ** 30 * 'x' }}".to_owned(),
        "{{ [1] * 100000000 }}".to_owned(),
        "{% if 'x' * 100000000 %}{% endif %}".to_owned(),
        doubling("{% set a = a ~ a %}"),
        doubling("{% set a = a + a %}"),
        doubling("{% set a = a * 9 %}"),
        doubling("{% set a %}{{ a }}{{ a }}{% endset %}"),
        doubling("{% set a = a|replace('x', 'xx') %}"),
        doubling("{% set a = [a, a]|join(a) %}"),
        doubling("{% set a = a|indent(60, true) ~ a %}"),
        doubling("{% set a = [a, a] %}"),
        doubling("{% set a = (a, a) %}"),
        doubling("{% set a = {'k': a, 'l': a} %}"),
        doubling("{% set a = [a]|string|tojson %}"),
        "{{ 'x'|indent(1000000000, true) }}".to_owned(),
        "{{ range(1000000000) }}".to_owned(),
        "{{ range(0, 9223372036854775807, 1) }}".to_owned(),
        "{{ range(0, -9223372036854775807, -1) }}".to_owned(),
        "{% for i in range(4000) %}{{ s }}{% endfor %}".to_owned(),
        "{% for i in range(4000) %}{% if s == t %}{% endif %}{% endfor %}".to_owned(),
        "{% for i in range(4000) %}{% if 'y' in s %}{% endif %}{% endfor %}".to_owned(),
        "{% for i in range(4000) %}{% if 1 in xs %}{% endif %}{% endfor %}".to_owned(),
        "{% for i in range(4000) %}{% set a = xs|sort %}{% endfor %}".to_owned(),
        "{% for i in range(4000) %}{% set a = s|length %}{% endfor %}".to_owned(),
        "{% for i in range(4000) %}{% set a = s|upper %}{% endfor %}".to_owned(),
        "{% for i in range(4000) %}{% set a = s[1:2] %}{% endfor %}".to_owned(),
        "{% for i in range(4000) %}{% if s is lower %}{% endif %}{% endfor %}".to_owned(),
        "{% for i in range(4000) %}{% if s is startingwith t %}{% endif %}{% endfor %}".to_owned(),
        "{% for i in range(4000) %}{% set a = {s: 1} %}{% endfor %}".to_owned(),
        "{{ s|list }}".to_owned(),
        "{{ s|split('x') }}".to_owned(),
        "{{ s|replace('', s) }}".to_owned(),
        "{{ ys|join(s) }}".to_owned(),
        "{% set a %}{% for i in range(5000) %}{{ s }}{% endfor %}{% endset %}".to_owned(),
        "{% filter upper %}{% for i in range(5000) %}{{ s }}{% endfor %}{% endfilter %}".to_owned(),
        format!(
            "{{% for i in range(5000) %}}{}{{% endfor %}}",
            "y".repeat(9_000)
        ),
        format!(
            "{{% set a %}}{{% for i in range(5000) %}}{}{{% endfor %}}{{% endset %}}",
            "y".repeat(9_000)
        ),
        nested.to_owned(),
        lists("{{ a == b }}"),
        lists("{{ a }}"),
        lists("{{ a|length }}"),
        lists("{{ a in [b] }}"),
    ] {
        let start = Instant::now();
        let error = render(&source, values.clone())
            .map(|text| text.len())
            .unwrap_err();
        let shown: String = source.chars().take(80).collect();
        let known = ["too much", "unfit", "parse"]
            .iter()
            .any(|word| error.starts_with(word));
        assert!(known, "{shown}: {error}");
        // Far above what it takes, far below what it would take.
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{shown}: {error}"
        );
    }
}

#[test]
fn deep_templates_do_not_exhaust_the_stack() {
    let times = |text: &str| text.repeat(10_000 / text.len());
    for source in [
        format!("{{{{ {}1 }}}}", "(".repeat(4_000)),
        format!("{{{{ {}1 }}}}", "[".repeat(4_000)),
        format!("{{{{ {}1{} }}}}", "[".repeat(140), "]".repeat(140)),
        format!("{{{{ {}1 }}}}", "not ".repeat(2_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(4_000)),
        format!("{{{{ a{} }}}}", "|d".repeat(4_000)),
        format!("{{{{ a{} }}}}", ".a".repeat(4_000)),
        format!("{{{{ 1{} }}}}", "+1".repeat(4_000)),
        format!("{{{{ 1{} }}}}", " if 1 else 1".repeat(800)),
        format!("{{% if a %}}{}{{% endif %}}", times("{%elif a%}")),
        times("{%if a%}"),
        times("{%for a in a%}"),
        times("{%set a%}"),
        times("{%filter d%}"),
        format!("{{% filter {}d %}}x{{% endfilter %}}", "d|".repeat(4_000)),
        times("{%with%}"),
        times("{{'{{"),
        times("{% raw %}"),
        times("{#"),
    ] {
        let error = render(&source, json!({"a": 1})).unwrap_err();
        assert!(error.starts_with("parse"), "{error}");
    }
    // As deep as allowed.
    let chain = format!("{{{{ a{} }}}}", "|d".repeat(95));
    assert_eq!(says(&chain, json!({"a": 1})), "1");
    let sum = format!("{{{{ 1{} }}}}", "+1".repeat(95));
    assert_eq!(says(&sum, json!({})), "96");
    let blocks = format!("{}x{}", "{% if 1 %}".repeat(30), "{% endif %}".repeat(30));
    assert_eq!(says(&blocks, json!({})), "x");
    let lists = format!(
        "{{% set a = 1 %}}{}{{{{ a|length }}}}",
        "{% set a = [a] %}".repeat(70)
    );
    assert_eq!(says(&lists, json!({})), "1");
}

#[test]
fn odd_numbers_are_no_panic() {
    for source in [
        "{{ 9223372036854775807 + 1 }}",
        "{{ -9223372036854775807 - 9 }}",
        "{{ 1 / 0 }}",
        "{{ 1 // 0 }}",
        "{{ 1 % 0 }}",
        "{{ 2 ** 200 }}",
        "{{ 2 ** -1 }}",
        "{{ 10 ** 38 * 10 ** 38 }}",
        "{{ -(10 ** 38) - 10 ** 38 }}",
        "{{ 1e308 * 10 }}",
        "{{ (0 - 170141183460469231731687303715884105727 - 1) // -1 }}",
        "{{ -(0 - 170141183460469231731687303715884105727 - 1) }}",
        "{{ (0 - 170141183460469231731687303715884105727 - 1)|abs }}",
        "{{ 1.5|round(-400) }}",
        "{{ 1.5|round(2147483647) }}",
        "{{ 15|round(-2147483647) }}",
        "{{ '1'|int(1, 99) }}",
        "{{ '1'|int(base=99) }}",
        "{{ 'abc'[-9223372036854775807:] }}",
        "{{ 'abc'[9223372036854775807:-9223372036854775807] }}",
        "{{ [1][-9223372036854775807:9223372036854775807] }}",
        "{{ [1,2][170141183460469231731687303715884105727] }}",
        "{{ 'a,b'|split(',', -9223372036854775807) }}",
        "{{ 'a,b'|split(',', 9223372036854775807) }}",
        "{{ 'x'|indent(-1) }}",
        "{{ 5 is divisibleby(0) }}",
        "{{ 1e400 }}",
        "{{ 99999999999999999999999999999999999999999999 }}",
        "{{ [1, 'a', none, 1.5, []]|sort }}",
        "{{ {[1]: 2, {}: 3} }}",
        "{{ '\\u0000' }}",
        "{{ '\\ud800' }}",
        "{{ 'a' * -1 }}",
        "{{ 'a' * 1.5 }}",
        "{{ 0.0 / 0.0 }}",
        "{{ [0.0/0.0, 1]|sort|first }}",
        "{{ loop }}",
        "{% for i in [1] %}{{ loop }}{{ loop == loop }}{{ [loop]|tojson }}{% endfor %}",
        "{{ range }}",
        "{% for a, b in [1] %}{% endfor %}",
        "{% for a, b in [[1]] %}{% endfor %}",
    ] {
        let panicked = std::panic::catch_unwind(|| render(source, json!({}))).is_err();
        assert!(!panicked, "{source}");
    }
}

proptest! {
    /// Whatever is written, it is read or refused, and rendered or refused.
    #[test]
    fn nothing_panics(parts in prop::collection::vec(prop::sample::select(vec![
        "{{ ", " }}", "{% ", " %}", "if ", "else ", "elif ", "endif ", "for ", "in ", "endfor ", "set ", "endset ", "with ", "endwith ",
        "filter ", "endfilter ", "a", "b", ".", "[", "]", "(", ")", "{", "}", ":", ",", "|", "~", "+", "-", "*", "**", "//", "%", "=", "==", "<",
        "1", "0", "1.5", "'x'", "\"é\"", "\\", "join", "sort", "replace", "range(", "default", "indent(", "split", "round(", "int", "dictsort", "unique", "first", "tojson", "9223372036854775807", "divisibleby(", "''","none ", "true ", "is ", "defined", "not ", "and ", "\n", "text ", "{#", "#}", "raw ", "endraw ",
    ]), 0..40)) {
        let source = parts.concat();
        _ = render(&source, json!({"a": [1, "x", {"b": null}], "b": "é"}));
    }
}
