//! Shows a request as code: curl, Python, JavaScript.

use std::fmt::Write as _;

use maud::{Markup, html};
use serde_json::Value;

use super::parts::code_block;

/// A POST with an API key.
pub struct Call<'a> {
    pub base_url: &'a str,
    pub path: &'a str,
    pub body: &'a Value,
    /// Whether it creates a job; the code then waits for its end.
    pub waits: bool,
}

pub fn all(call: &Call<'_>) -> Markup {
    html! {
        details.fold open { summary { "curl" } (code_block("curl", &curl(call))) }
        details.fold { summary { "Python" } (code_block("Python", &python(call))) }
        details.fold { summary { "JavaScript" } (code_block("JavaScript", &javascript(call))) }
    }
}

fn pretty(body: &Value) -> String {
    serde_json::to_string_pretty(body).unwrap_or_default()
}

/// Fills in a template. `wait`: how it asks the API to wait.
fn filled(template: &str, call: &Call<'_>, wait: &str, body: &str) -> String {
    let template = template.trim_end();
    let template = template.replace("{url}", &format!("{}{}", call.base_url, call.path));
    let template = template.replace("{wait}", if call.waits { wait } else { "" });
    template.replace("{body}", body)
}

fn curl(call: &Call<'_>) -> String {
    // Closes the quoted string, adds an escaped quote, and reopens it.
    let body = pretty(call.body).replace('\'', r"'\''");
    let wait = " \\\n  -H 'Prefer: wait=60'";
    filled(include_str!("code/curl.sh"), call, wait, &body)
}

fn python(call: &Call<'_>) -> String {
    let mut body = String::new();
    python_literal(call.body, 4, &mut body);
    let wait = "\n        \"Prefer\": \"wait=60\",";
    filled(include_str!("code/python.py"), call, wait, &body)
}

fn javascript(call: &Call<'_>) -> String {
    let body = pretty(call.body).replace('\n', "\n  ");
    let wait = "\n    Prefer: \"wait=60\",";
    filled(include_str!("code/javascript.js"), call, wait, &body)
}

/// Writes a JSON value as a Python literal. Strings of JSON are valid in Python, except surrogate
/// escapes, which `serde_json` does not write.
fn python_literal(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Object(members) => {
            out.push_str("{\n");
            for (name, member) in members {
                // Writing to a string cannot fail.
                let _ = write!(out, "{:indent$}    {}: ", "", Value::from(name.as_str()));
                python_literal(member, indent + 4, out);
                out.push_str(",\n");
            }
            let _ = write!(out, "{:indent$}}}", "");
        }
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(body: &Value) -> Call<'_> {
        Call {
            base_url: "http://host",
            path: "/v1/generate/text",
            body,
            waits: false,
        }
    }

    #[test]
    fn quotes_of_a_prompt_do_not_end_the_shells() {
        let body = json!({"prompt": "it's; rm -rf '$HOME'"});
        let code = curl(&call(&body));
        assert!(
            code.ends_with(
                r#"-d '{
  "prompt": "it'\''s; rm -rf '\''$HOME'\''"
}'"#
            ),
            "{code}"
        );
    }

    #[test]
    fn python_has_its_own_words() {
        let body = json!({"stream": true, "x": null, "parameters": {"n": 2}});
        let code = python(&call(&body));
        let expected = "json={\n        \"stream\": True,\n        \"x\": None,\n        \
                        \"parameters\": {\n            \"n\": 2,\n        },\n    },";
        assert!(code.contains(expected), "{code}");
    }
}
