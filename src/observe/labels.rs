//! Labels. Their values come from closed sets: the route table, the configuration, the code. Values
//! from requests never become labels, because each would create a series in memory.

use prometheus_client::encoding::EncodeLabelSet;

/// Names and values.
pub(super) type Pairs<const N: usize, V = &'static str> = [(&'static str, V); N];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Request {
    pub method: &'static str,
    pub route: String,
    pub status: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Route {
    pub method: &'static str,
    pub route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Call {
    pub provider: String,
    pub modality: &'static str,
    pub operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CallEnd {
    pub provider: String,
    pub modality: &'static str,
    pub operation: &'static str,
    pub outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Model {
    pub provider: String,
    pub model: String,
}

impl Model {
    pub fn new(provider: &str, model: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            model: model.to_owned(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Move {
    pub provider: String,
    pub model: String,
    pub reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Generation {
    pub r#type: &'static str,
    pub provider: String,
    pub model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct GenerationEnd {
    pub r#type: &'static str,
    pub provider: String,
    pub model: String,
    pub status: &'static str,
    /// Empty unless it failed.
    pub code: &'static str,
}
