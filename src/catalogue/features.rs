//! Optional parts of requests to a model.

use super::{Model, ModelKind};
use crate::domain::named::named_enum;

named_enum!(
    /// A part of a request besides the prompt.
    Feature {
        /// Images of a dialogue, or input images.
        Images = "images",
        /// Documents of a dialogue.
        Documents = "documents",
        /// Functions that the caller runs.
        Tools = "tools",
        /// Web searches at the provider.
        Searches = "searches",
    }
);

impl Model {
    pub fn features(&self) -> Vec<Feature> {
        let has = |feature: Feature| match (&self.kind, feature) {
            (ModelKind::Text(model), Feature::Images) => model.limits.images.is_some(),
            (ModelKind::Text(model), Feature::Documents) => model.dialogue.documents,
            (ModelKind::Text(_), Feature::Tools) => true,
            (ModelKind::Text(model), Feature::Searches) => model.limits.searches > 0,
            (ModelKind::Image(model), Feature::Images) => model.limits.inputs.is_some(),
            (ModelKind::Video(model), Feature::Images) => model.limits.inputs.is_some(),
            _ => false,
        };
        let all = Feature::ALL.iter().copied();
        all.filter(|feature| has(*feature)).collect()
    }
}
