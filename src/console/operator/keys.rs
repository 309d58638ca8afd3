//! Operators' changes to the keys and webhooks of an account.

use axum::{
    extract::Path,
    response::{IntoResponse as _, Redirect, Response},
};
use maud::html;
use serde_json::Value;

use super::Operator;
use crate::console::{form::Form, key_form, operations as op, problem::Problem, shell};

pub async fn replace(
    Path((account, key)): Path<(String, String)>,
    Operator(session): Operator,
    form: Form,
) -> Result<Response, Problem> {
    let body = Value::Object(key_form::body(&form));
    let call = session.call(op::REPLACE_KEY, &[&account, &key]).body(body);
    match call.json().await {
        Ok(_) => Ok(Redirect::to(&format!("/keys/{key}")).into_response()),
        Err(problem) if problem.code() != "validation_failed" => Err(problem),
        Err(problem) => {
            let action = format!("/operator/accounts/{account}/keys/{key}");
            let content = html! {
                (shell::head("Change a key", "", &html! {}))
                (key_form::editor(&action, &form, Some(&problem)))
            };
            let page = shell::page(&session, "Change a key", &content);
            Ok((problem.status, page).into_response())
        }
    }
}

pub async fn revoke(
    Path((account, key)): Path<(String, String)>,
    Operator(session): Operator,
) -> Result<Redirect, Problem> {
    let call = session.call(op::REVOKE_CUSTOMERS_KEY, &[&account, &key]);
    call.json().await?;
    Ok(Redirect::to(&format!("/keys/{key}")))
}

pub async fn redeliver(
    Path((account, delivery)): Path<(String, String)>,
    Operator(session): Operator,
    form: Form,
) -> Result<Redirect, Problem> {
    let call = session.call(op::REDELIVER_FOR_CUSTOMER, &[&account, &delivery]);
    call.json().await?;
    let webhook: i64 = form.word("webhook").parse().unwrap_or_default();
    Ok(Redirect::to(&format!("/webhooks/{webhook}")))
}
