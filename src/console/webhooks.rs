//! Webhooks: list, create, delete, deliveries, resend.

use axum::{
    extract::Path,
    response::{IntoResponse as _, Redirect, Response},
};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::{
    form::{Form, RequestForm},
    once, operations as op,
    operator::Operator,
    parts::{self, amount, copyable, list as rows_of, text},
    problem::Problem,
    session::Session,
    shell,
    table::{self, Column, file},
};
use crate::{
    domain::{ids::AccountId, webhook::secret_text},
    request::WebhookRequest,
};

const EVENTS: [(&str, &str); 2] = [
    ("generation.completed", "A generation completed"),
    ("generation.failed", "A generation failed"),
];

pub async fn list(session: Session) -> Result<Markup, Problem> {
    listing(&session, &Form::default(), None).await
}

async fn listing(
    session: &Session,
    form: &Form,
    problem: Option<&Problem>,
) -> Result<Markup, Problem> {
    let found = session.list(op::WEBHOOKS).await?;
    let rows = rows_of(&found["data"]);
    let actions = parts::download("/webhooks.csv", rows);
    let about = "With one, your program need not poll for the end of jobs.";
    let none = parts::empty("No webhooks yet", about, &html! {});
    let content = html! {
        (shell::head("Webhooks", "Events are posted to your server, signed, as soon as a generation ends.", &actions))
        section.card { (table::list_or(&none, &columns(), rows)) }
        (parts::pager(&session.path, &found["next_cursor"]))
        @if session.viewed.is_none() { (new(form, problem)) }
    };
    Ok(shell::page(session, "Webhooks", &content))
}

pub async fn csv(session: Session) -> Result<Response, Problem> {
    table::download_list("webhooks", columns(), session, |session| {
        session.long_pages(op::WEBHOOKS)
    })
    .await
}

pub async fn deliveries(session: Session, Path(id): Path<String>) -> Result<Response, Problem> {
    let columns = delivery_columns(id.clone(), None);
    table::download_list("deliveries", columns, session, move |session| {
        let call = session.call(op::DELIVERIES, &[&id]);
        call.query("per_page", "100")
    })
    .await
}

fn columns() -> Vec<Column<'static>> {
    let url = |row: &Value| html! { a href={ "/webhooks/" (row["id"].to_string()) } { (text(&row["url"])) } };
    vec![
        file("id"),
        table::row("url", "Address", url).class("cut"),
        table::words("events", "Events"),
        table::time("created_at", "Created"),
    ]
}

fn new(form: &Form, problem: Option<&Problem>) -> Markup {
    let ticked = form.all("event");
    html! {
        form.card method="post" action="/webhooks" {
            (once::field())
            h2 { "New webhook" }
            @if problem.is_some() { (parts::refusal(problem, &["url", "events"])) }
            (RequestForm::new::<WebhookRequest>().input(("url", "Address", "https, at a public address."), form, problem))
            fieldset {
                legend { "Events" }
                div.checks {
                    @for (name, about) in EVENTS {
                        label.check {
                            input type="checkbox" name="event" value=(name)
                                checked[problem.is_none() || ticked.contains(&name)];
                            span { (about) " " code.muted { (name) } }
                        }
                    }
                }
                @if let Some(wrong) = problem.and_then(|p| p.field("events")) { p.error { (parts::sentence(wrong)) } }
            }
            div.actions { button.primary type="submit" { "Create the webhook" } }
        }
    }
}

pub async fn create(session: Session, form: Form) -> Result<Response, Problem> {
    let mut body = RequestForm::new::<WebhookRequest>().body(&form);
    body.insert("events".to_owned(), json!(form.all("event")));
    let call = session.call(op::CREATE_WEBHOOK, &[]).body(body);
    match once::create(call, &form).await {
        Ok(made) => Ok(made.redirect_to_secret(&session, "/webhooks")),
        Err(problem) => {
            let page = listing(&session, &form, Some(&problem)).await?;
            Ok(problem.on(page))
        }
    }
}

pub async fn page(session: Session, Path(id): Path<String>) -> Result<Response, Problem> {
    let deliveries = session.page_of(session.call(op::DELIVERIES, &[&id]));
    let webhook = session.call(op::WEBHOOK, &[&id]).json();
    let (webhook, found) = tokio::try_join!(webhook, deliveries.json())?;
    let rows = rows_of(&found["data"]);
    let secret = unshown(&session);
    let path = format!("/webhooks/{}", webhook["id"]);
    let action = format!("{path}/delete");
    let remove = parts::confirmed("Delete", "Nothing is posted to it from then on.", &action);
    let export = format!("{path}/deliveries.csv");
    let about = format!("Posted here: {}.", table::joined(&webhook["events"], ", "));
    let none = parts::empty("Nothing to deliver yet", &about, &html! {});
    let actions = html! {
        (parts::download(&export, rows))
        @if session.viewed.is_none() { (remove) }
    };
    let content = html! {
        (shell::head("Webhook", text(&webhook["url"]), &actions))
        @if let Some(secret) = &secret {
            section.card {
                h2 { "Your new webhook" }
                p.notice { "Copy the secret now: it is not shown again. Verify the signature of each event with it." }
                div.secret { (copyable(secret)) }
            }
        } @else { (once::notice(&session)) }
        section.card {
            h2 { "Deliveries" }
            (table::list_or(&none, &delivery_columns(id.clone(), session.viewed), rows))
        }
        (parts::pager(&session.path, &found["next_cursor"]))
    };
    let page = shell::page(&session, "Webhook", &content);
    Ok(match secret {
        Some(_) => once::shown(page, &session, &path),
        None => page.into_response(),
    })
}

/// Returns the secret of the webhook that the browser's form just created, if not shown yet.
fn unshown(session: &Session) -> Option<String> {
    let token = once::unshown(session)?;
    Some(secret_text(&token.webhook_secret(once::account(session))))
}

/// Returns the columns of deliveries. `viewed`: the account that an operator views, whose
/// deliveries are resent by the operator's route.
fn delivery_columns(webhook: String, viewed: Option<AccountId>) -> Vec<Column<'static>> {
    let event = |row: &Value| html! { a href={ "/generations/" (text(&row["generation"])) } { (text(&row["event"])) } };
    let answer = |row: &Value| {
        html! {
            @if let Some(status) = row["response_status"].as_u64() { (status) " " }
            @if let Some(error) = row["error"].as_str() { span.muted { (error) } }
            @if row["attempts"].as_u64() > Some(1) { span.muted { " (attempt " (amount(&row["attempts"])) ")" } }
        }
    };
    let again = move |row: &Value| {
        let action = match viewed {
            Some(account) => format!("/operator/accounts/{account}/deliveries/{}", row["id"]),
            None => format!("/webhooks/{webhook}/deliveries/{}", row["id"]),
        };
        html! {
            form method="post" action=(action) {
                input type="hidden" name="webhook" value=(webhook);
                button type="submit" { "Send again" }
            }
        }
    };
    vec![
        file("id"),
        table::badge("status", "State"),
        table::row("event", "Event", event),
        file("generation"),
        table::row("response_status", "Answer", answer),
        file("error"),
        file("attempts"),
        table::time("last_attempt_at", "Last attempt").class("narrow-hidden"),
        table::time("next_attempt_at", "Next attempt").class("narrow-hidden"),
        file("created_at"),
        file("delivered_at"),
        table::row("", "Action", again).class("right"),
    ]
}

pub async fn redeliver(
    session: Session,
    Path((id, delivery)): Path<(String, String)>,
) -> Result<Redirect, Problem> {
    session.get(op::REDELIVER, &[&id, &delivery]).await?;
    Ok(Redirect::to(&format!("/webhooks/{id}")))
}

pub async fn delete(session: Session, Path(id): Path<String>) -> Result<Redirect, Problem> {
    session.get(op::DELETE_WEBHOOK, &[&id]).await?;
    Ok(Redirect::to("/webhooks"))
}

pub async fn redeliver_for_customer(
    Path((account, delivery)): Path<(String, String)>,
    Operator(session): Operator,
    form: Form,
) -> Result<Redirect, Problem> {
    let ids = [account.as_str(), delivery.as_str()];
    session.get(op::REDELIVER_FOR_CUSTOMER, &ids).await?;
    let webhook: i64 = form.word("webhook").parse().unwrap_or_default();
    Ok(Redirect::to(&format!("/webhooks/{webhook}")))
}
