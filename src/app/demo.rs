//! The demo account, created at the first start.

use std::{
    io::Write as _,
    path::{Path, absolute},
};

use secrecy::ExposeSecret as _;

use super::{App, AppError};
use crate::{
    config::Config,
    domain::{ability::Abilities, rate::DEFAULT_PER_MINUTE, token},
    request::{AccountRequest, KeyRequest},
    service::ServiceError,
};

const EMAIL: &str = "demo@example.com";
const NEW_PASSWORD: &str = "account password --email demo@example.com";
const NEW_KEY: &str = "key create --email demo@example.com --name demo";

/// Prints where to log in, and how to get a new password and key.
pub(super) async fn remind(app: &App, data: &Path, url: &str) -> Result<(), AppError> {
    match app.service.user(EMAIL).await {
        Err(ServiceError::NotFound) => return Ok(()),
        found => found?,
    };
    let program = program(data)?;
    tracing::info!("the console of the demo account: {url}/, email {EMAIL}");
    tracing::info!("a new password of the demo account: {program} {NEW_PASSWORD}");
    tracing::info!("a new key of the demo account: {program} {NEW_KEY}");
    Ok(())
}

/// Returns the command as it was called, since it may not be on the PATH, with the data directory.
fn program(data: &Path) -> Result<String, AppError> {
    let program = std::env::args_os().next().unwrap_or_default();
    let program = program.display();
    if data == Path::new("data") {
        return Ok(program.to_string());
    }
    let data = absolute(data)?;
    Ok(format!("GENSVC_DATA_DIR={} {program}", data.display()))
}

/// Creates the demo account and prints how to use it.
pub(super) async fn create(app: &App, config: &Config, url: &str) -> Result<(), AppError> {
    let credits = config.demo.credits;
    let random = |e: token::RandomError| ServiceError::Internal(e.to_string());
    let password = token::new_session_token().map_err(random)?;
    let password = &password.secret.expose_secret()[..20];
    let account = AccountRequest {
        email: EMAIL.to_owned(),
        password: password.into(),
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
    // The sandbox needs no key. If it is disabled, the default provider is used.
    let sandbox = app.service.catalogue().providers(None).contains(&"sandbox");
    let provider = if sandbox {
        r#","provider":"sandbox""#
    } else {
        ""
    };
    let program = program(&config.data.dir)?;
    let routes = config.routes().replace(", ", "\n            ");
    let text = format!(
        "\nA demo account with {credits} credits was created. Its password and key are shown once.\n\
         \n  console   {url}/\n  email     {EMAIL}\n  password  {password}\n  key       {key}\n\
         \n  defaults  {routes}\n\
         \n  a new password   {program} {NEW_PASSWORD}\n  a new key        {program} {NEW_KEY}\
         \n  to stop          Ctrl-C; the next start continues with the same data\n\
         \nTry it in another terminal:\n\
         \ncurl -s {url}/v1/generate/text -H 'Authorization: Bearer {key}' \
         -H 'Content-Type: application/json' \
         -d '{{\"prompt\":\"Say hello to a newcomer\"{provider}}}'\n\n"
    );
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
