//! The subject of generated requests: an account, its objects, and valid bodies.

use axum::body::Body;
use http::{HeaderName, HeaderValue, Request};
use serde_json::{Value, json};

use super::made::{Case, Sent, Who};
use crate::{
    common::{Account, TestApp},
    fuzz::{bytes::cut, json::edit},
    openapi_walk::{Objects, Operation, objects},
    surfaces,
    v1::admin::operator,
};

/// What some cases share: an account and its objects.
pub struct Stage {
    account: Account,
    session: String,
    objects: Objects,
    operator: String,
}

impl Stage {
    pub async fn new(app: &TestApp) -> Self {
        let account = app.account("1000").await;
        Self {
            session: app.login(&account).await,
            objects: objects(app, &account).await,
            operator: operator(app).await,
            account,
        }
    }

    /// Valid bodies of an operation.
    fn bodies(&self, operation: &Operation) -> Vec<Value> {
        let mut all: Vec<Value> = operation.body().into_iter().collect();
        let template = self.objects.template_id;
        all.extend(match operation.path.as_str() {
            "/v1/generate/text" => vec![
                json!({"prompt": "[[fail]]", "max_cost": "1.5"}),
                json!({"prompt": "x", "stream": true, "system_prompt": "y"}),
                json!({"prompt": "x", "template_id": template, "template_variables": {"a": [1]}}),
                json!({"prompt": "x", "provider": "sandbox", "model": "sandbox-text-1",
                    "parameters": {"max_tokens": 8, "temperature": 0.5}}),
            ],
            "/v1/generate/image" => vec![json!({"prompt": "x", "negative_prompt": "y",
                "provider": "sandbox", "parameters": {"size": "256x256", "quality": "hd",
                "style": "vivid", "n": 1}})],
            "/v1/generate/audio" => vec![json!({"prompt": "x", "max_cost": 2,
                "parameters": {"voice": "aria", "speed": 1.5, "format": "wav"}})],
            "/v1/credits/estimate" => vec![
                json!({"type": "video", "prompt": "x", "parameters": {"duration": 3}}),
                json!({"type": "image", "prompt": "x", "parameters": {"n": 3}, "max_cost": "1"}),
                json!({"type": "text", "prompt": "x", "template_id": template}),
            ],
            "/v1/api-keys" => vec![
                json!({"name": "x", "spend_limit": "1.5", "spend_period": "day",
                "rate_limit_per_minute": 5, "expires_at": "2099-01-01T00:00:00Z"}),
            ],
            surfaces::CHAT => vec![
                json!({"model": "sandbox-text-1", "messages": [{"role": "user", "content": "x"}],
                "stream": true, "stream_options": {"include_usage": true}, "stop": "a"}),
            ],
            surfaces::RESPONSES => vec![
                json!({"model": "sandbox-text-1", "stream": true, "max_output_tokens": 9,
                "input": [{"role": "user", "content": [{"type": "input_text", "text": "[[tool]]"}]}],
                "tools": [{"type": "function", "name": "f", "parameters": {}}]}),
            ],
            surfaces::MESSAGES => vec![
                json!({"model": "sandbox-text-1", "max_tokens": 9, "system": "x", "stream": true,
                "messages": [{"role": "user", "content": [{"type": "text", "text": "[[fail]]"}]}]}),
            ],
            "/v1/account" => vec![json!({"defaults": {"text": {"provider": "sandbox",
                "model": "sandbox-text-1"}, "image": null}})],
            "/v1/templates" | "/v1/templates/{id}" => {
                vec![json!({"name": "x", "prompt": "{% for i in a %}{{ i }}{% endfor %}"})]
            }
            _ => Vec::new(),
        });
        all
    }

    /// The request of a case; `None` when there is none.
    pub fn request(&self, case: &Case, operation: &Operation) -> Option<Request<Body>> {
        let mut url = if operation.is_admin() {
            // An account that does not exist: the cases' own must not be suspended.
            operation.path.replace("{id}", "999999999")
        } else {
            operation.url(&self.objects)
        };
        if let (Some(id), Some((start, rest))) = (&case.id, operation.path.split_once('{')) {
            let end = rest.split_once('}').map_or("", |(_, end)| end);
            url = format!("{start}{id}{}", end.replace("{delivery}", "1"));
            if url.contains('{') {
                return None;
            }
        }
        if let Some(query) = &case.query {
            url = format!("{url}?{query}");
        }
        let bodies = self.bodies(operation);
        let bytes = match &case.sent {
            _ if bodies.is_empty() => Vec::new(),
            Sent::Changed(at, edits, cuts) => {
                let mut value = bodies[at.index(bodies.len())].clone();
                edit(&mut value, edits);
                let mut bytes = value.to_string().into_bytes();
                cut(&mut bytes, cuts);
                bytes
            }
            Sent::Value(value) => value.to_string().into_bytes(),
            Sent::Bytes(bytes) => bytes.clone(),
            Sent::Long(bytes) => vec![b' '; *bytes],
        };
        let mut request = Request::builder()
            .method(operation.method.clone())
            .uri(&url);
        if !bodies.is_empty()
            && let Ok(value) = HeaderValue::from_bytes(&case.content_type)
        {
            request = request.header("content-type", value);
        }
        let mut token = self.account.key.clone().into_bytes();
        let authorization = match &case.who {
            Who::Key if operation.is_admin() => Some(self.operator.clone().into_bytes()),
            Who::Key => Some(token),
            Who::Session => Some(self.session.clone().into_bytes()),
            Who::Operator => Some(self.operator.clone().into_bytes()),
            Who::Mangled(cuts) => {
                cut(&mut token, cuts);
                Some(token)
            }
            Who::Anonymous | Who::Header(_) => None,
        };
        let mut authorization = authorization.map(|token| [b"Bearer ", &token[..]].concat());
        if let Who::Header(bytes) = &case.who {
            authorization = Some(bytes.clone());
        }
        let given = authorization.map(|bytes| ("authorization", bytes));
        for (name, bytes) in given.iter().chain(&case.headers) {
            if let Ok(value) = HeaderValue::from_bytes(bytes) {
                request = request.header(HeaderName::from_static(name), value);
            }
        }
        request.body(Body::from(bytes)).ok()
    }
}
