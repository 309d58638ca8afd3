//! The account of a first start: so that the first call needs no preparation.

use std::{
    io::Write as _,
    path::{Path, absolute},
};

use secrecy::ExposeSecret as _;

use super::{App, AppError};
use crate::{
    domain::{
        ability::Abilities,
        credits::Credits,
        rate::DEFAULT_PER_MINUTE,
        request::{AccountRequest, KeyRequest},
        token,
    },
    service::ServiceError,
};

const EMAIL: &str = "demo@example.com";

/// Says how to come by another key: the first one is shown only once.
pub(super) async fn remind(app: &App, data: &Path) -> Result<(), AppError> {
    match app.service.user(EMAIL).await {
        Err(ServiceError::NotFound) => return Ok(()),
        found => found?,
    };
    // As it was called, since it need not be on the PATH.
    let program = std::env::args_os().next().unwrap_or_default();
    let program = program.display();
    let setting = if data == Path::new("data") {
        String::new()
    } else {
        let data = absolute(data)?;
        format!("GENSVC_DATA_DIR={} ", data.display())
    };
    tracing::info!(
        "a new key of the demo account: {setting}{program} key create --email {EMAIL} --name demo"
    );
    Ok(())
}

/// Makes the demo account and prints how to use it, once.
pub(super) async fn create(app: &App, credits: Credits, url: &str) -> Result<(), AppError> {
    let random = |e: token::RandomError| ServiceError::Internal(e.to_string());
    let password = token::new_session_token().map_err(random)?;
    let password = &password.secret.expose_secret()[..20];
    let account = AccountRequest {
        email: EMAIL.to_owned(),
        password: password.to_owned(),
        name: Some("Demo".to_owned()),
        credits,
    };
    let (account, _) = app.service.create_account(&account).await?;
    let key = KeyRequest {
        name: "demo".to_owned(),
        abilities: Abilities::all(),
        rate_limit_per_minute: DEFAULT_PER_MINUTE,
        expires_at: None,
        spend_limit: None,
        spend_period: None,
    };
    let (_, secret) = app.service.create_key(account, &key, None).await?;
    let key = secret.expose_secret();
    // The sandbox answers without any provider's key; without it the server's default does.
    let sandbox = app.service.catalogue().providers(None).contains(&"sandbox");
    let provider = if sandbox {
        r#","provider":"sandbox""#
    } else {
        ""
    };
    let text = format!(
        "\nA demo account with {credits} credits was made. This is shown once.\n\
         \n  email     {EMAIL}\n  password  {password}\n  key       {key}\n\
         \nTry it in another terminal:\n\
         \ncurl -s {url}/v1/generate/text -H 'Authorization: Bearer {key}' \
         -H 'Content-Type: application/json' \
         -d '{{\"prompt\":\"Say hello to a newcomer\"{provider}}}'\n\n"
    );
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
