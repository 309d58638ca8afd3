//! The console: web pages at the address of the API.
//!
//! It renders HTML, reads forms and sets the session's cookie. Pages call the API within this
//! process with the session's token, so the console can do only what the API permits. Rules, SQL
//! and permissions are elsewhere.

mod account;
mod chart;
mod client;
mod code;
mod connect;
mod form;
mod generations;
mod guard;
mod key_form;
mod keys;
mod layout;
mod ledger;
mod models;
mod once;
mod operations;
mod operator;
mod overview;
mod parts;
mod playground;
mod problem;
mod receipt;
mod search;
mod session;
mod shell;
mod table;
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

/// State that all pages share.
#[derive(Clone)]
pub struct Console(Arc<Inner>);

struct Inner {
    api: Router,
    clock: SharedClock,
    /// The URL of the server for clients, without a trailing slash.
    public_url: String,
    /// Whether the URL is https, so that cookies are `Secure`.
    is_https: bool,
    policy: http::HeaderValue,
    /// Running downloads, by user.
    downloads: Limiter<i64>,
    /// Forms with pictures that are arriving, by user.
    pictures: Limiter<i64>,
}

/// Maximum concurrent downloads of all users, and of one user.
const DOWNLOADS: (usize, usize) = (32, 2);
/// Maximum concurrent forms with pictures of all users, and of one user.
const PICTURES: (usize, usize) = (8, 2);

/// Returns the pages' router, with `api` as the fallback. `bucket`: the origin to which links to
/// files are redirected.
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
        pictures: Limiter::new(PICTURES.0, PICTURES.1),
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
        .route("/playground/{type}/pictures", post(playground::add_picture))
        .route(
            "/playground/{type}/compare",
            get(playground::compare::page).post(playground::compare::run),
        )
        .route("/models", get(models::page))
        .route("/models.csv", get(models::csv))
        .route("/generations", get(generations::page))
        .route("/generations.csv", get(generations::csv))
        .route("/generations/{uuid}", get(receipt::page))
        .route("/generations/{uuid}/cancel", post(receipt::cancel))
        .route("/generations/{uuid}/delete", post(receipt::delete))
        .route("/gallery", get(generations::gallery))
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
        .route("/operator/providers", get(operator::providers))
        .route("/operator/providers.csv", get(operator::providers_csv))
        .route("/operator/jobs", get(operator::jobs))
        .route("/operator/jobs.csv", get(operator::jobs_csv))
        .route("/operator/spending", get(operator::spending::page))
        .route("/operator/spending.csv", get(operator::spending::csv))
        .route(
            "/operator/accounts",
            get(operator::accounts::list).post(operator::accounts::create),
        )
        .route("/operator/accounts/new", get(operator::accounts::new))
        .route("/operator/view/end", post(operator::accounts::end_view))
        .route("/operator/accounts.csv", get(operator::accounts::csv))
        .route("/operator/accounts/{id}", get(operator::accounts::page))
        .route("/assets/{file}", get(layout::asset))
        .merge(account_actions())
}

/// Returns the routes for an operator's changes of an account.
fn account_actions() -> Router<Console> {
    [
        ("credits", post(operator::accounts::move_credits)),
        ("suspend", post(operator::accounts::suspend)),
        ("resume", post(operator::accounts::resume)),
        ("change", post(operator::accounts::update)),
        ("delete", post(operator::accounts::delete)),
        ("view", post(operator::accounts::view)),
        ("keys/{key}", post(keys::change_for_customer)),
        ("keys/{key}/revoke", post(keys::revoke_for_customer)),
        (
            "deliveries/{delivery}",
            post(webhooks::redeliver_for_customer),
        ),
    ]
    .into_iter()
    .fold(Router::new(), |router, (path, handler)| {
        router.route(&format!("/operator/accounts/{{id}}/{path}"), handler)
    })
}
