//! Abilities: the routes that a key may call.

use serde::Serialize;
use utoipa::ToSchema;

use super::{generation::Modality, named::named_enum};

named_enum!(
    /// An ability of an API key.
    Ability {
        /// POST /v1/generate/text
        GenerateText = "generate:text",
        /// POST /v1/generate/image
        GenerateImage = "generate:image",
        /// POST /v1/generate/video
        GenerateVideo = "generate:video",
        /// POST /v1/generate/audio
        GenerateAudio = "generate:audio",
        /// Generation history and lookups
        ReadHistory = "read:history",
        /// Balance, usage and estimates
        ReadCredits = "read:credits",
        /// Everything, key management included
        All = "*",
    }
);

impl Ability {
    /// Returns the ability required to create, cancel and delete generations of a modality.
    pub const fn to_generate(modality: Modality) -> Self {
        match modality {
            Modality::Text => Self::GenerateText,
            Modality::Image => Self::GenerateImage,
            Modality::Video => Self::GenerateVideo,
            Modality::Audio => Self::GenerateAudio,
        }
    }
}

/// A checked set of abilities: not empty, no duplicates, `*` alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(transparent)]
pub struct Abilities(Vec<Ability>);

/// An error in a list of abilities, and the position of the name if it concerns one name.
pub type AbilitiesError = (Option<usize>, &'static str);

const UNKNOWN: &str = "must be one of generate:text, generate:image, generate:video, generate:audio, \
                       read:history, read:credits, *";

impl Abilities {
    pub fn all() -> Self {
        Self(vec![Ability::All])
    }

    /// Checks a list of names; the error lists every problem.
    pub fn parse<S: AsRef<str>>(names: &[S]) -> Result<Self, Vec<AbilitiesError>> {
        let mut errors = Vec::new();
        let mut set = Vec::with_capacity(Ability::ALL.len());
        if names.is_empty() {
            let message = "must name at least one ability; leave it out for all of them";
            errors.push((None, message));
        }
        for (at, name) in names.iter().enumerate() {
            match Ability::parse(name.as_ref()) {
                None => errors.push((Some(at), UNKNOWN)),
                Some(known) if set.contains(&known) => {
                    errors.push((Some(at), "is given more than once"));
                }
                Some(known) => set.push(known),
            }
        }
        if set.len() > 1 && set.contains(&Ability::All) {
            let message = "\"*\" already grants everything and must stand alone";
            errors.push((None, message));
        }
        if errors.is_empty() {
            Ok(Self(set))
        } else {
            Err(errors)
        }
    }

    /// Whether the set grants an ability. Only `*` grants [`Ability::All`].
    pub fn grant(&self, needed: Ability) -> bool {
        self.0.iter().any(|&a| a == Ability::All || a == needed)
    }

    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|a| a.as_str().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_checked() {
        for (names, at, message) in [
            (&[] as &[&str], None, "must name at least one ability"),
            (&["x"], Some(0), "must be one of generate:text"),
            (
                &["read:history", "read:history"],
                Some(1),
                "is given more than once",
            ),
            (&["*", "read:history"], None, "already grants everything"),
        ] {
            let errors = Abilities::parse::<&str>(names).unwrap_err();
            assert_eq!((errors.len(), errors[0].0), (1, at), "{names:?}");
            assert!(errors[0].1.contains(message), "{names:?}");
        }
    }

    #[test]
    fn only_the_star_grants_everything() {
        let one = Abilities::parse(&["generate:text"]).unwrap();
        assert!(one.grant(Ability::GenerateText));
        assert!(!one.grant(Ability::ReadHistory) && !one.grant(Ability::All));
        assert!(Ability::ALL.iter().all(|&a| Abilities::all().grant(a)));
    }
}
