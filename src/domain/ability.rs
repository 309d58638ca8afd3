//! Abilities: what a key may call.

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
    /// The ability that is required to create, cancel and delete generations of a type.
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

/// Why a list of names is not a valid set of abilities.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AbilitiesError {
    #[error("must name at least one ability; leave it out for all of them")]
    Empty,
    /// An unknown name, with its position.
    #[error(
        "must be one of generate:text, generate:image, generate:video, generate:audio, read:history, read:credits, *"
    )]
    Unknown(usize),
    /// The same ability twice, with the position of the second.
    #[error("is given more than once")]
    Duplicate(usize),
    /// `*` together with others.
    #[error("\"*\" already grants everything and must stand alone")]
    StarNotAlone,
}

impl Abilities {
    pub fn all() -> Self {
        Self(vec![Ability::All])
    }

    /// Checks a list of names; the error lists everything that is wrong with it.
    pub fn parse<S: AsRef<str>>(names: &[S]) -> Result<Self, Vec<AbilitiesError>> {
        let mut errors = Vec::new();
        let mut set = Vec::with_capacity(Ability::ALL.len());
        if names.is_empty() {
            errors.push(AbilitiesError::Empty);
        }
        for (at, name) in names.iter().enumerate() {
            match Ability::parse(name.as_ref()) {
                None => errors.push(AbilitiesError::Unknown(at)),
                Some(known) if set.contains(&known) => errors.push(AbilitiesError::Duplicate(at)),
                Some(known) => set.push(known),
            }
        }
        if set.len() > 1 && set.contains(&Ability::All) {
            errors.push(AbilitiesError::StarNotAlone);
        }
        if errors.is_empty() {
            Ok(Self(set))
        } else {
            Err(errors)
        }
    }

    /// Only `*` grants [`Ability::All`].
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
        assert_eq!(
            Abilities::parse::<&str>(&[]),
            Err(vec![AbilitiesError::Empty])
        );
        assert_eq!(
            Abilities::parse(&["x"]),
            Err(vec![AbilitiesError::Unknown(0)])
        );
        assert_eq!(
            Abilities::parse(&["read:history", "read:history"]),
            Err(vec![AbilitiesError::Duplicate(1)])
        );
        assert_eq!(
            Abilities::parse(&["*", "read:history"]),
            Err(vec![AbilitiesError::StarNotAlone])
        );
    }

    #[test]
    fn only_the_star_grants_everything() {
        let one = Abilities::parse(&["generate:text"]).unwrap();
        assert!(one.grant(Ability::GenerateText));
        assert!(!one.grant(Ability::ReadHistory) && !one.grant(Ability::All));
        assert!(Ability::ALL.iter().all(|&a| Abilities::all().grant(a)));
    }
}
