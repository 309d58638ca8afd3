//! The console: pages for people, at the address of the API.
//!
//! Here: HTML, forms, the session's cookie. Not here: rules, SQL and permissions. A page is a client
//! of the API, which it calls within this process with the session's token: what the API refuses,
//! the console cannot do either.

mod account;
mod assets;
mod chart;
mod client;
mod code;
mod connect;
mod csv;
mod form;
mod generations;
mod guard;
mod keys;
mod ledger;
mod once;
mod operations;
mod operator;
mod overview;
mod parts;
mod playground;
mod receipt;
mod search;
mod session;
mod shell;
mod templates;
mod usage;
mod webhooks;

use std::sync::Arc;

use axum::{
    Router,
    middleware::{from_fn, from_fn_with_state},
    routing::{get, post},
};
use url::{Origin, Url};

pub use operations::{ALL as OPERATIONS, Operation};

use crate::{
    api::Observer,
    domain::{clock::SharedClock, limiter::Limiter},
};

/// What all pages share. Cheap to clone.
#[derive(Clone)]
pub struct Console(Arc<Inner>);

struct Inner {
    api: Router,
    clock: SharedClock,
    /// Where clients reach the server, without a slash at the end.
    public_url: String,
    /// Whether that is by https, so that the cookie may go out by it alone.
    is_https: bool,
    policy: http::HeaderValue,
    /// Downloads that run, by account.
    downloads: Limiter<i64>,
}

/// Downloads at once, and those of one account: each asks the API for page after page.
const DOWNLOADS: (usize, usize) = (32, 2);

/// The pages, and behind them `api`, which answers what is no page. Clients reach the server at
/// `public_url`, and are redirected to `bucket` for files, where those lie in one.
pub fn router(
    api: Router,
    observer: Observer,
    clock: SharedClock,
    public_url: &str,
    bucket: Option<&Origin>,
) -> Router {
    let url = Url::parse(public_url).ok();
    let own = url.as_ref().map(Url::origin);
    let media = own.iter().chain(bucket).map(Origin::ascii_serialization);
    let media: Vec<String> = media.collect();
    let console = Console(Arc::new(Inner {
        api,
        clock,
        public_url: public_url.trim_end_matches('/').to_owned(),
        is_https: url.is_some_and(|url| url.scheme() == "https"),
        policy: guard::policy(&media.join(" ")),
        downloads: Limiter::new(DOWNLOADS.0, DOWNLOADS.1),
    }));
    let guarded = from_fn_with_state(console.clone(), guard::guard);
    let pages = routes().route_layer(from_fn(guard::answered));
    observer
        .around(pages)
        .method_not_allowed_fallback(guard::other)
        .fallback(guard::other)
        .layer(guarded)
        .with_state(console)
}

fn routes() -> Router<Console> {
    Router::new()
        .route("/", get(overview::page))
        .route("/login", get(session::form).post(session::log_in))
        .route("/logout", post(session::log_out))
        .route("/playground", get(playground::first))
        .route(
            "/playground/{type}",
            get(playground::page).post(playground::run),
        )
        .route("/generations", get(generations::page))
        .route("/generations.csv", get(generations::csv))
        .route("/generations/{uuid}", get(receipt::page))
        .route("/generations/{uuid}/cancel", post(receipt::cancel))
        .route("/generations/{uuid}/delete", post(receipt::delete))
        .route("/usage", get(usage::page))
        .route("/usage.csv", get(usage::csv))
        .route("/ledger", get(ledger::page))
        .route("/ledger.csv", get(ledger::csv))
        .route("/keys", get(keys::list).post(keys::create))
        .route("/keys.csv", get(keys::csv))
        .route("/keys/new", get(keys::new))
        .route("/keys/{id}", get(keys::page))
        .route("/keys/{id}/revoke", post(keys::revoke))
        .route("/templates", get(templates::list).post(templates::create))
        .route("/templates.csv", get(templates::csv))
        .route("/templates/new", get(templates::new))
        .route(
            "/templates/{id}",
            get(templates::page).post(templates::replace),
        )
        .route("/templates/{id}/delete", post(templates::delete))
        .route("/webhooks", get(webhooks::list).post(webhooks::create))
        .route("/webhooks.csv", get(webhooks::csv))
        .route("/webhooks/{id}", get(webhooks::page))
        .route("/webhooks/{id}/deliveries.csv", get(webhooks::deliveries))
        .route("/webhooks/{id}/delete", post(webhooks::delete))
        .route(
            "/webhooks/{id}/deliveries/{delivery}",
            post(webhooks::redeliver),
        )
        .route("/settings", get(account::page).post(account::change))
        .route("/settings/password", post(account::password))
        .route("/search", get(search::page))
        .route("/connect", get(connect::page))
        .route("/operator", get(operator::health))
        .route("/operator/providers.csv", get(operator::providers_csv))
        .route("/operator/jobs", get(operator::jobs))
        .route("/operator/jobs.csv", get(operator::jobs_csv))
        .route("/operator/spending", get(operator::spending))
        .route("/operator/spending.csv", get(operator::spending_csv))
        .route("/operator/accounts", get(operator::accounts::list))
        .route("/operator/accounts.csv", get(operator::accounts::csv))
        .route("/operator/accounts/{id}", get(operator::accounts::page))
        .route(
            "/operator/accounts/{id}/credits",
            post(operator::accounts::move_credits),
        )
        .route(
            "/operator/accounts/{id}/suspend",
            post(operator::accounts::suspend),
        )
        .route(
            "/operator/accounts/{id}/resume",
            post(operator::accounts::resume),
        )
        .route("/assets/{file}", get(assets::file))
}
