//! The layout of a logged-in user's page: navigation, search, balance.

use maud::{Markup, html};

use super::{
    layout::document,
    parts::{self, amount, icon},
    session::Session,
};

/// A page: its group, its path, its name and its icon.
type Place = (&'static str, &'static str, &'static str, &'static str);

/// The pages of the console, by group.
const PLACES: [Place; 16] = [
    ("", "/", "Overview", "home"),
    ("", "/playground", "Playground", "spark"),
    ("", "/models", "Models", "stack"),
    ("", "/generations", "History", "clock"),
    ("", "/gallery", "Gallery", "image"),
    ("Billing", "/usage", "Usage", "chart"),
    ("Billing", "/ledger", "Ledger", "book"),
    ("Build", "/keys", "API keys", "key"),
    ("Build", "/templates", "Templates", "page"),
    ("Build", "/webhooks", "Webhooks", "hook"),
    ("Build", "/connect", "Connect", "plug"),
    (OPERATOR, "/operator/accounts", "Accounts", "people"),
    (OPERATOR, "/operator/spending", "Spending", "chart"),
    (OPERATOR, "/operator/jobs", "Jobs", "server"),
    (OPERATOR, "/operator/providers", "Providers", "plug"),
    (OPERATOR, "/operator", "Health", "shield"),
];

/// The group of pages for operators.
const OPERATOR: &str = "Operator";

/// Renders a page of a logged-in user.
pub fn page(session: &Session, title: &str, content: &Markup) -> Markup {
    reloading(session, title, content, None)
}

/// Renders a page that browsers without JavaScript replace by `reload` after 5 s.
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
                (viewing(session))
                (content)
            }
        }
    };
    document(title, &body, reload)
}

/// Shows which account an operator views.
fn viewing(session: &Session) -> Markup {
    html! {
        @if let Some(account) = session.viewed {
            form.notice.viewing method="post" action="/operator/view/end" {
                span {
                    "You are viewing account "
                    a href={ "/operator/accounts/" (account) } { (session.me["account"]["name"].as_str().unwrap_or_default()) }
                    " (" (account) "), read-only."
                }
                button type="submit" { "Stop viewing" }
            }
        }
    }
}

/// Renders the search field. Ctrl+K and / focus it.
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
    let is_shown = |place: &str| {
        let is_own = ["/playground", "/models", "/templates", "/connect"].contains(&place);
        session.viewed.is_none() || !is_own
    };
    let groups = PLACES.chunk_by(|one, next| one.0 == next.0);
    let groups = groups.filter(|links| links[0].0 != OPERATOR || is_operator);
    html! {
        nav aria-label=(label) {
            @for links in groups {
                @if !links[0].0.is_empty() { p.nav-group { (links[0].0) } }
                ul {
                    @for (_, place, name, symbol) in links.iter().filter(|(_, place, _, _)| is_shown(place)) {
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

/// Renders the head of a page: its title, one line about it, and buttons.
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
