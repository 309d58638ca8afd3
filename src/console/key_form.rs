//! The form of an API key: name, abilities and limits.

use chrono::{DateTime, TimeDelta};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::{
    form::{Form, RequestForm},
    parts::{self, field, option, text},
    problem::Problem,
};
use crate::{
    domain::{ability::Ability, ids::AccountId},
    request::KeyRequest,
};

const FIELDS: [&str; 6] = [
    "name",
    "abilities",
    "rate_limit_per_minute",
    "expires_at",
    "spend_limit",
    "spend_period",
];

/// Renders the inputs, below the errors that no input shows.
pub fn inputs(form: &Form, problem: Option<&Problem>) -> Markup {
    let request = RequestForm::new::<KeyRequest>();
    html! {
        @if problem.is_some() { (parts::refusal(problem, &FIELDS)) }
        (request.input(("name", "Name", "Where it is used, such as backend."), form, problem))
        (abilities(form, problem))
        (limits(&request, form, problem))
    }
}

/// Renders the inputs of a key's limits.
fn limits(request: &RequestForm, form: &Form, problem: Option<&Problem>) -> Markup {
    let input = |field| request.input(field, form, problem);
    html! {
        div.fields {
            (input(("rate_limit_per_minute", "Requests per minute", "600 by default.")))
            (input(("expires_at", "Last day (UTC)", "Empty: it never expires.")))
            (input(("spend_limit", "Spend limit", "Credits. Empty: it can spend the whole balance.")))
            (field(problem, "Limit resets", "spend_period", "In UTC.", &html! {
                select name="spend_period" {
                    (option("", form.get("spend_period"), "Never"))
                    (option("day", form.get("spend_period"), "Every day"))
                    (option("month", form.get("spend_period"), "Every month"))
                }
            }))
        }
    }
}

fn abilities(form: &Form, problem: Option<&Problem>) -> Markup {
    let ticked = form.all("ability");
    let is_limited = form.word("scope") == "some";
    let about = |ability: Ability| match ability {
        Ability::GenerateText => "Generate texts",
        Ability::GenerateImage => "Generate images",
        Ability::GenerateVideo => "Generate videos",
        Ability::GenerateAudio => "Generate speech",
        Ability::ReadHistory => "Read generations and their results",
        Ability::ReadCredits => "Read balance, usage and estimates",
        Ability::All => "Everything",
    };
    html! {
        fieldset {
            legend { "What it may call" }
            label.check {
                input type="radio" name="scope" value="all" checked[!is_limited];
                span { "Everything" }
            }
            label.check {
                input type="radio" name="scope" value="some" checked[is_limited];
                span { "Only these:" }
            }
            div.checks.below {
                @for ability in Ability::ALL.iter().copied().filter(|ability| *ability != Ability::All) {
                    label.check {
                        input type="checkbox" name="ability" value=(ability.as_str())
                            checked[ticked.contains(&ability.as_str())];
                        span { (about(ability)) " " code.muted { (ability.as_str()) } }
                    }
                }
            }
            @if let Some(wrong) = problem.and_then(|p| p.field("abilities")) { p.error { (parts::sentence(wrong)) } }
        }
    }
}

/// Builds the request of a key's form.
pub fn body(form: &Form) -> Map<String, Value> {
    let mut body = RequestForm::new::<KeyRequest>().body(form);
    // An unchanged day keeps its time.
    let (day, exactly) = (form.get("expires_at"), form.get("expires_exactly"));
    if !exactly.is_empty() && form.get("before") == day {
        body.insert("expires_at".to_owned(), json!(exactly));
    }
    // If no box is ticked, the list is empty, which the API refuses.
    if form.word("scope") == "some" {
        body.insert("abilities".to_owned(), json!(form.all("ability")));
    }
    body
}

/// Renders the forms with which an operator changes and revokes an active key.
pub fn operator_forms(account: AccountId, key: &Value) -> Markup {
    let action = format!("/operator/accounts/{account}/keys/{}", key["id"]);
    html! {
        (editor(&action, &filled(key), None))
        section.card {
            h2 { "Revoke this key" }
            (parts::confirmed("Revoke", "Requests with this key are refused from then on. It cannot be undone.",
                &format!("{action}/revoke")))
        }
    }
}

fn filled(key: &Value) -> Form {
    let mut form = Form::default();
    for name in ["name", "spend_limit", "spend_period"] {
        form.push(name, text(&key[name]));
    }
    form.push(
        "rate_limit_per_minute",
        &key["rate_limit_per_minute"].to_string(),
    );
    let end = DateTime::parse_from_rfc3339(text(&key["expires_at"]));
    if let Ok(end) = end {
        // The form shows the last whole day.
        let last = end.to_utc() - TimeDelta::microseconds(1);
        form.push("expires_at", &last.format("%Y-%m-%d").to_string());
        form.push("before", &last.format("%Y-%m-%d").to_string());
        form.push("expires_exactly", text(&key["expires_at"]));
    }
    let abilities = parts::list(&key["abilities"]).iter().map(text);
    let abilities: Vec<&str> = abilities.collect();
    if abilities != ["*"] {
        form.push("scope", "some");
        for ability in abilities {
            form.push("ability", ability);
        }
    }
    form
}

/// Renders the form with which an operator changes a key.
pub fn editor(action: &str, form: &Form, problem: Option<&Problem>) -> Markup {
    html! {
        form.card method="post" action=(action) {
            h2 { "Change this key" }
            @for name in ["before", "expires_exactly"] {
                input type="hidden" name=(name) value=(form.get(name));
            }
            (inputs(form, problem))
            div.actions { button.primary type="submit" { "Save" } }
        }
    }
}
