//! GET /v1/credits/usage

use chrono::{DateTime, Utc};
use serde_json::json;

use crate::domain::{
    report::UsageGroup,
    validate::{FieldCode, Fields, Input, Parsed, parsed, query_timestamp},
};

/// The parameters of a usage report.
#[derive(Debug, Clone, Default)]
pub struct UsageRequest {
    /// Inclusive; by default 30 days before the end.
    pub from: Option<DateTime<Utc>>,
    /// Exclusive; by default now.
    pub to: Option<DateTime<Utc>>,
    pub group_by: Vec<UsageGroup>,
}

/// The groups of a report: names separated by commas.
pub const GROUPS: Parsed<Vec<UsageGroup>> = parsed(
    || {
        let names = UsageGroup::ALL.iter().map(|group| group.as_str());
        let any = format!("({})", names.collect::<Vec<_>>().join("|"));
        let more = UsageGroup::ALL.len() - 1;
        json!({"type": "string", "pattern": format!("^{any}(,{any}){{0,{more}}}$")})
    },
    |text| {
        let mut groups = Vec::new();
        for name in text.split(',') {
            let message = match UsageGroup::parse(name) {
                Some(group) if !groups.contains(&group) => {
                    groups.push(group);
                    continue;
                }
                Some(group) => format!("names {group} twice"),
                None => {
                    let names: Vec<_> = UsageGroup::ALL.iter().map(|g| g.as_str()).collect();
                    format!("must be any of {}, with commas between", names.join(", "))
                }
            };
            return Err((FieldCode::NotAllowed, message.into()));
        }
        Ok(groups)
    },
);

impl Input for UsageRequest {
    fn read(fields: &Fields<'_>) -> Option<Self> {
        let from = "Inclusive. Default: 30 days before `to`";
        let groups = "Any of day, type, provider, model, api_key, with commas between, such as \
                      `day,type`; at most 10,000 groups";
        Some(Self {
            from: fields.optional("from", from, query_timestamp()),
            to: fields.optional("to", "Exclusive. Default: now", query_timestamp()),
            group_by: (fields.optional("group_by", groups, GROUPS)).unwrap_or_default(),
        })
    }
}
