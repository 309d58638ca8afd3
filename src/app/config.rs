//! The configuration with the vendors that there are.

use std::{collections::BTreeMap, path::Path};

use crate::{
    config::{Config, ConfigError},
    domain::vendor::Vendor,
    providers::VENDORS,
};

/// Loads and validates everything, the settings of vendors too.
pub fn load(file: Option<&Path>, env: &BTreeMap<String, String>) -> Result<Config, ConfigError> {
    let vendors: Vec<&'static Vendor> = VENDORS.iter().map(|adapters| &adapters.vendor).collect();
    Config::load(file, env, &vendors)
}

#[cfg(test)]
mod tests;
