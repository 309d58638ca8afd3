//! Abilities: what a key may call.

use std::fmt;

use serde::Serialize;
use utoipa::ToSchema;

use super::generation::Modality;

/// An ability of an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
pub enum Ability {
    /// POST /v1/generate/text
    #[serde(rename = "generate:text")]
    GenerateText,
    /// POST /v1/generate/image
    #[serde(rename = "generate:image")]
    GenerateImage,
    /// POST /v1/generate/video
    #[serde(rename = "generate:video")]
    GenerateVideo,
    /// POST /v1/generate/audio
    #[serde(rename = "generate:audio")]
    GenerateAudio,
    /// Generation history and lookups
    #[serde(rename = "read:history")]
    ReadHistory,
    /// Balance, usage and estimates
    #[serde(rename = "read:credits")]
    ReadCredits,
    /// Everything, key management included
    #[serde(rename = "*")]
    All,
}

impl Ability {
    /// In the order of the API documentation.
    pub const ALL: [Self; 7] = [
        Self::GenerateText,
        Self::GenerateImage,
        Self::GenerateVideo,
        Self::GenerateAudio,
        Self::ReadHistory,
        Self::ReadCredits,
        Self::All,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GenerateText => "generate:text",
            Self::GenerateImage => "generate:image",
            Self::GenerateVideo => "generate:video",
            Self::GenerateAudio => "generate:audio",
            Self::ReadHistory => "read:history",
            Self::ReadCredits => "read:credits",
            Self::All => "*",
        }
    }

    /// The ability that is required to create, cancel and delete generations of a type.
    pub const fn to_generate(modality: Modality) -> Self {
        match modality {
            Modality::Text => Self::GenerateText,
            Modality::Image => Self::GenerateImage,
            Modality::Video => Self::GenerateVideo,
            Modality::Audio => Self::GenerateAudio,
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.as_str() == name)
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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
        assert!(Ability::ALL.into_iter().all(|a| Abilities::all().grant(a)));
    }
}
