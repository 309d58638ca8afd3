//! The application between a caller and an upstream that plays a case.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use gensvc::{
    domain::credits::Credits,
    media::{MediaKind, inspect},
};
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;

use super::harm::{Case, Files, answer};
use crate::common::{Account, Answer, TestApp, Upstream};

/// What must not be shown to anyone.
const SECRETS: [&str; 5] = [
    "sk-test",
    "test-gemini",
    "test-stability",
    "test-runway",
    "test-elevenlabs",
];

/// The application, its upstream, and what has ended.
pub struct Stage {
    pub app: TestApp,
    upstream: Upstream,
    files: Arc<Files>,
    pub account: Account,
    /// Outcomes by type, provider and status.
    ends: Mutex<BTreeMap<[String; 3], usize>>,
}

impl Stage {
    pub async fn new(options: PgConnectOptions) -> Arc<Self> {
        let upstream = Upstream::start().await;
        let anthropic = format!("{}/anthropic", upstream.url());
        let more = [
            ("ANTHROPIC_API_KEY", "sk-test-anthropic"),
            ("ANTHROPIC_BASE_URL", &anthropic),
            // Unparsable files are downloaded again until then.
            ("GENSVC__JOBS__DEADLINE_SECONDS", "5"),
        ];
        let app = TestApp::vendors(options, &upstream, &more).await;
        Arc::new(Self {
            account: app.account("1000000").await,
            app,
            upstream,
            files: Arc::new(Files::new().await),
            ends: Mutex::default(),
        })
    }

    /// Plays a case from now on.
    pub fn play(&self, case: &Case) {
        let (case, files) = (case.clone(), Arc::clone(&self.files));
        let url = self.upstream.url();
        self.upstream
            .play(move |request| answer(&case, &files, &url, request));
    }

    pub async fn post(&self, kind: &str, body: &Value) -> Answer {
        let path = format!("/v1/generate/{kind}");
        self.app.post(&self.account.key, &path, body).await
    }

    /// The record of what has just ended, from the response of the call that waited for it.
    pub fn waited(answer: &Answer) -> Value {
        if answer.status == 200
            && answer
                .header("content-type")
                .starts_with("text/event-stream")
        {
            return answer.events().pop().unwrap().1;
        }
        let status = answer.status.as_u16();
        match status {
            200 => answer.json(),
            502..=504 => {
                let code = answer.json()["error"]["code"].clone();
                answer.error(status, code.as_str().unwrap());
                answer.json()["generation"].clone()
            }
            _ => panic!("{status}: {}", answer.text),
        }
    }

    /// What must hold for every outcome.
    pub async fn assert_ended(&self, record: &Value) {
        let amount = |name: &str| -> Credits {
            let text = record["credits"][name].as_str();
            text.unwrap_or_else(|| panic!("{name}: {record}"))
                .parse()
                .unwrap()
        };
        let end = ["type", "provider", "status"].map(|name| record[name].to_string());
        *self.ends.lock().unwrap().entry(end).or_default() += 1;
        assert_eq!(record["credits"]["held"], "0", "{record}");
        let text = record.to_string();
        assert!(
            SECRETS.iter().all(|secret| !text.contains(secret)),
            "{record}"
        );
        match record["status"].as_str() {
            Some("failed") => {
                assert_eq!(record["credits"]["charged"], "0", "{record}");
                assert_eq!(record["result"], Value::Null);
                assert_eq!(record["outputs"], json!([]));
                assert!(record["error"]["code"].is_string(), "{record}");
            }
            Some("completed") => {
                assert!(amount("charged") <= amount("estimated"), "{record}");
                assert!(record["result"].is_string(), "{record}");
                let outputs = record["outputs"].as_array().unwrap();
                assert_eq!(outputs.is_empty(), record["type"] == "text", "{record}");
                for output in outputs {
                    self.assert_file(output).await;
                }
            }
            _ => panic!("{record}"),
        }
    }

    /// Nothing is on hold. Each kind occurred, and both succeeded and failed: otherwise little was
    /// tested.
    pub async fn assert_done(&self, kinds: usize) {
        self.app.idle().await;
        self.app.assert_settled().await;
        let ends = self.ends.lock().unwrap();
        let all: BTreeSet<_> = ends
            .keys()
            .map(|[kind, provider, _]| (kind, provider))
            .collect();
        let statuses: BTreeSet<_> = ends.keys().map(|[.., status]| status).collect();
        assert_eq!((all.len(), statuses.len()), (kinds, 2), "{ends:?}");
    }

    async fn assert_file(&self, output: &Value) {
        let file = self.app.file(&output["url"], &[]).await;
        assert_eq!(
            (file.status.as_u16(), &output["bytes"]),
            (200, &json!(file.bytes.len()))
        );
        let info = inspect(&file.bytes, MediaKind::ALL).unwrap();
        assert_eq!(info.kind.content_type(), output["content_type"]);
        if output["type"] == "image" {
            // Reported by a decoder that is not ours.
            let picture = image::load_from_memory(&file.bytes).unwrap();
            assert_eq!((picture.width(), picture.height()), (1024, 1024));
        } else {
            assert!(output["seconds"].as_f64().unwrap() > 0.0, "{output}");
        }
    }
}
