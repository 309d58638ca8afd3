//! Environment variables: which keys they set, and which variables are refused.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::ConfigError;

/// Prefix of all variables of this program.
const OURS: &str = "GENSVC_";
/// Prefix of variables that name a key.
const PREFIX: &str = "GENSVC__";
/// Variables of the command line: those of its client, and the configuration file.
const COMMAND_LINE: [&str; 3] = ["GENSVC_API_KEY", "GENSVC_BASE_URL", "GENSVC_CONFIG"];
/// Names of other programs for a setting, without the prefix, and our names.
const ELSEWHERE: [(&str, &str); 6] = [
    ("ADDR", "GENSVC_BIND"),
    ("DB_URL", "DATABASE_URL"),
    ("HOST", "GENSVC_BIND"),
    ("LISTEN", "GENSVC_BIND"),
    ("LOG_LEVEL", "GENSVC_LOG"),
    ("PORT", "GENSVC_BIND"),
];

/// Variables with short names. A `GENSVC__` variable for the same key takes precedence.
const SHORT_NAMES: &[(&str, &str)] = &[
    ("DATABASE_URL", "database.url"),
    ("GENSVC_BIND", "server.bind"),
    ("GENSVC_DATA_DIR", "data.dir"),
    ("GENSVC_LOG", "log.filter"),
    ("GENSVC_LOG_FORMAT", "log.format"),
    ("GENSVC_PUBLIC_URL", "server.public_url"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "traces.otlp_endpoint"),
    ("OTEL_SERVICE_NAME", "traces.service_name"),
];

/// Keys of a provider that a variable can set. Models are tables and need a file.
const PROVIDER_KEYS: &[&str] = &[
    "api_key_env",
    "base_url",
    "base_url_env",
    "enabled",
    "kind",
    "markup",
    "max_concurrent",
    "timeout_seconds",
];

/// The variable and its value, by key.
#[derive(Default)]
pub(super) struct Overrides<'a>(pub(super) BTreeMap<String, (&'a str, &'a str)>);

impl Overrides<'_> {
    pub(super) fn variable(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|(variable, _)| *variable)
    }

    /// Adds the variable that set the key to an error.
    pub(super) fn name(&self, error: ConfigError) -> ConfigError {
        match self.variable(&error.key) {
            Some(variable) => {
                let key = format!("{variable} ({})", error.key);
                ConfigError { key, ..error }
            }
            None => error,
        }
    }
}

pub(super) fn overrides<'a>(
    env: &'a BTreeMap<String, String>,
    defaults: &Table,
    files: &Table,
) -> Result<Overrides<'a>, ConfigError> {
    let mut found = Overrides::default();
    for (variable, key) in SHORT_NAMES {
        // A blank variable counts as unset.
        if let Some(value) = env.get(*variable).filter(|value| !value.trim().is_empty()) {
            found.0.insert((*key).to_owned(), (*variable, value));
        }
    }
    for (variable, value) in env {
        if let Some(rest) = variable.strip_prefix(PREFIX) {
            let rest = rest.to_lowercase();
            let path: Vec<&str> = rest.split("__").collect();
            check_known(variable, &path, defaults, files)?;
            found.0.insert(path.join("."), (variable, value));
        } else if variable.starts_with(OURS) && !is_known(variable, env) {
            let nearest = nearest(variable, defaults);
            let problem = format!("is not a known variable: did you mean {nearest}?");
            return Err(ConfigError::new(variable, problem));
        }
    }
    Ok(found)
}

/// Whether a variable is used here or by other programs. Kubernetes sets variables in each
/// container for each service of the namespace, such as `GENSVC_PORT` for a service named `gensvc`.
fn is_known(variable: &str, env: &BTreeMap<String, String>) -> bool {
    let of_service = |name: &String| {
        let service = name.strip_suffix("_SERVICE_HOST");
        let rest = service.and_then(|service| variable.strip_prefix(service));
        rest.is_some_and(|rest| rest.starts_with("_SERVICE_") || rest.starts_with("_PORT"))
    };
    SHORT_NAMES.iter().any(|(short, _)| *short == variable)
        || COMMAND_LINE.contains(&variable)
        || env.keys().any(of_service)
}

/// Returns the most similar variable.
fn nearest(wrong: &str, defaults: &Table) -> String {
    // People often forget a prefix or an underscore.
    let bare = |name: &str| {
        let name = name.strip_prefix(OURS).unwrap_or(name).to_uppercase();
        name.trim_start_matches('_').replace("__", "_")
    };
    let wrong = bare(wrong);
    if let Some((_, here)) = ELSEWHERE.iter().find(|(name, _)| *name == wrong) {
        return (*here).to_owned();
    }
    let short = SHORT_NAMES.iter().map(|(name, _)| (*name).to_owned());
    let mut names: Vec<String> = short.collect();
    variables(defaults, PREFIX, &mut names);
    let likeness = |name: &String| strsim::jaro_winkler(&bare(name), &wrong);
    let nearest = |a: &String, b: &String| likeness(a).total_cmp(&likeness(b));
    // Of equally similar names, the last one, a short name, is used.
    names.into_iter().rev().max_by(nearest).unwrap_or_default()
}

/// Adds the variables of all keys in a table.
fn variables(table: &Table, prefix: &str, names: &mut Vec<String>) {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.to_uppercase());
        match value {
            Value::Table(inner) => variables(inner, &format!("{name}__"), names),
            _ => names.push(name),
        }
    }
}

/// Refuses a variable that sets nothing, because typing errors must not be ignored silently.
fn check_known(
    variable: &str,
    path: &[&str],
    defaults: &Table,
    files: &Table,
) -> Result<(), ConfigError> {
    let refuse = |problem: String| Err(ConfigError::new(variable, problem));
    match path {
        ["providers", name, setting] => {
            let names = keys(files, &["providers"]);
            if !names.iter().any(|known| known == name) {
                let names = names.join(", ");
                return refuse(format!(
                    "names {name:?}, which is no provider of the configuration: use one of {names}"
                ));
            }
            if *setting == "models" {
                return refuse(
                    "cannot be set by a variable: list the models in a config file".to_owned(),
                );
            }
            if !PROVIDER_KEYS.contains(setting) {
                let known = PROVIDER_KEYS.join(", ");
                return refuse(format!(
                    "is not a known setting: a provider has {known}; remove it or correct the name"
                ));
            }
            Ok(())
        }
        // A section, or a table in one.
        [table @ .., setting] if !table.is_empty() && table[0] != "providers" => {
            let known = keys(defaults, table);
            if known.is_empty() {
                return refuse(no_section(defaults));
            }
            let table = table.join(".");
            if !known.iter().any(|name| name == setting) {
                return refuse(format!(
                    "is not a known setting: [{table}] has {}; remove it or correct the name",
                    known.join(", ")
                ));
            }
            let inner = keys(defaults, path);
            if inner.is_empty() {
                return Ok(());
            }
            refuse(format!(
                "names a table: set one of its keys, {variable}__KEY with KEY = {}",
                inner.join(", ").to_uppercase()
            ))
        }
        _ => refuse(no_section(defaults)),
    }
}

fn no_section(defaults: &Table) -> String {
    format!(
        "is not a known setting: write GENSVC__SECTION__KEY or GENSVC__PROVIDERS__NAME__KEY, \
         the sections are {}",
        keys(defaults, &[]).join(", ")
    )
}

/// Returns the sorted keys of the table at `path`; none if there is no table.
fn keys(tree: &Table, path: &[&str]) -> Vec<String> {
    let mut path = path.iter();
    let table = path.try_fold(tree, |table, key| table.get(*key)?.as_table());
    let keys = table.into_iter().flat_map(Table::keys);
    keys.cloned().collect()
}
