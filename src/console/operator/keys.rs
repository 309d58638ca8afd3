//! Operators' changes to the keys and webhooks of an account.

use axum::{
    extract::Path,
    response::{IntoResponse as _, Redirect, Response},
};
use maud::html;

use super::Operator;
use crate::console::{form::Form, key_form, operations as op, problem::Problem, shell};

pub async fn replace(
    Path((account, key)): Path<(String, String)>,
    Operator(session): Operator,
    form: Form,
) -> Result<Response, Problem> {
    let ids = [account.as_str(), key.as_str()];
    let replaced = session.send(op::REPLACE_KEY, &ids, key_form::body(&form));
    match replaced.await {
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
    let ids = [account.as_str(), key.as_str()];
    session.get(op::REVOKE_CUSTOMERS_KEY, &ids).await?;
    Ok(Redirect::to(&format!("/keys/{key}")))
}

pub async fn redeliver(
    Path((account, delivery)): Path<(String, String)>,
    Operator(session): Operator,
    form: Form,
) -> Result<Redirect, Problem> {
    let ids = [account.as_str(), delivery.as_str()];
    session.get(op::REDELIVER_FOR_CUSTOMER, &ids).await?;
    let webhook: i64 = form.word("webhook").parse().unwrap_or_default();
    Ok(Redirect::to(&format!("/webhooks/{webhook}")))
}
