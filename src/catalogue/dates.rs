//! The catalogue at a time. Prices begin and models retire at midnight UTC, so a catalogue is valid
//! until the next such day.

use std::{iter::successors, ops::Range};

use chrono::{DateTime, Days, NaiveDate, NaiveTime, Utc};

use super::{Catalogue, Model};
use crate::domain::validate::{FieldCode, FieldError};

/// Notice period: responses announce a retirement this long in advance.
const NOTICE: Days = Days::new(30);

fn midnight(day: NaiveDate) -> DateTime<Utc> {
    day.and_time(NaiveTime::MIN).and_utc()
}

impl Model {
    /// Returns `provider/id`, the name for SDKs.
    pub fn name(&self) -> String {
        format!("{}/{}", self.provider, self.id)
    }

    /// Returns when requests for it are refused.
    pub fn sunset(&self) -> Option<DateTime<Utc>> {
        self.retiring.map(midnight)
    }

    /// Returns when its responses begin to announce its retirement.
    pub fn deprecated_from(&self) -> Option<DateTime<Utc>> {
        Some(midnight(self.retiring?.checked_sub_days(NOTICE)?))
    }

    /// Returns the days on which its catalogue entry changes.
    fn days(&self) -> impl Iterator<Item = NaiveDate> {
        let later = self.later.iter().map(|(day, _)| *day);
        self.retiring
            .into_iter()
            .chain(self.valid_from)
            .chain(later)
    }

    /// Returns the model on a day; `None` before its first prices.
    fn at(&self, today: NaiveDate) -> Option<Self> {
        if self.valid_from.is_some_and(|day| day > today) {
            return None;
        }
        let begun = self.later.iter().take_while(|(day, _)| *day <= today);
        let own = (&self.kind, &self.list_prices);
        let last = begun.clone().last();
        let (kind, list_prices) = last.map_or(own, |(_, (kind, prices))| (kind, prices));
        Some(Self {
            retired: self.retiring.is_some_and(|day| day <= today),
            kind: kind.clone(),
            list_prices: list_prices.clone(),
            later: self.later[begun.count()..].to_vec(),
            ..self.clone()
        })
    }
}

impl Catalogue {
    /// Returns the catalogue that applies at `now`.
    #[must_use]
    pub fn at(&self, now: DateTime<Utc>) -> Self {
        let today = now.date_naive();
        let days = || self.configured.iter().flat_map(Model::days);
        let since = days().filter(|day| *day <= today).max();
        let until = days().filter(|day| *day > today).min();
        let bounds = Range {
            start: since.map_or(DateTime::<Utc>::MIN_UTC, midnight),
            end: until.map_or(DateTime::<Utc>::MAX_UTC, midnight),
        };
        let mut catalogue = Self {
            models: self.configured.iter().filter_map(|m| m.at(today)).collect(),
            valid: bounds,
            ..self.clone()
        };
        let routes = self.configured_routes.iter();
        catalogue.routes = routes.filter_map(|route| route.at(&catalogue)).collect();
        catalogue
    }

    /// Whether this catalogue applies at `time`.
    pub fn is_valid_at(&self, time: DateTime<Utc>) -> bool {
        self.valid.contains(&time)
    }

    /// Whether another catalogue applies at a later time.
    pub fn changes_before(&self, time: DateTime<Utc>) -> bool {
        self.valid.end <= time
    }

    /// Returns a model that was found by `name`. Once it is retired, an alias resolves to the
    /// replacement, and the id is refused.
    pub(super) fn served<'a>(
        &'a self,
        model: &'a Model,
        name: &str,
    ) -> Result<&'a Model, FieldError> {
        if !model.retired {
            return Ok(model);
        }
        let successor = self.successor(model);
        if let Some(successor) = successor
            && name != model.id
        {
            return Ok(successor);
        }
        let replacement = successor.map(Model::name);
        let day = model.retiring.unwrap_or_default();
        let advice = match &replacement {
            Some(replacement) => format!("use {replacement}"),
            None => "GET /v1/models lists others".to_owned(),
        };
        let message = format!("is {}, which was retired on {day}: {advice}", model.name());
        Err(FieldError {
            replacement,
            ..FieldError::new("model", FieldCode::ModelRetired, message)
        })
    }

    /// Returns the first of a model's replacements that is not retired. The configuration refuses
    /// loops.
    fn successor<'a>(&'a self, model: &'a Model) -> Option<&'a Model> {
        let next = |model: &&Model| {
            let (provider, id) = model.replacement.as_ref()?.split_once('/')?;
            self.find(provider, id)
        };
        successors(next(&model), next).find(|successor| !successor.retired)
    }
}
