//! Suggests the correct spelling of misspelt names.

/// Minimum similarity of a suggestion.
const CLOSE: f64 = 0.85;

/// Returns the most similar of `names`, if it is similar enough.
pub fn suggestion<T: AsRef<str>>(wrong: &str, names: impl IntoIterator<Item = T>) -> Option<T> {
    let wrong = wrong.to_lowercase();
    let likeness = |name: &T| strsim::jaro_winkler(&wrong, &name.as_ref().to_lowercase());
    let closest = names
        .into_iter()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    closest.filter(|name| likeness(name) >= CLOSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_close_names_are_suggested() {
        let names = ["prompt", "provider", "model", "parameters", "max_cost"];
        for (wrong, right) in [
            ("promt", Some("prompt")),
            ("Prompt", Some("prompt")),
            ("maxCost", Some("max_cost")),
            ("paramaters", Some("parameters")),
            ("modle", Some("model")),
            ("engine", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(suggestion(wrong, names), right, "{wrong}");
        }
        assert_eq!(suggestion("promt", [""; 0]), None);
    }
}
