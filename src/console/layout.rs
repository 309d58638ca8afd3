//! The HTML document of all pages, pages without a session, and static files.

use std::sync::LazyLock;

use axum::{
    extract::Path,
    response::{IntoResponse, Redirect, Response},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD};
use http::{HeaderName, StatusCode, header};
use maud::{DOCTYPE, Markup, html};
use sha2::{Digest as _, Sha256};

use super::{parts, problem::Problem};

/// Renders a document. `reload`: the URL that browsers without JavaScript load after 5 s.
pub fn document(title: &str, body: &Markup, reload: Option<&str>) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · gensvc" }
                link rel="icon" type="image/png" href="/docs/favicon-32x32.png";
                link rel="stylesheet" href=(STYLE.path());
                script type="module" src=(SCRIPT.path()) {}
                @if let Some(address) = reload {
                    // With JavaScript only the changing part is fetched.
                    noscript { meta http-equiv="refresh" content={ "5;url=" (address) }; }
                }
            }
            (body)
        }
    }
}

/// Renders a page without a session.
pub fn bare(title: &str, content: &Markup) -> Markup {
    let body = html! {
        body.bare {
            main #main {
                a.brand href="/" { (parts::logo()) "gensvc" }
                (content)
            }
        }
    };
    document(title, &body, None)
}

/// Renders an error that no form can show.
fn problem(problem: &Problem) -> Markup {
    let (title, cure) = match problem.code() {
        "not_found" => (
            "Not found",
            "The address is mistyped, or the object was deleted or belongs to another account.",
        ),
        "account_suspended" => (
            "This account is suspended",
            "Running work finishes; new requests are refused. Ask the operator of this server.",
        ),
        "rate_limited" => (
            "Too many requests",
            "This session has used up its requests for now. Wait some seconds, then reload.",
        ),
        "database_unavailable" | "overloaded" | "shutting_down" => (
            "Not available at the moment",
            "Nothing is lost: reload the page in some seconds.",
        ),
        "foreign_origin" => (
            "This form came from another site",
            "Only pages of this server can make changes.",
        ),
        _ => (
            "That did not work",
            "Go back and try again; the message below says what was refused.",
        ),
    };
    bare(
        title,
        &html! {
            section.card {
                h1 { (title) }
                p { (cure) }
                @if !["not_found", "account_suspended"].contains(&problem.code()) {
                    p.muted { (parts::sentence(problem.message())) }
                }
                @if let Some(id) = problem.body["error"]["request_id"].as_str() {
                    p.muted.small { "Request " code { (id) } }
                }
                p { a.button href="/" { "To the overview" } }
            }
        },
    )
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        match self.status {
            StatusCode::UNAUTHORIZED => Redirect::to("/login").into_response(),
            status => (status, problem(&self)).into_response(),
        }
    }
}

/// Cached for a year, because the name changes with the content.
const FOR_EVER: (HeaderName, &str) = (header::CACHE_CONTROL, "public, max-age=31536000, immutable");

struct Asset {
    name: String,
    content_type: &'static str,
    text: &'static str,
}

impl Asset {
    fn new(name: &str, extension: &str, content_type: &'static str, text: &'static str) -> Self {
        let digest = Sha256::digest(text.as_bytes());
        // 72 bits distinguish versions.
        let hash = URL_SAFE_NO_PAD.encode(&digest[..9]);
        Self {
            name: format!("{name}-{hash}.{extension}"),
            content_type,
            text,
        }
    }

    fn path(&self) -> String {
        format!("/assets/{}", self.name)
    }
}

static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("console.css");
    Asset::new("console", "css", "text/css; charset=utf-8", text)
});

static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("console.js");
    Asset::new("console", "js", "text/javascript; charset=utf-8", text)
});

pub async fn asset(Path(name): Path<String>) -> Response {
    let found = [&*STYLE, &*SCRIPT]
        .into_iter()
        .find(|asset| asset.name == name);
    match found {
        Some(asset) => {
            let content_type = (header::CONTENT_TYPE, asset.content_type);
            let nosniff = (header::X_CONTENT_TYPE_OPTIONS, "nosniff");
            ([FOR_EVER, content_type, nosniff], asset.text).into_response()
        }
        None => Problem::not_found().into_response(),
    }
}
