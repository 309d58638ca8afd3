//! The frame of every page.

use maud::{DOCTYPE, Markup, html};

use super::{
    assets::{SCRIPT, STYLE},
    client::Problem,
    parts::{self, amount, icon},
    session::Session,
};

/// The address of a place, its name, its icon.
type Place = (&'static str, &'static str, &'static str);

/// The places of the console, in groups.
const PLACES: [(&str, &[Place]); 3] = [
    (
        "",
        &[
            ("/", "Overview", "home"),
            ("/playground", "Playground", "spark"),
            ("/generations", "History", "clock"),
        ],
    ),
    (
        "Billing",
        &[("/usage", "Usage", "chart"), ("/ledger", "Ledger", "book")],
    ),
    (
        "Build",
        &[
            ("/keys", "API keys", "key"),
            ("/templates", "Templates", "page"),
            ("/webhooks", "Webhooks", "hook"),
            ("/connect", "Connect", "plug"),
        ],
    ),
];

/// The operator's.
const OPERATOR: (&str, &[Place]) = (
    "Operator",
    &[
        ("/operator/accounts", "Accounts", "people"),
        ("/operator/spending", "Spending", "chart"),
        ("/operator/jobs", "Jobs", "server"),
        ("/operator", "Health", "shield"),
    ],
);

fn document(title: &str, body: &Markup, reload: Option<&str>) -> Markup {
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
                    // With the script the part that changes is fetched instead.
                    noscript { meta http-equiv="refresh" content={ "5;url=" (address) }; }
                }
            }
            (body)
        }
    }
}

/// A page of a logged-in person: its content below its title.
pub fn page(session: &Session, title: &str, content: &Markup) -> Markup {
    reloading(session, title, content, None)
}

/// The same, which goes on to `reload` after some seconds where there is no script.
pub fn reloading(session: &Session, title: &str, content: &Markup, reload: Option<&str>) -> Markup {
    let body = html! {
        body.app {
            a.skip href="#main" { "Skip to the content" }
            header.top {
                a.brand href="/" { (parts::logo()) "gensvc" }
                details.menu {
                    summary { (icon("menu")) span.sr { "Menu" } }
                    div.menu-panel { (search()) (places(session, "Menu")) (person(session)) }
                }
            }
            aside.side {
                a.brand href="/" { (parts::logo()) "gensvc" }
                (search())
                (places(session, "Main"))
                (person(session))
            }
            main #main {
                (content)
            }
        }
    };
    document(title, &body, reload)
}

/// Ctrl+K and / lead to it.
fn search() -> Markup {
    html! {
        form.search role="search" method="get" action="/search" {
            input type="search" name="q" placeholder="Search" aria-label="Search" title="Ctrl+K or /"
                required maxlength="200" autocomplete="off";
        }
    }
}

fn places(session: &Session, label: &str) -> Markup {
    let path = session.path.split('?').next().unwrap_or_default();
    let is_here = |place: &str| {
        let rest = path.strip_prefix(place);
        let is_below = !["/", "/operator"].contains(&place);
        rest.is_some_and(|rest| rest.is_empty() || (is_below && rest.starts_with('/')))
    };
    let is_operator = session.me["operator"] == true;
    let groups = PLACES.iter().chain(is_operator.then_some(&OPERATOR));
    html! {
        nav aria-label=(label) {
            @for (group, links) in groups {
                @if !group.is_empty() { p.nav-group { (group) } }
                ul {
                    @for (place, name, symbol) in *links {
                        li {
                            a href=(place) aria-current=[is_here(place).then_some("page")] {
                                (icon(symbol)) (name)
                            }
                        }
                    }
                }
            }
        }
    }
}

fn person(session: &Session) -> Markup {
    let email = session.me["user"]["email"].as_str().unwrap_or_default();
    let account = session.me["account"]["name"].as_str().unwrap_or_default();
    html! {
        div.person {
            a.balance href="/ledger" {
                span.label { "Available" }
                span.figure data-balance { (amount(&session.balance["available"])) }
            }
            a.who href="/settings" title=(email) {
                span.account-name { (account) }
                span.muted.small { (email) }
            }
            form method="post" action="/logout" {
                button.quiet type="submit" { (icon("exit")) "Log out" }
            }
        }
    }
}

/// A page of nobody in particular.
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

/// What was refused, where no form can show it.
pub fn problem(problem: &Problem) -> Markup {
    let (title, cure) = match problem.code() {
        "not_found" => (
            "Not found",
            "The address may be mistyped, or what it showed was deleted. Objects of other accounts \
             are not found either.",
        ),
        "account_suspended" => (
            "This account is suspended",
            "Running work finishes; nothing new is taken. Ask the operator of this server.",
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
            "This form came from another place",
            "Changes are taken from pages of this server only.",
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

/// A page's head: its title, one line about it, what can be done.
pub fn head(title: &str, about: &str, actions: &Markup) -> Markup {
    html! {
        div.page-head {
            div {
                h1 { (title) }
                @if !about.is_empty() { p.muted { (about) } }
            }
            div.actions { (actions) }
        }
    }
}
