//! Charges, their cost at the vendors' list prices, and models that retire soon.

use axum::response::Response;
use chrono::{Days, NaiveDate};
use maud::{Markup, html};
use serde_json::Value;

use super::Operator;
use crate::console::{
    client::Call,
    operations as op,
    parts::{self, amount, list, text},
    problem::Problem,
    session::Session,
    shell,
    table::{self, Column, file},
    usage,
};

pub async fn page(Operator(session): Operator) -> Result<Markup, Problem> {
    let (from, to) = usage::chosen(&session.query, session.now.date_naive());
    let (models, accounts, offered) = tokio::try_join!(
        report(&session, "model", &from, &to).json(),
        report(&session, "account", &from, &to).json(),
        session.get(op::MODELS, &[])
    )?;
    let export = |by| {
        let query = [("by", by), ("from", from.as_str()), ("to", to.as_str())];
        parts::link("/operator/spending.csv", &query)
    };
    let content = html! {
        (shell::head("Spending and margin", "Charges of all accounts, and their cost at the vendors' list prices.", &html! {}))
        section.card {
            form.filters method="get" action="/operator/spending" {
                label.field { span.label { "From (UTC)" } input type="date" name="from" value=(from); }
                label.field { span.label { "To (UTC)" } input type="date" name="to" value=(to); }
                div.actions { button.primary type="submit" { "Show" } }
            }
        }
        (margin(&models["total"]))
        (report_card("By model", &models, "model", &export("model")))
        (report_card("By account", &accounts, "account", &export("account")))
        (retiring(list(&offered["data"]), session.now.date_naive()))
    };
    Ok(shell::page(&session, "Spending", &content))
}

pub async fn csv(Operator(session): Operator) -> Result<Response, Problem> {
    let columns = columns(session.query.word("by"));
    table::download_list("spending", columns, session, |session| {
        let form = &session.query;
        report(session, form.word("by"), form.word("from"), form.word("to"))
    })
    .await
}

fn report<'a>(session: &'a Session, by: &str, from: &str, to: &str) -> Call<'a> {
    let call = session.call(op::SPENDING, &[]).query("group_by", by);
    call.query("from", from).query("to", to)
}

/// Returns the columns of spending by `account` or by `model`.
fn columns(by: &str) -> Vec<Column<'static>> {
    let account = |row: &Value| html! { a href={ "/operator/accounts/" (row["account"].to_string()) } { (text(&row["name"])) } };
    let model =
        |row: &Value| html! { (text(&row["provider"])) " · " code { (text(&row["model"])) } };
    let [first, second] = match by {
        "account" => [file("account"), table::row("name", "Account", account)],
        _ => [file("provider"), table::row("model", "Model", model)],
    };
    vec![
        first,
        second,
        table::amount("charged", "Charged").unit("charged"),
        table::amount("list_cost", "List cost").unit("list cost"),
        table::amount("margin", "Margin").unit("margin"),
        table::amount("completed", "Completed").unit("completed"),
        table::amount("failed", "Failed").class("right narrow-hidden"),
        file("unknown_cost"),
        file("unknown_cost_charged"),
        file("estimated_counts"),
        file("lost_calls"),
        table::row(
            "",
            "Notes",
            |row| html! { span.small { (notes(row).join(", ")) } },
        ),
    ]
}

/// Returns the counts of a row that its amounts do not show.
fn notes(row: &Value) -> Vec<String> {
    let counts = [
        ("unknown_cost", "of unknown cost"),
        ("estimated_counts", "by estimated counts"),
        ("lost_calls", "lost calls"),
    ];
    let note = |(name, words): (&str, &str)| {
        let count = row[name].as_u64().filter(|count| *count > 0)?;
        Some(format!("{} {words}", parts::grouped(&count.to_string())))
    };
    counts.into_iter().filter_map(note).collect()
}

/// Renders the totals of a report.
fn margin(total: &Value) -> Markup {
    let is_positive = |name: &str| total[name].as_u64() > Some(0);
    html! {
        dl.figures {
            div { dt { "Charged" } dd { (amount(&total["charged"])) " " span.unit { "credits" } } }
            div { dt { "List cost" } dd { (amount(&total["list_cost"])) } }
            div { dt { "Margin" } dd { (amount(&total["margin"])) } }
            div { dt { "Charged at unknown cost" } dd { (amount(&total["unknown_cost_charged"])) } }
        }
        @if is_positive("unknown_cost") {
            p.notice {
                (amount(&total["unknown_cost"])) " completed generations have no known list cost, "
                "for example because an earlier version created, settled or counted them. They are not part "
                "of the margin."
            }
        }
        @if is_positive("estimated_counts") {
            p.notice {
                (amount(&total["estimated_counts"])) " generations were charged by estimated counts, "
                "because the provider reported no usable counts, or the stream was cancelled before the final "
                "ones. Their list cost is estimated as well."
            }
        }
        @if is_positive("lost_calls") {
            p.notice {
                (amount(&total["lost_calls"])) " calls were lost, and their generations moved on "
                "(" code { "fallback_on" } "). The provider may bill these calls; no account is charged for "
                "them, and their cost is not known."
            }
        }
    }
}

/// Days before its retirement from which a model is listed.
const RETIRING_DAYS: Days = Days::new(60);

fn retiring(models: &[Value], today: NaiveDate) -> Markup {
    let last = today.checked_add_days(RETIRING_DAYS);
    let mut rows = models.to_vec();
    rows.retain(|model| {
        let day = text(&model["retiring"]).parse::<NaiveDate>().ok();
        day.is_some() && day <= last && model["retired"] != true
    });
    rows.sort_by(|a, b| text(&a["retiring"]).cmp(text(&b["retiring"])));
    let replacement = |row: &Value| match row["replacement"].as_str() {
        Some(model) => html! { code { (model) } },
        None => html! { "None: requests for it will be refused" },
    };
    let columns = [
        table::row("", "Model", |row| {
            html! { code { (text(&row["provider"])) "/" (text(&row["id"])) } }
        }),
        table::words("retiring", "Retires on"),
        table::row("", "Replacement", replacement),
    ];
    html! {
        section.card {
            h2 { "Retiring within 60 days" }
            @if rows.is_empty() { p.muted { "None of the models." } }
            @else { (table::cards(&columns, &rows)) }
        }
    }
}

fn report_card(title: &str, report: &Value, by: &str, export: &str) -> Markup {
    let rows = list(&report["data"]);
    html! {
        section.card {
            div.card-head { h2 { (title) } (parts::download(export, rows)) }
            @if by == "account" { p.muted.small { "The 100 accounts with the highest charges, also in the file." } }
            @if rows.is_empty() { p.muted { "Nothing was charged in this time." } }
            @else { (table::cards(&columns(by), rows)) }
        }
    }
}
