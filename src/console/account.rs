//! Settings: the account's default models and the user's password.

use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::{
    form::{Form, RequestForm},
    operations as op,
    parts::{self, TYPES, fact, icon, list, option, text, time},
    problem::Problem,
    session::Session,
    shell,
};
use crate::request::PasswordChange;

pub async fn page(session: Session) -> Result<Response, Problem> {
    answer(&session, None, None).await
}

pub async fn change(session: Session, form: Form) -> Result<Response, Problem> {
    let mut defaults = Map::new();
    let account = session.get(op::ACCOUNT, &[]).await?;
    for (kind, _) in TYPES {
        if form.get(kind) == chosen(&account["defaults"][kind]) {
            // Its fallbacks, which the form does not show, are kept.
            continue;
        }
        let target = match form.get(kind).split_once('/') {
            // The provider's default model.
            Some((provider, "")) => json!({"provider": provider}),
            Some((provider, model)) => json!({"provider": provider, "model": model}),
            None => Value::Null,
        };
        defaults.insert(kind.to_owned(), target);
    }
    let body = json!({"defaults": defaults});
    let saved = session.send(op::CHANGE_ACCOUNT, &[], body).await;
    answer(&session, Some(saved), None).await
}

pub async fn password(session: Session, form: Form) -> Result<Response, Problem> {
    let body = RequestForm::new::<PasswordChange>().body(&form);
    let changed = session.send(op::CHANGE_PASSWORD, &[], body).await;
    answer(&session, None, Some(changed)).await
}

/// Renders the page, with the result of one of its two forms.
async fn answer(
    session: &Session,
    saved: Option<Result<Value, Problem>>,
    changed: Option<Result<Value, Problem>>,
) -> Result<Response, Problem> {
    let (account, models, providers) = tokio::try_join!(
        session.get(op::ACCOUNT, &[]),
        session.get(op::MODELS, &[]),
        session.get(op::PROVIDERS, &[]),
    )?;
    let done = match (&saved, &changed) {
        (Some(Ok(_)), _) => Some("The defaults were saved."),
        (_, Some(Ok(_))) => Some("The new password is set; your other sessions have ended."),
        _ => None,
    };
    let (unsaved, unchanged) = (saved.and_then(Result::err), changed.and_then(Result::err));
    let problem = unsaved.as_ref().or(unchanged.as_ref());
    let status = problem.map_or(StatusCode::OK, |problem| problem.status);
    let user = &session.me["user"];
    let content = html! {
        (shell::head("Settings", "", &html! {}))
        @if let Some(done) = done { p.notice.good role="status" { (done) } }
        div.columns.halves {
            div.stack {
                (defaults(&account, &models, &providers, unsaved.as_ref()))
                section.card {
                    h2 { "Account" }
                    dl.facts {
                        (fact("Name", &html! { (text(&account["name"])) }))
                        (fact("Id", &html! { (account["id"].to_string()) }))
                        (fact("You", &html! { (text(&user["email"])) }))
                        (fact("Created", &time(&account["created_at"])))
                        (fact("Session ends", &time(&session.me["token"]["expires_at"])))
                    }
                }
            }
            (password_form(unchanged.as_ref()))
        }
    };
    Ok((status, shell::page(session, "Settings", &content)).into_response())
}

/// Returns the option's value of a default.
fn chosen(default: &Value) -> String {
    match default["provider"].as_str() {
        Some(provider) => format!("{provider}/{}", text(&default["model"])),
        None => String::new(),
    }
}

fn defaults(
    account: &Value,
    models: &Value,
    providers: &Value,
    problem: Option<&Problem>,
) -> Markup {
    html! {
        form.card method="post" action="/settings" {
            h2 { "Defaults" }
            p.muted { "Used for requests that name no provider." }
            (match problem { Some(_) => parts::refusal(problem, &[]), None => html! {} })
            @for (kind, name) in TYPES {
                @let default = &account["defaults"][kind];
                @let chosen = chosen(default);
                label.field {
                    span.label { (icon(kind)) " " (name) }
                    select name=(kind) {
                        (option("", &chosen, "The server's default"))
                        @for provider in list(&providers["data"]).iter().map(|p| text(&p["id"])) {
                            @let own: Vec<&Value> = own(models, provider, kind, &chosen);
                            @if !own.is_empty() {
                                optgroup label=(provider) {
                                    (option(&format!("{provider}/"), &chosen, &format!("{provider}: its default model")))
                                    @for model in own {
                                        (option(&format!("{provider}/{}", text(&model["id"])), &chosen, text(&model["id"])))
                                    }
                                }
                            }
                        }
                    }
                }
            }
            div.actions { button.primary type="submit" { "Save the defaults" } }
        }
    }
}

/// Returns the models of a provider that can be chosen. A chosen model stays after its retirement,
/// because requests use its replacement.
fn own<'a>(models: &'a Value, provider: &str, kind: &str, chosen: &str) -> Vec<&'a Value> {
    let is_chosen = |model: &Value| format!("{provider}/{}", text(&model["id"])) == chosen;
    let models = list(&models["data"]).iter();
    models
        .filter(|m| m["provider"] == provider && m["type"] == kind)
        .filter(|m| m["retired"] != true || is_chosen(m))
        .collect()
}

fn password_form(problem: Option<&Problem>) -> Markup {
    let request = RequestForm::new::<PasswordChange>();
    html! {
        form.card method="post" action="/settings/password" {
            h2 { "Password" }
            p.muted { "Your other sessions end with the change; API keys stay." }
            @if problem.is_some() { (parts::refusal(problem, &["current_password", "new_password"])) }
            (request.input(("current_password", "Current password", ""), &Form::default(), problem))
            (request.input(("new_password", "New password", "At least 8 characters."), &Form::default(), problem))
            div.actions { button.primary type="submit" { "Set the password" } }
        }
    }
}
