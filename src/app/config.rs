//! Loads the configuration with all vendors.

use std::{collections::BTreeMap, path::Path};

use crate::{
    catalogue::vendor::Vendor,
    config::{Config, ConfigError},
    providers::VENDORS,
};

pub fn load(file: Option<&Path>, env: &BTreeMap<String, String>) -> Result<Config, ConfigError> {
    let vendors: Vec<&'static Vendor> = VENDORS.iter().map(|adapters| &adapters.vendor).collect();
    Config::load(file, env, &vendors)
}
