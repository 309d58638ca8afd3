//! The gallery: images and videos of the account, each a link to its receipt.

use http::Uri;
use maud::{Markup, html};
use serde_json::Value;

use super::{
    form::Form,
    operations as op,
    parts::{self, list, text, time},
    problem::Problem,
    session::Session,
    shell,
};

const TYPES: [(&str, &str); 2] = [("image", "Images"), ("video", "Videos")];

pub async fn page(session: Session, uri: Uri) -> Result<Markup, Problem> {
    let form = Form::of_query(uri.query());
    let kind = match form.word("type") {
        "video" => "video",
        _ => "image",
    };
    let call = session.call(op::HISTORY, &[]).query("type", kind);
    let call = call.query("status", "completed").query("per_page", "48");
    let found = call.query("cursor", form.get("cursor")).json().await?;
    let rows = list(&found["data"]);
    let content = html! {
        (shell::head("Gallery", "The first file of each generation, newest first.", &html! {}))
        nav.tabs aria-label="Type" {
            @for (name, label) in TYPES {
                a href={ "/gallery?type=" (name) } aria-current=[(name == kind).then_some("page")] {
                    (parts::icon(name)) (label)
                }
            }
        }
        section.card {
            @if rows.is_empty() {
                (parts::empty("Nothing here yet", "Completed generations of this type appear here.", &html! {}))
            } @else { ul.gallery { @for row in rows { li { (tile(kind, row)) } } } }
        }
        (parts::pager(&uri, &found["next_cursor"]))
    };
    Ok(shell::page(&session, "Gallery", &content))
}

/// Renders a link to a receipt. Images load when they scroll into view; of videos only the first
/// frame loads.
fn tile(kind: &str, row: &Value) -> Markup {
    let (url, prompt) = (text(&row["result"]), text(&row["prompt"]));
    let count = row["usage"]["images"].as_u64().filter(|count| *count > 1);
    html! {
        a href={ "/generations/" (text(&row["uuid"])) } title=(prompt) {
            @if kind == "video" { video src={ (url) "#t=0.1" } preload="metadata" muted aria-label=(prompt) {} }
            @else { img src=(url) alt=(prompt) loading="lazy" decoding="async"; }
        }
        p.small.muted {
            (time(&row["created_at"]))
            @if let Some(count) = count { " · " (count) " images" }
        }
    }
}
