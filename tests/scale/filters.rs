//! What a history is filtered by.

use gensvc::{
    domain::{
        generation::{Modality, Status},
        ids::ApiKeyId,
    },
    store::history::{CallerFilter, HistoryFilter},
};

pub fn all() -> Vec<(&'static str, HistoryFilter)> {
    let with = |change: fn(&mut HistoryFilter)| {
        let mut filter = HistoryFilter::default();
        change(&mut filter);
        filter
    };
    let key = |id| CallerFilter::Key(ApiKeyId(id));
    let by = |caller| HistoryFilter {
        caller: Some(caller),
        ..HistoryFilter::default()
    };
    vec![
        ("everything", HistoryFilter::default()),
        ("type", with(|f| f.modality = Some(Modality::Video))),
        ("status", with(|f| f.status = Some(Status::Failed))),
        ("status, none", with(|f| f.status = Some(Status::Pending))),
        ("provider", with(|f| f.provider = Some("openai".to_owned()))),
        ("model", with(|f| f.model = Some("text-c".to_owned()))),
        ("model, rare", with(|f| f.model = Some("rare".to_owned()))),
        (
            "created_after",
            with(|f| f.created_after = "2026-02-01T00:00:00Z".parse().ok()),
        ),
        (
            "created_before",
            with(|f| f.created_before = "2026-05-01T00:00:00Z".parse().ok()),
        ),
        ("key", by(key(3))),
        ("key, rare", by(key(21))),
        ("session, rare", by(CallerFilter::Session)),
        (
            "key, type and status",
            HistoryFilter {
                modality: Some(Modality::Video),
                status: Some(Status::Failed),
                ..by(key(3))
            },
        ),
        (
            "type and status",
            with(|f| {
                f.modality = Some(Modality::Text);
                f.status = Some(Status::Failed);
            }),
        ),
        (
            "type and provider, none",
            with(|f| {
                f.modality = Some(Modality::Video);
                f.provider = Some("openai".to_owned());
            }),
        ),
        (
            "six of them",
            with(|f| {
                f.modality = Some(Modality::Text);
                f.status = Some(Status::Completed);
                f.provider = Some("openai".to_owned());
                f.model = Some("text-a".to_owned());
                f.created_after = "2026-02-01T00:00:00Z".parse().ok();
                f.created_before = "2026-05-01T00:00:00Z".parse().ok();
            }),
        ),
    ]
}
