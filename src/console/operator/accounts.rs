//! Accounts for operators: list, create, change, credits, suspension, deletion, and the view as
//! customer.

use axum::{
    extract::Path,
    response::{IntoResponse as _, Redirect, Response},
};
use http::{StatusCode, header};
use maud::{Markup, html};
use serde_json::Value;

use super::Operator;
use crate::{
    console::{
        client::Call,
        form::{Form, RequestForm},
        operations as op,
        parts::{self, amount, badge, fact, field, option, text, time},
        problem::Problem,
        session::{Session, view_cookie},
        shell,
        table::{self, Column, file},
    },
    domain::ids::{AccountId, GenerationId},
    request::{AccountRequest, AccountUpdate, MoveRequest, SuspensionRequest},
};

/// Filters of the list, by their names in the console and in the API.
const FILTERS: [&str; 2] = ["email", "key_hint"];

/// Adds the filters of the page to a call of the list.
fn filtered<'a>(session: &Session, call: Call<'a>) -> Call<'a> {
    FILTERS.into_iter().fold(call, |call, name| {
        call.query(name, session.query.word(name))
    })
}

pub async fn list(Operator(session): Operator) -> Result<Markup, Problem> {
    let form = &session.query;
    let call = filtered(&session, session.call(op::ACCOUNTS, &[]));
    let found = session.page_of(call.query("per_page", "50")).json().await?;
    let rows = parts::list(&found["data"]);
    let filters = FILTERS.map(|name| (name, form.word(name)));
    let actions = html! {
        (parts::download(&parts::link("/operator/accounts.csv", &filters), rows))
        a.button.primary href="/operator/accounts/new" { "Create an account" }
    };
    let content = html! {
        (shell::head("Accounts", "All accounts, newest first.", &actions))
        section.card {
            form.filters method="get" action="/operator/accounts" {
                label.field { span.label { "Email" } input type="email" name="email" value=(form.word("email")); }
                label.field { span.label { "Hint of a key" } input type="search" name="key_hint" value=(form.word("key_hint")); }
                div.actions { button.primary type="submit" { "Find" } }
            }
            @if rows.is_empty() { (parts::empty("No such account", "Enter the complete email or hint.", &html! {})) }
            @else { (table::cards(&columns(), rows)) }
        }
        (parts::pager(&session.path, &found["next_cursor"]))
    };
    Ok(shell::page(&session, "Accounts", &content))
}

pub async fn csv(Operator(session): Operator) -> Result<Response, Problem> {
    table::download_list("accounts", columns(), session, |session| {
        filtered(session, session.long_pages(op::ACCOUNTS))
    })
    .await
}

fn columns() -> Vec<Column<'static>> {
    let name = |row: &Value| html! { a href={ "/operator/accounts/" (row["id"].to_string()) } { (text(&row["name"])) } };
    vec![
        file("id"),
        table::row("name", "Account", name).class("cut"),
        table::words("email", "Email").class("cut"),
        table::amount("balance", "Balance").unit("credits"),
        table::amount("held", "On hold").class("right narrow-hidden"),
        file("available"),
        table::amount("spent", "Spent").class("right narrow-hidden"),
        table::row("", "State", |row| badge(state(row))),
        file("suspended_at"),
        file("suspended_reason"),
        file("deleted_at"),
        table::time("created_at", "Created"),
    ]
}

fn state(account: &Value) -> &'static str {
    if account["deleted_at"].is_string() {
        "deleted"
    } else if account["suspended_at"].is_string() {
        "suspended"
    } else {
        "active"
    }
}

pub async fn new(Operator(session): Operator) -> Markup {
    creation(&session, &Form::default(), None)
}

fn creation(session: &Session, form: &Form, problem: Option<&Problem>) -> Markup {
    let request = RequestForm::new::<AccountRequest>();
    let input = |field| request.input(field, form, problem);
    let content = html! {
        (shell::head("Create an account", "The account gets a first user, who can log in at once.", &html! {}))
        form.card method="post" action="/operator/accounts" {
            @if problem.is_some() { (parts::refusal(problem, &["email", "password", "name", "credits"])) }
            (input(("email", "Email", "The first user logs in with it.")))
            (input(("password", "Password", "At least 8 characters.")))
            div.fields {
                (input(("name", "Name of the account", "Default: the part of the email before the @.")))
                (input(("credits", "Credits", "Granted at once.")))
            }
            div.actions {
                button.primary type="submit" { "Create the account" }
                a.button href="/operator/accounts" { "Back" }
            }
        }
    };
    shell::page(session, "Create an account", &content)
}

pub async fn create(Operator(session): Operator, form: Form) -> Result<Response, Problem> {
    let body = RequestForm::new::<AccountRequest>().body(&form);
    match session.send(op::CREATE_ACCOUNT, &[], body).await {
        Ok(made) => {
            let address = format!("/operator/accounts/{}", made["id"]);
            Ok(Redirect::to(&address).into_response())
        }
        Err(problem) => Ok(problem.on(creation(&session, &form, Some(&problem)))),
    }
}

/// A movement of credits: 201 if this request made it, 200 if an earlier one did.
type Moved = (StatusCode, Value);

pub async fn page(
    Operator(session): Operator,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let found = generation(&session);
    answer(&session, &id, Form::default(), Ok(None), found).await
}

/// Returns the generation in the page's URL.
fn generation(session: &Session) -> Option<GenerationId> {
    GenerationId::parse(session.query.word("generation"))
}

/// Renders the account's page after a form; after a refusal with the entered values. `found`: the
/// generation that a search has found.
async fn answer(
    session: &Session,
    id: &str,
    form: Form,
    result: Result<Option<Moved>, Problem>,
    found: Option<GenerationId>,
) -> Result<Response, Problem> {
    let (form, moved, problem) = match result {
        Ok(moved) => (Form::default(), moved, None),
        Err(problem) => (form, None, Some(problem)),
    };
    let problem = problem.as_ref();
    let status = problem.map_or(StatusCode::OK, |problem| problem.status);
    let account = session.get(op::ADMIN_ACCOUNT, &[id]).await?;
    let action = format!("/operator/accounts/{}", account["id"]);
    let actions = html! {
        (badge(state(&account)))
        form method="post" action={ (action) "/view" } { button type="submit" { "View as customer" } }
    };
    let content = html! {
        (shell::head(text(&account["name"]), text(&account["email"]), &actions))
        @if let Some((status, entry)) = &moved { (movement(*status, entry, &account)) }
        @if let Some(generation) = found {
            form.notice.viewing method="post" action={ (action) "/view?generation=" (generation) } {
                span { "Found by generation " code { (generation) } ". A deleted one has no receipt." }
                button type="submit" { "View its receipt as customer" }
            }
        }
        dl.figures {
            div { dt { "Available" } dd { (amount(&account["available"])) } }
            div { dt { "On hold" } dd { (amount(&account["held"])) } }
            div { dt { "Balance" } dd { (amount(&account["balance"])) } }
            div { dt { "Spent" } dd { (amount(&account["spent"])) } }
        }
        div.columns.halves {
            (move_form(&action, &form, problem))
            div.stack {
                (facts(&account))
                @if account["deleted_at"].is_null() {
                    (change(&action, &account, &form, problem))
                    (suspension(&action, &account))
                    (deletion(&action, &account))
                }
            }
        }
    };
    let page = shell::page(session, text(&account["name"]), &content);
    Ok((status, page).into_response())
}

fn movement(status: StatusCode, entry: &Value, account: &Value) -> Markup {
    let moved = html! { (text(&entry["kind"])) " of " (parts::credits(&entry["amount"])) };
    html! {
        @if status == StatusCode::CREATED {
            p.notice.good role="status" {
                "Done: " (moved) ". The balance is " (amount(&account["balance"])) "."
            }
        } @else {
            p.notice role="status" {
                "This reference was used before (" (moved) ", " (time(&entry["created_at"]))
                "); nothing was moved again. The balance is " (amount(&account["balance"])) "."
            }
        }
    }
}

fn move_form(action: &str, form: &Form, problem: Option<&Problem>) -> Markup {
    let kinds = [
        ("grant", "Grant: adds credits"),
        ("adjustment", "Adjustment: may take credits back"),
        ("refund", "Refund of one generation"),
    ];
    let request = RequestForm::new::<MoveRequest>();
    let input = |field| request.input(field, form, problem);
    html! {
        form.card method="post" action={ (action) "/credits" } {
            h2 { "Move credits" }
            @if problem.is_some() {
                (parts::refusal(problem, &["kind", "amount", "reference", "generation", "email", "name"]))
            }
            (field(problem, "Kind", "kind", "", &html! {
                select name="kind" { @for (kind, name) in kinds { (option(kind, form.word("kind"), name)) } }
            }))
            (input(("amount", "Credits", "Only an adjustment can be negative. A refund without an amount returns the whole charge.")))
            (input(("reference", "Reference", "The reason, such as an invoice number; the customer sees it. Each reference moves credits only once.")))
            (input(("generation", "Generation", "The UUID of the generation to refund.")))
            div.actions { button.primary type="submit" { "Move the credits" } }
        }
    }
}

/// Renders the form on a receipt that refunds its generation.
pub fn refund(account: AccountId, uuid: &str) -> Markup {
    html! {
        details.confirm {
            summary.button { "Refund" }
            form.confirm-panel method="post" action={ "/operator/accounts/" (account) "/credits" } {
                input type="hidden" name="kind" value="refund";
                input type="hidden" name="generation" value=(uuid);
                label.field {
                    span.label { "Credits" }
                    input type="text" inputmode="decimal" name="amount";
                    span.hint { "Empty: the whole charge." }
                }
                label.field {
                    span.label { "Reference" }
                    input type="text" name="reference" required maxlength="255";
                    span.hint { "The reason; the customer sees it." }
                }
                button.primary type="submit" { "Refund" }
            }
        }
    }
}

fn facts(account: &Value) -> Markup {
    let times = [
        ("Suspended", "suspended_at"),
        ("Deleted", "deleted_at"),
        ("Prompts and files removed", "erased_at"),
    ];
    html! {
        section.card {
            h2 { "State" }
            dl.facts {
                (fact("Id", &html! { (account["id"].to_string()) }))
                (fact("Created", &time(&account["created_at"])))
                @for (name, member) in times {
                    @if account[member].is_string() { (fact(name, &time(&account[member]))) }
                }
                @if let Some(reason) = account["suspended_reason"].as_str() {
                    (fact("Reason", &html! { (reason) }))
                }
            }
        }
    }
}

fn change(action: &str, account: &Value, form: &Form, problem: Option<&Problem>) -> Markup {
    let request = RequestForm::new::<AccountUpdate>();
    let mut form = form.clone();
    for name in ["email", "name"] {
        if form.get(name).is_empty() {
            form.push(name, text(&account[name]));
        }
    }
    let input = |field| request.input(field, &form, problem);
    html! {
        form.card method="post" action={ (action) "/change" } {
            h2 { "Account" }
            (input(("name", "Name", "")))
            (input(("email", "Email", "The first user logs in with it.")))
            div.actions { button type="submit" { "Save" } }
        }
    }
}

fn suspension(action: &str, account: &Value) -> Markup {
    let request = RequestForm::new::<SuspensionRequest>();
    let hint = "The customer does not see it. Keys and sessions are refused at once; running work finishes.";
    html! {
        section.card {
            h2 { "Suspension" }
            @if account["suspended_at"].is_string() {
                form method="post" action={ (action) "/resume" } { button type="submit" { "Resume the account" } }
            } @else {
                form.stack method="post" action={ (action) "/suspend" } {
                    (request.input(("reason", "Reason", hint), &Form::default(), None))
                    div.actions { button.danger type="submit" { "Suspend the account" } }
                }
            }
        }
    }
}

fn deletion(action: &str, account: &Value) -> Markup {
    html! {
        form.card method="post" action={ (action) "/delete" } {
            h2 { "Deletion" }
            p.muted.small {
                "Permanently removes its users, keys, webhooks, templates, prompts, results and "
                "files. The ledger is kept. Running work finishes first."
            }
            label.check {
                input type="checkbox" name="confirmed" value="yes" required;
                span { "Delete account " (account["id"].to_string()) ", with a balance of " (parts::credits(&account["balance"])) }
            }
            div.actions { button.danger type="submit" { "Delete the account" } }
        }
    }
}

pub async fn move_credits(
    Path(id): Path<String>,
    Operator(session): Operator,
    form: Form,
) -> Result<Response, Problem> {
    let body = RequestForm::new::<MoveRequest>().body(&form);
    let moved = session.call(op::MOVE_CREDITS, &[&id]).body(body).answer();
    let moved = moved
        .await
        .map(|(parts, entry)| Some((parts.status, entry)));
    answer(&session, &id, form, moved, None).await
}

pub async fn update(
    Path(id): Path<String>,
    Operator(session): Operator,
    form: Form,
) -> Result<Response, Problem> {
    let body = RequestForm::new::<AccountUpdate>().body(&form);
    let changed = session.send(op::CHANGE_CUSTOMER, &[&id], body).await;
    answer(&session, &id, form, changed.map(|_| None), None).await
}

pub async fn suspend(
    Path(id): Path<String>,
    Operator(session): Operator,
    form: Form,
) -> Result<Redirect, Problem> {
    let body = RequestForm::new::<SuspensionRequest>().body(&form);
    session.send(op::SUSPEND, &[&id], body).await?;
    Ok(Redirect::to(&format!("/operator/accounts/{id}")))
}

pub async fn resume(
    Operator(session): Operator,
    Path(id): Path<String>,
) -> Result<Redirect, Problem> {
    session.get(op::RESUME, &[&id]).await?;
    Ok(Redirect::to(&format!("/operator/accounts/{id}")))
}

pub async fn delete(
    Path(id): Path<String>,
    Operator(session): Operator,
    form: Form,
) -> Result<Redirect, Problem> {
    if form.word("confirmed") != "yes" {
        return Err(Problem::bad_form("tick the box to confirm the deletion"));
    }
    session.get(op::DELETE_CUSTOMER, &[&id]).await?;
    Ok(Redirect::to(&format!("/operator/accounts/{id}")))
}

/// Begins the view of an account as customer, and redirects to its overview or to the receipt of a
/// generation.
pub async fn view(
    Operator(session): Operator,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let receipt = generation(&session).map(|id| format!("/generations/{id}"));
    let place = receipt.as_deref().unwrap_or("/");
    let account = session.get(op::ADMIN_ACCOUNT, &[&id]).await?;
    let cookie = view_cookie(&session.console, &account["id"].to_string());
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(place)).into_response())
}

pub async fn end_view(Operator(session): Operator) -> Response {
    let cookie = view_cookie(&session.console, "");
    let accounts = Redirect::to("/operator/accounts");
    ([(header::SET_COOKIE, cookie)], accounts).into_response()
}
